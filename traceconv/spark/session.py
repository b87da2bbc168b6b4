"""Run a report on a lake with Spark."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from traceconv._version import __version__
from traceconv.base.errors import StoreError, UsageError, option, printable
from traceconv.lake.entries import Lake
from traceconv.lake.folder import is_lake
from traceconv.lake.views import usable_lake
from traceconv.reports.catalog import Report
from traceconv.reports.question import Question
from traceconv.schema import tables

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDED = "Spark needs PySpark 4 and sqlglot, and Python 3.11 or newer: pip install 'traceconv[spark]'"
#: Column type → Spark's. Spark reads unsigned integers as decimals.
_TYPES = {
    "i32": "INT", "i64": "BIGINT", "u64": "DECIMAL(20,0)", "f64": "DOUBLE", "str": "STRING", "bool": "BOOLEAN",
    "json": "STRING",
}  # fmt: skip


_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
Task = TypeVar("Task")
Result = TypeVar("Result")
Note = TypeVar("Note")
#: How often the progress of tasks is reported.
_SECONDS_BETWEEN = 0.2


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """A session on a Spark master: local[*], local-cluster[2,1,1024], spark://HOST:PORT …

    If the program has a session already: another one on its master.

    Raises UsageError without PySpark or Java, or if the master can't be reached.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError(_NEEDED) from None
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise UsageError("Spark needs Java 17 or newer; install it, or set JAVA_HOME")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors are reported below
    log = resources.files("traceconv.spark") / "log4j2.properties"
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log}",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Overflow is an error, not another number.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # The translation relies on it: decimals keep their scale or overflow.
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    }
    if master.startswith("local"):
        # The default of 200 is for clusters: a task for a part of a few rows takes longer than the rows.
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    active = SparkSession.getActiveSession()
    if active is not None:
        # The caller's: it keeps its master, its settings and its views.
        session = active.newSession()
        for name, value in settings.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
        yield session
        return
    builder = SparkSession.builder.master(master).appName("traceconv")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _this_python(master):
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise UsageError(f"can't start Spark on {printable(master, 100)}: {_first_line(error)}") from None
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _this_python(master: str) -> Iterator[None]:
    """On one machine, tasks run in the same Python as this program, unless the user names another."""
    if not master.startswith("local") or "PYSPARK_PYTHON" in os.environ:
        yield
        return
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        del os.environ["PYSPARK_PYTHON"]


class _ByTask:
    """Results of tasks in an accumulator: a task that runs twice counts once."""

    def zero(self, _: object) -> dict[int, Any]:
        return {}

    def addInPlace(self, found: dict[int, Any], more: dict[int, Any]) -> dict[int, Any]:  # noqa: N802 - Spark's name
        return found | more


def run_tasks(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    master: str,
    note: Callable[[Result], Note],
    on_progress: Callable[[Collection[Note]], None],
) -> list[Result]:
    """Run a function of a module on Spark's executors for each task; return the results in order.

    It may be called several times for a task, even concurrently.

    note         what `on_progress` gets of a result
    on_progress  is called from a thread, several times per second, with the notes of all tasks that have ended

    Raises UsageError without PySpark or Java, or if executors lack a package; StoreError if a task fails repeatedly.
    """
    with spark_session(master) as session:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        context = session.sparkContext
        notes = context.accumulator({}, _ByTask())

        def run(numbered: tuple[int, Task]) -> Result:
            result = work(numbered[1])
            notes.add({numbered[0]: note(result)})
            return result

        ended = Event()

        def follow() -> None:
            while not ended.wait(_SECONDS_BETWEEN):
                on_progress(notes.value.values())

        follower = Thread(target=follow, daemon=True)
        follower.start()
        try:
            found: list[Result] = context.parallelize(list(enumerate(tasks)), len(tasks)).map(run).collect()
            return found
        except (PySparkException, Py4JError) as error:
            if (missing := _MISSING.search(str(error))) is not None:
                raise UsageError(
                    f"Spark's executors have no Python package {missing[1]}; install traceconv {__version__} on them"
                ) from None
            raise StoreError(
                f"Spark can't run the tasks: {_first_line(error)}; run the command again to continue"
            ) from None
        finally:
            ended.set()
            follower.join()


def spark_question(connection: duckdb.DuckDBPyConnection, path: Path, question: Question, master: str) -> Question:
    """Compute a report on the lake at `path` with Spark; return the question on the resulting table.

    connection  an open lake, in which the table is created
    master      see `spark_session`

    Raises UsageError for a path that is not a lake, without PySpark or Java, and for a report that is not portable;
    StoreError for files that Spark can't read.
    """
    if not is_lake(path):
        raise UsageError(f"{option('--engine spark', 'engine=spark')} needs a lake: traceconv export parquet -o DIR")
    if any(sign in str(path) for sign in "*?[]{}\\"):
        raise UsageError(f"Spark takes {printable(str(path))} for a pattern; rename the folder")
    _check(question.report)
    with spark_session(master) as session:
        rows = spark_rows(session, usable_lake(path), question.report, question.parameters)
    name = f"traceconv_spark_{secrets.token_hex(8)}"
    connection.register("spark_rows", rows)
    connection.execute(f"CREATE TABLE {name} AS FROM spark_rows")
    connection.unregister("spark_rows")
    return replace(question, table=name)


def _check(report: Report) -> None:
    """Raise UsageError if the report can't run on Spark: before it starts, which takes seconds."""
    try:
        from traceconv.spark.translation import spark_query
    except ImportError:
        raise UsageError(_NEEDED) from None
    spark_query(report.name)


def spark_rows(session: Any, lake: Lake, report: Report, parameters: Mapping[str, float]) -> pa.Table:
    """Return all rows of a report. Raises NotPortableError, StoreError."""
    from py4j.protocol import Py4JError
    from pyspark import StorageLevel
    from pyspark.errors import PySparkException

    from traceconv.spark.translation import spark_query

    query = spark_query(report.name)
    arguments = {parameter.name: parameters.get(parameter.name) for parameter in report.parameters}
    try:
        _create_views(session, lake, query.tables)
        for name, sql in query.shared.items():
            # Copies on two executors, since this cuts the plan: what is lost can't be computed again.
            rows = session.sql(sql, args=arguments).localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)
            rows.createOrReplaceTempView(name)
        return session.sql(query.sql, args=arguments).toArrow()
    except (PySparkException, Py4JError) as error:
        raise StoreError(
            f"Spark can't compute {report.name} on {lake.folder.shown}: {_first_line(error)}; "
            "find damaged files with: traceconv lake list DIR --check"
        ) from None


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)  # Py4J's own text begins with the call
    text = str(error) if java is None else str(java.getMessage())
    return printable(next(iter(text.splitlines()), type(error).__name__), 300)


def _create_views(session: Any, lake: Lake, names: Collection[str]) -> None:
    """Create a view for each of these tables of a store, with the runs numbered in the order of the entries."""
    runs = [{"run_id": number, "run": entry.key, **entry.run} for number, entry in enumerate(lake.entries, start=1)]
    _local_frame(session, runs, {"run_id": "i64", "run": "str"}).createOrReplaceTempView("traceconv_run_number")
    for name in names:
        schema = tables()[name]
        columns = schema.columns[1:]
        files = [path for entry in lake.entries for path, file in entry.paths().items() if file.table == name]
        if name == "run":
            frame = _local_frame(session, runs, {column.name: column.type for column in schema.columns})
        elif not files:
            listed = ", ".join(f"CAST(NULL AS {_TYPES[column.type]}) AS `{column.name}`" for column in schema.columns)
            frame = session.sql(f"SELECT {listed} WHERE false")
        else:
            root = lake.folder.spark_path
            # Partitions are texts, also keys that look like numbers.
            declared = ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in columns)
            reader = session.read.schema(f"{declared}, `group` STRING, run STRING").option("basePath", root)
            reader.parquet(*(f"{root}/{path}" for path in files)).createOrReplaceTempView("traceconv_rows")
            listed = ", ".join(f"r.`{column.name}`" for column in columns)
            frame = session.sql(
                f"SELECT /*+ BROADCAST(n) */ n.run_id, {listed} FROM traceconv_rows AS r "  # noqa: S608 - our names
                "JOIN traceconv_run_number AS n ON n.run = r.run"
            )
        frame.createOrReplaceTempView(name)


def _local_frame(session: Any, rows: Sequence[Mapping[str, object]], types: Mapping[str, str]) -> Any:
    """Return a frame of column → type. Spark takes it from Arrow as it is, without a job on Python workers."""
    import pyarrow as pa

    arrow = {"i32": pa.int32(), "i64": pa.int64(), "bool": pa.bool_(), "str": pa.string(), "json": pa.string()}
    schema = pa.schema([(name, arrow[kind]) for name, kind in types.items()])
    return session.createDataFrame(pa.Table.from_pylist(list(rows), schema))
