"""Run a report on a lake with Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any
from collections.abc import Iterator

from traceconv.base.errors import StoreError, UsageError, printable
from traceconv.lake.entries import Entry, Lake
from traceconv.reports.catalog import Report
from traceconv.schema import tables
from traceconv.schema.model import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_INSTALL = "install it with: pip install 'traceconv[spark]'"
#: Column type → Spark's. Spark reads unsigned integers as decimals.
_TYPES = {
    "i32": "INT", "i64": "BIGINT", "u64": "DECIMAL(20,0)", "f64": "DOUBLE", "str": "STRING", "bool": "BOOLEAN",
    "json": "STRING",
}  # fmt: skip


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """A Spark session on a master: local[*], local-cluster[2,1,1024], spark://HOST:PORT …

    Raises UsageError without PySpark or Java, or if the master can't be reached.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError(f"--engine spark needs PySpark, and Python 3.11 or newer; {_INSTALL}") from None
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        raise UsageError("--engine spark needs Java 17 or newer; install it, or set JAVA_HOME")
    log = resources.files("traceconv.spark") / "log4j2.properties"
    settings = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{log}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Overflow is an error, not another number.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # The translation relies on it: decimals keep their scale or overflow.
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    }
    builder = SparkSession.builder.master(master).appName("traceconv")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        line = printable(next(iter(str(error).splitlines()), type(error).__name__), 200)
        raise UsageError(f"can't start Spark on {printable(master, 100)}: {line}; it needs Java 17 or newer") from None
    try:
        yield session
    finally:
        session.stop()


def spark_rows(session: Any, lake: Lake, report: Report, parameters: Mapping[str, int]) -> pa.Table:
    """Return the rows of a report on the runs of a lake, which are numbered from 1.

    Raises NotPortableError, and StoreError for files that Spark can't read.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from traceconv.spark.translation import spark_sql

    query = spark_sql(report)
    numbered = list(enumerate(lake.entries, start=1))
    if (run := parameters.get("run")) is not None:
        numbered = [one for one in numbered if one[0] == run]
    try:
        _create_views(session, lake, numbered)
        arguments = {parameter.name: parameters.get(parameter.name) for parameter in report.parameters}
        return session.sql(query, args=arguments).toArrow()
    except (PySparkException, Py4JError) as error:
        line = printable(next(iter(str(error).splitlines()), type(error).__name__), 300)
        raise StoreError(
            f"Spark can't compute {report.name} on {lake.folder.shown}: {line}; "
            "find damaged files with: traceconv lake list DIR --check"
        ) from None


def _create_views(session: Any, lake: Lake, numbered: Sequence[tuple[int, Entry]]) -> None:
    """Create a view for each table of a store."""
    session.createDataFrame(
        [(entry.key, number) for number, entry in numbered], "run STRING, run_id BIGINT"
    ).createOrReplaceTempView("traceconv_run_number")
    for name, schema in tables().items():
        if name == "run":
            columns = schema.columns[1:]
            rows = [(number, *(entry.run[column.name] for column in columns)) for number, entry in numbered]
            session.createDataFrame(rows, _struct(schema)).createOrReplaceTempView(name)
            continue
        files = [path for _, entry in numbered for path, file in entry.paths().items() if file.table == name]
        if not files:
            session.createDataFrame([], _struct(schema)).createOrReplaceTempView(name)
            continue
        root = lake.folder.spark_path
        stored = ", ".join(f"{column.name} {_TYPES[column.type]}" for column in schema.columns[1:])
        # Partitions are texts: a key of 16 digits is not a number.
        reader = session.read.schema(f'{stored}, "group" STRING, run STRING'.replace('"', "`"))
        frame = reader.option("basePath", root).parquet(*(f"{root}/{path}" for path in files))
        frame.createOrReplaceTempView(f"traceconv_{name}_rows")
        listed = ", ".join(f"r.`{column.name}`" for column in schema.columns[1:])
        session.sql(
            f"SELECT /*+ BROADCAST(n) */ n.run_id, {listed} FROM traceconv_{name}_rows AS r "
            "JOIN traceconv_run_number AS n ON n.run = r.run"
        ).createOrReplaceTempView(name)


def _struct(schema: TableSchema) -> str:
    return ", ".join(f"`{column.name}` {_TYPES[column.type]}" for column in schema.columns)
