"""Log files and blocks that are repeated, reordered or missing: each record is stored once, each loss counted.

The oracle is the undamaged capture: what is stored and what is lost make up what was recorded, and never more.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder
from ingest_checks import ingested, record_counts
from stores import query

from traceconv.base.diagnostics import Accounts, Code, ImportLog, Severity
from traceconv.formats.npulog.discover import find_captures
from traceconv.formats.npulog.reader import CaptureReader
from traceconv.normalize.npulog.raw_log import RawLogNormalizer
from traceconv.pipeline.ingest import ingest
from traceconv.schema import tables
from traceconv.wire.frames import Block, FileHeader, FrameDecoder, encode_block_header, encode_file_header

#: Numbers that depend on the numbers of the files.
PLACES = {"id", "parent_id", "src_id", "dst_id"}
FIRST, SECOND, THIRD = (f"device_0/data/task.slice_{number}.bin" for number in range(3))
HOST = "host/data/api.slice_0.bin"

Rows = dict[str, Counter[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    b = CaptureBuilder(tmp_path_factory.mktemp("sound") / "PROF_1", devices=(0, 1), block_bytes=400, slice_bytes=3000)
    for number in range(60):
        b.call(number + 1, number * 100, number * 100 + 60, f"call {number % 7}")
        b.add("range", host_ns=number * 100, span_id=number + 1, event="begin", name=f"step {number}")
        b.add("range", host_ns=number * 100 + 90, span_id=number + 1, event="end")
        for device in (0, 1):
            b.sync(number * 10, number * 100, device_id=device)
            b.task(number, number * 10 + 1, number * 10 + 5 + device, f"kernel {number % 5}", device)
            b.add("counter", device, ticks=number * 10, name="freq", value_unit="MHz", value=number)
    folder = b.close()
    assert (folder / THIRD).exists()
    return folder


@pytest.fixture
def capture(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound capture, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "PROF_1"))


def read(folder: Path) -> tuple[Accounts, ImportLog, Rows]:
    """Ingest a capture without a store: accounting, log, rows by table without byte offsets."""
    (capture,) = find_captures([folder])
    log, accounts, rows = ImportLog(), Accounts(), {name: Counter[tuple[Any, ...]]() for name in tables()}
    reader = CaptureReader(capture, log, accounts)
    normalizer = RawLogNormalizer(log, accounts, reader.clock_hz)
    try:
        for table, batches in normalizer.tables(reader.events()):
            for batch in batches:
                kept = [name for name in batch.schema.names if name not in PLACES]
                rows[table].update(tuple(row.values()) for row in batch.select(kept).to_pylist())
    finally:
        normalizer.close()
    assert all(account.balanced for account in accounts.by_record.values()), accounts
    return accounts, log, rows


def recorded(accounts: Accounts) -> dict[str, int]:
    return {name: account.records for name, account in accounts.by_record.items() if account.records}


def lost(accounts: Accounts) -> int:
    return sum(account.lost for account in accounts.by_record.values())


def blocks(path: Path) -> tuple[bytes, list[bytes]]:
    """The header of a log file, and its blocks."""
    data = path.read_bytes()
    decoder = FrameDecoder()
    found = [item for item in [*decoder.feed(data), *decoder.finish()] if isinstance(item, Block)]
    return data[: found[0].byte_offset], [data[b.byte_offset : b.byte_offset + b.byte_count] for b in found]


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    header, parts = blocks(path)
    path.write_bytes(header + b"".join(change(parts)))


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def flip_payload(path: Path, number: int) -> None:
    def flip(parts: list[bytes]) -> list[bytes]:
        hurt = bytearray(parts[number])
        hurt[-1] ^= 1
        return [*parts[:number], bytes(hurt), *parts[number + 1 :]]

    rewrite(path, flip)


def copy(source: str, target: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / source, folder / target)


def copy_all_renumbered(folder: Path) -> None:
    for path in sorted(folder.glob("*/data/*.bin")):
        stem, number = path.name.removesuffix(".bin").split(".slice_")
        shutil.copy(path, path.with_name(f"{stem}.slice_{int(number) + 500}.bin"))


def whole_blocks(path: Path) -> list[Block]:
    decoder = FrameDecoder()
    return [item for item in decoder.feed(path.read_bytes()) if isinstance(item, Block)]


def prepend_tail(folder: Path) -> None:
    """A slice that begins with the last blocks of the one before and its own first one, all joined to one."""
    found = [*whole_blocks(folder / FIRST)[-2:], whole_blocks(folder / SECOND)[0]]
    payload = b"".join(bytes(block.payload) for block in found)
    joined = encode_block_header(found[0].tag, found[0].record_size, found[0].sequence, payload) + payload
    rewrite(folder / SECOND, lambda parts: [joined, *parts])


def damage_and_copy(folder: Path) -> None:
    """Two copies of a slice, each with a damage that the other has not."""
    shutil.copy(folder / FIRST, folder / "device_0/data/task.slice_9.bin")
    flip_payload(folder / FIRST, 0)
    flip_payload(folder / "device_0/data/task.slice_9.bin", 1)


HARMLESS: dict[str, tuple[Callable[[Path], object], Code | None]] = {
    "next slice": (copy(FIRST, "device_0/data/task.slice_77.bin"), Code.REPEATED_RECORDS),
    "any name": (copy(FIRST, "device_0/data/backup.bin"), Code.REPEATED_RECORDS),
    "folder of another device": (copy(SECOND, "device_1/data/task.slice_8.bin"), Code.REPEATED_RECORDS),
    "folder of the host": (copy(SECOND, "host/data/task.slice_0.bin"), Code.REPEATED_RECORDS),
    "all files": (copy_all_renumbered, Code.REPEATED_RECORDS),
    "block after itself": (
        lambda folder: rewrite(folder / HOST, lambda p: [p[0], p[0], *p[1:]]),
        Code.REPEATED_RECORDS,
    ),
    "first block at the end": (lambda folder: rewrite(folder / HOST, lambda p: [*p, p[0]]), Code.REPEATED_RECORDS),
    "slices overlap": (prepend_tail, Code.REPEATED_RECORDS),
    "each copy damaged elsewhere": (damage_and_copy, Code.REPEATED_RECORDS),
    "blocks in reverse": (lambda folder: rewrite(folder / HOST, lambda p: p[::-1]), None),
    "slices swapped": (lambda folder: swap(folder / FIRST, folder / SECOND), None),
    "devices swapped": (
        lambda folder: swap(folder / FIRST, folder / "device_1/data/task.slice_0.bin"),
        None,
    ),
    "types swapped": (lambda folder: swap(folder / HOST, folder / "host/data/range.slice_0.bin"), None),
    "slice renamed": (lambda folder: (folder / SECOND).rename(folder / "device_0/data/task.slice_7.bin"), None),
    "block in another slice": (
        lambda folder: (
            rewrite(folder / THIRD, lambda p: [*p, blocks(folder / FIRST)[1][1]]),
            rewrite(folder / FIRST, lambda p: [p[0], *p[2:]]),
        ),
        None,
    ),
}


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize("case", HARMLESS)
def test_repeated_and_moved_blocks_are_stored_once(sound: Path, capture: Path, case: str, manifest: bool) -> None:
    damage, code = HARMLESS[case]
    damage(capture)
    if not manifest:
        (capture / "manifest.json").unlink()
    accounts, log, rows = read(capture)
    codes = {entry.code for entry in log}
    assert rows == read(sound)[2]
    assert recorded(accounts) == record_counts(sound)
    assert lost(accounts) == 0
    assert (Code.REPEATED_RECORDS in codes) == (code is Code.REPEATED_RECORDS)
    logged = {entry.code for entry in log if entry.severity is not Severity.INFO}
    damaged = {Code.DAMAGED_BLOCK} if case == "each copy damaged elsewhere" else set()
    assert logged == damaged | (set() if manifest else {Code.NO_MANIFEST})


def test_a_repeated_slice_in_the_store(sound: Path, capture: Path, tmp_path: Path) -> None:
    """Nothing is lost by it: the run is complete, and its log has what was dropped, where and how much."""
    copy(FIRST, "device_0/data/task.slice_77.bin")(capture)
    (before,) = ingested(tmp_path / "before.duckdb", sound)
    (run,) = ingested(tmp_path / "s.duckdb", capture)
    totals = "SELECT count(*), sum(dur_ns) FROM task"
    assert query(tmp_path / "s.duckdb", totals) == query(tmp_path / "before.duckdb", totals)
    assert (run.complete, run.lossy, run.record_count) == (True, False, before.record_count)
    header, parts = blocks(sound / FIRST)
    logged = query(
        tmp_path / "s.duckdb",
        "SELECT path, code, byte_offset, byte_count, message FROM import_log JOIN source USING (run_id, source_id)",
    )
    count = sum(int.from_bytes(part[8:12], "little") for part in parts)
    message = f"repeats {count} records from 0 on: dropped"
    assert logged == [
        ("device_0/data/task.slice_77.bin", "repeated_records", len(header), sum(map(len, parts)), message)
    ]


@pytest.mark.parametrize("manifest", [True, False])
def test_blocks_that_contradict_each_other_are_an_error(sound: Path, capture: Path, manifest: bool) -> None:
    """The file that the manifest names is believed, or the first one."""
    first = whole_blocks(capture / FIRST)[0]
    payload = bytes(first.payload[: -first.record_size]) + bytes(first.record_size)
    header, _ = blocks(capture / FIRST)
    block = encode_block_header(first.tag, first.record_size, first.sequence, payload) + payload
    (capture / "device_0/data/task.slice_77.bin").write_bytes(header + block)
    if not manifest:
        (capture / "manifest.json").unlink()
    accounts, log, rows = read(capture)
    assert rows == read(sound)[2]
    assert recorded(accounts) == record_counts(sound)
    (entry,) = [entry for entry in log if entry.code is Code.CONFLICTING_RECORDS]
    assert (entry.severity, entry.event_count) == (Severity.ERROR, first.record_count)


def test_a_file_of_another_capture_is_not_mixed_in(sound: Path, capture: Path) -> None:
    decoder = FrameDecoder()
    decoder.feed((capture / FIRST).read_bytes())
    assert decoder.header is not None
    _, parts = blocks(capture / FIRST)
    other = FileHeader(99, 0, "device", decoder.header.clock_hz, 10_000, 9, decoder.header.schemas)
    strange = encode_file_header(other) + b"".join(parts)
    for where in (FIRST, "device_0/data/task.slice_77.bin"):
        path = capture / where
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(strange)
        accounts, log, rows = read(capture)
        codes = {entry.code for entry in log}
        assert codes == {Code.FOREIGN_FILE} | (set() if before is None else {Code.MISSING_RECORDS})
        assert recorded(accounts) == record_counts(sound)
        assert before is not None or rows == read(sound)[2]
        if before is not None:
            path.write_bytes(before)


@pytest.mark.parametrize("manifest", [True, False])
def test_an_impossible_sequence_number_is_not_a_loss(sound: Path, capture: Path, manifest: bool) -> None:
    """The number of records missing before 4 294 967 295 is unknown; the block's own records are complete."""
    block = whole_blocks(capture / HOST)[1]
    head = encode_block_header(block.tag, block.record_size, 0xFFFFFFFF, block.payload)
    rewrite(capture / HOST, lambda parts: [parts[0], head + bytes(block.payload), *parts[2:]])
    if not manifest:
        (capture / "manifest.json").unlink()
    accounts, log, _ = read(capture)
    assert recorded(accounts) == record_counts(sound)
    logged = [(one.code, one.event_count) for one in log if one.code in (Code.MISSING_RECORDS, Code.EXTRA_RECORDS)]
    assert logged == [(Code.EXTRA_RECORDS, block.record_count) if manifest else (Code.MISSING_RECORDS, None)]


def test_a_manifest_that_counts_too_few_records(sound: Path, capture: Path) -> None:
    manifest = json.loads((capture / "manifest.json").read_text())
    entry = next(file for file in manifest["files"] if file["path"] == HOST)
    entry["record_count"] -= 3
    (capture / "manifest.json").write_text(json.dumps(manifest))
    accounts, log, rows = read(capture)
    assert rows == read(sound)[2]
    assert lost(accounts) == 0
    assert [(one.code, one.event_count) for one in log] == [(Code.EXTRA_RECORDS, 3)]


def test_a_manifest_with_an_impossible_count(sound: Path, capture: Path) -> None:
    manifest = json.loads((capture / "manifest.json").read_text())
    next(file for file in manifest["files"] if file["path"] == HOST)["record_count"] = 1 << 60
    (capture / "manifest.json").write_text(json.dumps(manifest))
    accounts, log, rows = read(capture)
    assert (rows, lost(accounts)) == (read(sound)[2], 0)
    assert Code.BAD_MANIFEST in {entry.code for entry in log}


def _accident(folder: Path, rng: random.Random) -> str:
    """One accident of a file or of a block."""
    files = sorted(folder.glob("*/data/*.bin"))
    path, other = rng.choice(files), rng.choice(files)
    kind = rng.choice(["copy", "swap", "remove", "rename", "truncate", "flip", "repeat", "drop", "shuffle", "splice"])
    if kind == "copy":
        shutil.copy(path, other.with_name(f"copy.slice_{rng.randrange(9)}.bin"))
    elif kind == "swap":
        swap(path, other)
    elif kind == "remove":
        path.unlink()
    elif kind == "rename":
        path.rename(other.with_name(f"{path.name.split('.')[0]}.slice_{rng.randrange(900, 999)}.bin"))
    elif kind == "truncate":
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])
    elif kind == "flip":
        data = bytearray(path.read_bytes() or b"\0")
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    else:
        try:
            (header, parts), (_, others) = blocks(path), blocks(other)
        except IndexError:
            return kind  # no block in it any more
        place = rng.randrange(len(parts))
        if kind == "repeat":
            parts.insert(rng.randrange(len(parts) + 1), parts[place])
        elif kind == "drop":
            del parts[place]
        elif kind == "shuffle":
            rng.shuffle(parts)
        else:
            parts.insert(place, rng.choice(others))
        path.write_bytes(header + b"".join(parts))
    return kind


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_any_damage_keeps_intact_records_and_counts_missing_ones(
    sound: Path, tmp_path: Path, seed: int, manifest: bool
) -> None:
    wanted = record_counts(sound)
    rng = random.Random(seed)
    for number in range(12):
        folder = Path(shutil.copytree(sound, tmp_path / f"PROF_{number}"))
        if not manifest:
            (folder / "manifest.json").unlink()
        what = [_accident(folder, rng) for _ in range(rng.randrange(1, 5))]
        accounts, log, _ = read(folder)
        got = recorded(accounts)
        logged = [(entry.code.text, entry.message, entry.event_count) for entry in log]
        if manifest:
            assert got == wanted, (seed, number, what, logged)
        else:
            assert all(count <= wanted[name] for name, count in got.items()), (seed, number, what, logged)
        shutil.rmtree(folder)


def test_one_recording_in_two_containers_is_reported(tmp_path: Path) -> None:
    """Their bytes don't show it, their times and counts do; the file of another rank is another recording."""
    events = [{"ph": "X", "name": f"k{i}", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5} for i in range(9)]
    for name, extra in (("rank0.json", {}), ("rank1.json", {"distributedInfo": {"rank": 1}})):
        (tmp_path / name).write_text(json.dumps({"traceEvents": events, **extra}))
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress((tmp_path / "rank0.json").read_bytes()))
    (tmp_path / "link.json").symlink_to("rank0.json")
    paths = [tmp_path / name for name in ("rank0.json", "rank0.json", "link.json", "rank1.json", "rank0.json.gz")]
    runs = ingest(paths, tmp_path / "s.duckdb")
    assert [run.action for run in runs] == ["ingested"] * 3
    assert runs.same == [(3, 1)]
    logged = query(tmp_path / "s.duckdb", "SELECT run_id, severity, code FROM import_log WHERE code = 'same_content'")
    assert logged == [(3, "info", "same_content")]
