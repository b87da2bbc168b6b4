"""Extend a real trace to a given size by repeating its events with later timestamps and new IDs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

#: Numbers that change from one repetition to the next.
_NUMBER = re.compile(r'("(?:ts|id|correlation|External id|Ev Idx)": ?)(\d+)')
_BETWEEN = re.compile(r"[\s,]*")


def write_repeated(path: Path, source: Path, size_bytes: int, *, compact: bool = False) -> None:
    """Write the trace `source` (an object with traceEvents; plain or gzip) repeated to about `size_bytes`.

    Events are formatted as in the source, or without spaces if `compact`. Metadata events are written once.
    """
    content = source.read_bytes()
    text = (gzip.decompress(content) if source.suffix == ".gz" else content).decode()
    start = text.index("[", text.index('"traceEvents"')) + 1
    head, texts = text[:start], list(_events(text, start))
    if compact:
        texts = [(event, json.dumps(event, separators=(",", ":"))) for event, _ in texts]
    times = [int(event["ts"]) for event, _ in texts if event.get("ph") != "M" and "ts" in event]
    span_us, ids = max(times) - min(times) + 1000, 1 + max(_ids(event for event, _ in texts), default=0)
    # Splitting an event yields: text, then key, number and following text in turn.
    rounds = [(event.get("ph") == "M", _NUMBER.split(one)) for event, one in texts]
    between = "," if compact else ",\n  "
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
        file.write("\n]}\n")


def _events(text: str, at: int) -> Iterator[tuple[dict[str, object], str]]:
    """Each event with its text."""
    decoder = json.JSONDecoder()
    while True:
        between = _BETWEEN.match(text, at)
        assert between is not None
        at = between.end()
        if text[at] == "]":
            return
        event, end = decoder.raw_decode(text, at)
        yield event, text[at:end]
        at = end


def _ids(events: Iterator[dict[str, object]]) -> Iterator[int]:
    for event in events:
        args = event.get("args")
        for value in (event.get("id"), args.get("correlation") if isinstance(args, dict) else None):
            if str(value).isdigit():
                yield int(str(value))
