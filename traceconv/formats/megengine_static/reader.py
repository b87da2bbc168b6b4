"""The JSON of MegEngine's `get_profile()`: operators of a static graph with times in seconds → events in ns.

Under `profiler`, `device` and `host` give each operator's start, end and end of its kernel on each computing node,
in seconds since the profiler began; `opr_footprint` has its memory, computation and shapes; `graph_exec` the graph.
An operator that never ran has no times and no event; the log counts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, option, printable
from traceconv.events.trace import EventColumns, Segment, TraceBatch, binary_column
from traceconv.formats.chrome_json.patch import patch
from traceconv.formats.common.columns import exact_decimal, slices
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest

_SIDES = ("device", "host")
#: The range of times, so that nanoseconds fit in 64 bits.
_FAR_SECONDS = Decimal(2) ** 62 / 10**9


class MegEngineStaticReader(FileReader):
    """Reads one file, as `TraceSource` describes. The file is one JSON object, which is kept in memory."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._limit = request.limits.event_bytes
        self._facts: dict[str, int] = {}

    def batches(self) -> Iterator[TraceBatch]:
        """An event for each operator on each computing node. InputError if the file is not such a profile."""
        document = self._document()
        profiler, graph = _mapping(document.get("profiler")), _mapping(document.get("graph_exec"))
        operators, footprints = _mapping(graph.get("operator")), _mapping(profiler.get("opr_footprint"))
        self.found_events = any(side in profiler for side in _SIDES)
        self._facts = {
            "operators": len(operators),
            "vars": len(_mapping(graph.get("var"))),
            "comp_seq": len(graph["comp_seq"]) if isinstance(graph.get("comp_seq"), list) else 0,
            "footprints": len(footprints),
        }
        for side in _SIDES:
            entries = _mapping(profiler.get(side))
            events = list(self._events(side, entries, operators, footprints))
            if events:
                yield self._batch(events)
        names = [name for name in _SIDES if profiler.get(name)]
        if names:
            yield self._processes(names)
        timed = {key for side in _SIDES for key in _mapping(profiler.get(side))}
        message = "operators of the graph without times, which are not stored"
        self._log.count(Code.NO_DURATION, message, len(operators.keys() - timed), SOURCE_ID)

    def _document(self) -> Mapping[str, Any]:
        parts, size = [], 0
        for chunk in self._source.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > self._limit:
                raise InputError(
                    f"{printable(str(self._path))}: the profile is one JSON object "
                    f"larger than {self._limit >> 20} MB; raise the limit with {option('--max-event-mb')}"
                )
        self._text_bytes = size
        # Columns can't contain bytes that are not UTF-8, halves of surrogate pairs, or NaN.
        patched = patch(b"".join(parts))
        patched.log_to(self._log, 0, SOURCE_ID)
        try:
            found = json.loads(patched.text, parse_float=exact_decimal)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{printable(str(self._path))} is not a complete JSON object ({printable(str(error))})"
            ) from error
        return _mapping(found)

    def _events(
        self, side: str, entries: Mapping[str, Any], operators: Mapping[str, Any], footprints: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, str, int, int, dict[str, object]]]:
        """(side, computing node, name, start, duration, args) of each operator on each node."""
        for key, nodes in entries.items():
            operator, footprint = _mapping(operators.get(key)), _mapping(footprints.get(key))
            for node, times in _mapping(nodes).items():
                start, end, kern = (seconds_ns(_mapping(times).get(what)) for what in ("start", "end", "kern"))
                if start is None or end is None:
                    self._accounts["X events"].add(lost=1)
                    message = f"operator {printable(key, 40)} on the {side} has no start and end in seconds"
                    self._log.add(Code.NO_TIME, message, source_id=SOURCE_ID, event_count=1)
                    continue
                args = _args(key, operator, footprint)
                if kern is not None:
                    args["kern_ns"] = kern - start
                yield side, node, str(operator.get("name", key)), start, end - start, args

    def _batch(self, events: Sequence[tuple[str, str, str, int, int, dict[str, object]]]) -> TraceBatch:
        sides, nodes, names, starts, durs, args = zip(*events, strict=True)
        columns = slices(
            names,
            [f"static_{side}" for side in sides],
            [_SIDES.index(side) for side in sides],
            nodes,
            pa.array(starts, pa.int64()),
            pa.array(durs, pa.int64()),
            [_json(one) for one in args],
        )
        return self._made(columns)

    def _processes(self, names: Sequence[str]) -> TraceBatch:
        labels: dict[str, Sequence[object]] = {
            "name": ["process_name"] * len(names),
            "ph": ["M"] * len(names),
            "pid": [_SIDES.index(name) for name in names],
        }
        args = binary_column([_json({"name": name}) for name in names])
        return self._made(EventColumns(len(names), labels, {"args": args}, None))

    def _made(self, columns: EventColumns) -> TraceBatch:
        return self._next_batch(columns, 0, self._text_bytes, segments=(Segment(0, b"", columns.count),))

    def options(self) -> str | None:
        """The size of the graph."""
        return json.dumps(self._facts) if self._facts else None


def _args(key: str, operator: Mapping[str, Any], footprint: Mapping[str, Any]) -> dict[str, object]:
    args: dict[str, object] = {"opr_id": key}
    if "type" in operator:
        args["type"] = str(operator["type"])
    for column in ("in_shapes", "out_shapes"):
        if isinstance(footprint.get(column), list):
            args[column] = ";".join(_shape(shape) for shape in footprint[column])
    for column in ("memory", "computation", "param"):
        if footprint.get(column) not in (None, {}):
            args[column] = footprint[column]
    for column in ("input", "output"):
        if operator.get(column):
            args[column] = operator[column]
    return args


def _shape(shape: object) -> str:
    return ",".join(str(extent) for extent in shape) if isinstance(shape, list) else str(shape)


def seconds_ns(seconds: object) -> int | None:
    """Seconds → ns, rounded half to even; None for anything that is not a time."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, Decimal)):
        return None
    try:
        value = Decimal(seconds)
        if not value.is_finite() or not -_FAR_SECONDS <= value <= _FAR_SECONDS:
            return None
        return int((value * 10**9).to_integral_value())
    except InvalidOperation:
        return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, default=_number).encode()


def _number(value: object) -> object:
    """Decimals as the nearest double."""
    return float(value) if isinstance(value, Decimal) else str(value)
