"""Reports for Spark: what is portable, why others are not, and that translations change only on purpose.

tests/spark compares the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

pytest.importorskip("sqlglot", reason="not installed: pip install traceconv[spark]")

import sqlglot
from sqlglot import exp

from traceconv.base.errors import UsageError
from traceconv.cli.app import run
from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.spark.constructs import NotPortableError
from traceconv.spark.translation import spark_query, translated

#: At least these run on Spark.
PROMISED = {
    "op_statistic", "op_summary", "task_time", "api_statistic", "step_trace", "breakdown", "collectives", "stragglers",
}  # fmt: skip


def test_translations_change_only_on_purpose(golden: Callable[[str, str], None]) -> None:
    """After a change, `make test-spark` compares the rows of both engines."""
    lines, portable = [], set()
    for name in reports():
        try:
            query = spark_query(name)
        except NotPortableError as error:
            lines.append(str(error))
        else:
            portable.add(name)
            digest = hashlib.sha256("\0".join((*query.shared.values(), query.sql)).encode()).hexdigest()
            lines.append(f"{name} reads {', '.join(sorted(query.tables))}: {digest}")
    golden("spark_queries.txt", "\n".join(lines) + "\n")
    assert portable >= PROMISED


def test_common_parts_are_computed_once() -> None:
    """Else each reader of a CTE computes it again, with those that it reads: 321 scans for collectives."""
    query = spark_query("collectives")
    statements = [sqlglot.parse_one(sql, dialect="spark") for sql in (*query.shared.values(), query.sql)]
    assert sum(table.name in tables() for one in statements for table in one.find_all(exp.Table)) < 40
    for place, statement in enumerate(statements):
        read = {table.name for table in statement.find_all(exp.Table) if table.name.startswith("shared_")}
        assert read <= set([*query.shared][:place])


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT run_id, quantile_cont(dur_ns, 0.5) AS x FROM task GROUP BY run_id", "QUANTILE_CONT"),
        ("SELECT run_id, avg(dur_ns) AS x FROM task GROUP BY run_id", "AVG"),
        ("SELECT c.run_id, sum(c.value) AS x FROM counter AS c GROUP BY c.run_id", "may not be an integer"),
        ("SELECT t.run_id, r.id AS x FROM task AS t ASOF JOIN range AS r ON r.start_ns <= t.start_ns", "ASOF JOIN"),
        ("SELECT run_id, round(dur_ns / 3) AS x FROM task", "ROUND"),
        ("SELECT run_id, round(dur_ns / 3, step_id) AS x FROM task", "ROUND"),
        ("SELECT run_id, string_agg(name, ';') AS x FROM task GROUP BY run_id", "order of"),
        ("SELECT run_id, (dur_ns * 0.5)::BIGINT AS x FROM task", "may round"),
        ("SELECT run_id, regexp_matches(name, '.$') AS x FROM task", "may match other texts"),
        ("SELECT run_id, name || dur_ns AS x FROM task", "may not be texts"),
        ("SELECT run_id, list(name ORDER BY id DESC) AS x FROM task GROUP BY run_id", "order of"),
        ("SELECT run_id, arg_max(name, dur_ns) AS x FROM task GROUP BY run_id", "may not be unique"),
        ("SELECT run_id, id AS x FROM task UNION SELECT run_id, id FROM api", "distinct rows"),
        ("SELECT run_id, dur_ns AS x FROM task LIMIT 3", "LIMIT 3"),
        ("SELECT run_id, unknown_function(dur_ns) AS x FROM task", "UNKNOWN_FUNCTION"),
        ("SELECT run_id, sum(dur_ns) AS x FROM task GROUP BY ALL", "GROUP BY ALL"),
        ("SELECT run_id, id AS y FROM task", "not those of its header"),
    ],
)
def test_what_may_give_other_rows_is_refused_by_name(sql: str, construct: str) -> None:
    report = reports()["task_time"]
    columns = (report.columns[0], report.columns[1]._replace(name="x"))
    with pytest.raises(NotPortableError, match=construct):
        translated(replace(report, query=sql, columns=columns, parameters=()))


def test_the_command_needs_a_lake_a_known_engine_and_a_portable_report(
    capsys: pytest.CaptureFixture[str], make_store: Callable[..., object]
) -> None:
    store = str(make_store(task=[{"id": 1, "dur_ns": 5}]))
    for arguments, message in (
        (["op-statistic", "--engine", "spark"], "--engine spark needs a lake: traceconv export parquet -o DIR"),
        (["op-statistic", "--engine", "sparc"], "unknown engine 'sparc'; engines: duckdb, spark"),
    ):
        assert run(["report", *arguments, "--db", store]) != 0
        assert message in capsys.readouterr().err
    with pytest.raises(UsageError, match="kernels can't run on Spark: it uses"):
        spark_query("kernels")
