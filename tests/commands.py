"""What `traceconv` writes when a test calls it within its own process."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol


class Written(NamedTuple):
    out: str
    err: str


class Command(Protocol):
    """The fixture `command`: `command("report", "summary", store, code=3).err`."""

    def __call__(self, *arguments: object, code: int = 0) -> Written: ...


def described(command: Command, *arguments: object, code: int = 0) -> Any:
    """What `traceconv info --json` says of one source."""
    (one,) = json.loads(command("info", *arguments, "--json", code=code).out)
    return one
