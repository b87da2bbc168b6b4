"""The capture writer on full or read-only disks: a one-line error, and no manifest, which marks complete captures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from traceconv.base.errors import OutputError
from traceconv.wire.frames import Block, FrameDecoder
from traceconv.wire.log_writer import CaptureWriter, new_records

# The kernel itself refuses to let a file grow past the limit, as a full disk does: first a short write, then an error.
LIMITED = """
import resource, signal, sys
from pathlib import Path
from traceconv.base.errors import OutputError
from traceconv.wire.log_writer import CaptureWriter, new_records

limit = int(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
writer = CaptureWriter(Path(sys.argv[1]), writer_id=1, device_clock_hz={}, block_bytes=4096)
try:
    writer.append("api", new_records("api", int(sys.argv[3])))
    writer.close({})
except OutputError as error:
    writer.abandon()
    print(error)
    sys.exit(7)
"""


def write_limited(folder: Path, limit: int, record_count: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(folder), str(limit), str(record_count)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("record_count", [1000, 100])
def test_a_full_disk_is_a_clear_error_and_leaves_no_manifest(tmp_path: Path, record_count: int) -> None:
    """Also when it is the last block that does not fit whole: no short write may pass for a write."""
    folder = tmp_path / "PROF_1"
    done = write_limited(folder, 4096, record_count)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.startswith(f"can't write {folder}/host/data/api.slice_0.bin: File too large")
    assert done.stdout.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == ["host"]


def test_what_was_written_before_the_disk_was_full_can_be_read(tmp_path: Path) -> None:
    write_limited(tmp_path / "PROF_1", 10_000, 1000)
    decoder = FrameDecoder()
    decoder.feed(b"")
    got = decoder.feed((tmp_path / "PROF_1/host/data/api.slice_0.bin").read_bytes())
    assert [block.record_count for block in got if isinstance(block, Block)] == [102, 102]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write may take less than it was given (a signal, a network disk): the rest follows."""
    writer = CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={})
    real_open = Path.open

    class Hesitant:
        def __init__(self, file: object) -> None:
            self._file = file

        def write(self, data: bytes) -> int:
            return self._file.write(data[:100])  # type: ignore[attr-defined, no-any-return]

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    def open_hesitant(path: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        file = real_open(path, mode, *args, **kwargs)  # type: ignore[call-overload]
        return Hesitant(file) if path.suffix == ".bin" and "x" in mode else file

    monkeypatch.setattr(Path, "open", open_hesitant)
    writer.append("api", new_records("api", 500))
    writer.close({})
    path = tmp_path / "PROF_1/host/data/api.slice_0.bin"
    decoder = FrameDecoder()
    (block,) = [*decoder.feed(path.read_bytes()), *decoder.finish()]
    assert isinstance(block, Block)
    assert block.record_count == 500
    (entry,) = json.loads((tmp_path / "PROF_1/manifest.json").read_text("utf-8"))["files"]
    assert entry["size_bytes"] == path.stat().st_size


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "PROF_1/host/data").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"can't write .*PROF_1: File exists; choose another folder"):
        CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={})


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(OutputError, match="Not a directory"):
        CaptureWriter(tmp_path / "x" / "PROF_1", writer_id=1, device_clock_hz={})


def test_a_folder_without_permission_is_refused(folder_of_a_user: Path) -> None:
    folder_of_a_user.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        CaptureWriter(folder_of_a_user / "PROF_1", writer_id=1, device_clock_hz={})


def test_a_failed_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={})
    writer.append("api", new_records("api", 5))

    def refuse(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputError, match="Input/output error"):
        writer.close({})
    assert not (tmp_path / "PROF_1/manifest.json").exists()


def test_a_manifest_may_contain_text_that_cannot_be_encoded(tmp_path: Path) -> None:
    """Paths may contain bytes that are not UTF-8; Python shows them as lone surrogates."""
    writer = CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={})
    writer.close({"model": "net\udcff.onnx"})
    assert json.loads((tmp_path / "PROF_1/manifest.json").read_bytes())["model"] == "net\udcff.onnx"
