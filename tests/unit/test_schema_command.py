"""`traceconv schema`: every table, view and report is described, without a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
from commands import Command

from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.store.catalogue import views


def test_list_and_description_of_each_name(command: Command) -> None:
    listed = command("schema").out
    for name in (*tables(), *views(), *reports()):
        assert f"  {name} " in listed
        described = command("schema", name).out
        thing = tables().get(name) or views().get(name) or reports()[name]
        assert all(f"\n  {column.name}  " in described for column in thing.columns)


def test_report_name_with_dashes(command: Command) -> None:
    assert "msprof: OP Type" in command("schema", "op-statistic").out


def test_a_store_is_described_with_its_rows_and_what_was_added(
    make_store: Callable[..., Path], command: Command
) -> None:
    path = make_store(task=[{"id": n} for n in range(3)])
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE mine AS SELECT 1 AS first_column; COMMENT ON COLUMN mine.first_column IS 'ONE.'"
        )
    lines = command("schema", "--db", path).out.splitlines()
    assert [" ".join(line.split()[1:3]) for line in lines if line.startswith(("  task ", "  mine "))] == [
        "3 rows", "1 columns",
    ]  # fmt: skip
    assert "  first_column  INTEGER, text\n      ONE." in command("schema", "mine", "--db", path).out
    assert "does not exist" in command("schema", "--db", str(path) + "x", code=1).err
