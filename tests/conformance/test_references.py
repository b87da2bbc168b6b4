"""Every ID in a store refers to an existing row, for recordings of all kinds and real files of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import shared_data
from recount.sources import CHROME
from references import dangling, unclassified
from vendor_recording import made_up, write_folder

import traceconv
from traceconv.pipeline.ingest import ingest
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.training.options import TrainOptions

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def problems(db: Path) -> list[str]:
    with duckdb.connect(str(db), read_only=True) as connection:
        return dangling(connection)


def test_every_id_column_has_a_documented_target() -> None:
    assert unclassified() == set()


def test_the_check_finds_dangling_ids(tmp_path: Path) -> None:
    ingest([SAMPLES / "mini_resnet"], tmp_path / "t.duckdb")
    assert problems(tmp_path / "t.duckdb") == []
    for statement, found in (
        ("UPDATE api SET op_id = 99 WHERE op_id = 1", "api.op_id"),
        ("DELETE FROM step WHERE step_id = 2", "task.step_id"),
        ("UPDATE task SET parent_id = 5 WHERE task_type = 'SDMA'", "task.parent_id"),
        ("INSERT INTO device (run_id, device_id) VALUES (1, 0)", "device: key"),
        ("UPDATE counter SET run_id = 7", "counter: "),
    ):
        with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
            connection.execute("BEGIN")
            connection.execute(statement)
            assert any(found in line for line in dangling(connection)), found
            connection.execute("ROLLBACK")


@pytest.mark.parametrize("part", ["real", "seed_systems", "perfetto_proto"])
def test_real_files(part: str, tmp_path: Path) -> None:
    """Of folders with other formats than Chrome's: test_recount.py checks the IDs of all Chrome traces."""
    if not (shared_data.SHARED / part).exists():
        pytest.skip(f"no {part} of shared/conformance here; set TRACECONV_SHARED")
    folders = [path for path in (shared_data.SHARED / part).iterdir() if f"{part}/{path.name}" not in CHROME]
    ingest([shared_data.SHARED / part] if part == "seed_systems" else sorted(folders), tmp_path / "t.duckdb")
    assert problems(tmp_path / "t.duckdb") == []


@pytest.mark.long
@pytest.mark.parametrize("devices", [1, 2])
def test_recordings_and_trainings(devices: int, tmp_path: Path) -> None:
    for model, batch, train in (("mini_quantized", None, None), ("mini_resnet", 2, TrainOptions())):
        record(
            RecordOptions(
                model, tmp_path / "raw", iterations=2, warmup=1, batch=batch, deterministic=True, devices=devices,
                seed=devices + (train is not None), train=train,
            )
        )  # fmt: skip
    for folder in SAMPLES.glob("*/"):
        traceconv.ingest(folder, db=tmp_path / "t.duckdb")
    ingest([tmp_path / "raw"], tmp_path / "t.duckdb")
    # Exports keep their IDs when they are read back.
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        for _ in range(2):  # an export must not affect the next one
            store.export_chrome(tmp_path / "x.json")
            store.export_perfetto(tmp_path / "x.pftrace")
    ingest([tmp_path / "x.json", tmp_path / "x.pftrace"], tmp_path / "t.duckdb")
    assert problems(tmp_path / "t.duckdb") == []


def test_vendor_folders(tmp_path: Path) -> None:
    for level in (0, 1):
        write_folder(tmp_path / f"level {level}", made_up(level, devices=(0, 1)), level)
    ingest([tmp_path], tmp_path / "t.duckdb")
    assert problems(tmp_path / "t.duckdb") == []


OPTIONS: list[dict[str, Any]] = [
    {}, {"level": 1}, {"training_trace": False}, {"task_trace": False}, {"profile_device": False},
    {"resource": "host"}, {"resource": "inferences"}, {"resource": "operators"}, {"resource": "memory"},
    {"resource": ["npu", "operators"]},
]  # fmt: skip


@pytest.mark.long
def test_partial_profiles() -> None:
    """A row doesn't refer to a step, op or range that was not recorded."""
    with traceconv.Session("mini_resnet", compute=False) as one, traceconv.Session("mini_quantized") as other:
        inputs, others = one.random_inputs(), other.random_inputs()

        def work(p: traceconv.Profiler) -> None:
            one.run(inputs, step=False)
            with p.record("cut"), p.record("on a stream", stream=one.stream(0)):
                other.run(others)
                p.pause()
                with p.record("begun while paused"):
                    one.run(inputs)
                    p.resume()
                    one.run(inputs)
            p.step()
            other.run(others)

        check(work, OPTIONS)
        check(lambda _: one.run(inputs, step=False), [{}])
        check(lambda _: None, [{}])
    x, y = np.zeros((2, 3, 64, 64), np.float32), np.arange(2)
    with traceconv.TrainingSession("mini_resnet", {"input": x}, y) as learning:
        check(lambda _: learning.train_step({"input": x}, y), OPTIONS[:3])


def check(work: Callable[[traceconv.Profiler], object], options: list[dict[str, Any]]) -> None:
    for one in options:
        with traceconv.profile(format="pandas", **one) as p:
            work(p)
        assert dangling(p.store.connection) == [], one
