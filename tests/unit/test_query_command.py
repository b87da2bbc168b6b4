"""`traceconv query`: any SQL, on a store opened read-only."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from commands import Command
from processes import TRACECONV, heed_interrupts, wait_until
from store_builder import build_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("query") / "s.duckdb"
    return build_store(path, task=[{"id": n, "name": f"k{n}", "dur_ns": 2**62} for n in range(3)])


def query(command: Command, store: Path, *arguments: object) -> str:
    return command("query", *arguments, "--db", store).out


def test_formats(command: Command, store: Path) -> None:
    sql = "SELECT sum(dur_ns) AS total, 'a,b' AS text, NULL AS nothing, [1, 2] AS list FROM task"
    total = 3 * 2**62
    assert query(command, store, sql, "--format", "csv") == f'total,text,nothing,list\n{total},"a,b",,"[1, 2]"\n'
    assert json.loads(query(command, store, sql, "--format", "json")) == [
        {"total": total, "text": "a,b", "nothing": None, "list": [1, 2]}
    ]
    assert query(command, store, sql).splitlines()[2].split() == [str(total), "a,b", "-", "1,", "2"]


def test_values_of_every_kind_are_json(command: Command, store: Path) -> None:
    sql = (
        "SELECT 1.50::DECIMAL(9,2) AS a, 'nan'::DOUBLE AS b, DATE '2024-01-02' AS c, {'k': [true]} AS d, "
        "MAP {'x': 1} AS e, '\\xAA'::BLOB AS f, 1 AS g, 2 AS g, INTERVAL 1 DAY AS h"
    )
    out = query(command, store, sql, "--format", "ndjson")
    found = json.loads(out)
    assert '"a": 1.50,' in out
    assert {key: found[key] for key in "bcdefg"} == {
        "b": "nan", "c": "2024-01-02", "d": {"k": [True]}, "e": {"x": 1}, "f": "aa", "g": 1,
    }  # fmt: skip
    assert found["g_2"] == 2


def test_times_are_written_as_by_duckdb(command: Command, store: Path) -> None:
    """Python's have no nanoseconds, no months, and no infinity."""
    sql = (
        "SELECT make_timestamp_ns(1720000000123456789) AS a, INTERVAL '1 month 2 days' AS b, 'infinity'::DATE AS a, "
        "{'k': [INTERVAL 1 YEAR], 'DATE': TIME '01:02:03.5'} AS c, NULL::DATE AS d ORDER BY a; -- the last; one"
    )
    row = json.loads(query(command, store, sql, "--format", "ndjson"))
    assert row == {
        "a": "2024-07-03 09:46:40.123456789", "b": "1 month 2 days", "a_2": "infinity",
        "c": {"k": ["1 year"], "DATE": "01:02:03.5"}, "d": None,
    }  # fmt: skip
    assert "09:46:40.123456789" in query(command, store, sql)


def test_csv_is_duckdb_s(command: Command, store: Path, tmp_path: Path) -> None:
    """Empty text is not NULL, and a carriage return does not end a row."""
    sql = "SELECT unnest(['', NULL, 'a\rb', 'c,\"d\"\n', ' e ']) AS text, 1.5 AS number"
    duckdb.execute(f"COPY ({sql}) TO '{tmp_path / 'expected.csv'}'")
    query(command, store, sql, "-o", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()


def test_reports_are_views(command: Command, store: Path) -> None:
    assert query(command, store, "SELECT name FROM task_time(run := 1) LIMIT 1", "--format", "csv") == "name\nk0\n"


def test_sql_from_standard_input(command: Command, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1 AS a; -- done\n"))
    assert query(command, store, "-", "--format", "csv") == "a\n1\n"


def test_parquet_keeps_wide_integers_exact(command: Command, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "o.parquet"
    query(command, store, "SELECT sum(dur_ns) AS total, [total] AS list FROM task; -- all", "-o", target)
    assert duckdb.sql(f"FROM '{target}'").fetchall() == [(3 * 2**62, [3 * 2**62])]
    for sql in (f"SELECT {2**127 - 1} AS a", "SELECT 'a'::INTEGER AS a"):
        assert "Conversion Error" in command("query", sql, "-o", target, "--db", store, code=2).err


def test_many_rows_are_read_in_batches(command: Command, store: Path) -> None:
    out = query(command, store, "SELECT range AS n FROM range(20000)", "--format", "csv")
    assert out == "n\n" + "".join(f"{n}\n" for n in range(20000))


def test_closed_pipe_is_not_an_error(store: Path) -> None:
    sql = "SELECT range AS n FROM range(1000000)"
    command = [*TRACECONV, "query", sql, "--format", "csv", "--db", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"n\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", "syntax error"),
        ("", "empty SQL"),
        ("/* nothing */", "exactly one"),
        ("CREATE TABLE x (a INTEGER)", "read-only"),
        ("COPY task TO '/tmp/traceconv-x.csv'", "disabled"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled"),
        ("SELECT 'a'::INTEGER", "Conversion"),
        ("FROM breakdown(stp := 3)", "Candidate macros: breakdown(run := NULL, device"),
        ("SELECT len(list(range)) FROM range(200000000)", "DuckDB shell"),  # needs more than 1 GB of memory
        ("SELECT CASE WHEN range > 10000 THEN error('late\x1b[2J') END FROM range(20000)", "late"),
    ],
)
def test_errors_are_one_line(command: Command, store: Path, sql: str, message: str) -> None:
    out, err = command("query", sql, "--format", "csv", "--db", store, code=2)
    assert err.startswith("traceconv: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.strip().isprintable()
    assert "late" in message or out == ""


def test_a_statement_in_a_file(command: Command, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "question.sql"
    file.write_text("\ufeffSELECT 1 AS one;\n", "utf-8")
    for option in ("-f", "--file"):
        assert command("query", option, file, "--db", store, "--format", "csv").out == "one\n1\n"
    file.write_bytes(b"SELECT '\xff'")
    for arguments, code, message in (
        (["-f", str(file)], 2, "not UTF-8"),
        (["-f", str(tmp_path)], 1, "can't read"),
        (["-f", str(tmp_path / "none.sql")], 1, "No such file"),
    ):
        assert message in command("query", *arguments, "--db", store, code=code).err


def test_ctrl_c_ends_in_one_line(command: Command, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise RuntimeError("Query interrupted")  # as DuckDB does

    monkeypatch.setattr("traceconv.reports.free_query.ask", interrupted)
    assert command("query", "SELECT 1", "--db", store, code=130) == ("", "traceconv: interrupted\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_ctrl_c_ends_a_query_that_computes(store: Path) -> None:
    """DuckDB alone waits for its threads, which did not end in more than half of the cases."""
    for _ in range(3):
        process = subprocess.Popen(
            [*TRACECONV, "query", "SELECT count(*) FROM range(1000000000000) AS t(n) WHERE hash(n) = 7", "--db", store],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_interrupts,
        )
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(process, lambda: int(stat.read_text().split()[13]) > 2 * os.sysconf("SC_CLK_TCK"))  # noqa: B023
        process.send_signal(signal.SIGINT)
        assert (process.communicate(timeout=60)[1], process.returncode) == ("traceconv: interrupted\n", 130)
