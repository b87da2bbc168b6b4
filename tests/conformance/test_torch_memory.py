"""Memory snapshots of PyTorch: the numbers of its own viewer, and pickles that are damaged or hostile."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken_from
from torch_memory_builder import BASE_US, Allocator, Usage, dumps, random_allocator, small_snapshot, snapshot

from traceconv.base.errors import InputError
from traceconv.formats.common.limits import Limits
from traceconv.formats.registry import choose_reader
from traceconv.formats.torch_memory.unpickle import SnapshotPickle
from traceconv.pipeline.ingest import ingest


def stored(found: dict[str, Any], folder: Path, protocol: int | None = 4) -> tuple[Any, duckdb.DuckDBPyConnection]:
    path = folder / "snapshot.pickle"
    path.write_bytes(dumps(found, protocol))
    assert choose_reader(path) == "torch_memory"
    return taken_from(path, folder)


def assert_same_usage(store: duckdb.DuckDBPyConnection, found: dict[str, Any]) -> None:
    """Compare peaks, and the blocks in use at each, with those of the snapshot."""
    for device in range(len(found["device_traces"])):
        wanted = Usage(found, device)
        peaks = "SELECT peak_used_bytes, peak_reserved_bytes FROM memory_peak WHERE level = 'device' AND device_id = ?"
        assert store.execute(peaks, [device]).fetchall() == [(wanted.peak_bytes, wanted.peak_reserved_bytes)]
        live = "SELECT m.address, m.size_bytes, l.allocated_by FROM memory_live AS l JOIN memory AS m USING (block_id) "
        rows = store.execute(f"{live} WHERE l.device_id = ?", [device]).fetchall()
        assert Counter(rows) == wanted.live
        by_stack: Counter[str | None] = Counter()
        for (_, size, name), count in wanted.live.items():
            by_stack[name] += size * count
        sums = "SELECT allocated_by, peak_bytes FROM memory_statistic WHERE device_id = ? AND peak_bytes > 0"
        assert dict(store.execute(sums, [device]).fetchall()) == by_stack


@pytest.mark.parametrize("protocol", [None, 2, 3, 4, 5])
@pytest.mark.parametrize("most_entries", [None, 150])
def test_peaks_are_those_of_the_snapshot(protocol: int | None, most_entries: int | None, tmp_path: Path) -> None:
    seed = protocol or 1
    found = snapshot(random_allocator(seed, 900, most_entries), random_allocator(seed + 9, 90, device=1))
    run, store = stored(found, tmp_path, protocol)
    assert not run.lossy
    assert_same_usage(store, found)


def test_what_is_known_only_from_segments(tmp_path: Path) -> None:
    """Without a history, a snapshot has what is in use, and by whom; not since when."""
    device = random_allocator(3)
    device.trace.clear()
    found = snapshot(device)
    _, store = stored(found, tmp_path)
    assert_same_usage(store, found)
    assert store.execute(
        "SELECT count(*) FROM memory WHERE alloc_ns IS NOT NULL OR free_ns IS NOT NULL"
    ).fetchall() == [(0,)]


def test_times_streams_and_what_the_ring_buffer_lost(tmp_path: Path) -> None:
    device = Allocator(most_entries=4)
    start = device.segment(8 << 20)
    device.alloc(start, 1024, 1000, 0)
    device.alloc(start + 4096, 512, 512, 4)
    device.us += 5
    device.free(start)
    device.us += 5
    device.record("oom", 777, 1 << 40, None, user_metadata="phase 2")
    device.alloc(start, 2048, 2000, 3)
    run, store = stored(snapshot(device), tmp_path)
    assert not run.lossy
    blocks = "SELECT address - ?, size_bytes, kind, pool, alloc_ns - ?, free_ns - ?, name FROM memory "
    base = (BASE_US + 5) * 1000
    assert store.execute(f"{blocks} LEFT JOIN op USING (op_id) ORDER BY ALL", [start, base, base]).fetchall() == [
        (0, 1000, "block", "stream 0", None, 0, None),
        (0, 2000, "block", "stream 0", 5000, None, "aten::convolution_backward"),
        (0, 8 << 20, "segment", "stream 0", None, None, "torch/nn/modules/linear.py(125): forward"),
        (4096, 512, "block", "stream 0", None, None, "/home/me/train.py(90): main"),
    ]
    markers = "SELECT name, category, args->>'$.device_free', args->>'$.user_metadata' FROM marker WHERE name = 'oom'"
    assert store.execute(markers).fetchall() == [("oom", "oom", "777", "phase 2")]
    log = "SELECT code, severity, event_count FROM import_log ORDER BY event_count, message"
    assert store.execute(log).fetchall() == [("end_without_begin", "info", 1)] * 2
    stacks = (
        "SELECT op_id, name, args->>'$.frames[1]' FROM op JOIN marker AS s ON (s.args->>'$.stack')::BIGINT = op_id "
    )
    rows = store.execute(f"{stacks.replace('name,', 'op.name,')} WHERE s.name = 'call stack' AND op_id = 1").fetchall()
    assert rows == [(1, "torch/nn/modules/linear.py(125): forward", rows[0][2])]
    assert store.execute("SELECT name, start_ns, dur_ns FROM range").fetchall() == [
        ("step", (BASE_US + 2) * 1000, 88_000)
    ]
    assert store.execute("SELECT writer, epoch_known FROM run").fetchall() == [("PyTorch memory snapshot", True)]


def test_entries_without_a_time_are_in_their_order(tmp_path: Path) -> None:
    found = snapshot(random_allocator(4, 100))
    for entry in found["device_traces"][0]:
        del entry["time_us"]
    found["external_annotations"].clear()
    run, store = stored(found, tmp_path)
    assert not run.lossy
    assert_same_usage(store, found)
    assert ("not_time", len(found["device_traces"][0])) in store.execute(
        "SELECT code, event_count FROM import_log"
    ).fetchall()


def test_times_that_go_back_and_frees_that_are_missing(tmp_path: Path) -> None:
    device = Allocator()
    start = device.segment(8 << 20)
    device.alloc(start, 512, 512, 4)
    device.us -= 3
    device.free(start)
    device.alloc(start, 512, 512, 4)
    device.alloc(start, 512, 512, 4)
    run, store = stored(snapshot(device), tmp_path)
    assert run.lossy
    times = (
        f"SELECT alloc_ns - {BASE_US * 1000}, free_ns - {BASE_US * 1000} FROM memory WHERE kind = 'block' ORDER BY 1, 2"
    )
    assert store.execute(times).fetchall() == [(0, 1), (1, None), (1, None)]
    log = dict(store.execute("SELECT code, event_count FROM import_log").fetchall())
    assert log == {"unordered_time": 4, "missing_records": 1}


def test_pinned_memory_of_the_host(tmp_path: Path) -> None:
    device, host = random_allocator(5, 100), random_allocator(6, 100)
    found = snapshot(device)
    found |= {"host_traces": host.trace, "host_segments": host.snapshot_segments()}
    for one in found["host_segments"]:
        del one["device"]
    _, store = stored(found, tmp_path)
    wanted = Usage({"device_traces": [host.trace], "segments": host.snapshot_segments()}, 0)
    assert store.execute(
        "SELECT peak_used_bytes FROM memory_peak WHERE level = 'device' AND device_id = -1"
    ).fetchall() == [(wanted.peak_bytes,)]


@pytest.mark.parametrize("protocol", [None, 2, 4])
def test_a_truncated_file_keeps_its_entries(protocol: int | None, tmp_path: Path) -> None:
    """Of a truncated trace, it isn't known what was in use before it: nothing is made up."""
    found = snapshot(random_allocator(7, 700))
    data = dumps(found, protocol)
    path = tmp_path / "cut.pickle"
    path.write_bytes(data[: len(data) * 9 // 10])
    run, store = taken_from(path, tmp_path)
    assert run.lossy
    entries = [
        (one["time_us"], one["action"]) for one in found["device_traces"][0] if one["action"] not in ("oom", "annotate")
    ]
    rows = store.execute(
        "SELECT ts_ns // 1000, category FROM marker WHERE category NOT IN ('oom') AND category IS NOT NULL ORDER BY id"
    ).fetchall()
    # A segment of which a part is unmapped has a row for what is left.
    rows = [one for one, before in zip(rows, [None, *rows], strict=False) if one != before or one[1] != "segment_unmap"]
    entries = [
        one
        for one, before in zip(entries, [None, *entries], strict=False)
        if one != before or one[1] != "segment_unmap"
    ]
    assert len(entries) * 8 // 10 < len(rows) < len(entries)
    assert rows == entries[: len(rows)]
    assert store.execute("SELECT count(*) FROM memory WHERE alloc_ns IS NULL AND free_ns IS NULL").fetchall() == [(0,)]
    [(code, message, offset)] = store.execute(
        "SELECT code, message, byte_offset FROM import_log WHERE severity = 'data_loss'"
    ).fetchall()
    assert code == "truncated"
    assert path.stat().st_size - 10 <= offset <= path.stat().st_size  # inside of an opcode
    assert "in use before" in message


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(small_snapshot())))
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT source_format FROM run").fetchall() == [("torch_memory",)]


class _Command:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("pwned"),)


def _many(text: bytes) -> bytes:
    return b"\x80\x04}\x94(\x8c\x08segments\x94" + text


HOSTILE = {
    "a call": pickle.dumps({"segments": [], "device_traces": [[{"action": _Command()}]]}),
    "a long text": _many(b"\x8d" + (1 << 60).to_bytes(8, "little")),
    "a long number": _many(b"\x8b" + (1 << 30).to_bytes(4, "little")),
    "deep lists": _many(b"]" * 2_500_000),
    "many lists": _many(b"](" + b"]\x94" * 2_500_000),
    "deep tuples": _many(b"N" + b"\x85" * 2_500_000),
    "many marks": _many(b"(" * 2_500_000),
    "long texts in many rows": _many(
        b"X" + (20_000_000).to_bytes(4, "little") + b"A" * 20_000_000 + b"\x94" + b"h\x02" * 9
    ),
    "many empty batches": b"\x80\x04}\x94(\x8c\x0ddevice_traces\x94](]" + b"(e" * 1_000_000,
    "many devices": b"\x80\x04}\x94(\x8c\x0ddevice_traces\x94](" + b"](}e" * 100_000,
    "a memo out of order": _many(b"]r\xff\xff\xff\x7f"),
    "an unknown memo": _many(b"j\xff\xff\xff\x7f"),
    "itself": _many(b"\x8c\x06frames]\x94(h\x02h\x02e]\x94(h\x03"),
    "tuples as keys": _many(b"}N\x85" + b"\x86".join([b""] * 2) + b"Ks."),
    "nothing": _many(b""),
    "pops": b"\x80\x04}\x94(\x8c\x08segmentsuuueeasu.",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_pickles_are_refused_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(InputError) as error:
        ingest([path], tmp_path / "trace.duckdb")
    assert "\n" not in str(error.value)
    assert [one.name for one in tmp_path.iterdir()] == ["snapshot.pickle"]


def test_values_that_refer_to_themselves_end(tmp_path: Path) -> None:
    """Nested values double on each of many levels, as settings, as metadata and as frames."""
    nested: Any = [{"filename": "a.py", "line": 1, "name": "f"}]
    for _ in range(60):
        nested = [nested, nested]
    device = Allocator()
    start = device.segment(8 << 20)
    device.record("alloc", start, 512, nested, user_metadata=nested)
    found = snapshot(device)
    found["allocator_settings"]["again"] = found["allocator_settings"]
    found["allocator_settings"]["nested"] = nested
    found["more"] = (nested, nested)
    run, store = stored(found, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT alloc_ns, op_id FROM memory WHERE kind = 'block'").fetchall() == [
        (BASE_US * 1000, None)
    ]


@pytest.mark.parametrize("protocol", [None, 4])
def test_memory_does_not_grow_with_the_entries(protocol: int | None) -> None:
    """The memo of a pickle refers to each entry: it must not keep them."""
    device = random_allocator(8, 30)
    found = snapshot(device)
    frames = device.trace[-1]["frames"]
    found["device_traces"][0] += [dict(device.trace[-1], frames=list(frames)) for _ in range(12_000)]
    data = dumps(found, protocol)
    chunks = iter([data[at : at + 65536] for at in range(0, len(data), 65536)])
    one = SnapshotPickle(chunks, Limits(), frozenset(("segments", "device_traces", "external_annotations")))
    tracemalloc.start()
    try:
        assert sum(len(items.items) for items in one.items()) > 12_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
