"""traceconv gives the same answers with the oldest supported DuckDB as with the installed one.

`make` installs it (pip install --target .shells/oldest-package duckdb==…); without it the tests are skipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder
from duckdb_versions import OLDEST_PACKAGE, ROOT, python_of
from shared_data import shared

SMALL = ("torch/triton_example.json.gz",)
LARGE = (
    "torch/mi250_rocm6.2_minitoy.json.gz",
    "bazel/tiny.json.gz",
    "torch/alexnet_critical_path.json.gz",
    "tensorflow/timeline_gpu_03_merged.json",
)


def walked(package: Path | None, folder: Path, traces: list[Path]) -> dict[str, Any]:
    folder.mkdir()
    found: dict[str, Any] = json.loads(python_of(package, Path(__file__).with_name("package_walk.py"), folder, *traces))
    return found


@pytest.mark.parametrize("names", [SMALL, pytest.param(LARGE, marks=pytest.mark.long)], ids=["small", "large"])
def test_ingest_reports_frames_and_exports_are_the_same(names: tuple[str, ...], tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "capture")
    builder.add("op", name="conv", op_type="Conv2D", op_index=0)
    for at in range(4):
        builder.sync(1_000 + at * 100, 10_000 + at * 1_000)
    builder.task(1, 1_000, 1_050, op_index=0).close()
    # A launch that only an arg of the call and the task shows.
    args = {"External id": 1, "device": 0, "stream": 7}
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 7, "ts": pid, "dur": 1, "args": args}
        for pid, cat, name in ((1, "cuda_runtime", "cudaLaunchKernel"), (2, "kernel", "k"))
    ]
    (tmp_path / "launch.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    traces = [shared("real") / name for name in names] + [tmp_path / "capture", tmp_path / "launch.json"]
    old = walked(OLDEST_PACKAGE, tmp_path / "old", traces)
    new = walked(None, tmp_path / "new", traces)
    (allowed,) = re.findall(r'"duckdb>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert old["duckdb"].startswith(allowed) and old["duckdb"] != new["duckdb"]
    assert old["answers"] == new["answers"]


@pytest.mark.long
def test_many_small_traces_at_once(tmp_path: Path) -> None:
    """All are stored in one transaction."""
    args = {"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": {"n": 0}}]}
    for number in range(200):
        args["traceEvents"][0]["args"] = {"n": number}
        (tmp_path / f"{number}.json").write_text(json.dumps(args))
    program = "import sys, traceconv; print(len(traceconv.ingest(sys.argv[1], db=sys.argv[2])))"
    assert python_of(OLDEST_PACKAGE, "-c", program, tmp_path, tmp_path / "trace.duckdb") == "200\n"


CLOSE_WHILE_READING = """
import faulthandler, sys, threading
import traceconv

faulthandler.dump_traceback_later(60, exit=True)
trace, path = sys.argv[1:]
traceconv.ingest(trace, db=path)

def read(ask, reading, ends):
    try:
        while True:
            reading.set()
            ask()
    except BaseException as error:
        ends.append(type(error).__name__)

for _ in range(4):
    store = traceconv.open_store(path)
    rows, ends, threads = store.report("op-statistic"), [], []
    for ask in (
        lambda: store.query("SELECT count(*) FROM range(100000000), range(1000)").fetchall(),
        rows.fetchall,
        rows.arrow,
    ):
        reading = threading.Event()
        threads.append(threading.Thread(target=read, args=(ask, reading, ends)))
        threads[-1].start()
        reading.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert set(ends) <= {"InterruptException", "StoreError"} and len(ends) == len(threads), ends
    traceconv.ingest(trace, db=path, replace=True)
print("closed")
"""


@pytest.mark.parametrize("package", [OLDEST_PACKAGE, None], ids=["oldest", "installed"])
def test_a_store_is_closed_while_other_threads_read_it(package: Path | None, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]')
    assert python_of(package, "-c", CLOSE_WHILE_READING, trace, tmp_path / "trace.duckdb") == "closed\n"
