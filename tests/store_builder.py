"""Build a store that has exactly the rows of a test."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from stores import attached

from traceconv.reports.statements import report_statements
from traceconv.schema.arrow import arrow_schema
from traceconv.schema.ddl import quote_identifier
from traceconv.store.arrow_rows import execute_with
from traceconv.store.database import create_store
from traceconv.store.derived_tables import fill_derived_tables
from traceconv.store.statements import store_statements
from traceconv.store.valid_files import remember_valid

Rows = Sequence[Mapping[str, object]]
#: Finds the calls of tasks. Calls of several layers may have the same ID and start: one of them is used.
LINK_CALLS = (
    "UPDATE task SET api_id = a.api_id, call_ns = a.call_ns FROM ("
    "SELECT run_id, correlation_id, start_ns, min(id) AS api_id, arg_min_null(dur_ns, id) AS call_ns FROM api "
    "WHERE correlation_id IS NOT NULL GROUP BY run_id, correlation_id, start_ns) AS a "
    "WHERE task.run_id = a.run_id AND task.correlation_id = a.correlation_id AND task.submit_ns = a.start_ns"
)


def build_store(path: Path, **rows: Rows) -> Path:
    """Makes a store at `path` with these rows by table: `build_store(p, task=[{"id": 1, "dur_ns": 5}])`.

    A column that a row does not name is NULL, but for run_id, which is 1, and device_id, which is 0. Each run
    that rows speak of gets a row in `run` (start_ns 0, label run-N) unless `run` is given. Tasks get their calls.
    """
    shutil.copy(_empty_store(), path)
    with attached(path, read_only=False) as connection, _in_transaction(connection):
        for name, entries in rows.items():
            insert(connection, name, entries)
        if "run" not in rows:
            runs = sorted({entry.get("run_id", 1) for entries in rows.values() for entry in entries})  # type: ignore[type-var]
            insert(connection, "run", [{"run_id": n, "label": f"run-{n}", "start_ns": 0} for n in runs])
        if "api" in rows:
            connection.execute(LINK_CALLS)
        fill_derived_tables(connection)
    remember_valid(path)
    return path


@contextlib.contextmanager
def _in_transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN TRANSACTION")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


@cache
def _empty_store() -> Path:
    """A store without rows and comments, made once a test run: making the tables takes longer than most tests.

    To read 1,400 comments takes a quarter of the time to open a store.
    """
    folder = tempfile.mkdtemp(prefix="traceconv-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "empty.duckdb"
    with create_store(path) as connection:
        statements = [*store_statements(), *report_statements()]
        connection.execute(";\n".join(one for one in statements if not one.startswith("COMMENT")))
    return path


def insert(connection: duckdb.DuckDBPyConnection, name: str, entries: Rows) -> None:
    """Inserts rows into one table; a column that the table does not have is a KeyError."""
    schema = arrow_schema(name)
    defaults = {key: value for key, value in {"run_id": 1, "device_id": 0}.items() if key in schema.names}
    rows = [{**defaults, **entry} for entry in entries]
    named = dict.fromkeys(column for row in rows for column in row)
    if rows:
        batch = pa.RecordBatch.from_pylist(rows, pa.schema([schema.field(column) for column in named]))
        execute_with(connection, f"INSERT INTO {quote_identifier(name)} BY NAME FROM entries", "entries", batch)


DIGESTS = ["0123456789abcdef" * 2, "fedcba9876543210" * 2, "00000000000000ff" * 2]


def store_of_runs(path: Path, groups: list[str | None], tasks: int = 3) -> Path:
    """A store with a run for each group label, with tasks on two devices."""
    return build_store(
        path,
        run=[
            {"run_id": n, "label": f"run-{n}", "group_label": group, "start_ns": 0, "source_digest": DIGESTS[n - 1]}
            for n, group in enumerate(groups, start=1)
        ],
        op=[{"run_id": n, "op_id": 1, "op_type": "Conv2D"} for n in range(1, len(groups) + 1)],
        task=[
            {"run_id": n, "id": i, "device_id": i % 2, "op_id": 1, "kind": "compute", "start_ns": 100 - i, "dur_ns": n}
            for n in range(1, len(groups) + 1)
            for i in range(tasks)
        ],
    )
