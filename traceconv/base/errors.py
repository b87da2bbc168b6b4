"""All errors meant for users: one hierarchy, with the exit code on the class.

A message is one line: what is wrong, where, and what to do. Text quoted from a trace passes through `printable`, so
that no file can control the terminal.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class TraceconvError(Exception):
    """Base of all errors meant for the user. `exit_code` is the exit code of the program."""

    exit_code = 1


class UsageError(TraceconvError):
    """A usage error: an unknown name, a value out of range, conflicting options."""

    exit_code = 2


class InputError(TraceconvError):
    """An input is missing, unreadable, or not a trace."""


class ModelError(TraceconvError):
    """A model can't be loaded or run."""


class StoreError(TraceconvError):
    """The store can't be opened, read or written."""


class StoreMigrated(UserWarning):
    """A store of an older schema version was migrated to the current one."""


class DataLossWarning(UserWarning):
    """Part of a trace file that was read could not be used."""


class OutputError(TraceconvError):
    """Output can't be written."""


class DataLossError(TraceconvError):
    """Data would be lost, and --strict forbids it."""

    exit_code = 3


class IncomparableError(TraceconvError):
    """Runs can't be compared, for the `reasons` given."""

    exit_code = 5

    def __init__(self, reasons: Sequence[str], advice: str = "") -> None:
        super().__init__(f"the runs can't be compared: {'; '.join(reasons)}{advice}")
        self.reasons = tuple(reasons)


class InternalError(TraceconvError):
    """An invariant is violated. Nothing is stored or written, since the result can't be trusted."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"internal error: {what}. Nothing was stored. This is a bug in traceconv, not in your input: please report "
            "it with this line, the command and, if you can share it, the input"
        )
        self._what = what

    def __reduce__(self) -> tuple[type[InternalError], tuple[str]]:
        return InternalError, (self._what,)


#: The errors and warnings that `traceconv` exports. Tracebacks show them under that name.
PUBLIC = (
    TraceconvError, UsageError, InputError, ModelError, StoreError, StoreMigrated, OutputError, DataLossError,
    DataLossWarning, IncomparableError,
)  # fmt: skip
for _public in PUBLIC:
    _public.__module__ = "traceconv"

_on_command_line = False


@contextmanager
def command_line() -> Iterator[None]:
    """Within a block, messages write options as the command line does."""
    global _on_command_line
    before, _on_command_line = _on_command_line, True
    try:
        yield
    finally:
        _on_command_line = before


def is_command_line() -> bool:
    """Whether messages write options as the command line does."""
    return _on_command_line


def option(flag: str, argument: str | None = None) -> str:
    """Return an option as the user wrote it: the flag on the command line, otherwise Python's argument.

    argument  the argument's name; None: that of the flag
    """
    return flag if _on_command_line else argument or flag.lstrip("-").replace("-", "_")


#: Exit code of a command that succeeded with data loss.
EXIT_DATA_LOSS = 3
#: Exit code of a comparison that exceeds its limit.
EXIT_LIMIT_EXCEEDED = 4


def printable(text: str, limit: int = 200) -> str:
    """Return `text` on one line without control characters, at most `limit` characters long."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def reason_of(error: BaseException) -> str:
    """Return why something failed, in a line: the system's words for an OSError, else the first line of the text."""
    text = (isinstance(error, OSError) and error.strerror) or str(error)
    return printable(next(iter(text.splitlines()), "unknown error"), 300)


def regular_expression(text: str) -> re.Pattern[str]:
    """Compile a user's pattern. Raises re.error if it is invalid, or if Python warns that it is ambiguous."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(text)
        except Warning as warning:
            raise re.error(f"{warning}; escape literal characters with a backslash") from warning


def suggestion(name: str, known: list[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest of the `known` names, or an empty string.

    The nearest is one that begins with it, a similar one, or one that contains it.
    """
    import difflib

    lowered = {one.lower(): one for one in reversed(known)}
    wanted = name[:100].lower()
    near = sorted((one for one in lowered if len(wanted) > 2 and one.startswith(wanted)), key=len)
    near = near or difflib.get_close_matches(wanted, lowered, n=1, cutoff=0.55)
    near = near or [one for one in lowered if len(wanted) > 2 and wanted in one][:1]
    return f" Did you mean '{printable(lowered[near[0]])}'?" if near else ""
