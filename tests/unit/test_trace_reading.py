"""A trace that is read by a thread before the store is open."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from traceconv.base.errors import StoreError
from traceconv.pipeline.ingest import find_recordings, ingest
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import SMALL_BYTES
from traceconv.pipeline.trace_file import TraceRecording

COUNT = 120_000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of several batches."""
    path = tmp_path / "trace.json"
    event = {"ph": "X", "name": "a slice with a long name", "pid": 1, "tid": 1, "dur": 1}
    path.write_text(json.dumps([{**event, "ts": number} for number in range(COUNT)]))
    assert path.stat().st_size > 8 << 20
    return path


def _reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("traceconv-prefetch")]


def test_a_large_trace_alone_is_read_at_once_by_a_thread(trace: Path) -> None:
    before = sys.getswitchinterval()
    with ExitStack() as early:
        [recording] = find_recordings([trace], None, None, None, None, early).recordings
        assert isinstance(recording, TraceRecording) and recording.reading is not None
        assert _reading_threads()
        batches = list(recording.reading.batches)
        assert len(batches) > 1 and sum(batch.columns.count for batch in batches) == COUNT
    assert not _reading_threads()
    assert sys.getswitchinterval() == before


def test_of_several_traces_and_of_small_ones_none_is_read_early(trace: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]')
    assert small.stat().st_size < SMALL_BYTES
    with ExitStack() as early:
        for paths in ([trace, small], [small]):
            for recording in find_recordings(paths, None, None, None, None, early).recordings:
                assert isinstance(recording, TraceRecording) and recording.reading is None


def test_no_thread_goes_on_reading_if_the_store_cannot_be_written(trace: Path, tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    with pytest.raises(StoreError):
        ingest([trace], tmp_path)
    assert not _reading_threads()
    assert sys.getswitchinterval() == before


def test_bytes_that_were_read_before_are_reported(trace: Path, tmp_path: Path) -> None:
    class Counter(Observer):
        byte_count = 0

        def advance(self, byte_count: int) -> None:
            self.byte_count += byte_count

    with ExitStack() as early:
        [recording] = find_recordings([trace], None, None, None, None, early).recordings
        assert isinstance(recording, TraceRecording) and recording.reading is not None
        list(recording.reading.batches)
        observer = Counter()
        recording.reading.follow(observer)
        assert observer.byte_count == trace.stat().st_size
    observer = Counter()
    ingest([trace], tmp_path / "s.duckdb", observer=observer)
    assert observer.byte_count == trace.stat().st_size


def test_a_run_that_is_kept_ends_the_reading(trace: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    assert [run.action for run in ingest([trace], store)] == ["ingested"]
    assert [run.action for run in ingest([trace], store)] == ["kept"]
    assert not _reading_threads()
