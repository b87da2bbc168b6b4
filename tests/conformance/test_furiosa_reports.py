"""Reports reproduce the tables of Furiosa's profiler digit for digit, except where its arithmetic overflows."""

from __future__ import annotations

import csv
import json
import re
import statistics
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken
from shared_data import shared

from traceconv.pipeline.ingest import ingest
from traceconv.reports.values import microseconds

FOLDER = shared("seed_systems") / "furiosa"
PRINTED: dict[str, Any] = json.loads((FOLDER / "seed_tables.json").read_text("utf-8"))


def store_of(rows: str, folder: Path) -> duckdb.DuckDBPyConnection:
    """Ingest the trace file that the profiler would write for these rows."""
    events = []
    with (FOLDER / rows).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            start, end = int(row["start"]), int(row["end"])
            kept = ("trace_id", "span_id", "parent_span_id", "thread.id")
            indices = ("pe_index", "execution_index", "instruction_index", "operator_index")
            args = {key: row[key] for key in kept} | {key: row[key] for key in indices if row[key]}
            args |= {"start_ts": str(start), "end_ts": str(end)}
            event = {
                "args": args,
                "cat": row["cat"],
                "name": row["name"],
                "ph": "X",
                "pid": 1,
                "tid": int(row["thread.id"]),
            }
            times = f'"ts": {microseconds(start)}, "dur": {microseconds(end - start)}'
            events.append(f"{json.dumps(event)[:-1]}, {times}}}")
    _, store = taken(f"[{','.join(events)}]", folder)
    return duckdb.connect(str(store), read_only=True)


def test_the_tables_of_the_documentation(tmp_path: Path) -> None:
    with store_of("injected_seed.rows.csv", tmp_path) as store:
        latency = store.execute("SELECT * EXCLUDE (run_id, unfinished_count) FROM inference_latency").fetchone()
        assert latency == tuple(entry["value"] for entry in PRINTED["summary"])
        found = store.execute("SELECT trace_id, span_id, thread, dur_ns FROM inference").fetchall()
        keys = ("trace_id", "span_id", "thread.id", "dur")
        assert found == [
            tuple(str(row[key]) if key == "thread.id" else row[key] for key in keys) for row in PRINTED["inferences"]
        ]
        columns = "trace_id, span_id, pe_index, execution_index, npu_total_ns, npu_run_ns, npu_io_wait_ns"
        found = store.execute(f"SELECT {columns} FROM npu_execution").fetchall()
        keys = ("trace_id", "span_id", "pe_index", "execution_index", "NPU Total", "NPU Run")
        wait = "idle ns inside the execution (computed here: Total - Run)"
        # The documentation shows Run − Total as an unsigned 64-bit number.
        assert [2**64 - row["NPU IoWait"] for row in PRINTED["npu_executions"]] == [row[-1] for row in found]
        rows = sorted((*(row[key] for key in keys), row[wait]) for row in PRINTED["npu_executions"])
        assert sorted(found) == rows
        found = store.execute("SELECT name, average_elapsed_ns, count FROM npu_operator").fetchall()
        rows = [(row["name"], Decimal(row["average_elapsed (ns)"]), row["count"]) for row in PRINTED["npu_operators"]]
        assert sorted(found) == sorted(rows)
        assert [row[1] for row in found] == [row[1] for row in rows]
        columns = "trace_id, span_id, thread, name, operator_index, dur_ns"
        found = store.execute(f"SELECT {columns} FROM external_operator").fetchall()
        keys = ("trace_id", "span_id", "thread.id", "name", "operator_index", "dur")
        assert found == [
            tuple(str(row[key]) if key == "thread.id" else row[key] for key in keys)
            for row in PRINTED["external_operators"]
        ]


def test_the_edge_cases(tmp_path: Path) -> None:
    """Two elements, run above total, 2^53 + 1 ns, unsigned thread IDs; the output of the native tables."""
    with store_of("injected_edge.rows.csv", tmp_path) as store:
        durations = [1, 2, 3, 5, 8, 13, 21, 34, 55, 2**53 + 1]
        native = store.execute(
            "SELECT r.dur_ns FROM inference JOIN range AS r USING (run_id, id) WHERE category = 'Runtime' ORDER BY 1"
        ).fetchall()
        assert [dur for (dur,) in native] == durations
        durations.append(77)  # the category of the older profiler
        latency = store.execute("SELECT count, min_ns, max_ns, mean_ns, median_ns FROM inference_latency").fetchone()
        mean = round(Fraction(sum(durations), 11))
        assert latency == (11, 1, 2**53 + 1, mean, statistics.median(durations))
        columns = "pe_index, execution_index, npu_total_ns, npu_run_ns, npu_io_wait_ns"
        found = store.execute(f"SELECT {columns} FROM npu_execution").fetchall()
        times = [(1000, 600, 400), (500, 500, 0), (400, 450, -50)]
        assert sorted(found) == [(pe, index, *row) for pe in (0, 1) for index, row in enumerate(times)]
        found = store.execute("SELECT name, average_elapsed_ns, count FROM npu_operator").fetchall()
        assert found == [("LowLevelConv2d", Decimal("516.666667"), 6), ("LowLevelPad", Decimal(0), 2)]
        found = store.execute("SELECT thread, name, operator_index, dur_ns FROM external_operator").fetchall()
        assert found == [("40", "Quantize", 0, 0), ("40", "층 🚀", 1, 10)]


def test_indices_that_pandas_read_as_floats(tmp_path: Path) -> None:
    """Columns with empty cells become floats: `pandas.read_csv(path).to_csv(path, index=False)`."""
    text = (FOLDER / "injected_edge.rows.csv").read_text("utf-8")
    found = []
    for end in ("", ".0"):
        (tmp_path / f"x{end}").mkdir()
        _, store = taken(re.sub(r"(?<=,)(\d{1,9})(?=[,\n])", rf"\1{end}", text), tmp_path / f"x{end}", "spans.csv")
        with duckdb.connect(str(store), read_only=True) as connection:
            found.append([connection.execute(f"FROM {report}").fetchall() for report in ("npu_execution", "breakdown")])
    assert found[0] == found[1]
    assert len(found[0][1]) == 2


@pytest.mark.parametrize("name", ["injected_seed", "legacy_injected_seed"])
def test_exported_tables_without_ids_have_the_same_times(name: str, tmp_path: Path) -> None:
    """The exported trace lacks trace and span IDs; the older one has another category and keeps the indices."""
    ingest([FOLDER / f"{name}.export_chrome_trace.json"], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        latency = store.execute("SELECT * EXCLUDE (run_id, unfinished_count) FROM inference_latency").fetchone()
        assert latency == tuple(entry["value"] for entry in PRINTED["summary"])
        found = store.execute("SELECT npu_total_ns, npu_run_ns FROM npu_execution").fetchall()
        assert sorted(found) == sorted((row["NPU Total"], row["NPU Run"]) for row in PRINTED["npu_executions"])
        rows = store.execute("FROM npu_execution ORDER BY start_ns").fetchall()
        last_ns = store.execute("SELECT max(start_ns) FROM npu_execution").fetchone()
        parts = [store.execute(f"FROM npu_execution({side} := ?)", last_ns).fetchall() for side in ("to_ns", "from_ns")]
        assert parts == [rows[:-1], rows[-1:]]
        found = store.execute("SELECT sum(count), sum(total_ns) FROM npu_operator").fetchone()
        assert found == (444, 432_536)
        found = store.execute("SELECT name, dur_ns FROM external_operator").fetchall()
        assert found == [(row["name"], row["dur"]) for row in PRINTED["external_operators"]]


def test_a_user_range_named_inference_is_not_an_inference(tmp_path: Path) -> None:
    ingest([FOLDER / "df_recorded.export_chrome_trace.json"], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert store.execute("FROM inference_latency").fetchall() == []
        assert store.execute("SELECT count(*) FROM range WHERE name = 'Inference'").fetchone() == (4,)


def test_an_older_trace_with_tensors_in_the_names(tmp_path: Path) -> None:
    """Pairs of B and E events, and strings as numbers. One PE executes twice, with the same numbers."""
    npu = {"cat": "NPU", "pid": 0, "tid": 65536, "args": {"pe_index": "0", "execution_index": "0"}}
    events: list[dict[str, Any]] = []
    for start in 100, 200:
        events.append({**npu, "name": "Task(0,0)", "ph": "B", "ts": start, "id": "0"})
        names = (
            ("Load(84,84)", 1),
            ("LowLevelConv2d(41,40,42,44)", 7),
            ("LowLevelConv2d(53,48)", 5),
            ("Store(74,74)", 2),
        )
        for number, (name, dur) in enumerate(names):
            at = start + 10 * number
            events.append({**npu, "name": name, "ph": "X", "ts": at, "dur": dur + start / 1000})
        events.append({**npu, "name": "Task(0,0)", "ph": "E", "ts": start + 40})
    _, path = taken(json.dumps(events), tmp_path)
    with duckdb.connect(str(path), read_only=True) as store:
        executions = store.execute("SELECT pe_index, execution_index, npu_total_ns, npu_run_ns FROM npu_execution")
        assert executions.fetchall() == [(0, 0, 40_000, 12_200), (0, 0, 40_000, 12_400)]
        operators = store.execute("SELECT name, count, total_ns FROM npu_operator").fetchall()
        assert operators == [("LowLevelConv2d", 4, 24_600)]
        assert store.execute("SELECT op_type, total_ns FROM op_statistic").fetchall() == [("LowLevelConv2d", 24_600)]
        assert store.execute("SELECT compute_ns, exposed_copy_ns FROM breakdown()").fetchall() == [(24_600, 6_600)]
