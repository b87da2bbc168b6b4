"""Measurements that import libraries: each runs in a new process and prints JSON.

python -m benchmarks.parts NAME ARGUMENT…
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.perfetto_parts import (
    json_rows,
    perfetto_messages,
    perfetto_objects,
    perfetto_parse,
    perfetto_reader,
)

BATCH = 200_000
#: Orders, and reports of nine tenths of the run, for which rows are found in other ways.
ORDERS = (
    ("op_summary", "aic_mac_time_ns"), ("op_summary", "aic_total_cycles"), ("op_summary", "cube_utilization_percent"),
    ("launch", "queue_length"), ("memory_trace", "op_name"),
)  # fmt: skip
WINDOWS = ("breakdown", "launch_queue", "memory_peak", "memory_statistic")


def insert(store: str, target: str) -> dict[str, Any]:
    """Time of DuckDB's bulk insert of a store's tables, from Arrow tables in memory into a new store file.

    With the tables, file format and settings of ingest: the lower bound of its time. Creating the tables doesn't count:
    ingest copies an empty store that it keeps.
    """
    import pyarrow as pa

    from traceconv.schema import table, tables
    from traceconv.schema.arrow import arrow_schema
    from traceconv.schema.ddl import create_table
    from traceconv.store.catalogue import generated_columns
    from traceconv.store.database import create_store, open_store
    from traceconv.store.load_memory import prepare_to_load
    from traceconv.store.statements import store_statements

    loaded: dict[str, pa.Table] = {}
    with open_store(Path(store)) as connection:
        empty = generated_columns(connection)
        for name in tables():
            rows: pa.Table = connection.execute(f'FROM "{name}"').to_arrow_table()
            loaded[name] = rows.cast(arrow_schema(name)).drop_columns(sorted(empty.get(name, ())))
    Path(target).unlink(missing_ok=True)
    connection = create_store(Path(target))
    prepare_to_load(connection)
    connection.execute("BEGIN")
    connection.execute(";\n".join(store_statements()))
    for name, columns in empty.items():
        connection.execute(f'DROP TABLE "{name}"; {create_table(table(name), columns)}')
    begin, cpu_begin = time.perf_counter(), time.process_time()
    for name, rows in loaded.items():
        connection.register("incoming", rows)
        connection.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM incoming')  # noqa: S608 - names of our schemas
        connection.unregister("incoming")
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")
    connection.close()
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    sizes = Path(store).stat().st_size, Path(target).stat().st_size
    Path(target).unlink()
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "store_bytes": sizes[0], "inserted_bytes": sizes[1]}


def decoding(trace: str) -> dict[str, Any]:
    """Time of decoding the events of a trace JSON file to columns, in one thread and without their use; best of 2."""
    import gc

    from traceconv.base.diagnostics import Accounts, ImportLog
    from traceconv.formats.chrome_json.reader import TraceFileReader
    from traceconv.formats.common.limits import Limits
    from traceconv.formats.format import ReadRequest

    def read() -> int:
        request = ReadRequest(Path(trace), ImportLog(), Accounts(), Limits(), lambda *_: None, ())
        return sum(batch.columns.count for batch in TraceFileReader(request).batches())

    gc.disable()
    return {"seconds": _best(read, 2)}


def counts(store: str) -> dict[str, Any]:
    """Row counts of the large tables."""
    from traceconv.store.database import open_store

    with open_store(Path(store)) as connection:
        names = ("task", "api", "range", "memory", "task_pmu")
        sql = ", ".join(f'(SELECT count(*) FROM "{name}")' for name in names)  # noqa: S608 - names above
        return dict(zip(names, connection.execute(f"SELECT {sql}").fetchall()[0], strict=True))


def reports(store: str, top: str) -> dict[str, Any]:
    """Seconds of each report for its first `top` rows, with the store open, best of three; and why reports failed."""
    import duckdb

    from traceconv.reports.catalog import reports as all_reports
    from traceconv.reports.question import Question
    from traceconv.store.database import open_store
    from traceconv.store.documented_sql import OrderTerm

    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    with open_store(Path(store)) as connection:
        [(start, end)] = connection.execute("SELECT start_ns, end_ns FROM run").fetchall()
        margin = (end - start) // 20
        window = {"from_ns": start + margin, "to_ns": end - margin}
        questions = {name: Question(report, {}, report.columns) for name, report in all_reports().items()}
        for name, column in ORDERS:
            order = (OrderTerm(column, descending=True),)
            questions[f"{name} by {column}"] = replace(questions[name], order=order)
        for name in WINDOWS:
            questions[f"{name} of a window"] = replace(questions[name], parameters=window)
        for name, question in questions.items():
            run = {"run": 1} if "run" in {parameter.name for parameter in question.report.parameters} else {}
            asked = replace(question, parameters={**run, **question.parameters}, top=int(top))
            try:
                seconds[name] = _best(partial(_ask, connection, asked))
            except duckdb.Error as error:  # such as too little memory: the others can still be measured
                failed[name] = str(error).splitlines()[0]
    return {"seconds": seconds, "failed": failed}


def _ask(connection: Any, question: Any) -> int:
    from traceconv.reports.run import answer

    return sum(len(rows) for rows in answer(connection, question))


def multiply(store: str, target: str, tasks: str) -> dict[str, Any]:
    """Copy a store and repeat its run at later times until it has at least `tasks` tasks.

    API calls, counters, steps and blocks of memory that were freed are repeated too; the tables of points are filled
    again.
    """
    import shutil

    from traceconv.store.catalogue import generated_columns
    from traceconv.store.database import open_store
    from traceconv.store.derived_tables import fill_derived_tables

    shutil.copyfile(store, target)
    with open_store(Path(target), read_only=False) as connection:
        empty = generated_columns(connection)
        span, steps, last, correlations, count = connection.execute(
            "SELECT max(start_ns + dur_ns) - min(start_ns) + 1000000, max(step_id), max(source_task_id), "
            "max(correlation_id) + 1, count(*) FROM task"
        ).fetchall()[0]
        ids = connection.execute("SELECT count(*) * 2 FROM api").fetchall()[0][0]
        blocks = connection.execute("SELECT max(block_id) FROM memory").fetchall()[0][0]
        times = -(-int(tasks) // count)
        # The last column is the one by which rows are in order.
        for table, columns in {
            "task": {
                "id": count * 2,
                "step_id": steps,
                "execution_id": steps,
                "source_task_id": last,
                "correlation_id": correlations,
                "api_id": ids,
                "submit_ns": span,
                "start_ns": span,
            },
            "task_pmu": {"id": count * 2},
            "api": {"id": ids, "parent_id": ids, "step_id": steps, "correlation_id": correlations, "start_ns": span},
            "memory": {"block_id": blocks, "free_ns": span, "alloc_ns": span},
            "step": {
                "step_id": steps,
                "iteration": steps,
                "fp_start_ns": span,
                "bp_end_ns": span,
                "end_ns": span,
                "start_ns": span,
            },
        }.items():
            generated = empty.get(table, set())
            left_out = ", ".join(["turn", *sorted(generated)])
            shifted = ", ".join(
                f"{column} + {shift} * turn AS {column}" for column, shift in columns.items() if column not in generated
            )
            condition = "alloc_ns + free_ns IS NOT NULL" if table == "memory" else "true"
            connection.execute(
                f"INSERT INTO {table} BY NAME SELECT * EXCLUDE ({left_out}) REPLACE ({shifted}) "  # noqa: S608 - names above
                f"FROM {table}, (SELECT unnest(range(1, {times})) AS turn) WHERE {condition} "
                f"ORDER BY turn, {list(columns)[-1]}"
            )
        ends = ("start_ns + dur_ns FROM task", "start_ns + dur_ns FROM api", "end_ns FROM step", "free_ns FROM memory")
        parts = " UNION ALL ".join(f"SELECT run_id, {end}" for end in ends)
        connection.execute(
            "UPDATE run SET end_ns = greatest(run.end_ns, last.ns) FROM "  # noqa: S608 - names above
            f"(SELECT run_id, max(ns) AS ns FROM ({parts}) AS part(run_id, ns) GROUP BY run_id) AS last "
            "WHERE run.run_id = last.run_id"
        )
        fill_derived_tables(connection)
        connection.execute("CHECKPOINT")
    return {"tasks": times * count}


def decode(capture: str) -> dict[str, Any]:
    """Framing, CRC and decoding of all files of a capture: bytes, and seconds, best of three."""
    files = _files(capture)

    def read() -> int:
        return sum(len(block) for file in files for block in _blocks(file))

    return {"seconds": _best(read), "bytes": sum(file.size_bytes for file in files)}


def nesting(capture: str) -> dict[str, Any]:
    """Nesting of the capture's API events: slices, and seconds without decoding, best of three."""
    import numpy as np

    from traceconv.normalize.npulog.nesting import Nester

    records = _records(capture, "api")
    ids = np.arange(len(records))
    batches = [slice(first, first + BATCH) for first in range(0, len(records), BATCH)]

    def nest() -> int:
        nester = Nester("thread_id", "correlation_id", records.dtype)
        count = 0
        for batch in batches:
            part = records[batch]
            count += len(nester.feed(part, ids[batch], part["event"], part["host_ns"]).ids)
        return count

    return {"seconds": _best(nest), "slices": nest()}


def pairing(capture: str) -> dict[str, Any]:
    """Pairing of the capture's task starts and ends: slices, and seconds without decoding, best of three."""
    import numpy as np

    from traceconv.normalize.npulog.pairing import Pairer

    records = _records(capture, "task")
    ids = np.arange(len(records))
    batches = [slice(first, first + BATCH) for first in range(0, len(records), BATCH)]

    def pair() -> int:
        pairer = Pairer("task_id", records.dtype)
        count = 0
        for batch in batches:
            part = records[batch]
            count += len(pairer.feed(part, ids[batch], part["event"] == 1).ids)
        return count

    return {"seconds": _best(pair), "slices": pair()}


def _records(capture: str, record_name: str) -> Any:
    """Decode all records of a type."""
    import numpy as np

    return np.concatenate([block for file in _files(capture) if file.record == record_name for block in _blocks(file)])


def _files(capture: str) -> Any:
    from traceconv.formats.npulog.discover import find_captures

    (folder,) = find_captures([Path(capture)])
    return folder.files


def _blocks(file: Any) -> Iterator[Any]:
    """Yield the records of a file, block by block."""
    from traceconv.schema import record_by_tag
    from traceconv.wire.codec import decode_block
    from traceconv.wire.frames import Block, FrameDecoder

    decoder = FrameDecoder()
    with file.path.open("rb", buffering=0) as stream:
        while chunk := stream.read(2 << 20):
            for item in decoder.feed(chunk):
                assert isinstance(item, Block)
                schema = record_by_tag()[item.tag]
                yield decode_block(item, schema, schema)


def _best(work: Callable[[], object], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "insert": insert,
    "decoding": decoding,
    "counts": counts,
    "multiply": multiply,
    "reports": reports,
    "decode": decode,
    "nesting": nesting,
    "pairing": pairing,
    **{
        work.__name__: work
        for work in (perfetto_parse, perfetto_messages, perfetto_reader, perfetto_objects, json_rows)
    },
}

if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](*sys.argv[2:])))
