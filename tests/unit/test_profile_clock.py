"""The host clock of a profile: virtual, which stops during emulation, or the wall clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Command

import traceconv
from traceconv.base.errors import UsageError


class SlowSession:
    """A session whose emulation lasts until an event is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = traceconv.Session("mini_resnet")
        self.emulating, self.go_on = threading.Event(), threading.Event()
        compute = self.session.engine._compute

        def slow(run: object) -> object:
            self.emulating.set()
            self.go_on.wait(20)
            return compute(run)  # type: ignore[arg-type]  # as the engine calls it

        monkeypatch.setattr(self.session.engine, "_compute", slow)

    @contextmanager
    def emulation(self) -> Iterator[None]:
        """Emulate in another thread during the block."""
        self.emulating.clear()
        self.go_on.clear()
        thread = threading.Thread(target=self.session.run, args=(self.session.random_inputs(),), name="runner")
        thread.start()
        assert self.emulating.wait(20)
        try:
            yield
        finally:
            self.go_on.set()
            thread.join()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SlowSession]:
    monkeypatch.chdir(tmp_path)
    made = SlowSession(monkeypatch)
    yield made
    made.session.close()


def profiled(slow: SlowSession, clock: str, output: Path | None = None) -> tuple[traceconv.Profiler, int]:
    """A profile of a span around an emulation in another thread; and the least time that the span took, in ns."""
    began = ended = 0
    with traceconv.profile(output, clock=clock) as p, p.record("around"), slow.emulation():
        began = time.monotonic_ns()
        while time.monotonic_ns() - began < 50_000_000:
            pass
        ended = time.monotonic_ns()
    return p, ended - began


def test_with_the_wall_clock_times_are_those_of_the_wall(slow: SlowSession) -> None:
    p, least_ns = profiled(slow, "wall")
    rows = p.arrow("SELECT r.*, t.name AS thread FROM range r JOIN track t USING (run_id, track_id)").to_pylist()
    (around,) = (row for row in rows if row["name"] == "around")
    (inference,) = (row for row in rows if row["kind"] == "inference")
    emulated = [row for row in rows if row["kind"] == "emulation"]
    assert around["dur_ns"] >= least_ns
    assert {(row["name"], row["thread"]) for row in emulated} == {("emulation", "runner")}
    (longest,) = (row for row in emulated if row["dur_ns"] >= least_ns)
    assert longest["parent_id"] == inference["id"]
    assert inference["start_ns"] <= longest["start_ns"]
    end_ns = longest["start_ns"] + longest["dur_ns"]
    assert around["start_ns"] <= end_ns <= around["start_ns"] + around["dur_ns"]
    # The device is as fast as ever: its tasks ended before the emulation did.
    (last_ns,) = p.store.query("SELECT max(start_ns + dur_ns) FROM task WHERE kind = 'compute'").fetchall()[0]
    assert last_ns < end_ns


def test_with_the_virtual_clock_both_times_are_known(slow: SlowSession, tmp_path: Path, command: Command) -> None:
    """The span of another thread is too short by the emulation, which ingest reports; that of the same is not."""
    p, least_ns = profiled(slow, "virtual", tmp_path / "raw")
    rows = p.arrow("SELECT kind, name, dur_ns, start_ns, wall_start_ns, wall_dur_ns FROM range").to_pylist()
    assert "emulation" not in {row["kind"] for row in rows}
    (around,) = (row for row in rows if row["name"] == "around")
    assert around["wall_dur_ns"] >= least_ns and around["dur_ns"] <= around["wall_dur_ns"] - least_ns
    assert around["wall_start_ns"] == around["start_ns"]  # the clock had not stopped yet
    (inference,) = (row for row in rows if row["kind"] == "inference")
    assert inference["dur_ns"] <= inference["wall_dur_ns"] - least_ns
    # What began after the stop has moved by its length.
    assert any(row["wall_start_ns"] - row["start_ns"] >= least_ns for row in rows)
    done = command("ingest", tmp_path / "raw", "--db", tmp_path / "t.duckdb")
    assert "info: range: spans during emulation in another thread" in done.err


def test_spans_around_their_own_emulation_are_not_reported(slow: SlowSession) -> None:
    slow.go_on.set()
    with traceconv.profile() as p, p.record("around"):
        slow.session.run(slow.session.random_inputs())
    (row,) = p.arrow("SELECT dur_ns < wall_dur_ns AS stopped FROM range WHERE name = 'around'").to_pylist()
    assert row["stopped"] is True
    assert p.store.query("SELECT count(*) FROM import_log WHERE code = 'clock_stopped'").fetchall() == [(0,)]


def test_stops_during_a_pause_count(slow: SlowSession) -> None:
    with traceconv.profile() as p:
        p.pause()
        with slow.emulation():
            began = time.monotonic_ns()
            while time.monotonic_ns() - began < 20_000_000:
                pass
            stopped_ns = time.monotonic_ns() - began
        p.resume()
        with p.record("after"):
            pass
    (row,) = p.arrow("SELECT wall_start_ns - start_ns AS shift_ns FROM range WHERE name = 'after'").to_pylist()
    assert row["shift_ns"] >= stopped_ns


def test_wall_times_are_null_where_stops_may_be_missing(slow: SlowSession, tmp_path: Path) -> None:
    """In modelled time, and in a damaged log."""
    profiled(slow, "virtual", tmp_path / "raw")
    (file,) = (tmp_path / "raw").glob("PROF_*/host/data/*clock_stop*")
    file.unlink()
    traceconv.record("mini_resnet", tmp_path / "raw", iterations=1, deterministic=True)
    traceconv.ingest(tmp_path / "raw", db=tmp_path / "t.duckdb")
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        sql = "SELECT count(*) > 0, count(wall_start_ns) + count(wall_dur_ns) FROM range GROUP BY run_id"
        assert store.query(sql).fetchall() == [(True, 0), (True, 0)]


def test_profiles_with_different_clocks_can_not_be_open_together(slow: SlowSession) -> None:
    wrong = traceconv.profile()
    with (
        traceconv.profile(clock="wall"), traceconv.profile(clock="wall"),
        pytest.raises(UsageError, match="a profile with clock=wall is open"),
    ):  # fmt: skip
        wrong.start()
    with pytest.raises(UsageError, match="clock 'wal': unknown"):
        traceconv.profile(clock="wal")


def test_a_recording_with_the_wall_clock(tmp_path: Path, command: Command) -> None:
    command("record", "mini_resnet", "-n", "3", "-o", tmp_path / "raw", "--clock", "wall")
    traceconv.ingest(tmp_path / "raw", db=tmp_path / "t.duckdb")
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        sql = "SELECT name, count(*) > 2 FROM range WHERE kind = 'emulation' GROUP BY name ORDER BY name LIMIT 1"
        assert store.query(sql).fetchall() == [("emulation", True)]
        assert store.query("SELECT count(*) FROM import_log WHERE severity <> 'info'").fetchall() == [(0,)]
    done = command("record", "mini_resnet", "-o", tmp_path, "--clock", "wall", "--deterministic", code=2)
    assert "--clock wall: --deterministic simulates the host's times" in done.err
