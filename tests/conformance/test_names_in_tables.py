"""In a terminal of 80 columns, rows of the largest ops of real files look different unless their names are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import shared

from traceconv.api import ingest, open_store
from traceconv.cli.tables import _telling, lines
from traceconv.reports.columns import find_columns
from traceconv.reports.render import Table, headings, human_rows, is_number
from traceconv.reports.short_names import short_name

REAL = shared("real")
QUICK = ("torch/kineto_resnet50_worker0.pt.trace.json.gz", "torch/b200_eager_trace.json.gz")


@pytest.mark.parametrize(
    "paths", [[REAL / name for name in QUICK], pytest.param([REAL], marks=pytest.mark.long)], ids=["two traces", "all"]
)
def test_rows_of_different_ops_look_different(paths: list[Path], tmp_path: Path) -> None:
    runs = ingest(*paths, db=tmp_path / "s.duckdb")
    checked = 0
    with open_store(tmp_path / "s.duckdb") as store:
        names = [
            row[0] for row in store.query("SELECT DISTINCT name FROM (FROM task UNION ALL BY NAME FROM op)").fetchall()
        ]
        known = [name for name in names if name is not None]
        found = store.connection.execute("SELECT list_transform(?, lambda n: short_name(n))", [known]).fetchone()
        assert found == ([short_name(name) for name in known],)
        for run in runs:
            for report, named in (("op-statistic", "op_type"), ("op-summary", "op_name"), ("task-time", "name")):
                rows = store.report(report, run=run.run_id, top=10)
                shown = list(rows._question.report.shown)
                table = Table(find_columns(rows._question.report, shown), (), {run.run_id: 0}, shown)
                values = [[row[name] for name in shown] for row in rows]
                cells = human_rows(table, values)
                kept, _ = _telling(table, values, cells) if values else ([], [])
                titles, numbers = headings(table.columns), [is_number(column) for column in table.columns]
                texts = [[row[i] for i in kept] for row in cells]
                drawn = [
                    line
                    for _, line in lines([titles[i] for i in kept], texts, [numbers[i] for i in kept], 80, first=False)
                ]
                if len(drawn) == len(values):
                    place = shown.index(named)
                    by_line = dict(zip(drawn, values, strict=True))
                    for line, row in zip(drawn, values, strict=True):
                        assert by_line[line][place] == row[place], (run.label, report, line)
                    checked += len(values)
    assert checked > 20
