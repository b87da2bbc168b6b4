"""The progress line: bytes, events per second, remaining time, in 80 columns; nothing in a pipe."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from trace_files import write_trace

from traceconv.cli import progress
from traceconv.cli.progress import IngestProgress, ingest_progress, working
from traceconv.pipeline.ingest import ingest


class Clock:
    """Time that goes on by half a second whenever it is asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.5
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_leaves_room_for_an_interrupt_in_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", Clock())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    for rank in range(3):
        write_trace(tmp_path / "t" / f"rank{rank}_{'x' * 200}.json", seed=rank)
    with ingest_progress() as observer:
        assert isinstance(observer, IngestProgress)
        ingest([tmp_path / "t"], tmp_path / "s.duckdb", observer=observer)
        task = observer._progress.tasks[0]
        assert task.total == sum(file.stat().st_size for file in (tmp_path / "t").iterdir())
        assert task.completed == task.total
        assert "events/s" in task.fields["numbers"]
        assert task.description == "3/3"
        console = Console(width=observer._progress.console.width, force_terminal=True, color_system=None)
        with console.capture() as captured:
            console.print(observer._progress.make_tasks_table(observer._progress.tasks))
    (line,) = captured.get().splitlines()
    assert len(line + "^C") <= 80  # a terminal shows it when the line is drawn
    assert "100%" in line
    assert "MB" in line


def test_a_command_that_takes_long_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for shown, wanted in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", shown)
        monkeypatch.setenv("TERM", "xterm")
        with working("writing [a]\x1b.html"):
            pass
        assert (r"writing [a]\x1b.html …" in shown.getvalue(), bool(shown.getvalue())) == (wanted, wanted)


def test_control_characters_in_a_name_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ingest_progress() as observer:
        assert isinstance(observer, IngestProgress)
        observer.plan(1, 0)
        run = observer.of_run()
        run.start("[red]\x1b[2J\nname", 0)
        run.advance(10)
        task = observer._progress.tasks[0]
        assert task.total is None  # the rest of standard input is unknown
        assert task.description == "reading [red]\\x1b[2J\\x0aname"


def test_runs_that_are_read_at_once_share_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN", 0)
    with ingest_progress() as observer:
        assert isinstance(observer, IngestProgress)
        task = observer._progress.tasks[0]
        observer.plan(3, 300)
        first, second = observer.of_run(), observer.of_run()
        first.start("rank0", 100)
        second.start("rank1", 100)
        second.advance(100)
        first.advance(40)
        assert (task.description, task.completed) == ("1/3 reading rank0 and 1 more", 140)
        first.done()
        assert (task.description, task.completed) == ("2/3 reading rank1", 200)
        second.done()
        assert (task.description, task.completed) == ("3/3", 200)


def test_nothing_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("traceconv.cli.progress._SECONDS_BETWEEN_LINES", 0)
    with ingest_progress() as observer:
        observer.plan(1, 100)
        run = observer.of_run()
        run.start("rank0", 100)
        run.advance(100)
        run.done()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
