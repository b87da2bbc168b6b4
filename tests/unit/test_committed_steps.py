"""A large new store is committed after each step of its derived tables, before it has its name.

A thread fills some of these tables.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from graph_traces import LAYER, Trace, eager
from ingest_checks import all_rows

from benchmarks.chrome_json import write
from traceconv.pipeline.ingest import ingest
from traceconv.store import arrow_rows, derived_tables, operator_tables, writer

SHAPED_BYTES = 100_000
CAPTURE = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    write(path, "compact", SHAPED_BYTES)
    return path


def commit_each_step(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "_COMMITTED_ROWS", 0)
    # Several parts of each join.
    patch.setattr(operator_tables, "_JOINED_ROWS", 40)
    patch.setattr(operator_tables, "_PLACE_BITS", 4)
    patch.setattr(operator_tables, "_PART_ROWS", 64)
    # Several inserts.
    patch.setattr(arrow_rows, "GROUP_ROWS", 16)


@dataclass
class Claim:
    """A lock that only the main thread or only others get."""

    by_main: bool

    def acquire(self, *, blocking: bool) -> bool:
        assert not blocking
        return (threading.current_thread() is threading.main_thread()) == self.by_main


@pytest.mark.parametrize("with_operators", [True, False])
def test_commits_between_steps_change_no_row(
    with_operators: bool, tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = Trace()
    replays._add("user_annotation", "decode", 1000)
    eager(replays, "Linear_0").graph(*LAYER)
    sources = [trace, replays.write(tmp_path / "replays.json"), CAPTURE] if with_operators else [CAPTURE]
    ingest(sources, tmp_path / "in_one.duckdb")
    commit_each_step(monkeypatch)
    # The thread fills the paths that replays are looked up in.
    monkeypatch.setattr(derived_tables, "Lock", lambda: Claim(by_main=not with_operators))
    ingest(sources, tmp_path / "in_steps.duckdb")
    rows = all_rows(tmp_path / "in_steps.duckdb")
    assert rows == all_rows(tmp_path / "in_one.duckdb")
    assert bool(rows["task_operator"]) == bool(rows["graph_replay"]) == with_operators
    assert all(rows[table] for table in ("device_busy", "device_gap", "range_path", "task_memory", "task_queue"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("with_operators", [True, False])
def test_an_ingest_that_stops_after_a_commit_leaves_no_file(
    with_operators: bool, tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stop(*_: object) -> None:
        raise error

    commit_each_step(monkeypatch)
    monkeypatch.setattr(derived_tables, "fill_paths", stop)
    (tmp_path / "stores").mkdir()
    with pytest.raises(error):
        ingest([trace if with_operators else CAPTURE], tmp_path / "stores" / "new.duckdb")
    assert not list((tmp_path / "stores").iterdir())


def test_an_existing_store_keeps_its_rows_if_an_ingest_stops(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    other = tmp_path / "other.json"
    write(other, "flows", SHAPED_BYTES)
    store = tmp_path / "store.duckdb"
    ingest([other], store)
    before = all_rows(store)
    commit_each_step(monkeypatch)
    monkeypatch.setattr(derived_tables, "fill_paths", stop)
    with pytest.raises(KeyboardInterrupt):
        ingest([trace], store)
    assert all_rows(store) == before
