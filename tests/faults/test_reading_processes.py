"""Files read by several processes give the same store as files read by one, also if a process is killed."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from commands import Command
from ingest_checks import all_rows
from processes import heed_interrupts, wait_until
from stores import query
from trace_files import write_trace

from traceconv.base.errors import DataLossError, InputError, InternalError, UsageError
from traceconv.normalize.rows import rows_from_tuples
from traceconv.pipeline import reader_forks, reader_messages, reader_pool, reader_process
from traceconv.pipeline.ingest import ingest, job_count_for
from traceconv.pipeline.trace_file import TraceOptions, TraceRecording

#: A reading process that does something else with files of certain names.
READING = """
import os, sys, time; sys.path[:] = {path!r}
from traceconv.pipeline import reader_forks, reader_messages
from traceconv.pipeline.trace_file import TraceRecording
read, send = TraceRecording.read, reader_messages.Channel.send
def instead(recording, target):
    name = recording.path.name
    if name == "killed.json":
        os.kill(os.getpid(), 9)
    elif name == "starved.json":
        raise MemoryError
    elif name == "endless.json":
        open(os.environ["NOTE"], "w").write(str(os.getpid()))
        time.sleep(600)
    elif name == "partly.json":
        reader_messages.Channel.send = killed_after_rows
    return read(recording, target)
def killed_after_rows(channel, message, **how):
    if isinstance(message, reader_messages.EndOfRows):
        os.kill(os.getpid(), 9)
    send(channel, message, **how)
TraceRecording.read = instead
reader_forks.main({modules!r}, {entries!r}, {command_line!r})
"""


def job(folder: Path) -> Path:
    """Ranks, a copy, unusable files, and formats whose ingest queries the store in between."""
    for rank in range(4):
        write_trace(folder / f"rank{rank}.json", rank=rank, seed=rank, count=50)
    shutil.copy(folder / "rank1.json", folder / "rank1_copy.json")
    write_trace(folder / "rank4.json.gz", rank=4, seed=4)
    (folder / "rank5.json").write_text('{"traceEvents": [{"ph": "X", "na')
    (folder / "empty.json").write_bytes(b"")
    metadata = {"name": "HH", "cat": "dftracer", "type": 1, "pid": 7, "tid": 7, "ph": 4}
    metadata["args"] = {"hhash": "68", "name": "node1", "value": "68"}
    call = {"id": 2, "name": "open64", "cat": "POSIX", "type": 3, "pid": 7, "tid": 7, "ts": 10, "dur": 5, "ph": 1}
    (folder / "app.pfw").write_text(f"{json.dumps(metadata)}\n{json.dumps(call)}\n")
    (folder / "npu").mkdir()
    rows = "".join(f"op{n},Add,{100 + n}.5\t,2.25,AI_VECTOR_CORE,1\n" for n in range(3))
    head = "Name,Type,Start Time(us),Duration(us),Accelerator Core,Stream ID\n"
    (folder / "npu/kernel_details.csv").write_text(head + rows)
    b = CaptureBuilder(folder / "PROF_1")
    for tick in (0, 100, 10_000):
        b.sync(tick, tick * 10)
    b.call(1, 1, 50, "call")
    b.task(1, 10, 15, "k", correlation_id=1)
    b.close()
    return folder


def small_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool, "_ORDER_RECORDINGS", 2)


@pytest.mark.parametrize("together", [False, True])
def test_the_store_is_the_same_with_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    if not together:
        small_orders(monkeypatch)
    top = job(tmp_path / "job")
    results, stores, logs = [], [], []
    for jobs in (1, 2):
        store = tmp_path / f"{jobs}.duckdb"
        result = ingest([top], store, jobs=jobs)
        again = ingest([top], store, jobs=jobs)
        replaced = ingest([top], store, jobs=jobs, replace=True)
        results.append(
            [
                [(one.run_id, one.label, one.action, one.accounts, one.log, one.source_names, one.host) for one in each]
                + [(each.unusable, each.others)]
                for each in (result, again, replaced)
            ]
        )
        stores.append(all_rows(store))
        logs.append(query(store, "FROM import_log ORDER BY rowid"))
    (top / "empty.json").unlink()
    for jobs in (1, 2):
        with pytest.raises(DataLossError, match=r"rank5\.json contains no usable events"):
            ingest([top], tmp_path / "strict.duckdb", jobs=jobs, strict=True)
        assert not (tmp_path / "strict.duckdb").exists()
    assert results[0] == results[1]
    assert stores[0] == stores[1]
    assert logs[0] == logs[1]
    assert ("app.pfw", "node1") in query(tmp_path / "2.duckdb", "SELECT label, host FROM run")


def test_a_process_that_ends_fails_its_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.setattr(reader_forks, "PROGRAM", READING)
    for rank, name in enumerate(("ok", "killed", "partly", "starved", "ok")):
        count = 9000 if name == "partly" else 4  # more than what is collected for one insert
        write_trace(tmp_path / f"t/rank{rank}/{name}.json", rank=rank, seed=rank, count=count)
    done = command("ingest", tmp_path / "t", "--db", tmp_path / "s.duckdb", "--jobs", "2", code=3)
    killed, partly, starved = [line for line in done.err.splitlines() if line.startswith("failed: ")]
    for line, place in ((killed, "rank1/killed.json"), (partly, "rank2/partly.json")):
        assert f"{place} was not read: its process was killed by signal 9" in line
        assert line.endswith("ingest it again with --jobs 1")
    assert starved.endswith("rank3/starved.json needs more memory than there is; ingest it alone")
    for name in ("killed", "partly", "starved"):
        next(tmp_path.glob(f"t/*/{name}.json")).unlink()
    ingest([tmp_path / "t"], tmp_path / "good.duckdb", jobs=1)
    assert all_rows(tmp_path / "s.duckdb") == all_rows(tmp_path / "good.duckdb")


def test_files_whose_rows_do_not_fit_on_the_disk_fail() -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    ours, its = socket.socketpair()
    sender, receiver = reader_messages.Channel(its), reader_messages.Channel(ours)
    small = reader_process._SmallRecordings(sender, Full())
    rows = rows_from_tuples("device", ("device_id",), [(1,)])
    small.add(3, [("device", [rows])], [reader_messages.Content(None)])  # type: ignore[arg-type]  # it is not read
    small.add(5, [], [reader_messages.Failure(InputError("not a trace"))])
    small.send()
    received = receiver.receive()
    sender.close()
    receiver.close()
    assert isinstance(received, reader_messages.SmallRecordings)
    [(first, [full]), (second, [unusable])] = received.messages
    assert isinstance(full, reader_messages.Failure) and isinstance(unusable, reader_messages.Failure)
    assert (first, second, str(unusable.error)) == (3, 5, "not a trace")
    assert "No space left on device; free disk space" in str(full.error)


def test_without_processes_the_files_are_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_forks, "PROGRAM", "raise SystemExit(1)")
    top = job(tmp_path / "job")
    ingest([top], tmp_path / "1.duckdb", jobs=1)
    ingest([top], tmp_path / "2.duckdb", jobs=2)
    assert all_rows(tmp_path / "1.duckdb") == all_rows(tmp_path / "2.duckdb")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfd_open")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_and_no_file_is_left(tmp_path: Path, how: signal.Signals) -> None:
    (tmp_path / "temporary").mkdir()
    for name in ("a", "endless"):
        write_trace(tmp_path / f"t/{name}.json", seed=len(name))
    note = tmp_path / "reading"
    main = f"from traceconv.pipeline import reader_forks as r; r.PROGRAM = {READING!r}; "
    main += "from traceconv.cli.app import main; main()"
    arguments = ["ingest", str(tmp_path / "t"), "--db", str(tmp_path / "s.duckdb"), "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", main, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "NOTE": str(note)},
        preexec_fn=heed_interrupts,
    )
    wait_until(process, lambda: note.exists() and note.read_text() != "")
    reader = os.pidfd_open(int(note.read_text()))
    os.kill(process.pid, how)
    _, err = process.communicate()
    assert (process.returncode, err) == ((130, "traceconv: interrupted\n") if how == signal.SIGINT else (-9, ""))
    assert select.select([reader], [], [], 60)[0], "the reading process is still there"
    os.close(reader)
    until = time.monotonic() + 60
    while list((tmp_path / "temporary").iterdir()):  # the process that forks others deletes what they leave
        assert time.monotonic() < until
        time.sleep(0.01)
    if how == signal.SIGINT:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["reading", "t", "temporary"]


def test_how_many_processes_are_used_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(64), raising=False)

    def recordings(count: int, size: int, name: str = "t.json") -> list[TraceRecording]:
        file = tmp_path / name
        with file.open("wb") as stream:
            stream.truncate(size)
        return [TraceRecording(file, "chrome_json", TraceOptions())] * count

    assert job_count_for(recordings(1, 1 << 30)) == 1
    assert job_count_for(recordings(16, 1 << 20)) == 1
    assert job_count_for(recordings(3, 1 << 30)) == 3
    assert job_count_for(recordings(64, 1 << 30)) == 8
    assert job_count_for(recordings(2, 8 << 20, "t.json.gz")) == 2
    assert job_count_for(recordings(2, 8 << 20, "t.nsys-rep")) == 2
    assert job_count_for(recordings(1200, 15_000)) == 8
    with pytest.raises(UsageError, match="jobs must be at least 1, not 0"):
        ingest([tmp_path / "t.json"], tmp_path / "s.duckdb", jobs=0)


def test_an_internal_error_keeps_its_message_between_processes() -> None:
    channel, other = map(reader_messages.Channel, socket.socketpair())
    other.send(reader_messages.Failure(InternalError("x")))
    assert str(channel.receive().error) == str(InternalError("x"))
    other.end()
    assert channel.receive() is None
    channel.close()
    other.close()
