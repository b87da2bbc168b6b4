"""An exported file is either complete or absent."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from processes import TRACECONV

from traceconv.base.errors import OutputError
from traceconv.export import output
from traceconv.export.output import open_output
from traceconv.export.sorted_runs import one_thread

MakeStore = Callable[..., Path]


@pytest.fixture
def store(make_store: MakeStore) -> Path:
    return make_store(
        track=[{"track_id": 1, "kind": "stream", "stream_id": 0}],
        task=[{"id": 1, "track_id": 1, "name": "k", "start_ns": 7, "dur_ns": 1, "depth": 0}],
    )


def run_export(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [*TRACECONV, "export", "chrome", *arguments]
    return subprocess.run(command, capture_output="stdout" not in options, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_the_name_of_standard_output_is_written_to(store: Path) -> None:
    result = run_export("--db", str(store), "-o", "/dev/stdout")
    assert (result.returncode, b"/dev/stdout: 1 task" in result.stderr) == (0, True)
    assert json.loads(result.stdout)["traceEvents"]


def test_existing_file_is_kept_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("before")
    with pytest.raises(RuntimeError), open_output(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"), open_output(tmp_path / "trace.json") as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [None, errno.EOPNOTSUPP])
def test_a_large_file_is_complete_however_slow_the_system_is(
    error: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(error, "")

    monkeypatch.setattr(output, "_SLOW_RATE", 1 << 60)
    monkeypatch.setattr(output, "_LEAST_RESERVED_BYTES", 1 << 16)
    monkeypatch.setattr(output, "_RESERVED_BYTES", 1 << 18)
    if error is not None:
        monkeypatch.setattr(os, "pwritev", fail)
    data = b"".join(bytes([at]) * (at << 10) for at in range(100))
    with open_output(tmp_path / "trace.json") as file:
        for end in range(1 << 16, len(data) + (1 << 16), 1 << 16):
            file.write(data[end - (1 << 16) : end])
            file.write(b"end")
    pieces = (data[at : at + (1 << 16)] + b"end" for at in range(0, len(data), 1 << 16))
    assert (tmp_path / "trace.json").read_bytes() == b"".join(pieces)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_full_device_is_an_error(name: str, tmp_path: Path) -> None:
    link = tmp_path / name
    link.symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left"), open_output(link) as file:
        file.write(b"x" * 100_000)
    assert Path("/dev/full").is_char_device()
    assert list(tmp_path.iterdir()) == [link]


def test_symbolic_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "trace.json"
    link.symlink_to("folder/real.json")
    with open_output(link) as file:
        file.write(b"x")
    assert link.is_symlink()
    assert (tmp_path / "folder/real.json").read_bytes() == b"x"


def test_a_device_is_not_replaced_by_a_file() -> None:
    with open_output(Path(os.devnull)) as file:
        file.write(b"x")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("name", ["", "missing/trace.json", "file/trace.json"])
def test_unwritable_path_is_an_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't write"), open_output(tmp_path / name):
        pass


def test_read_only_folder_is_an_error(folder_of_a_user: Path) -> None:
    folder_of_a_user.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"), open_output(folder_of_a_user / "trace.json"):
        pass


def test_command_writes_a_file_and_reports_its_content(store: Path, tmp_path: Path) -> None:
    done = run_export("-o", str(tmp_path / "t.json.gz"), "--db", str(store))
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"1 task" in done.stderr
    assert "traceEvents" in json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))


def test_command_writes_to_standard_output(store: Path) -> None:
    done = run_export("-o", "-", "--db", str(store))
    assert done.returncode == 0
    assert json.loads(done.stdout)["otherData"]["run"][0]["run_id"] == 1


def test_full_standard_output_is_a_one_line_error(store: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_export("-o", "-", "--db", str(store), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


def test_an_error_while_a_result_is_open_is_the_one_that_is_raised() -> None:
    with duckdb.connect() as connection:
        before = connection.execute("SELECT current_setting('threads')").fetchall()
        with pytest.raises(OutputError), one_thread(connection):
            reader = connection.sql("FROM range(1_000_000)").to_arrow_reader(1)
            reader.read_next_batch()
            raise OutputError
        assert connection.cursor().execute("SELECT current_setting('threads')").fetchall() == before


def test_store_without_runs_is_reported(make_store: MakeStore, tmp_path: Path) -> None:
    done = run_export("--db", str(make_store(run=[])), "-o", str(tmp_path / "out.json"))
    assert done.returncode == 2
    assert b"ingest one" in done.stderr
