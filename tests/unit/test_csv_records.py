"""Batches of records of a CSV file."""

from __future__ import annotations

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.vendor_folder import records
from traceconv.formats.vendor_folder.records import CsvRecords


def test_large_records_are_in_small_batches() -> None:
    """So that a file with records of the largest size doesn't fill the memory."""
    text = b"a,b\n" + b"".join(b"%d,%s\n" % (n, b"x" * (records.MAX_RECORD_BYTES - 100)) for n in range(20))
    found = CsvRecords([text[at : at + 4096] for at in range(0, len(text), 4096)], ImportLog(), Account(), "t.csv")
    found.open()
    batches = list(found.batches())
    assert [row[0] for batch in batches for row in batch.rows] == [str(n) for n in range(20)]
    assert [len(batch.rows) for batch in batches] == [9, 9, 2]
    assert sum(batch.byte_count for batch in batches) == len(text) - len(b"a,b\n")
