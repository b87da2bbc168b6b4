"""`traceconv schema`: every table, view and report is described, without a store."""

from __future__ import annotations

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


def test_unknown_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema", "taks"]) == 2
    out, err = capfd.readouterr()
    assert (out, "Did you mean 'task'?" in err) == ("", True)
