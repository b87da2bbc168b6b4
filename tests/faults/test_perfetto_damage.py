"""Damaged Perfetto traces: intact packets are found, losses are counted with their byte offset, nothing crashes."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import ingest_checks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto_builder import begin, end, message, packed, packet, small_trace, thread, varint
from stores import query

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError
from traceconv.formats.format import ReadRequest
from traceconv.formats.perfetto_proto.framing import PacketFramer
from traceconv.formats.perfetto_proto.reader import PerfettoReader
from traceconv.pipeline.result import IngestedRun


def slices(count: int, first: int = 0) -> bytes:
    return b"".join(begin(10 * n, 2, f"slice {n}") + end(10 * n + 5, 2) for n in range(first, first + count))


def taken(data: bytes, tmp_path: Path) -> tuple[IngestedRun, Path]:
    return ingest_checks.taken(data, tmp_path, "trace.pftrace", reader="perfetto_proto")


def read(data: bytes, path: Path) -> tuple[list[tuple[str, int | None, str | None]], ImportLog, Accounts]:
    """The events of a trace as the reader alone gives them."""
    path.write_bytes(data)
    log, accounts = ImportLog(), Accounts()
    reader = PerfettoReader(ReadRequest(path, log, accounts))
    found = []
    for batch in reader.batches():
        columns = batch.columns
        ts = columns.raw["ts"].to_pylist()
        found += zip(columns.label("ph"), ts, columns.label("name"), strict=True)
    return found, log, accounts


def test_a_trace_cut_at_any_byte(tmp_path: Path) -> None:
    data = small_trace()
    path = tmp_path / "t.pftrace"
    intact, log, _ = read(data, path)
    assert not list(log)
    starts, at = [], 0
    while at < len(data):
        starts.append(at)
        at += 2 + data[at + 1]
    for size in range(1, len(data)):
        found, log, accounts = read(data[:size], path)
        assert found == intact[: len(found)]
        # Nine of the ten packets hold what is counted: three describe, the others are events.
        assert len(found) == max(0, sum(start <= size for start in [*starts, len(data)]) - 1 - 3), size
        lost = accounts.by_record["damaged packets"].lost if "damaged packets" in accounts.by_record else 0
        assert lost == (0 if size in starts else 1)
        assert [(e.code.text, e.byte_offset) for e in log if e.code.text == "cut_event"] == (
            [] if size in starts else [("cut_event", max(start for start in starts if start < size))]
        )


def test_any_bit_of_a_trace_flipped(tmp_path: Path) -> None:
    """A flip costs the packet that it is in; packets further on are all there."""
    before, after = slices(3), slices(6, first=10)
    middle = begin(500, 2, "hit")
    path = tmp_path / "t.pftrace"
    sound = {(ts, name) for ph, ts, name in read(before + after, path)[0] if ph == "B"}
    for bit in range(8 * len(middle)):
        broken = bytearray(middle)
        broken[bit // 8] ^= 1 << bit % 8
        found, log, accounts = read(before + bytes(broken) + after, path)
        names = {(ts, name) for _, ts, name in found}
        # A damaged length may swallow the packet after it, or leave bytes that look like one.
        assert len(sound - names) <= 2, bit
        assert all(account.balanced for account in accounts.by_record.values())
        assert log.lossy or len(found) == 19 or any(accounts.by_record), bit


@pytest.mark.parametrize(
    "junk", [b"\xff" * 50, b"\0" * 64, b"\x0a" * 40, bytes(range(256)), b"\x0a\xff\xff\xff\xff\x07"]
)
def test_garbage_in_the_middle(junk: bytes, tmp_path: Path) -> None:
    head = thread(2, 1, 2, "t") + slices(20)
    run, store = taken(head + junk + slices(20, first=100), tmp_path)
    assert query(store, "SELECT count(*), count(dur_ns) FROM range") == [(40, 40)]
    damage = [e for e in run.log if e.code.text == "damaged_event"]
    assert sum(e.byte_count or 0 for e in damage) == len(junk)
    assert damage[0].byte_offset == len(head)
    assert not run.complete


def test_a_hole_larger_than_a_window(tmp_path: Path) -> None:
    junk = random.Random(7).randbytes(3 << 20)
    run, store = taken(slices(1000) + junk + slices(1000, first=5000), tmp_path)
    [(count,)] = query(store, "SELECT count(*) FROM range WHERE name LIKE 'slice %'")
    assert 1999 <= count <= 2000
    assert run.accounts.by_record["damaged packets"].lost >= 1


def test_a_length_that_swallows_packets(tmp_path: Path) -> None:
    """A damaged length that ends on the bound of a later packet: its bytes are not a packet, but contain some."""
    inner = slices(3, first=50)
    data = slices(5) + b"\x0a" + varint(len(inner)) + inner + slices(5, first=100)
    _, store = taken(data, tmp_path)
    assert query(store, "SELECT count(*), count(dur_ns) FROM range") == [(13, 13)]


def test_an_impossible_length_loses_only_its_packet(tmp_path: Path) -> None:
    data = slices(5) + b"\x0a" + varint(1 << 40) + slices(5, first=100)
    _, store = taken(data, tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(10,)]


def test_a_snapshot_of_more_clocks_than_there_are_is_lost(tmp_path: Path) -> None:
    """All pairs of its readings would be kept: of a packet of a megabyte, billions."""
    readings = [(1, message((1, number), (2, 1))) for number in range(128, 1128)]
    run, store = taken(slices(5) + packet((10, 1), (6, message(*readings))), tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(5,)]
    assert run.lossy
    lost = query(store, "SELECT code, event_count FROM import_log WHERE severity = 'data_loss'")
    assert lost == [("damaged_text", 1)]


def test_damaged_and_truncated_compressed_packets(tmp_path: Path) -> None:
    inner = zlib.compress(slices(3000))
    data = slices(2) + packet((50, inner[:-200])) + packet((50, b"no zlib data")) + slices(2, first=9000)
    run, store = taken(data, tmp_path)
    [(count,)] = query(store, "SELECT count(*) FROM range")
    assert 2000 < count < 3004
    assert run.accounts.by_record["damaged packets"].lost >= 2 and not run.complete


def test_endlessly_nested_compressed_packets(tmp_path: Path) -> None:
    data = slices(3)
    for _ in range(9):
        data = packed(data)
    run, store = taken(data, tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(0,)]
    assert not run.complete


def test_a_trace_that_decompresses_to_more_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceconv.formats.perfetto_proto.reader.FREE_BYTES", 1 << 20)
    bomb = packet((50, zlib.compress(packet((36, bytes(20 << 20))), 9)))
    run, store = taken(slices(2) + bomb + slices(2, first=100), tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(4,)]
    assert not run.complete


def test_one_text_that_all_events_refer_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file must not unfold to more than memory holds: it is refused in words."""
    texts = packet((10, 1), (13, 1), (12, message((29, message((1, 1), (2, "x" * 10_000))))))
    data = texts + b"".join(begin(n, 2, "a", (4, message((10, "k"), (17, 1)))) for n in range(200))
    _, store = taken(data, tmp_path)
    assert query(store, "SELECT DISTINCT length(args) FROM range") == [(10_008,)]
    monkeypatch.setattr("traceconv.formats.perfetto_proto.rows.MAX_SHARED", 1 << 20)
    with pytest.raises(InputError, match="interned texts"):
        read(data, tmp_path / "again.pftrace")


def test_hostile_nesting_and_numbers(tmp_path: Path) -> None:
    note = message((10, "x"), (4, 1))
    for _ in range(3000):
        note = message((10, "x"), (11, note)) if len(note) < 1 << 16 else note
    data = begin(1, 2, "deep", (4, note)) + end(2, 2)
    data += begin(2**63 + 5, 2, "late") + begin(3, 2, "wrong", (10, 2**64 - 1), (47, 1 << 40)) + end(4, 2)
    run, store = taken(data, tmp_path)
    assert query(store, "SELECT count(*) FROM range WHERE name = 'deep'") == [(1,)]
    assert {"damaged_text"} <= {e.code.text for e in run.log}


def test_damaged_descriptors_are_counted_once(tmp_path: Path) -> None:
    damaged = b"".join(packet((10, 1), (number, b"\x0a\x7f")) for number in (2, 43, 44, 60))
    _, log, _ = read(damaged + thread(2, 7, 8, "main") + begin(1, 2, "a") + end(2, 2) + damaged, tmp_path / "t.pftrace")
    assert [(e.code.text, e.event_count) for e in log] == [("damaged_text", 8)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_make_packets_appear_or_repeat(data: st.DataObject) -> None:
    """The bytes of packets and of damage lie side by side: together they are all bytes, each once."""
    text = bytearray(small_trace() * 3)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(st.sampled_from(["flip", "cut", "put"]))
        if what == "flip":
            text[at] ^= data.draw(st.integers(1, 255))
        elif what == "cut":
            del text[at : at + data.draw(st.integers(1, 9))]
        else:
            text[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    step = data.draw(st.integers(1, len(text)))
    framer = PacketFramer()
    windows = [w for at in range(0, len(text), step) for w in framer.feed(bytes(text[at : at + step]))]
    spans = []
    for window in windows + framer.finish():
        assert window.fields.sound.all()
        pairs = zip(window.starts.tolist(), window.ends.tolist(), strict=True)
        spans += [(window.byte_offset + a, window.byte_offset + b) for a, b in pairs]
        spans += [(d.byte_offset, d.byte_offset + d.byte_count) for d in window.damage]
    spans.sort()
    reached = 0
    for start, stop in spans:
        # In front of a packet are its tag and its length.
        assert 0 <= start - reached <= 11
        reached = max(reached, stop)
    assert reached == len(text)
