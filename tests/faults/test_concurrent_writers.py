"""Concurrent writers: ingests into one store wait for each other; exports to one name don't collide."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from processes import TRACECONV
from stores import query

from traceconv.base.errors import StoreError
from traceconv.export.output import open_output
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRuns, Observer
from traceconv.reports.statements import report_statements
from traceconv.store import file_lock
from traceconv.store.writer import StoreWriter

#: Only reached when a test fails.
PATIENCE = 60

HOLD = """
import os, signal, sys
from pathlib import Path
from traceconv.reports.statements import report_statements
from traceconv.store.writer import StoreWriter
writer = StoreWriter(Path(sys.argv[1]), report_statements)
print("held", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def capture(folder: Path, times: int) -> Path:
    b = CaptureBuilder(folder)
    for number in range(times):
        b.call(number + 1, number, number + 1)
    return b.close()


class Paused(Observer):
    """Holds an ingest at its first run, with the store open for writing."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        self.reached.set()
        assert self.go_on.wait(PATIENCE)


@pytest.mark.parametrize("old", [False, True])
def test_ingests_into_one_store_wait_and_all_runs_are_stored(tmp_path: Path, old: bool) -> None:
    store = tmp_path / "s.duckdb"
    if old:
        ingest([capture(tmp_path / "PROF_0", 5)], store)
    first, others = Paused(), [capture(tmp_path / f"PROF_{number}", number) for number in (2, 3)]
    one = capture(tmp_path / "PROF_1", 1)
    waiting = [threading.Event(), threading.Event()]

    def late(number: int) -> IngestedRuns:
        return ingest([others[number]], store, on_wait=waiting[number].set)

    with ThreadPoolExecutor() as pool:
        results = [pool.submit(ingest, [one], store, observer=first)]
        assert first.reached.wait(PATIENCE)
        results += [pool.submit(late, number) for number in (0, 1)]
        assert all(event.wait(PATIENCE) for event in waiting)
        assert store.exists() == old
        first.go_on.set()
        assert sorted(run.run_id for result in results for run in result.result(PATIENCE)) == (
            [2, 3, 4] if old else [1, 2, 3]
        )
    labels = {f"PROF_{number}" for number in ((0, 1, 2, 3) if old else (1, 2, 3))}
    assert {label for (label,) in query(store, "SELECT label FROM run")} == labels
    assert {path.name for path in tmp_path.iterdir()} == labels | {"s.duckdb"}


def test_the_lock_of_a_killed_writer_blocks_nobody(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    holder = subprocess.run(
        [sys.executable, "-c", HOLD, store], input="\n", capture_output=True, text=True, check=False
    )
    assert (holder.returncode, holder.stdout) == (-signal.SIGKILL, "held\n")
    assert (tmp_path / "s.duckdb.lock").exists()
    assert not store.exists()
    ingest([capture(tmp_path / "PROF_1", 1)], store, on_wait=lambda: pytest.fail("nobody has it"))
    assert {path.name for path in tmp_path.iterdir()} == {"PROF_1", "s.duckdb"}


def test_a_waiting_ingest_reports_it_and_can_be_stopped(tmp_path: Path) -> None:
    store, folder = tmp_path / "s.duckdb", capture(tmp_path / "PROF_1", 1)
    with StoreWriter(store, report_statements):
        waiting = subprocess.Popen(
            [*TRACECONV, "ingest", str(folder), "--db", str(store)],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(f"traceconv: waiting for another ingest into {store} to finish")
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=PATIENCE)
        assert (waiting.returncode, err) == (130, "traceconv: interrupted\n")
    assert {path.name for path in tmp_path.iterdir()} == {"PROF_1"}


@pytest.mark.parametrize("links", [True, False])
def test_a_file_created_meanwhile_is_not_overwritten(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are no locks, or from a program that knows nothing of them."""

    def refuse(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(file_lock.fcntl, "flock", refuse)
    if not links:
        monkeypatch.setattr("os.link", refuse)
    store = tmp_path / "s.duckdb"
    with StoreWriter(store, report_statements) as writer:
        store.write_text("somebody else's")
        with pytest.raises(StoreError, match="created by another program in the meantime"):
            writer.commit()
    assert store.read_text() == "somebody else's"
    store.unlink()
    ingest([capture(tmp_path / "PROF_1", 1)], store)
    assert query(store, "SELECT count(*) FROM api") == [(1,)]


def test_two_exports_to_one_name_write_a_file_each(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with open_output(path) as one:
        one.write(b"one")
        with open_output(path) as other:
            other.write(b"other")
            one.write(b" whole")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one whole"
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
