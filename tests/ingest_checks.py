"""Shared checks of ingest tests: run it, read the store, and compare the accounting with the source."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from stores import attached, query

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.formats.npulog.discover import find_captures
from traceconv.formats.npulog.reader import CaptureReader
from traceconv.normalize.npulog.raw_log import RawLogNormalizer
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun
from traceconv.schema import record_by_tag, tables
from traceconv.schema.dtypes import dtype_of
from traceconv.wire.frames import Block, FrameDecoder


def ingested(store: Path, *folders: Path, **options: Any) -> list[IngestedRun]:
    """Ingest captures into `store`, and check the accounting and the provenance."""
    runs = ingest(list(folders), store, **options)
    for run in runs:
        check_accounting(store, run)
    return runs


def taken(content: object, folder: Path, name: str = "trace.json", **options: Any) -> tuple[IngestedRun, Path]:
    """Write a file (bytes, text, or anything else as JSON) and ingest it; return its run, whose accounting is checked,
    and the store."""
    path, store = folder / name, folder / "trace.duckdb"
    text = content if isinstance(content, bytes | str) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    [run] = ingest([path], store, **options)
    assert all(account.balanced for account in run.accounts.by_record.values())
    return run, store


def taken_from(path: Path, folder: Path) -> tuple[IngestedRun, duckdb.DuckDBPyConnection]:
    """The run of a file, whose accounting is checked, and a connection to its store, which is new."""
    store = folder / "trace.duckdb"
    store.unlink(missing_ok=True)
    [run] = ingest([path], store)
    assert all(account.balanced for account in run.accounts.by_record.values())
    return run, duckdb.connect(str(store), read_only=True)


def rows_of(content: object, folder: Path, sql: str, name: str = "trace.json") -> list[tuple[Any, ...]]:
    """Rows of a statement on a store of one file, as `taken` writes it."""
    return query(taken(content, folder, name)[1], sql)


def all_rows(store: Path, *, leave_out: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, sorted, for comparing stores."""
    with attached(store) as connection:
        found = {name: connection.execute(f"FROM {name}").fetchall() for name in tables() if name not in leave_out}
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def check_accounting(store: Path, run: IngestedRun) -> None:
    """Check that records = rows + paired + used + lost for each type, and that the tables have these rows."""
    for name, account in run.accounts.by_record.items():
        assert account.balanced, (name, account)
        assert min(account.records, account.rows, account.paired, account.used, account.lost) >= 0, (name, account)
    if run.action == "kept":
        return
    with attached(store) as connection:
        in_store = _rows(connection, "SELECT record, * EXCLUDE (run_id, record) FROM import_account", run)
        assert {name: tuple(counts) for name, *counts in in_store} == {
            name: (a.records, a.rows, a.paired, a.used, a.lost) for name, a in run.accounts.by_record.items()
        }
        for table, record in (("task", "task"), ("api", "api"), ("range", "range"), ("memory", "memory")):
            expected = run.accounts.by_record[record].rows if record in run.accounts.by_record else 0
            assert _rows(connection, f"SELECT count(*) FROM {table}", run) == [(expected,)], table
        # Every ID is in exactly one block.
        ids = "SELECT id FROM task WHERE run_id = $run UNION ALL SELECT id FROM api WHERE run_id = $run"
        ids += " UNION ALL SELECT id FROM range WHERE run_id = $run"
        lost = f"""SELECT count(*) FROM ({ids}) AS e WHERE 1 <> (SELECT count(*) FROM source_block AS b
            WHERE b.run_id = $run AND e.id >= b.first_id AND e.id < b.first_id + b.event_count)"""
        assert connection.execute(lost, {"run": run.run_id}).fetchall() == [(0,)]
        twice = f"SELECT count(*) - count(DISTINCT id) FROM ({ids})"
        assert connection.execute(twice, {"run": run.run_id}).fetchall() == [(0,)]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, run: IngestedRun) -> list[tuple[Any, ...]]:
    return connection.execute(f"{sql} WHERE run_id = ?", [run.run_id]).fetchall()


def raw_records(folder: Path) -> Iterator[tuple[str, int | None, np.void]]:
    """(record type, device, record) of all records in an intact capture, read by independent code."""
    for path in sorted(folder.rglob("*.bin"), key=lambda p: (p.parent, int(p.name.split("slice_")[1][:-4]))):
        owner = path.parent.parent.name
        decoder = FrameDecoder()
        for item in [*decoder.feed(path.read_bytes()), *decoder.finish()]:
            assert isinstance(item, Block), item
            schema = record_by_tag()[item.tag]
            for row in np.frombuffer(item.payload, dtype_of(schema)):
                yield schema.name, None if owner == "host" else int(owner.removeprefix("device_")), row


def record_counts(folder: Path) -> Counter[str]:
    """Number of records of each type in an intact capture."""
    return Counter(name for name, _, _ in raw_records(folder))


def normalized(folder: Path) -> tuple[Accounts, ImportLog, dict[str, int]]:
    """Read a capture like ingest but without a store, which is fast; return accounts, log and rows by table."""
    (capture,) = find_captures([folder])
    log, accounts = ImportLog(), Accounts()
    reader = CaptureReader(capture, log, accounts)
    normalizer = RawLogNormalizer(log, accounts, reader.clock_hz)
    counts: Counter[str] = Counter()
    try:
        for table, batches in normalizer.tables(reader.events()):
            counts[table] += sum(batch.num_rows for batch in batches)
    finally:
        normalizer.close()
    for name, account in accounts.by_record.items():
        assert account.balanced, (name, account)
        if name in ("task", "api", "range", "memory"):
            assert account.rows == counts[name]
    return accounts, log, dict(counts)
