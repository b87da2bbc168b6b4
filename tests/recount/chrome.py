"""Chrome's trace format, event by event: the slices, markers, counter samples and flows, and their durations."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from recount.tally import NS_OF_US, Tally, nanoseconds

Event = dict[str, Any]

#: Phases of markers: instants, and phases whose meaning is in their args.
MOMENTS = "iIRnTpNODPvVcarmul(),=A"
SLICE_STARTS, SLICE_ENDS = "BbS", "EeF"
#: Keys of an event that are not args.
_FIELDS = {"name", "ph", "cat", "pid", "tid", "bp", "s", "scope", "ts", "dur", "args", "id", "tts", "tdur"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_TIME_UNITS = {"NS": Decimal(1), "US": NS_OF_US, "MS": Decimal(10**6), "SEC": Decimal(10**9)}


@dataclass
class Slice:
    """A slice in the source. `track`: the key shared by its begin and end."""

    track: tuple[Any, ...]
    category: str | None
    name: str | None
    process: str | None
    thread: str | None
    args: Event
    start_ns: int
    dur_ns: int | None = None


@dataclass(frozen=True)
class Row:
    """The table and columns of a slice. `step`: its number if it is a step. `name`: its name if not the event's."""

    table: str
    kind: str | None
    device: int | None = None
    stream: int | None = None
    step: int | None = None
    name: str | None = None


Classify = Callable[[Slice], Row]


def plain(_: Slice) -> Row:
    """Slices of an unknown writer."""
    return Row("range", "annotation")


def read(path: Path) -> Any:
    """Parse the document; if it is truncated or has one event per line, return the list of readable events."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text = data.decode("utf-8-sig", "replace")
    for candidate in (text, re.sub(r",(\s*[\]}])", r"\1", text)):
        try:
            return parsed(candidate)
        except ValueError:
            continue
    return list(_elements(text))


def parsed(text: str) -> Any:
    """Parse JSON text with exact decimals."""
    return json.loads(text, parse_float=Decimal, strict=False)


def _elements(text: str) -> Iterator[Any]:
    """The objects of unclosed, consecutive or missing lists, up to the first incomplete one."""
    decoder = json.JSONDecoder(parse_float=Decimal, strict=False)
    opening = re.match(r'\s*\{\s*"traceEvents"\s*:\s*\[', text)
    at = opening.end() if opening else 0
    while at < len(text):
        if text[at] in " \t\r\n,[]":
            at += 1
            continue
        try:
            element, at = decoder.raw_decode(text, at)
        except ValueError:
            return
        yield element


def events_of(document: Any) -> list[Event]:
    """Return the events of a document."""
    events = document.get("traceEvents", []) if isinstance(document, dict) else document
    return [event for event in events if isinstance(event, dict)]


def number(value: object) -> Decimal | None:
    """A number, or the number in a string."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        return Decimal(value) if _NUMBER.fullmatch(value) else None
    return Decimal(value) if isinstance(value, (int, Decimal)) else None


def whole(value: object) -> int | None:
    """A 64-bit integer, or one in a string of digits."""
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII):
        return None
    found = number(value)
    return int(found) if found is not None and found == int(found) and -(2**63) <= found < 2**63 else None


def add_up(events: Iterable[Event], classify: Classify, *, chains: bool = False, neighbors: bool = True) -> Tally:
    """Sum up the events.

    chains     flow IDs are not reused, so all events of an ID are one chain
    neighbors  a begin directly followed by the end of its name is a pair (RAF)
    """
    events = list(events)
    tally = Tally(event_count=len(events))
    unit = _unit(events)
    processes, threads = _names(events)
    slices: list[Slice] = []
    points: dict[tuple[Any, ...], list[tuple[int, int, Event, Slice]]] = defaultdict(list)
    ends: dict[tuple[Any, ...], list[tuple[int, int, Event]]] = defaultdict(list)
    arrows: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
    asynchronous: dict[tuple[Any, ...], str | None] = {}
    memory: list[tuple[int, int, str | None, Event]] = []
    for place, event in enumerate(events):
        phase = _phase(event)
        ts = number(event.get("ts"))
        if phase == "M":
            _metadata(tally, event)
        if not phase or phase == "M" or ts is None:
            continue
        ts_ns = nanoseconds(ts, unit)
        pid = _text(event.get("pid"))
        tid = _text(event.get("tid", event.get("pid")))
        args = event.get("args") if isinstance(event.get("args"), dict) else {}
        assert args is not None
        track: tuple[Any, ...] = (pid, tid)
        thread = threads.get((pid, tid), tid)
        if phase in "beSFnTp":  # a separate track, named like its first event
            track = _async_track(event)
            thread = asynchronous.setdefault(track, event.get("name"))
            pid = track[0]
        wrapped = args if not event.get("args") or args else {"args": event["args"]}
        one = Slice(track, event.get("cat"), event.get("name"), processes.get(pid), thread, wrapped, ts_ns)
        if phase == "X":
            dur = number(event.get("dur"))
            one.dur_ns = nanoseconds(dur, unit) if dur is not None and dur >= 0 else None
            slices.append(one)
        elif phase in SLICE_STARTS:
            slices.append(one)
            points[track].append((ts_ns, place, event, one))
        elif phase in SLICE_ENDS:
            ends[track].append((ts_ns, place, event))
        elif phase == "C":
            for series, value in args.items():
                sample = number(value)
                if sample is not None:
                    tally.sample((event.get("name"), series), ts_ns, sample)
        elif phase in "stf":
            key = (event.get("cat"), event.get("name"), event.get("scope"), _id(event))
            arrows[key].append((ts_ns, "stf".index(phase), place))
            if args or event.keys() - _FIELDS:  # a flow has no args: they are kept in a marker at its end
                tally.moment(event.get("cat"), event.get("name"), ts_ns)
        else:
            tally.moment(event.get("cat"), event.get("name"), ts_ns)
            if event.get("name") == "[memory]":
                memory.append((ts_ns, place, pid, args))
        if phase in "XB" and "bind_id" in event:
            comes, goes = (str(event.get(key)).lower() in ("true", "1") for key in ("flow_in", "flow_out"))
            if comes or goes:
                key = (event.get("cat"), None, "bind_id", _text(event["bind_id"]))
                arrows[key].append((ts_ns, 1 if comes and goes else 2 if comes else 0, place))
    for track, begun in points.items():
        _pair(begun, ends[track], neighbors)
    rows = [classify(one) for one in slices]
    talks = any(row.kind == "collective" for row in rows)
    for one, row in zip(slices, rows, strict=True):
        if row.kind == "reduce" and not talks:  # only the step trace has the collectives
            row = Row("task", "collective", step=row.step)
        name = one.name if row.name is None else row.name
        tally.slice((row.table, row.kind, row.device, row.stream, name), one.start_ns, one.dur_ns)
        if row.step is not None and one.dur_ns is not None:
            tally.steps.add((row.step, one.start_ns, one.start_ns + one.dur_ns))
    for (category, name, *_), those in arrows.items():
        for source, target in _matched(those, chains):
            tally.arrow(category, name, target - source)
    _blocks(tally, memory)
    return tally


def _metadata(tally: Tally, event: Event) -> None:
    """Metadata without a column is a marker without a timestamp."""
    named = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
    named["thread_sort_index"] = "sort_index"
    key = named.get(str(event.get("name")))
    args = event.get("args")
    value = args.get(key) if isinstance(args, dict) and key else None
    used = isinstance(value, (str, int, Decimal)) if key == "name" else whole(value) is not None
    if not used:
        tally.moment(event.get("cat", "__metadata"), event.get("name"), None)


def _blocks(tally: Tally, moments: list[tuple[int, int, str | None, Event]]) -> None:
    """PyTorch's memory: blocks by device and address, freed blocks without an alloc, and memory allocated before.

    Mapped memory, with totals of 0, is not part of the latter. Each size of what the allocator reserves is a segment.
    """
    segments: dict[tuple[Any, ...], int] = {}
    live: dict[tuple[Any, ...], int] = defaultdict(int)
    before: dict[tuple[Any, ...], int] = {}
    held: dict[tuple[Any, ...], int] = {}
    for _, _, pid, args in sorted(moments, key=lambda moment: moment[:2]):
        size, address = whole(args.get("Bytes")), args.get("Addr")
        if not size:
            continue
        device = -1 if whole(args.get("Device Type")) == 0 else whole(args.get("Device Id"))
        place, total = (pid, device), whole(args.get("Total Allocated"))
        before.setdefault(place, 0)
        reserved = whole(args.get("Total Reserved"))
        if reserved is not None and segments.get(place) != reserved:
            segments[place] = reserved
            if reserved > 0:
                tally.block((device,), reserved)
        if total and total >= size and place not in held:
            held[place] = total
            before[place] += total - size
        key = (*place, address if address is not None else ("size", abs(size)))
        if size > 0:
            live[key] += 1
        elif live[key]:
            live[key] -= 1
            held[place] = held.get(place, 0) if total is None else total
            continue
        elif total != 0 or held.get(place, -size) == -size:
            before[place] += size
        if total is not None and total >= size:
            held[place] = total
        tally.block((device,), abs(size))
    for (_, device), size in before.items():
        if size > 0:
            tally.block((device,), size)


def _phase(event: Event) -> str:
    """The first letter of ph; empty if it is missing or unknown."""
    phase = event.get("ph")
    letter = phase[0] if isinstance(phase, str) and phase else ""
    return letter if letter and letter in "XBEbeSFCstfM" + MOMENTS else ""


def _unit(events: Iterable[Event]) -> Decimal:
    """Nanoseconds per unit of time: microseconds, unless a DFTracer record specifies another unit."""
    for event in events:
        args = event.get("args")
        if event.get("name") == "CM" and isinstance(args, dict) and args.get("name") == "time_metric":
            return _TIME_UNITS[args["value"]]
    return NS_OF_US


def _names(events: Iterable[Event]) -> tuple[dict[Any, str], dict[Any, str]]:
    """Processes and threads with names in metadata."""
    processes, threads = {}, {}
    for event in events:
        args = event.get("args")
        if _phase(event) != "M" or not isinstance(args, dict) or "name" not in args:
            continue
        pid = _text(event.get("pid"))
        if event.get("name") == "process_name":
            processes[pid] = str(args["name"])
        elif event.get("name") == "thread_name":
            threads[pid, _text(event.get("tid", event.get("pid")))] = str(args["name"])
    return processes, threads


def _text(value: object) -> str | None:
    """Processes, threads and IDs are equal if their text is: 1 and "1" are the same."""
    return None if value is None else str(value)


def _id(event: Event) -> str | None:
    if event.get("id") is not None:
        return str(event["id"])
    both = event.get("id2") or {}
    return next((str(both[key]) for key in ("global", "local") if key in both), None)


def _async_track(event: Event) -> tuple[Any, ...]:
    """Async slices are matched by category, scope and ID, within their process unless the ID is global."""
    everywhere = event.get("id") is None and "global" in (event.get("id2") or {})
    return (
        None if everywhere else _text(event.get("pid")),
        event.get("cat"),
        event.get("scope"),
        _id(event),
        "async",
    )


def _pair(begun: list[tuple[int, int, Event, Slice]], ended: list[tuple[int, int, Event]], neighbors: bool) -> None:
    """Set the durations of begins: by time, an end closes the last open begin with its name, or without one the last.

    neighbors  before that, a begin directly followed by the end of its name is a pair
    """
    ends = {place: (ts_ns, event) for ts_ns, place, event in ended}
    left = []
    for begin in begun:
        ts_ns, place, event, one = begin
        end_ns, end = ends.get(place + 1, (0, None))
        if neighbors and end is not None and end_ns >= ts_ns and end.get("name") in (None, "", event.get("name")):
            _close(one, *ends.pop(place + 1))
        else:
            left.append(begin)
    both = [(ts_ns, place, event, None) for place, (ts_ns, event) in ends.items()] + left
    stack: list[Slice] = []
    for ts_ns, _, event, one in sorted(both, key=lambda point: point[:2]):
        if one is not None:
            stack.append(one)
            continue
        name = event.get("name")
        for begin in reversed(stack):
            if not name or begin.name == name:
                _close(begin, ts_ns, event)
                stack.remove(begin)
                break


def _close(one: Slice, end_ns: int, end: Event) -> None:
    one.dur_ns = end_ns - one.start_ns
    if isinstance(end.get("args"), dict):
        one.args = {**one.args, **end["args"]}


def _matched(points: list[tuple[int, int, int]], chains: bool) -> list[tuple[int, int]]:
    """Flows of one ID: each step and end follows the last start or step before it; a single start precedes all."""
    single = sum(step == 0 for _, step, _ in points) == 1
    found = []
    source: int | None = None
    for ts_ns, step, _ in sorted(points, key=lambda one: (0 if single and one[1] == 0 else 1, *one)):
        if source is not None and (chains or step != 0):
            found.append((source, ts_ns))
        if step != 2:
            source = ts_ns
    return found
