"""Find an operator in a static profile of MegEngine."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from traceconv.formats.chrome_json.scan import end_of_string, end_of_value, skip_space
from traceconv.formats.common.elements import json_object
from traceconv.formats.locate import Evidence, Wanted
from traceconv.formats.megengine_static.reader import seconds_ns


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the times of the operator, and its other entries in the profile."""
    text = wanted.block()
    key = str(json_object(str(wanted.row.get("args") or "{}").encode()).get("opr_id"))
    node = str(wanted.row.get("tid_text"))
    found: list[Evidence] = []
    for side in ("device", "host"):
        path = ("profiler", side, key, node)
        bounds = _at_path(text, path)
        times = text[slice(*bounds)] if bounds is not None else b""
        if bounds is not None and _start_ns(times) == wanted.row.get("start_ns"):
            found.append(wanted.evidence(bounds[0], times, "/".join(path)))
            break
    for about in (("profiler", "opr_footprint", key), ("graph_exec", "operator", key)):
        bounds = _at_path(text, about)
        if found and bounds is not None:
            role = "its entry in the profile"
            found.append(wanted.evidence(bounds[0], text[slice(*bounds)], "/".join(about), role))
    return found


def _start_ns(times: bytes) -> int | None:
    start = json_object(times).get("start")
    # The file has the shortest text of a double.
    return seconds_ns(Decimal(repr(start))) if type(start) in (int, float) else None


def _at_path(text: bytes, path: tuple[str, ...]) -> tuple[int, int] | None:
    """Return the start and end of the value at a path of keys; None if there is none."""
    at: int | None = skip_space(text, 3 if text.startswith(b"\xef\xbb\xbf") else 0)
    for key in path:
        # If a key is repeated, its last value counts.
        at = dict(_members(text, at)).get(key) if at is not None and text[at : at + 1] == b"{" else None
    end = None if at is None else end_of_value(text, at, final=True)
    return None if at is None or end is None else (at, end)


def _members(text: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Yield (key, start of its value) for each member of the object at `at`."""
    at += 1
    while True:
        at = skip_space(text, at)
        if text[at : at + 1] == b",":
            at = skip_space(text, at + 1)
        end = end_of_string(text, at) if text[at : at + 1] == b'"' else None
        if end is None:
            return
        start = skip_space(text, skip_space(text, end) + 1)
        (key,) = json_object(b"{" + text[at:end] + b":0}") or ("",)
        yield key, start
        after = end_of_value(text, start, final=True)
        if after is None:
            return
        at = after
