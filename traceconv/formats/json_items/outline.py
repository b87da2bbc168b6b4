"""The outline of an unknown JSON document, by prefix, as a basis for a rule file. Read in bounded memory."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import ijson

from traceconv.base.diagnostics import ImportLog
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.limits import Limits
from traceconv.formats.json_items.feeding import Guard, pieces

_MOST_PREFIXES, _LONGEST_PREFIX = 500, 200
_SAMPLES, _SAMPLE_CHARACTERS = 3, 40
#: Bytes read of a document that is not scanned.
_QUICK_BYTES = 1 << 20
_STOPS = (ijson.JSONError, ArithmeticError, ValueError, RecursionError)


@dataclass(slots=True)
class Prefix:
    """The values at one prefix.

    addressable  a rule file can name it: no key in it is empty or contains a dot
    counts       by type: object, array, string, number, boolean, null
    samples      the first distinct values, as truncated texts
    """

    addressable: bool
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outline:
    """The prefixes in the order of the document.

    stopped_at  approximate byte offset where the text is malformed; None: it was read completely, or not `scanned`
    left_out    number of values whose prefix is too long, or one too many
    """

    path: Path
    container: str = "plain"
    size_bytes: int = 0
    scanned: bool = True
    stopped_at: int | None = None
    prefixes: dict[str, Prefix] = field(default_factory=dict)
    left_out: int = 0


def outline(path: Path, *, scan: bool = True) -> Outline:
    """Read a document up to its end or to damage (without `scan`, its first MB). Raises InputError if unreadable."""
    log = ImportLog()
    source = TextSource(path, log, Limits(), lambda _: None)
    found = Outline(path, scanned=scan)
    events: list[tuple[str, object]] = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=False, multiple_values=True)
    guard, seen, end = Guard(), _Seen(found), 0
    try:
        for at, piece in pieces(source.chunks()):
            if guard.refusal(piece, texts_may_change=True) is not None:
                found.stopped_at = at
                break
            end = at
            parser.send(piece)
            end += len(piece)
            seen.take(events)
            if not scan and at + len(piece) >= _QUICK_BYTES:
                break
        else:
            parser.close()
    except _STOPS:
        found.stopped_at = end
    with suppress(*_STOPS):
        parser.close()
    seen.take(events)
    if log.lossy and found.stopped_at is None:
        found.stopped_at = end
    found.container, found.size_bytes = source.container, path.stat().st_size
    return found


class _Seen:
    """Follows the events of the parser.

    `_here`: the prefix of the next value, and whether it is addressable. After a container it is that of the container:
    in an array the next value has the same, in an object a key comes first.
    """

    def __init__(self, found: Outline) -> None:
        self._found = found
        self._parents: list[tuple[str | None, bool]] = []
        self._here: tuple[str | None, bool] = ("", True)

    def take(self, events: list[tuple[str, object]]) -> None:
        """Take the events, and clear the list."""
        for event, value in events:
            if event == "map_key":
                self._here = _below(self._parents[-1], str(value))
            elif event in ("end_map", "end_array"):
                self._here = self._parents.pop()
            elif event in ("start_map", "start_array"):
                self._note("object" if event == "start_map" else "array", None)
                self._parents.append(self._here)
                if event == "start_array":
                    self._here = _below(self._here, "item", is_key=False)
            else:
                self._note(event, value)
        events.clear()

    def _note(self, kind: str, value: object) -> None:
        prefix, addressable = self._here
        found = self._found.prefixes
        if prefix is None or (prefix not in found and len(found) >= _MOST_PREFIXES):
            self._found.left_out += 1
            return
        one = found.setdefault(prefix, Prefix(addressable))
        one.addressable &= addressable
        one.counts[kind] += 1
        if kind not in ("object", "array", "null") and len(one.samples) < _SAMPLES:
            text = (
                f'"{value[:_SAMPLE_CHARACTERS]}"' if isinstance(value, str) else str(value)[:_SAMPLE_CHARACTERS].lower()
            )
            if text not in one.samples:
                one.samples.append(text)


def _below(parent: tuple[str | None, bool], key: str, *, is_key: bool = True) -> tuple[str | None, bool]:
    prefix, addressable = parent
    key = key or '""'
    if prefix is None or len(prefix) + len(key) > _LONGEST_PREFIX:
        return None, False
    return (f"{prefix}.{key}" if prefix else key), addressable and not (is_key and ("." in key or key == '""'))
