"""Captures that are truncated, damaged or incomplete: intact data is kept, losses are counted, nothing crashes."""

from __future__ import annotations

import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder
from ingest_checks import ingested, normalized, record_counts
from stores import query

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.cli import app
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun
from traceconv.provenance.find import why
from traceconv.store.database import open_store


def build(
    folder: Path,
    calls: int = 30,
    devices: tuple[int, ...] = (0, 1),
    *,
    slice_bytes: int = 1 << 28,
    block_bytes: int = 256,
) -> Path:
    """A capture that has some of everything, in small blocks."""
    b = CaptureBuilder(folder, devices=devices, block_bytes=block_bytes, slice_bytes=slice_bytes)
    b.add("capture", host_ns=0, epoch_ns=10**18, host_name="box", model_name="net", options="{}")
    b.add("thread", process_id=1, process_name="python", thread_name="main", thread_id=1)
    b.add("model", name="net", model_id=0)
    for op in range(5):
        b.add("op", name=f"op {op}", op_type="Conv2D", op_index=op)
        b.add("fusion", fusion_id=0, op_index=op, original_name=f"part {op}")
    for device in devices:
        b.add("device", device, kind="NPU", name="sim", device_id=device, clock_hz=10**8)
        b.add("stream", device, name="compute", stream_id=0)
    for number in range(calls):
        ns = number * 1000
        b.begin(2 * number + 1, ns, "outer").call(2 * number + 2, ns + 100, ns + 300, "LaunchKernel")
        b.end(2 * number + 1, ns + 500)
        b.add("range", host_ns=ns, span_id=number + 1, event="begin", name=f"step {number}", args='{"n": 1}')
        b.add("range", host_ns=ns + 9, span_id=number + 1, event="end")
        b.add("memory", host_ns=ns, block_id=number + 1, size_bytes=64, event="alloc", pool="p")
        b.add("memory", host_ns=ns + 7, block_id=number + 1, event="free")
        for device in devices:
            tick = number * 100
            b.sync(tick, ns, device_id=device)
            b.task(number, tick + 40, tick + 90, "", device, correlation_id=2 * number + 2, op_index=number % 5)
            b.add("pmu_pipe_utilization", device, ticks=tick + 90, task_id=number, aic_total_cycles=5)
            b.add("counter", device, ticks=tick, name="freq", value_unit="MHz", value=number)
            b.add("step_mark", device, ticks=tick, step_id=number, mark="start")
            b.add("step_mark", device, ticks=tick + 99, step_id=number, mark="end")
    return b.close()


def counted(run: IngestedRun) -> dict[str, int]:
    return {name: account.records for name, account in run.accounts.by_record.items() if account.records}


def codes(run: IngestedRun) -> set[Code]:
    return {entry.code for entry in run.log}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sound") / "PROF_1")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("small") / "PROF_1", 6, (0,), block_bytes=128)


@pytest.fixture
def capture(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound capture, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "PROF_1"))


def test_the_intact_capture_has_an_empty_log(sound: Path, tmp_path: Path) -> None:
    (run,) = ingested(tmp_path / "s.duckdb", sound)
    assert (run.complete, run.lossy, run.log) == (True, False, ())
    assert counted(run) == record_counts(sound)


def test_a_flipped_bit_anywhere_costs_at_most_its_block_and_is_counted(small: Path) -> None:
    """120 captures with one flipped bit: the accounting has every record written."""
    rng = random.Random(7)
    files = sorted(small.rglob("*.bin"))
    wanted = record_counts(small)
    _, _, intact = normalized(small)
    for _ in range(120):
        path = rng.choice(files)
        original = path.read_bytes()
        content = bytearray(original)
        place = rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        where = (path.name, place)
        accounts, log, rows = normalized(small)
        path.write_bytes(original)
        assert log.lossy, where
        assert {name: account.records for name, account in accounts.by_record.items()} == wanted, where
        # What a block of 128 bytes holds, and the counters of the tasks in it.
        assert sum(account.lost for account in accounts.by_record.values()) <= 20, where
        assert all(rows.get(table, 0) >= intact[table] - 10 for table in intact), (where, rows)


def test_flipped_bits_in_the_store(sound: Path, capture: Path) -> None:
    """The same with ingest, for a few: the run is marked as incomplete, with the reason."""
    wanted = record_counts(sound)
    for number, name in enumerate(("host/data/api", "device_0/data/sync", "device_1/data/task")):
        path = capture / f"{name}.slice_0.bin"
        original = path.read_bytes()
        content = bytearray(original)
        content[-40 - number] ^= 4
        path.write_bytes(content)
        (run,) = ingested(capture.parent / "s.duckdb", capture)
        path.write_bytes(original)
        assert counted(run) == wanted
        assert not run.complete
        logged = "SELECT run.complete, code, event_count, byte_offset > 0 FROM import_log JOIN run USING (run_id)"
        logged += f" JOIN source USING (run_id, source_id) WHERE run_id = {run.run_id} AND path LIKE '{name}%'"
        ((complete, code, lost, has_place),) = query(capture.parent / "s.duckdb", logged)
        assert (complete, code, has_place) == (False, "damaged_block", True)
        assert 0 < lost <= 10


@pytest.mark.parametrize("slice_bytes", [1 << 28, 700])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_files_truncated_anywhere_keep_everything_before(tmp_path: Path, seed: int, slice_bytes: int) -> None:
    """With the manifest, the accounting has all records written; without it, no more than that and none twice."""
    folder = build(tmp_path / "PROF_1", slice_bytes=slice_bytes)
    wanted = record_counts(folder)
    rng = random.Random(seed)
    for path in rng.sample(sorted(folder.rglob("*.bin")), 4):
        with path.open("r+b") as file:
            file.truncate(rng.randrange(path.stat().st_size))
    (run,) = ingested(tmp_path / "with.duckdb", folder)
    assert run.lossy
    assert counted(run) == wanted
    (folder / "manifest.json").unlink()
    (run,) = ingested(tmp_path / "without.duckdb", folder)
    assert Code.NO_MANIFEST in codes(run)
    assert all(count <= wanted[name] for name, count in counted(run).items()), (counted(run), wanted)


@pytest.mark.parametrize("damage", ["tail", "zeros", "gone"])
def test_without_a_manifest_a_damaged_slice_is_counted_once(tmp_path: Path, damage: str) -> None:
    """What is missing between slices shows in the next one's sequence numbers, and is not counted twice."""
    b = CaptureBuilder(tmp_path / "PROF_1", block_bytes=80, slice_bytes=400)
    for number in range(30):
        b.call(number + 1, number * 10, number * 10 + 5)
    folder = b.close()
    (folder / "manifest.json").unlink()
    slices = sorted((folder / "host/data").glob("api.slice_*.bin"), key=lambda p: int(p.stem.split("_")[1]))
    assert len(slices) >= 5
    for path in (slices[1], slices[3]):
        content = bytearray(path.read_bytes())
        if damage == "tail":
            content[-5] ^= 1  # the last block's payload: its header still has their number
            path.write_bytes(content)
        elif damage == "zeros":
            path.write_bytes(bytes(len(content)))
        else:
            path.unlink()
    (run,) = ingested(tmp_path / "s.duckdb", folder)
    assert counted(run)["api"] == 60
    assert run.accounts["api"].lost > 0


def test_a_truncated_capture_keeps_all_its_blocks(tmp_path: Path) -> None:
    b = CaptureBuilder(tmp_path / "PROF_1", block_bytes=200)
    for number in range(20):
        b.call(number + 1, number, number + 1)
    (run,) = ingested(tmp_path / "s.duckdb", b.cut())
    assert codes(run) == {Code.NO_MANIFEST}
    assert run.lossy
    assert run.accounts["api"].rows == 20


def test_a_file_of_zeros_and_a_missing_file_are_counted_by_the_manifest(sound: Path, capture: Path) -> None:
    wanted = record_counts(sound)
    api = capture / "host/data/api.slice_0.bin"
    api.write_bytes(bytes(api.stat().st_size))
    (capture / "device_1/data/task.slice_0.bin").unlink()
    (run,) = ingested(capture.parent / "s.duckdb", capture)
    assert counted(run) == wanted
    assert {Code.NOT_A_LOG, Code.MISSING_FILE, Code.MISSING_RECORDS} <= codes(run)
    assert run.accounts["api"].lost == wanted["api"]
    assert run.accounts["task"].lost == wanted["task"] // 2
    assert query(capture.parent / "s.duckdb", "SELECT count(*), count(submit_ns) FROM task") == [(30, 0)]


def test_an_unreadable_file_loses_only_its_records(sound: Path, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = record_counts(sound)
    real_open = Path.open

    def refuse(self: Path, *arguments: object, **options: object) -> object:
        if self.name == "memory.slice_0.bin" and "r" in str(arguments[:1]):
            raise PermissionError(13, "Permission denied")
        return real_open(self, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    (run,) = ingest([capture], capture.parent / "s.duckdb")
    assert counted(run) == wanted
    assert run.accounts["memory"].lost == wanted["memory"]
    assert [entry.message for entry in run.log if entry.code is Code.UNREADABLE_FILE] == [
        "can't be read: Permission denied"
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "it is not JSON"),
        (
            b'{"format": "npulog", "version": 1, "writer_id": "7", "files": [{"path": "../../etc/passwd"}]}',
            "$.files[0]",
        ),
    ],
)
def test_a_damaged_manifest_is_reported_and_the_files_are_read(capture: Path, content: bytes, reason: str) -> None:
    (capture / "manifest.json").write_bytes(content)
    (run,) = ingested(capture.parent / "s.duckdb", capture)
    assert codes(run) == {Code.BAD_MANIFEST}
    assert reason in run.log[0].message
    assert run.accounts["api"].rows == 60
    assert not run.complete


def test_a_manifest_that_counts_too_many_records(capture: Path) -> None:
    manifest = json.loads((capture / "manifest.json").read_text())
    for file in manifest["files"]:
        if file["path"] == "host/data/api.slice_0.bin":
            file["record_count"] += 1000
    (capture / "manifest.json").write_text(json.dumps(manifest))
    (run,) = ingested(capture.parent / "s.duckdb", capture)
    assert (run.accounts["api"].lost, run.accounts["api"].rows) == (1000, 60)
    assert codes(run) == {Code.MISSING_RECORDS}


def test_a_file_of_a_newer_version_loses_only_its_records(sound: Path, capture: Path) -> None:
    path = capture / "host/data/range.slice_0.bin"
    content = bytearray(path.read_bytes())
    content[8:10] = struct.pack("<H", 99)
    size = struct.unpack_from("<I", content, 12)[0]
    content[size - 4 : size] = struct.pack("<I", zlib.crc32(content[: size - 4]))
    path.write_bytes(content)
    (run,) = ingested(capture.parent / "s.duckdb", capture)
    assert counted(run) == record_counts(sound)
    assert {Code.NEWER_VERSION, Code.MISSING_RECORDS} == codes(run)
    assert "version 99" in next(entry.message for entry in run.log if entry.code is Code.NEWER_VERSION)


def rewrite_header(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the fields of a file's first record in its header, which gets a valid CRC again."""
    content = path.read_bytes()
    fixed, size = bytearray(content[:56]), struct.unpack_from("<I", content, 12)[0]
    schemas = json.loads(content[56 : size - 4])
    change(schemas[0]["fields"])
    text = json.dumps(schemas).encode()
    struct.pack_into("<I", fixed, 12, 60 + len(text))
    struct.pack_into("<I", fixed, 52, len(text))
    head = bytes(fixed) + text
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + content[size:])


def plain_bytes(fields: list[dict[str, Any]]) -> None:
    for field in fields:
        field["type"] = {"u8": "bytes[1]", "u16": "bytes[2]", "u32": "bytes[4]"}.get(field["type"], "bytes[8]")


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: [field.update(name="other_" + field["name"]) for field in fields[::2]],
        lambda fields: [field.update(name="other_" + field["name"]) for field in fields[1::2]],
        plain_bytes,
    ],
    ids=["even fields renamed", "odd fields renamed", "plain bytes"],
)
def test_other_schemas_in_the_headers_stop_no_command(
    small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], change: Callable[[list[dict[str, Any]]], object]
) -> None:
    capture = Path(shutil.copytree(small, tmp_path / "PROF_1"))
    store = tmp_path / "s.duckdb"
    for path in capture.rglob("*.bin"):
        rewrite_header(path, change)
    for command in (["ingest", "--db", str(store)], ["info"], ["dump"], ["dump", "--json"]):
        assert app.run([command[0], str(capture), *command[1:]]) in (0, 3), command
    keys = {"task": "id", "api": "id", "range": "id", "memory": "block_id", "step": "step_id", "op": "op_id"}
    keys |= {"run": "run_id", "device": "device_id", "track": "track_id", "process": "process_id", "task_pmu": "id"}
    rows = [(table, number) for table, key in keys.items() for (number,) in query(store, f"SELECT {key} FROM {table}")]
    rows += [("counter", f"{t}@{ns}") for t, ns in query(store, "SELECT track_id, ts_ns FROM counter")]
    assert rows
    with open_store(store) as connection:
        for table, number in {table: (table, number) for table, number in rows if number is not None}.values():
            assert not why(connection, store, table, str(number)).problems
    assert "Traceback" not in capfd.readouterr().err


def test_files_in_the_wrong_folder_or_with_a_wrong_name_lose_nothing_silently(sound: Path, tmp_path: Path) -> None:
    """The header of a file determines its device; records that no pass can use are counted as lost."""
    mixed = tmp_path / "PROF_2"
    (mixed / "host/data").mkdir(parents=True)
    (mixed / "device_0/data").mkdir(parents=True)
    shutil.copy(sound / "device_1/data/task.slice_0.bin", mixed / "host/data/task.slice_0.bin")
    shutil.copy(sound / "host/data/api.slice_0.bin", mixed / "device_0/data/api.slice_0.bin")
    shutil.copy(sound / "host/data/dictionary.slice_0.bin", mixed / "host/data/names.bin")
    (run,) = ingested(tmp_path / "s.duckdb", mixed)
    assert query(tmp_path / "s.duckdb", "SELECT device_id, count(*) FROM task GROUP BY 1") == [(1, 30)]
    assert query(tmp_path / "s.duckdb", "SELECT count(*), count(name) FROM api") == [(60, 60)]
    assert counted(run) == {"api": 120, "task": 60, "dictionary": record_counts(sound)["dictionary"]}
    assert run.lossy  # no manifest, and no clock


def test_a_single_device_file_outside_of_its_capture_is_a_device_file(sound: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.bin"
    shutil.copy(sound / "device_1/data/task.slice_0.bin", alone)
    (run,) = ingested(tmp_path / "s.duckdb", alone)
    assert query(tmp_path / "s.duckdb", "SELECT device_id, count(*) FROM task GROUP BY 1") == [(1, 30)]
    assert run.accounts["task"].paired == 30


def test_a_capture_of_zeros_is_one_error_and_no_store(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "host/data").mkdir(parents=True)
    (folder / "host/data/api.slice_0.bin").write_bytes(bytes(100_000))
    with pytest.raises(InputError) as caught:
        ingest([folder], tmp_path / "s.duckdb")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert list(tmp_path.iterdir()) == [folder]


def test_random_bytes_in_place_of_parts_of_files_never_break_it(small: Path) -> None:
    rng = random.Random(11)
    for _ in range(30):
        damaged = rng.sample(sorted(small.rglob("*.bin")), 5)
        originals = {path: path.read_bytes() for path in damaged}
        for path, original in originals.items():
            content = bytearray(original)
            first = rng.randrange(len(content))
            last = rng.randrange(first, len(content))
            content[first:last] = rng.randbytes(rng.randrange(2 * (last - first) + 2))
            path.write_bytes(content)
        _, log, _ = normalized(small)
        assert log.lossy or all(path.read_bytes() == original for path, original in originals.items())
        for path, original in originals.items():
            path.write_bytes(original)
