"""Find records of a vendor's CSV files: by id, or by the row of the timeline that they completed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.locate import Evidence, SourceFile
from traceconv.formats.vendor_folder.locate import record_of
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch
from traceconv.normalize.vendor_csv.spec import FileKind, spec
from traceconv.normalize.vendor_csv.typed import CellIssues, typed
from traceconv.pipeline.vendor_folder.task_sql import NEAR_NS

#: Whether a typed record matches, by its columns and the `kind` of its file.
Test = Callable[[Mapping[str, Any]], bool]


def kind_of(source_format: str) -> FileKind | None:
    """Return the kind of a CSV file of a vendor's folder; None for other sources."""
    return next((kind for kind in spec().kinds if kind.kind == source_format), None)


def matching(source: SourceFile, role: str, test: Test, limit: int = 4) -> list[Evidence]:
    """Return the first records of a vendor's file that pass a test."""
    kind = kind_of(source.format)
    if kind is None or kind.becomes == "nothing":
        return []
    found: list[Evidence] = []
    for header, batch, rows in _typed(source, kind):
        for number, row in enumerate(rows.to_pylist()):
            if test({**row, "kind": kind.kind}):
                found.append(record_of(source, role, header, batch, number))
                if len(found) == limit:
                    return found
    return found


def completing_task(source: SourceFile, row: Mapping[str, Any]) -> list[Evidence]:
    """Return the records that completed a task of the timeline: by its start and name, or by its number."""
    kind = kind_of(source.format)
    if kind is None or kind.becomes not in ("task", "attach"):
        return []
    role = f"its record in {source.name}"

    def same(record: Mapping[str, Any], *columns: str) -> bool:
        return all(record[column] == row[column] for column in (*columns, "stream_id"))

    def same_number(record: Mapping[str, Any]) -> bool:
        return record["source_task_id"] is not None and same(record, "source_task_id")

    def starts_within(record: Mapping[str, Any], distance_ns: int) -> bool:
        starts = record["start_ns"], row["start_ns"]
        return None not in starts and abs(starts[0] - starts[1]) < distance_ns

    if kind.becomes == "attach":
        return matching(source, role, lambda record: same(record, "name") and same_number(record))
    tests: tuple[Test, ...] = (
        lambda record: starts_within(record, 1) and same(record, "name"),
        lambda record: starts_within(record, NEAR_NS) and same(record, "name"),
        lambda record: starts_within(record, 1) and same_number(record),
    )
    return next((found for test in tests if (found := matching(source, role, test))), [])


def _typed(source: SourceFile, kind: FileKind) -> Iterator[tuple[tuple[str, ...], RecordBatch, pa.RecordBatch]]:
    records = CsvRecords(source.chunks(), ImportLog(), Account(), source.name)
    layout = spec().layout(kind, records.open())
    if layout.missing:
        return
    for batch in records.batches():
        ids = np.arange(batch.first_ordinal, batch.first_ordinal + len(batch.rows), dtype=np.int64)
        yield records.header, batch, typed(layout, batch.rows, ids, CellIssues())
