"""The commands of the handwritten pages, and the outputs that the pages show.

A `text` block after an `sh` block is its output; a `console` block has `$ command` lines, each followed by its output.
They are compared exactly: a line `…` replaces any number of lines, a `…` in a line any text. In a block marked as
varying (`text varies`), numbers and spacing may differ; in others, only durations with rates.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
)
SHELL = ROOT / ".shells" / "newest" / "bin"

#: Kinds of blocks that are files, with their extensions.
_FILES = {"python": ".py", "toml": ".toml"}
_BLOCK = re.compile(r"^```([\w ]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"\s*# exit code (\d+)$")
_SPEED = re.compile(r"\bin [\d.,]+ s \([\d.,]+ (?=[\w/]+\))")
_ANY = "…"


@dataclass(frozen=True)
class Step:
    """Commands and the lines that they print; None if the page shows no output.

    A block of Python or TOML is a file for later commands; its first line is a comment with its name.
    """

    commands: tuple[str, ...]
    prints: tuple[str, ...] | None = None
    varies: bool = False
    first_line: int = 0
    file: tuple[str, str] | None = None


def steps(page: Path) -> Iterator[Step]:
    """The commands of a page and their output; `first_line` is the index of the output's first line in the page."""
    text = page.read_text("utf-8")
    commands: tuple[str, ...] = ()
    for block in _BLOCK.finditer(text):
        (kind, *marks), lines = block[1].split() or [""], block[2].splitlines()
        first_line = text.count("\n", 0, block.start(2))
        assert kind in ("sh", "text", "console", *_FILES), f"{page.name}: unknown kind of block: {kind}"
        if commands and kind != "text":
            yield Step(commands)
        if kind == "text" and commands:
            yield Step(commands, tuple(lines), "varies" in marks, first_line)
        elif kind == "console":
            yield from _session(lines, "varies" in marks, first_line)
        elif kind in _FILES:
            named = lines[0].startswith("# ") and lines[0].endswith(_FILES[kind])
            assert named, f"{page.name}: # name{_FILES[kind]} comes first"
            yield Step((), file=(lines[0][2:], "\n".join(lines) + "\n"))
        commands = tuple(_commands(lines)) if kind == "sh" else ()
    if commands:
        yield Step(commands)


def _commands(lines: Sequence[str]) -> Iterator[str]:
    """Commands of one line or more: a quoted text, such as a query, may have several lines."""
    command = ""
    for line in lines:
        command += line
        try:
            shlex.split(command, comments=True)
        except ValueError:  # an open quote
            command += "\n"
        else:
            yield command
            command = ""


def _session(lines: Sequence[str], varies: bool, first_line: int) -> Iterator[Step]:
    """The commands of a console block and the lines that each prints."""
    begins = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        command = next(_commands([lines[begin][2:], *lines[begin + 1 : end]]))
        first = begin + 1 + command.count("\n")
        shown = lines[first:end]
        while shown and not shown[-1]:  # An empty line may separate commands.
            shown = shown[:-1]
        yield Step((command,), tuple(shown) or None, varies, first_line + first)


def prepare(step: Step, folder: Path) -> tuple[str, ...]:
    """Write the file of a step, and return the commands that can be run here: not `make`."""
    if not (folder / "sample_traces").exists():
        (folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    if step.file is not None:
        (folder / step.file[0]).write_text(step.file[1], "utf-8")
    unavailable = ("make ",) if SHELL.exists() else ("make ", "duckdb ")
    return tuple(command for command in step.commands if not command.startswith(unavailable))


def exit_code(command: str) -> int:
    """The exit code that a page states for a command."""
    match = _EXIT_CODE.search(command)
    return int(match[1]) if match else 0


def is_printed(step: Step, printed: str) -> bool:
    """Whether the output is the one that the page shows."""
    return _aligned(step.prints or (), printed.splitlines(), _loosely if step.varies else _exactly) is not None


def renewed(step: Step, printed: str) -> list[str] | None:
    """The lines that the page should show; None if they can't be distinguished from the old ones."""
    old, new = step.prints or (), [line.rstrip() for line in printed.splitlines()]
    if is_printed(step, printed):
        return list(old)
    found = _aligned(old, new, _loosely)
    if found is None:
        return None if _ANY in "".join(old) else new
    return [line if at is None or _exactly(line, new[at]) else new[at] for line, at in zip(old, found, strict=True)]


def _aligned(shown: Sequence[str], printed: Sequence[str], same: Callable[[str, str], bool]) -> list[int | None] | None:
    """The index of the printed line for each shown line, None for `…`; None if the output is a different one."""
    found: list[int | None] = []
    at, skipping = 0, False
    index = 0
    while index < len(shown):
        if shown[index].strip() == _ANY:
            found.append(None)
            skipping, index = True, index + 1
            continue
        end = next((i for i in range(index, len(shown)) if shown[i].strip() == _ANY), len(shown))
        run_of = shown[index:end]
        last = len(printed) - len(run_of)
        starts = range(at, last + 1) if skipping else range(at, min(at, last) + 1)
        if end == len(shown) and skipping:
            starts = range(max(at, last), last + 1)
        elif end == len(shown) and at != last:
            return None
        start = next((s for s in starts if all(map(same, run_of, printed[s : s + len(run_of)]))), None)
        if start is None:
            return None
        found += range(start, start + len(run_of))
        at, skipping, index = start + len(run_of), False, end
    return found if skipping or at == len(printed) else None


def _exactly(shown: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in _SPEED.sub("", shown.rstrip()).split(_ANY))
    return re.fullmatch(pattern, _SPEED.sub("", printed.rstrip())) is not None


def _loosely(shown: str, printed: str) -> bool:
    return _exactly(_without_numbers(shown), _without_numbers(printed))


def _without_numbers(line: str) -> str:
    return " ".join(re.sub(r"─+", "─", re.sub(r"\d[\d.,]*", "0", line)).split())


def renew(page: Path, changes: Sequence[tuple[Step, list[str]]]) -> None:
    """Replace the outputs of steps in a page."""
    text = page.read_text("utf-8").split("\n")
    for step, lines in sorted(changes, key=lambda change: -change[0].first_line):
        text[step.first_line : step.first_line + len(step.prints or ())] = lines
    page.write_text("\n".join(text), "utf-8")
