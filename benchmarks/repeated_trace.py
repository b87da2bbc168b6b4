"""Extend a real trace to a given size by repeating its events with later timestamps and new IDs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Keys of an event, or of its args, with an ID that is unique to it or to a few related events.
ID_KEYS = ("id", "correlation", "External id", "Ev Idx", "Python id", "Python parent id", "connection_id")
#: Numbers that change from one repetition to the next.
_NUMBER = re.compile(rf'("(?:ts|{"|".join(ID_KEYS)})": ?"?)(\d+)')
_BETWEEN = re.compile(r"[\s,]*")


def write_repeated(path: Path, source: Path, size_bytes: int, *, compact: bool = False) -> None:
    """Write the trace `source` (plain or gzip) repeated to about `size_bytes`.

    Events are formatted as in the source, or without spaces if `compact`. Metadata events are written once.
    """
    text = text_of(source)
    start = start_of_events(text)
    head, texts = text[:start], list(events_of(text, start))
    if compact:
        texts = [(event, json.dumps(event, separators=(",", ":"))) for event, _ in texts]
    times = [int(float(event["ts"])) for event, _ in texts if event.get("ph") != "M" and "ts" in event]
    span_us, ids = max(times) - min(times) + 1000, 1 + max(_ids(event for event, _ in texts), default=0)
    # Splitting an event yields: text, then key, number and following text in turn.
    rounds = [(event.get("ph") == "M", _NUMBER.split(one)) for event, one in texts]
    between = "," if compact else separator_of(text, start)
    written = number = 0
    with path.open("w") as file:
        file.write(head)
        while written < size_bytes:
            for once, (first, *rest) in rounds:
                if once and number:
                    continue
                parts = ["" if not written else between, first]
                for key, digits, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
                    step = span_us if key.startswith('"ts"') else ids
                    parts += (key, str(int(digits) + number * step), after)
                written += file.write("".join(parts))
            number += 1
        file.write("\n]}\n" if head.lstrip().startswith("{") else "\n]\n")


def text_of(source: Path) -> str:
    """Read a trace, plain or gzip."""
    content = source.read_bytes()
    return (gzip.decompress(content) if source.suffix == ".gz" else content).decode()


def start_of_events(text: str) -> int:
    """Return where the events of a trace begin: after the bracket."""
    return text.index("[", text.index('"traceEvents"') if text.lstrip().startswith("{") else 0) + 1


def separator_of(text: str, at: int) -> str:
    """Return the text between the first two events, the first of which begins at `at` or after blanks."""
    _, end = json.JSONDecoder().raw_decode(text, text.index("{", at))
    between = _BETWEEN.match(text, end)
    assert between is not None
    return between.group()


def events_of(text: str, at: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each event with its text."""
    decoder = json.JSONDecoder()
    while True:
        between = _BETWEEN.match(text, at)
        assert between is not None
        at = between.end()
        if text[at : at + 1] != "{":
            return
        event, end = decoder.raw_decode(text, at)
        yield event, text[at:end]
        at = end


def _ids(events: Iterator[dict[str, Any]]) -> Iterator[int]:
    for event in events:
        args = event.get("args")
        for value in (event.get("id"), args.get("correlation") if isinstance(args, dict) else None):
            if str(value).isdigit():
                yield int(str(value))
