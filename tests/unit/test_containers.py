"""Compressed and encoded files: what is recovered from damaged ones, and what is reported."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard
from ingest_checks import taken

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError
from traceconv.formats.common.files import TextSource, head_of
from traceconv.formats.common.limits import Limits
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.find import why
from traceconv.store.database import open_store

EVENTS = [{"ph": "X", "name": f"n{i}", "cat": "層", "pid": 1, "tid": 1, "ts": i * 3, "dur": 2} for i in range(3000)]
TEXT = json.dumps(EVENTS, ensure_ascii=False).encode()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def read(packed: bytes, folder: Path) -> tuple[bytes, list[str]]:
    path, log = folder / "trace.json", ImportLog()
    path.write_bytes(packed)
    text = b"".join(TextSource(path, log, Limits(), lambda _: None).chunks())
    return text, [entry.message for entry in log if entry.code is Code.BAD_CONTAINER]


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("text", [TEXT, TEXT[:40]], ids=["large", "small"])
def test_a_wrong_bit_in_a_trailer_loses_nothing(packed: Callable[[bytes], bytes], text: bytes, tmp_path: Path) -> None:
    whole = packed(text)
    trailer = 8 if packed is gzip.compress else 4
    for bit in range((len(whole) - trailer) * 8, len(whole) * 8, 3):
        found, log = read(flipped(whole, bit), tmp_path)
        assert found == text
        assert len(log) == 1
        assert head_of(tmp_path / "trace.json")[:30] == text[:30]


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_a_wrong_byte_anywhere_keeps_the_data_before_and_the_parts_after(
    packed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    parts = [TEXT[:50_000], TEXT[50_000:120_000], TEXT[120_000:]]
    random.seed(5)
    for _ in range(30):
        two = bytearray(packed(parts[1]))
        at = random.randrange(len(two))
        two[at] ^= random.randrange(1, 256)
        found, log = read(packed(parts[0]) + bytes(two) + packed(parts[2]), tmp_path)
        assert found.startswith(parts[0])
        assert log
        if at > 30:  # the head of a frame of zstd may say that all that follows is one block
            assert found.endswith(parts[2])


@pytest.mark.parametrize("packed", [gzip.compress, zstd], ids=["gzip", "zstd"])
@pytest.mark.parametrize("behind", [b"garbage behind", b"\0" * 600, b"\1" * 20], ids=["words", "padding", "bytes"])
def test_bytes_after_compressed_data_do_not_affect_it(
    packed: Callable[[bytes], bytes], behind: bytes, tmp_path: Path
) -> None:
    found, log = read(packed(TEXT) + behind, tmp_path)
    assert found == TEXT
    assert bool(log) == bool(behind.strip(b"\0"))


def test_a_truncated_file_keeps_everything_before_its_end(tmp_path: Path) -> None:
    for size in (40, 3000, len(gzip.compress(TEXT)) - 3):
        cut = gzip.compress(TEXT)[:size]
        expected = io.BytesIO()
        with pytest.raises(EOFError), gzip.GzipFile(fileobj=io.BytesIO(cut)) as stream:
            while piece := stream.read1(50):
                expected.write(piece)
        found, log = read(cut, tmp_path)
        assert found.startswith(expected.getvalue())
        assert TEXT.startswith(found)
        assert log


def test_xz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that follow each other, padding, garbage, truncation, damage in one of them, and a bomb."""
    packed = partial(lzma.compress, preset=0)
    random.seed(7)
    noise = json.dumps([random.random() for _ in range(48_000)]).encode()
    parts = [noise, TEXT[:60_000], TEXT[60_000:]]
    text, first = b"".join(parts), packed(noise)
    whole = first + packed(parts[1]) + packed(parts[2])
    assert read(whole + bytes(8), tmp_path) == (text, [])
    assert head_of(tmp_path / "trace.json") == noise[: 1 << 16]
    found, log = read(whole + b"garbage", tmp_path)
    assert (found, len(log)) == (text, 1)
    for size in (len(first) * 98 // 100, len(whole) - 5):
        found, log = read(whole[:size], tmp_path)
        assert text.startswith(found)
        assert len(found) > 880_000
        assert log == ["the xz data is truncated"]
    for place in (len(first) // 2, len(first) - 40):
        found, log = read(flipped(whole, 8 * place), tmp_path)
        assert found[:400_000] == noise[:400_000]
        assert found.endswith(parts[1] + parts[2])
        assert len(log) == 1
    monkeypatch.setattr("traceconv.formats.common.files.FREE_BYTES", 1 << 20)
    found, log = read(packed(bytes(20 << 20)), tmp_path)
    assert len(found) < 18 << 20
    assert "--max-ratio" in log[0]
    run, store = taken(packed(TEXT), tmp_path, "t.json.xz")
    assert (run.record_count, list(run.log)) == (len(EVENTS), [])
    with open_store(store, read_only=True) as connection:
        answer = why(connection, store, "range", str((1 << 40) + 2000))
    assert json.loads(answer.evidence[0].data) == EVENTS[2000]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_other_encodings_are_named_and_read(
    packed: Callable[[bytes], bytes], encoding: str, mark: str, tmp_path: Path
) -> None:
    run, store = taken(packed((mark + "\n" + TEXT.decode()).encode(encoding)), tmp_path)
    assert run.record_count == len(EVENTS)
    assert not run.lossy
    (entry,) = [entry for entry in run.log if entry.code is Code.ENCODING]
    assert encoding.upper() in entry.message
    # The bytes of a row are those of the text in UTF-8.
    with open_store(store, read_only=True) as connection:
        answer = why(connection, store, "range", str((1 << 40) + 2000))
    assert json.loads(answer.evidence[0].data) == EVENTS[2000]


def test_members_and_frames_without_text_hide_no_trace(tmp_path: Path) -> None:
    """A writer that appends a member with each event, and pzstd, which begins with a frame of its own."""
    members = b"".join(gzip.compress(part) for part in (b"", b"[", TEXT[1:20], TEXT[20:]))
    frames = b"\x50\x2a\x4d\x18\x04\0\0\0size" + zstd(TEXT)
    for name, packed in (("a.json.gz", members), ("b.json.zst", frames)):
        (tmp_path / name).write_bytes(packed)
        (run,) = ingest([tmp_path / name], tmp_path / f"{name}.duckdb")
        assert (run.record_count, run.lossy) == (len(EVENTS), False)


@pytest.mark.parametrize("in_folder", [True, False])
def test_a_compressed_file_without_output_is_not_reported_as_empty(tmp_path: Path, in_folder: bool) -> None:
    (tmp_path / "t.json.zst").write_bytes(zstd(TEXT)[:400])
    with pytest.raises(InputError, match="can't be decompressed: it is truncated or damaged"):
        ingest([tmp_path if in_folder else tmp_path / "t.json.zst"], tmp_path / "s.duckdb")
