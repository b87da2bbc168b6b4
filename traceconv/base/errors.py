"""Every way that traceconv says no: one hierarchy, with the exit code on the class.

An error's text is one line that says what is wrong, where, and what to do. Texts that quote a
trace go through `printable`, so that nothing in a file can steer a terminal.
"""

from __future__ import annotations

import re
import warnings


class TraceconvError(Exception):
    """Base of all errors that are meant for the user. `exit_code` is what the program ends with."""

    exit_code = 1


class UsageError(TraceconvError):
    """The call itself is wrong: an unknown name, a value out of range, options that exclude each other."""

    exit_code = 2


class InputError(TraceconvError):
    """What was to be read can't be: missing, unreadable, or not a trace."""


class ModelError(TraceconvError):
    """A model can't be loaded or run."""


class StoreError(TraceconvError):
    """The store can't be opened, read or written."""


class StoreMigrated(UserWarning):
    """A store of an older schema version was migrated to the current one."""


class OutputError(TraceconvError):
    """What was to be written can't be."""


class DataLossError(TraceconvError):
    """Data would be lost, and the caller asked for none to be."""

    exit_code = 3


class InternalError(TraceconvError):
    """traceconv contradicts itself. Nothing is stored or written then: what it would give can't be trusted."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"internal error: {what}. Nothing was stored. This is a bug in traceconv, not in your input: please report "
            "it with this line, the command and, if you can share it, the input"
        )


#: The errors and warnings that `traceconv` exports. Tracebacks show them under that name.
PUBLIC = (TraceconvError, UsageError, InputError, ModelError, StoreError, StoreMigrated, OutputError, DataLossError)
for _public in PUBLIC:
    _public.__module__ = "traceconv"

#: Exit code of a command that did its work with data lost on the way.
EXIT_DATA_LOSS = 3


def printable(text: str, limit: int = 200) -> str:
    """`text` on one line, with nothing that a terminal would act on, at most `limit` characters long."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def regular_expression(text: str) -> re.Pattern[str]:
    """A pattern of the user's. Raises re.error when it is none, or when Python warns of what it may mean."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return re.compile(text)
        except Warning as warning:
            raise re.error(f"{warning}; write a backslash before what is meant as it stands") from warning


def suggestion(name: str, known: list[str]) -> str:
    """` Did you mean 'x'?` for the nearest of `known` names, or an empty string when none is near."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean '{printable(near[0])}'?" if near else ""
