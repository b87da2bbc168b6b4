"""A database of rocmProfileData → batches of events, table by table, in integer ns.

The schema, of versions 1 to 3: tableSchema.cmd of rocmProfileData. Names are in rocpd_string; from version 3 on, calls
have a domain and a category, and their arguments are in rocpd_ustring. What rpd_tracer knows about a launch or a copy
belongs to the call (in version 1, to the operation of the device).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, Label, NamedTrack, TraceBatch, coded, combined
from traceconv.formats.common.columns import integer_array, json_objects
from traceconv.formats.common.elements import json_object
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_reader import Events, SqliteReader, launch_flows, pairs_of, renamed, same
from traceconv.formats.common.sqlite_rows import locate_row
from traceconv.formats.format import ReadRequest
from traceconv.formats.rpd.links import Links

_OPERATIONS, _CALLS, _MONITOR = "rocpd_op", "rocpd_api", "rocpd_monitor"
_STRINGS, _LONG_STRINGS = "rocpd_string", "rocpd_ustring"
#: Tables with details of calls, and those of version 1, with details of operations.
_OF_CALLS, _OF_OPERATIONS = ("rocpd_kernelapi", "rocpd_copyapi"), ("rocpd_kernelop", "rocpd_copyop")
_DESCRIBING = frozenset((_STRINGS, _LONG_STRINGS, "rocpd_metadata", "rocpd_api_ops", *_OF_CALLS, *_OF_OPERATIONS))
#: Columns of details that only refer to other rows.
_KEYS = ("id", "api_ptr_id", "op_ptr_id", "codeObject_id")
#: An operation's type → its category; kernels have the rest.
_KINDS = (
    (re.compile(r"fill|memset", re.IGNORECASE), "memset"),
    (re.compile(r"copy|memcpy", re.IGNORECASE), "memcpy"),
    (re.compile(r"barrier|marker", re.IGNORECASE), "barrier"),
)
#: Calls of version 2, which have no domain.
_RUNTIMES = ((re.compile(r"_*hip[A-Z]"), "hip"), (re.compile(r"cu(?:da)?[A-Z]"), "cuda"))
_USER_MARKER = "UserMarker"
#: A session adds its number, in these upper bits, to the IDs of its operations.
_SESSION_BITS = 32
#: Of the metadata, and characters of each; the writer has some, of up to 4096.
_MOST_TAGS, _TEXT = 1000, 4096


class RpdReader(SqliteReader):
    """Reads one database, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request, "a database of rocmProfileData", "rpd_tracer writes such databases")
        self._processes: dict[int, str] = {}

    def _batches(self) -> Iterator[TraceBatch]:
        tables = set(self._db.tables)
        if not tables & {_OPERATIONS, _CALLS}:
            raise InputError(f"{printable(str(self._path))} is not a database of rocmProfileData: it has no {_CALLS}")
        self.found_events = True
        tags = islice(chain.from_iterable(self._db.scan("rocpd_metadata", ("tag", "value"), self._report)), _MOST_TAGS)
        self.keys["rpd"] = msgspec.json.encode({str(tag)[:_TEXT]: str(value)[:_TEXT] for tag, value in tags})
        self._links = Links(self._db, self._report)
        if not self._links.is_complete:
            message = "rocpd_api_ops: more links than are kept; the calls that launched some operations are unknown"
            self._log.add(Code.TOO_LARGE, message, source_id=SOURCE_ID)
        readers = {_OPERATIONS: self._operations, _CALLS: self._calls, _MONITOR: self._monitor}
        shares = self._shares(list(readers))
        for table, read in readers.items():
            yield from self._noted(table, read(), shares)
        self._count_unread(sorted(tables - {*readers, *_DESCRIBING, "sqlite_sequence", "sqlite_stat1"}), ())

    # -- rows, and what other tables have about them --

    def _rows(self, table: str) -> Iterator[tuple[Int64, Mapping[str, Sequence[Any]]]]:
        """Yield the rowids of some rows, which are their IDs, and their columns."""
        names = self._db.columns(table)
        for rows in self._db.scan(table, names, self._report, numbered=True):
            rowids, *columns = zip(*rows, strict=True)
            self.place = (table, rowids)
            yield np.array(rowids, np.int64), dict(zip(names, columns, strict=True))

    def _texts(self, table: str, numbers: Sequence[Any] | None, count: int) -> Coded:
        """Return texts by their IDs; None where there are none."""
        if numbers is None:
            return same(None, count)
        ids = coded(numbers)
        found = self._details(table, "id", [one for one in ids.distinct if type(one) is int])
        texts = {number: one.get("string") for number, one in found.items()}
        unknown = ids.mask(lambda one: one is not None and one not in texts)
        message = f"{table}: texts of names or arguments are missing"
        self._log.count(Code.MISSING_TEXT, message, int(unknown.sum()), SOURCE_ID)
        return renamed(ids, lambda number: text if isinstance(text := texts.get(number), str) else None)

    def _details(self, table: str, key: str, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return rows of another table by the IDs that they are about."""
        columns = [name for name in self._db.columns(table) if name not in _KEYS]
        if not numbers or not columns or not self._db.row_count(table):
            return {}
        found = self._db.matching(table, key, numbers, columns)
        if found is None:
            message = f"{printable(table)}: rows that belong to others can't be read"
            self._log.count(Code.DAMAGED_BLOCK, message, len(numbers), SOURCE_ID)
        return {row[0]: dict(zip(columns, row[1:], strict=True)) for row in found or ()}

    def _args_of(self, tables: Sequence[str], key: str, numbers: Int64, wanted: Mask) -> dict[str, list[Any]]:
        """Return the columns of tables with details, for the rows that are wanted."""
        args: dict[str, list[Any]] = {}
        for table in tables:
            found = self._details(table, key, np.unique(numbers[wanted]).tolist())
            rows = [found.get(number) if one else None for number, one in zip(numbers.tolist(), wanted, strict=True)]
            for name in next(iter(found.values()), ()):
                known = args.setdefault(name, [None] * len(rows))
                args[name] = [old if row is None else row[name] for row, old in zip(rows, known, strict=True)]
        names = args.pop("kernelName_id", None)
        if names is not None:
            args["kernelName"] = list(self._texts(_STRINGS, names, len(names)))
        return args

    # -- work of devices --

    def _operations(self) -> Iterator[TraceBatch]:
        for ids, row in self._rows(_OPERATIONS):
            count = len(ids)
            places, calls = self._links.calls_of(ids)
            call = np.full(count, -1, np.int64)
            call[places[::-1]] = calls[::-1]
            # Details of a call with several operations don't say which of them they are about.
            alone = (np.bincount(places, minlength=count) == 1) & (self._links.counts(call) == 1)
            details = self._args_of(_OF_CALLS, "api_ptr_id", call, alone)
            details |= self._args_of(_OF_OPERATIONS, "op_ptr_id", ids, np.ones(count, np.bool_))
            types = self._texts(_STRINGS, row.get("opType_id"), count)
            names = self._texts(_STRINGS, row.get("description_id"), count)
            kernels = details.pop("kernelName", [None] * count)
            categories = renamed(combined([types, names]), lambda one: _kind(*one))
            devices, queues = (row.get(name) or [None] * count for name in ("gpuId", "queueId"))
            sessions, first = np.unique(ids[places] >> _SESSION_BITS, return_index=True)
            callers = dict(zip(sessions.tolist(), calls[first].tolist(), strict=True))
            sessions_of = pa.array(ids >> _SESSION_BITS)
            tracks = pairs_of(partial(self._stream, callers), devices, categories, queues, sessions_of)
            args = {
                "device": row.get("gpuId"),
                "queue": row.get("queueId"),
                "type": types,
                **details,
                "correlation": pa.array(call, mask=call < 0),
            }
            flows = launch_flows(places, calls, calls, 2)
            shown = [name or kernel or kind for name, kernel, kind in zip(names, kernels, types, strict=True)]
            yield self._batch(categories, _events(same("X", count), shown, tracks, row, args), flows)

    def _stream(
        self, calls: Mapping[int, int], device: object, category: str, queue: object, session: int
    ) -> tuple[str, NamedTrack]:
        """The track of an operation: kernels by their queue, copies of a device together, barriers next to their queue.

        Queues of several processes, whose sessions have calls of their own, have the same numbers.
        """
        if session not in self._processes:
            found = self._details(_CALLS, "id", [calls[session]] if session in calls else [])
            self._processes[session] = str(next((one.get("pid") for one in found.values()), f"session {session}"))
        whose = self._processes[session]
        line = f"queue {queue}{' waits' if category == 'barrier' else ''}" if category[:3] != "mem" else "copies"
        of_process = f" (process {whose})" if session else ""
        tid = NamedTrack("stream", f"{whose}/{line}")
        return self._named_track(f"GPU {device}", f"GPU {device}", tid, line.capitalize() + of_process)

    # -- the host --

    def _calls(self) -> Iterator[TraceBatch]:
        long_strings = _LONG_STRINGS if _LONG_STRINGS in self._db.tables else _STRINGS
        has_domain = "domain_id" in self._db.columns(_CALLS)
        for ids, row in self._rows(_CALLS):
            count = len(ids)
            functions = self._texts(_STRINGS, row.get("apiName_id"), count)
            texts = self._texts(long_strings, row.get("args_id"), count)
            if has_domain:
                parts = [self._texts(_STRINGS, row.get(f"{one}_id"), count) for one in ("domain", "category")]
                categories = renamed(combined(parts), lambda both: "/".join(filter(None, both)) or None)
            else:
                categories = renamed(functions, _domain)
            both = combined([functions, texts])
            names = renamed(both, lambda one: one[1] if one[0] == _USER_MARKER and one[1] else one[0])
            arguments = [None if name == _USER_MARKER else _arguments(text) for name, text in both.distinct]
            runtime = categories.mask(lambda category: category in ("hip", "cuda"))
            launched = self._links.counts(ids)
            args: dict[str, Any] = {
                "args": Coded(both.codes, arguments),
                **self._args_of(_OF_CALLS, "api_ptr_id", ids, runtime & (launched != 1)),
                "correlation": pa.array(ids, mask=~runtime),
            }
            starts, ends = (integer_array(row.get(name) or [None] * count) for name in ("start", "end"))
            is_range = categories.mask(lambda category: category in ("roctx/range", "nvtx/range"))
            marks = (starts == ends) & ~runtime & ~is_range
            phases = Coded(marks.astype(np.int32), ["X", "i"])
            owners = [row.get(name) or [None] * count for name in ("pid", "tid")]
            track = pairs_of(lambda pid, tid: (_label(pid), _label(tid)), *owners)
            places = np.flatnonzero(launched)
            flows = launch_flows(places, ids[places], ids[places], 0)
            yield self._batch(categories, _events(phases, names, track, row, args), flows)

    def _monitor(self) -> Iterator[TraceBatch]:
        """Values of sensors, each from its start until the next."""
        for ids, row in self._rows(_MONITOR):
            count = len(ids)
            devices = combined([coded(row.get(name) or [None] * count) for name in ("deviceType", "deviceId")])
            pids = renamed(devices, lambda one: f"{'GPU' if one[0] == 'gpu' else one[0]} {one[1]}")
            names = renamed(
                coded(row.get("monitorType") or [None] * count), lambda one: None if one is None else str(one)
            )
            values = renamed(coded(row.get("value") or [None] * count, typed=True), _number)
            events = _events(
                same("C", count), names, (pids, same(None, count)), {**row, "end": None}, {"value": values}
            )
            yield self._batch("monitor", events)


#: Find the table and rowid of an event.
locate = partial(locate_row, open_reader=RpdReader)


def _events(
    phases: Coded,
    names: Sequence[Any],
    track: tuple[Coded, Coded],
    row: Mapping[str, Any],
    args: Mapping[str, Any],
) -> Events:
    count = len(phases)
    starts, ends = (row.get(name) or [None] * count for name in ("start", "end"))
    known = {name: values for name, values in args.items() if values is not None}
    return Events(phases, names, *track, starts, ends, json_objects(list(known), list(known.values()), count))


def _kind(operation: str | None, description: str | None) -> str:
    kind = next((kind for pattern, kind in _KINDS if pattern.search(operation or "")), "kernel")
    return "memset" if kind == "memcpy" and description == "Fill" else kind


def _domain(function: str | None) -> str | None:
    if function == _USER_MARKER:
        return "roctx"
    return next((domain for pattern, domain in _RUNTIMES if pattern.match(function or "")), None)


def _arguments(text: str | None) -> object:
    """A call's arguments: a JSON object, or text."""
    if not text or not text.startswith("{"):
        return text or None
    data = text.encode()
    # Only between tokens: strings in JSON have no line breaks.
    return msgspec.Raw(data.replace(b"\n", b" ")) if json_object(data) else text


def _label(number: object) -> Label:
    return number if isinstance(number, int | str) else None


def _number(value: object) -> object:
    """A value of a sensor; the writer stores numbers as text."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value, type=int | float)
    except msgspec.DecodeError:
        return value
