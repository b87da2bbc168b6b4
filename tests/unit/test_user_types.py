"""A user's program passes strict mypy, and mistakes in it are found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import traceconv

RIGHT = """
from pathlib import Path

import traceconv

runs = traceconv.ingest("raw", Path("trace.json"), db="trace.duckdb", rules=["a.toml"])
ids: list[int] = [run.run_id for run in runs]
with traceconv.open_store("trace.duckdb") as store:
    for row in store.report("op-statistic", top=10, filters={"op_type": "Conv"}):
        print(row["op_type"].upper(), row["total_ns"] / 1e6)
    total = sum(row[0] for row in store.report("op-statistic", columns=["total_ns"]).fetchall())
    frame = store.report("op-statistic").df()
    print(frame["total_ns"].sum() / 1e6)
    polars = store.report("op-statistic").pl()
    table = store.query("FROM task").to_arrow_table()
    for run in store.runs():
        print(run["run_id"] + 1, run["label"].upper())
    names: list[str] = [report.name for report in store.reports()]
    columns: list[str] = [column.name for column in store.schema("task").columns]
    rows: int | None = store.schema()[0].row_count
    written = store.export_chrome("trace.json")
    print(written.rows["tasks"], written.size_bytes)
    answer = store.why("task", 5)
    for piece in answer.evidence:
        print(piece.byte_offset)
    deleted = store.delete_runs(1)
    print(deleted.bytes_before - deleted.bytes_after)
for found in traceconv.info("raw", quick=True):
    print(found.kind, found.intact, found.details["files"][0]["record_count"])
for record in traceconv.dump("raw", type="task", limit=3):
    print(record["_offset"] + 1)
verdicts = traceconv.verify("vendor", exact=True)
if not verdicts.agree:
    print([difference.vendor for difference in verdicts.differences])
capture: Path = traceconv.record("resnet50", "raw", train=True, steps=3)
with traceconv.profile("out") as profile, traceconv.span("load"):
    session = traceconv.Session("resnet50")
print(traceconv.profile_op("MatMul", [(8, 8), (8, 8)]).latencies_ns[0] / 1e3)
"""

#: Each line that begins with `bad` has an error.
WRONG = """
import traceconv

bad_1 = traceconv.injest("raw")
with traceconv.open_store(db="x") as store:
    bad_2 = store.report("op-statistic", colums=["op_type"])
    bad_3 = store.report("op-statistic", top="5")
    bad_4 = store.schema("task").row_counts
bad_5 = traceconv.info(5)
bad_6: int = traceconv.record("resnet50", "raw")
"""


@pytest.mark.long
def test_a_program_is_type_checked(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    # mypy doesn't find a package that is installed as editable.
    environment = {**os.environ, "MYPYPATH": str(Path(traceconv.__file__).parents[1])}
    done = subprocess.run(
        [*command, "right.py", "wrong.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [1 + place for place, line in enumerate(WRONG.splitlines()) if line.strip().startswith("bad")]
    found = [(file, int(line)) for file, line in re.findall(r"^(\w+\.py):(\d+): error", done.stdout, re.MULTILINE)]
    assert found == [("wrong.py", line) for line in lines], done.stdout
