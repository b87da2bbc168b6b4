"""Estimates of a report from a sample: shown while the file is ingested, or instead of that (--sample)."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, InputError, UsageError
from traceconv.cli.output import print_message, write_lines, write_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from traceconv.sampling.answer import SampledAnswer

#: Rows that are shown while the file is ingested, and lines around them.
_ROWS, _LINES_AROUND = 20, 8
#: Width of a table that is not for a terminal.
_PLAIN_WIDTH = 80


def first_answers_of(
    report: str, paths: Sequence[Path], top: int | None, *, is_plain: bool, wanted: bool | None, sample: bool
) -> FirstAnswers | None:
    """Return what to show while a file is ingested, if that is wanted, or is the default; None: nothing.

    is_plain  the report is asked without options that select or order rows
    wanted    what the user asked for; None: the default

    Raises UsageError if estimates are wanted that can't be given.
    """
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    if not (wanted or sample) and (wanted is False or not is_plain or len(paths) != 1 or not on_terminal):
        return None
    from traceconv.sampling.answer import SAMPLED_REPORTS, sampled_report
    from traceconv.sampling.sample import is_large, is_sampled

    if wanted or sample:
        flag = "--sample" if sample else "--first-answers"
        sampled_report(report, flag)
        if len(paths) != 1:
            raise UsageError(f"{flag} needs one trace file: traceconv report NAME FILE {flag}")
        if not is_plain:
            raise UsageError(f"{flag} is for all events of a file: omit options that select or order rows")
        return FirstAnswers(paths[0], report, top) if is_sampled(paths[0]) and not sample else None
    with suppress(InputError):  # a store; or the ingest reports what is wrong
        if report in SAMPLED_REPORTS and is_large(paths[0]) and is_sampled(paths[0]):
            return FirstAnswers(paths[0], report, top)
    return None


def write_sample(report: str, path: Path, form: str, output: Path | None, top: int | None) -> None:
    """Write the answer from a sample of a file."""
    from traceconv.reports.values import json_text
    from traceconv.sampling.sample import sample

    if form in ("parquet", "msprof-csv"):
        raise UsageError(f"--sample can't be written as {form}; use csv or json")
    answer = sample(path, report).top(top)
    if form == "json":
        write_lines([json_text(answer.to_dict())], output)
    elif form == "table":
        from rich.console import Console

        width = Console().width if output is None and sys.stdout.isatty() else _PLAIN_WIDTH
        write_lines(_lines(answer, width), output)
    else:
        print_message(answer.title())
        write_rows(answer.table(), form, output)
    for line in answer.losses:
        print_message(line)
    if answer.losses:
        raise typer.Exit(EXIT_DATA_LOSS)


class FirstAnswers:
    """The latest answer from a sample, as something that rich can draw."""

    def __init__(self, path: Path, report: str, top: int | None) -> None:
        self._path = path
        self._report = report
        self._top = top
        self._answer: SampledAnswer | None = None
        self._waiting = "estimating from a sample …"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample the file within the block. If stderr is not a terminal, each answer is printed there.

        If an interrupt or an error ends the block, the last answer stays on the terminal.
        """
        from traceconv.sampling.process import first_answers

        with first_answers(self._path, self._report, self._take, self._refused):
            try:
                yield
            except BaseException:
                self._keep()
                raise

    def _take(self, answer: SampledAnswer) -> None:
        self._answer = answer
        if not sys.stderr.isatty():
            sys.stderr.write("".join(line + "\n" for line in _lines(answer.top(self._top or _ROWS), _PLAIN_WIDTH)))
            sys.stderr.flush()

    def _refused(self, reason: str) -> None:
        self._waiting = f"no estimates: {reason}"
        if not sys.stderr.isatty():
            print_message(self._waiting)

    def _keep(self) -> None:
        """Leave the last answer on the screen, which the exact one does not replace."""
        if self._answer is None:
            return
        if sys.stderr.isatty():
            from rich.console import Console

            Console(stderr=True).print(self)
        print_message("ended before the exact answer: these are estimates")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        answer = self._answer
        if answer is None:
            yield Text(self._waiting, style="dim", no_wrap=True, overflow="ellipsis")
            return
        rows = min(self._top or _ROWS, max(1, console.height - _LINES_AROUND))
        for line in _lines(answer.top(rows), options.max_width):
            yield Text(line, no_wrap=True, overflow="ellipsis")


def _lines(answer: SampledAnswer, width: int) -> Iterator[str]:
    from traceconv.cli.tables import lines

    titles, cells = answer.shown()
    yield from textwrap.wrap(answer.title(), width)
    for _, line in lines(list(titles), cells, list(titles.values()), width, first=True):
        yield line
    yield from textwrap.wrap(answer.not_yet(), width)
