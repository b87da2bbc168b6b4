"""Batches of sound CSV lines, which are parsed at once, are what reading line by line gives."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.vendor_folder.records import CsvRecords

#: Lines that are no record of their own, records of several lines, and some that only look damaged.
ODD = (
    b"", b"   ", b"\0\0\0", b"1,2\0,3", b"1,2", b"1,2,3,4", b"1,2,3,,", b'"a,2,3', b'1,"b\nc",3', b'"a"b,"c,2',
    b"\xff,2,3", b"1,2\r,3", b'"1""",2,"3"', b"1,2,3\r", b'a"b"c,2,3', b'"a"x"b",2,3', b"\xe2\x80\xa8,\x0b,\x1c",
)  # fmt: skip


def read(text: bytes, rows: int, *, at_once: bool) -> tuple[object, ...]:
    log, account = ImportLog(), Account()
    chunks = [text[at : at + 97] for at in range(0, len(text), 97)]
    records = CsvRecords(chunks, log, account, "a.csv", batch_rows=rows)
    if not at_once:
        records._sound_batch = lambda ordinal: None  # type: ignore[method-assign]
    records.open()
    batches = list(records.batches())
    for one, after in pairwise(batches):
        assert one.first_ordinal + len(one.rows) == after.first_ordinal
        assert one.byte_offset + one.byte_count <= after.byte_offset
    found = [row for one in batches for row in zip(one.offsets, one.lines, one.rows, strict=True)]
    ends = batches[-1].byte_offset + batches[-1].byte_count if batches else None
    return found, ends, account.lost, [*log]


@pytest.mark.parametrize("seed", range(40))
def test_lines_parsed_at_once_are_those_parsed_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    lines = [
        chance.choice(ODD) if chance.random() < (seed % 4) / 40 else b'%d,"k<%d, a""b>",%d' % (n, n % 7, n * n)
        for n in range(300)
    ]
    text = b"\xef\xbb\xbfa,b,c\n" + b"\n".join(lines) + chance.choice((b"", b"\n", b"\n\n"))
    rows = chance.choice((1, 2, 16, 4096))
    assert read(text, rows, at_once=True) == read(text, rows, at_once=False)


def test_sound_lines_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CsvRecords, "_parsed")
    records = CsvRecords([b"1,2\n" * 5000], ImportLog(), Account(), "a.csv", _width=2)
    assert [len(batch.rows) for batch in records.batches()] == [4096, 904]
