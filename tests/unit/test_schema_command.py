"""`traceconv schema`: every table, view and report is described, without a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from traceconv.cli.app import run as run_command
from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.store.catalogue import views


def test_list_and_description_of_each_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema"]) == 0
    listed = capfd.readouterr().out
    for name in (*tables(), *views(), *reports()):
        assert f"  {name} " in listed
        assert run_command(["schema", name]) == 0
        described = capfd.readouterr().out
        thing = tables().get(name) or views().get(name) or reports()[name]
        assert all(f"\n  {column.name}  " in described for column in thing.columns)


def test_report_name_with_dashes(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema", "op-statistic"]) == 0
    assert "msprof: OP Type" in capfd.readouterr().out


def test_a_store_is_described_with_its_rows_and_what_was_added(
    make_store: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    path = make_store(task=[{"id": n} for n in range(3)])
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE mine AS SELECT 1 AS first_column; COMMENT ON COLUMN mine.first_column IS 'ONE.'"
        )
    assert run_command(["schema", "--db", str(path)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [" ".join(line.split()[1:3]) for line in lines if line.startswith(("  task ", "  mine "))] == [
        "3 rows", "1 columns",
    ]  # fmt: skip
    assert run_command(["schema", "mine", "--db", str(path)]) == 0
    assert "  first_column  INTEGER, text\n      ONE." in capfd.readouterr().out
    assert run_command(["schema", "--db", str(path) + "x"]) == 1
    assert "does not exist" in capfd.readouterr().err
