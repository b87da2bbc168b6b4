"""The headers of SQL files: invalid ones are rejected, and those of the reports match their queries."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from store_builder import build_store

from traceconv.reports.catalog import define_part, reports
from traceconv.schema import tables
from traceconv.store.database import open_store
from traceconv.store.documented_sql import HeaderError, OrderTerm, parse

GOOD = """\
-- title = "Tasks"
-- doc = "Which tasks are there?"
-- needs = ["task"]
-- when_empty = "Record some."
-- order = ["run_id", "n DESC"]
-- selects = { run = true, device = "Only its tasks.", steps = "tasks", time = "tasks that start, with their ends" }
-- [parameters]
-- peak = { type = "DOUBLE", doc = "The peak." }
-- [columns]
-- n = { type = "BIGINT", unit = "ns", msprof = "N(us)", msprof_as = "us", doc = "How long." }
SELECT run_id, n FROM t;
"""


def test_a_good_header() -> None:
    found = parse("tasks", GOOD)
    assert found.body == "SELECT run_id, n FROM t"
    assert found.order == (OrderTerm("run_id", False), OrderTerm("n", True))
    assert found.shown == ("run_id", "n")
    assert found.column("n").msprof == "N(us)"
    assert {one.name: one.doc for one in found.parameters} == {
        "run": "Only this run; NULL: all runs.",
        "device": "Only its tasks.",
        "step": "Only tasks of this step (step.step_id); NULL: all tasks.",
        "first_step": "Only steps from this one on; NULL: no limit.",
        "last_step": "Only steps up to this one; NULL: no limit.",
        "from_ns": "Only tasks that start at this time or later, with their ends; NULL: no limit.",
        "to_ns": "Only tasks that start before this time, with their ends; NULL: no limit.",
        "peak": "The peak.",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('title = "Tasks"', 'titel = "Tasks"'),
        ('-- title = "Tasks"\n', ""),
        ("there?", "there"),
        ('unit = "ns", ', ""),
        ('unit = "ns"', 'unit = "fortnight"'),
        (', doc = "How long."', ""),
        ('type = "BIGINT", unit = "ns"', 'type = "INT", unit = "ns"'),
        ('"n DESC"', '"m DESC"'),
        ('"n DESC"]', '"n DESC"]\n-- measure = "m"'),
        ('"n DESC"', '"n DESC; DROP TABLE t"'),
        ('msprof = "N(us)", ', ""),
        ('msprof_as = "us"', 'msprof_as = "furlongs"'),
        ("-- peak = {", "-- n = {"),
        ("run = true", "runs = true"),
        ("its tasks.", "its tasks"),
        ('-- when_empty = "Record some."\n', ""),
        ("SELECT run_id, n FROM t;", ""),
        ("FROM t;", "FROM t LEFT JOIN (SELECT 1) AS u ON true;"),
        ("-- [columns]", "-- [columns"),
    ],
)
def test_a_bad_header_is_refused(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(HeaderError):
        parse("tasks", GOOD.replace(old, new))


JOINED = GOOD.replace("-- [parameters]", "-- optional_joins = true\n-- [parameters]").replace(
    "SELECT run_id, n FROM t;",
    """\
SELECT t.run_id,
       -- (A comment.
       concat(',)', p.n, q.n) AS n
FROM t AS t
LEFT JOIN pmu AS p ON p.run_id = t.run_id AND p.id = t.id AND p.metric_group = 'Memory'
LEFT JOIN queue AS q ON q.run_id = t.run_id AND q.id = t.id
WHERE t.id = 1
ORDER BY t.run_id;
""",
)


def test_a_query_with_optional_joins_is_divided() -> None:
    joined = parse("tasks", JOINED).joined
    assert joined is not None
    assert joined.items == {"run_id": "t.run_id", "n": "\n       concat(',)', p.n, q.n) AS n"}
    assert [(join.place, join.alias, join.group) for join in joined.joins] == [
        ("pmu", "p", "Memory"), ("queue", "q", None),
    ]  # fmt: skip
    assert (joined.place, joined.alias, joined.where) == ("t", "t", "WHERE t.id = 1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LEFT JOIN queue AS q ON q.run_id", "LEFT JOIN queue AS q\nON q.run_id"),
        ("LEFT JOIN queue AS q ON q.run_id", "LEFT JOIN queue AS q ON p.run_id"),
        ("q.run_id = t.run_id AND", "q.run_id = p.run_id AND"),
        ("LEFT JOIN queue", "JOIN queue"),
        ("WHERE t.id = 1", "LEFT JOIN u AS u USING (run_id)\nWHERE t.id = 1"),
        ("WHERE t.id = 1\n", ""),
        ("p.n, q.n) AS n", "p.n, q.n) AS m"),
        ("t.run_id,\n", "t.run_id, t.id,\n"),
    ],
)
def test_a_query_whose_joins_are_not_found_is_refused(old: str, new: str) -> None:
    assert JOINED.count(old) == 1
    with pytest.raises(HeaderError):
        parse("tasks", JOINED.replace(old, new))


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_store(build_store(tmp_path_factory.mktemp("empty") / "s.duckdb")) as opened:
        yield opened


@pytest.mark.parametrize("name", list(reports()))
def test_a_report_has_the_columns_and_parameters_of_its_header(
    name: str, connection: duckdb.DuckDBPyConnection
) -> None:
    report = reports()[name]
    described = [(column.name, column.type) for column in report.columns]
    assert [row[:2] for row in connection.execute(f"DESCRIBE {name}").fetchall()] == described
    given = ", ".join(f"{parameter.name} := 1" for parameter in report.parameters)
    assert [row[:2] for row in connection.execute(f"DESCRIBE FROM {name}({given})").fetchall()] == described
    for column in described if report.joined else ():
        part = define_part(connection, report, {"run_id", "id", column[0]})
        wanted = [one for one in described if one[0] in {"run_id", "id", column[0]}]
        assert [row[:2] for row in connection.execute(f"DESCRIBE FROM {part}({given})").fetchall()] == wanted


def test_headers_name_existing_tables_and_parameters() -> None:
    for report in reports().values():
        assert set(report.needs) <= set(tables())
        assert report.order[0] == OrderTerm("run_id", False) or report.compares_runs
        assert report.measure in {column.name for column in report.columns}
        known = {
            "run",
            "device",
            "step",
            "first_step",
            "last_step",
            "from_ns",
            "to_ns",
            "peak_tflops",
            "peak_gbps",
            "min_percent",
            "by_shape",
            "by_module",
        }
        assert {parameter.name for parameter in report.parameters} <= known
        assert report.parameters[0].name == "run"
