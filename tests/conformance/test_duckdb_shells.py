"""A store opens in the oldest and the newest DuckDB shell on PyPI.

`make` installs them (pip install --target .shells/oldest duckdb-cli==…); without them the tests are skipped.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from duckdb_versions import runnable_shell
from stores import query

from traceconv.reports.catalog import reports
from traceconv.reports.statements import report_statements
from traceconv.store.database import open_own_file
from traceconv.store.statements import definition_statements


@pytest.fixture(params=["oldest", "newest"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return runnable_shell(request.param, tmp_path)


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    path = make_store(
        op=[{"op_id": 1, "op_type": "Conv2D", "name": "conv", "model_id": 1, "input_bytes": 2}],
        device=[{"core_clock_hz": 10**9, "ai_core_count": 4, "ai_vector_core_count": 4}],
        task=[
            {"id": 1, "op_id": 1, "start_ns": 10, "dur_ns": 2**60 + 1, "block_count": 4, "core_type": "AI_CORE"},
            {"id": 2, "kind": "collective", "step_id": 1, "start_ns": 5, "dur_ns": 6},
            {"id": 3, "run_id": 2, "op_id": 1, "dur_ns": 1},
        ],
        task_pmu=[{"id": 1, "metric_group": "PipeUtilization", "aic_total_cycles": 10, "aic_mac_cycles": 5}],
        step=[{"step_id": 1, "iteration": 1, "fp_start_ns": 1, "bp_end_ns": 4, "end_ns": 9}],
        fusion=[{"fusion_id": 1, "op_id": 1, "original_index": 0, "original_name": "a"}],
        api=[{"id": 9, "level": "acl", "name": "x", "dur_ns": 3}, {"id": 10, "level": "acl", "name": "x", "dur_ns": 8}],
        range=[{"id": 20, "name": "r", "args": '{"k": 1}'}],
    )
    with open_own_file(path) as connection:
        connection.execute(";\n".join([*definition_statements(), *report_statements()]))  # with comments
    return path


def ask(shell: Path, store: Path, sql: str) -> list[list[str]]:
    done = subprocess.run(
        [shell, "-init", os.devnull, "-readonly", "-csv", "-noheader", store, "-c", sql],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return list(csv.reader(io.StringIO(done.stdout)))


def test_tables_reports_and_comments(shell: Path, store: Path) -> None:
    """All in one process: a shell takes longer to start than to answer."""
    comment = "SELECT comment FROM duckdb_columns() WHERE table_name = '{}' AND column_name = 'dur_ns'"
    statements = [
        "DESCRIBE SELECT id FROM task",
        "SELECT (SELECT count(*) FROM op_statistic), count(*) FROM slice",
        "FROM op_statistic(run := 1)",
        "SELECT dur_ns, aicore_time_ns, aic_mac_ratio FROM op_summary WHERE op_id IS NOT NULL AND dur_ns > 5",
        *(comment.format(name) for name in ("task", "op_summary")),
        "SELECT comment FROM duckdb_views() WHERE view_name = 'op_statistic'",
    ]
    column, counts, (run, *_, ratio), summary, *comments = ask(shell, store, "; ".join(statements))
    assert (column[:2], counts, run, ratio) == (["id", "BIGINT"], ["2", "6"], "1", "100.0")
    assert summary == [str(2**60 + 1), "3", "0.5"]
    assert [text[: len("[ns] Duration")] for (text,) in comments[:2]] == ["[ns] Duration"] * 2
    assert comments[2][0].startswith("Operators by type.")


def test_every_report_has_the_same_rows_as_in_the_installed_duckdb(shell: Path, store: Path) -> None:
    statements = [
        "SELECT {} FROM {} ORDER BY {}".format(
            ", ".join(f"{column.name}::VARCHAR" for column in report.columns),
            name,
            ", ".join(f"{term.column} {'DESC' if term.descending else ''}" for term in report.order),
        )
        for name, report in reports().items()
    ]
    ours = [query(store, sql) for sql in statements]
    separated = [
        part for name, sql in zip(reports(), statements, strict=True) for part in (f"SELECT '{name}' AS report", sql)
    ]
    rows = ask(shell, store, "; ".join(separated))
    for name, expected in zip(reports(), ours, strict=True):
        assert rows.pop(0) == [name]
        theirs = [["" if v == "NULL" else v for v in rows.pop(0)] for _ in expected]
        assert theirs == [["" if v is None else v for v in row] for row in expected], name
    assert rows == []
