"""`verify` on our own msprof-csv: reports follow msprof's rules, cell by cell."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import pytest
from vendor_recording import made_up, write_folder

from traceconv.cli import app

SAMPLES = Path(__file__).parents[2] / "sample_traces"
REPORTS = ("op-summary", "op-statistic", "task-time", "api-statistic", "fusion-op", "step-trace")


def tables_of(source: Path, folder: Path) -> Path:
    """The reports that there are, as msprof exports them."""
    store = folder / "trace.duckdb"
    assert app.run(["ingest", str(source), "--db", str(store)]) == 0
    out = folder / "PROF_000001_20260101000000_ABCDEF" / "mindstudio_profiler_output"
    out.mkdir(parents=True)
    for report in REPORTS:
        table = out / f"{report.replace('-', '_')}_20260101000001.csv"
        app.run(["report", report, "--db", str(store), "--format", "msprof-csv", "-o", str(table)])
    return out


def check(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert app.run(["verify", str(out.parent), "--format", "csv"]) == 0
    shown, err = capfd.readouterr()
    assert list(csv.DictReader(io.StringIO(shown))) == []
    for report in ("op_summary", "op_statistic", "task_time"):
        assert f"{report}_20260101000001.csv: not checked" not in err


def rows_of(out: Path, report: str) -> list[dict[str, str]]:
    with (out / f"{report}_20260101000001.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("sample", [pytest.param("mini_resnet", marks=pytest.mark.long), "mini_transformer"])
def test_of_a_sample(sample: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(tables_of(SAMPLES / sample, tmp_path), capfd)


def test_of_a_training_on_two_devices(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["record", "mini_resnet", "-o", str(tmp_path / "raw"), "--train", "--steps", "2", "--devices", "2"]
    assert app.run([*command, "--batch", "2", "--deterministic"]) == 0
    out = tables_of(tmp_path / "raw", tmp_path)
    check(out, capfd)
    rows = rows_of(out, "op_summary")
    collectives = [row for row in rows if row["Task Type"] == "HCCL"]
    assert collectives
    # The rule of the document, in decimals: of each device by start, collectives included.
    ends: dict[str, Decimal] = {}
    for row in rows:
        start, device = Decimal(row["Task Start Time(us)"]), row["Device_id"]
        wait = max(start - ends[device], Decimal(0)) if device in ends else Decimal(0)
        assert Decimal(row["Task Wait Time(us)"]) == wait
        ends[device] = start + Decimal(row["Task Duration(us)"])


@pytest.mark.parametrize("level", [0, 1])
def test_of_a_folder_of_torch_npu(level: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recording = made_up(8, devices=(0, 1))
    out = tables_of(write_folder(tmp_path, recording, level, device_id=True), tmp_path)
    check(out, capfd)
    rows = rows_of(out, "op_summary")
    assert len(rows) == len(recording.rows)
    names = ("Op Name", "OP Type", "Task Duration(us)")
    assert sorted(tuple(row[name] for name in names) for row in rows) == sorted(
        (row.name, row.op_type, f"{row.dur_ns // 1000}.{row.dur_ns % 1000:03}") for row in recording.rows
    )
