"""What the readers of a database's tables share: tracks, texts, args and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, EventFlows, Label, NamedTrack, TraceBatch, coded
from traceconv.formats.ascend_db.names import Names
from traceconv.formats.ascend_db.tables import ENUM_ARGS, NONE, TEXT_ARGS
from traceconv.formats.common.columns import integer_array, json_objects
from traceconv.formats.common.sqlite_database import ROWID
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import Events, SqliteReader, pairs_of, renamed, same
from traceconv.formats.format import ReadRequest

LAUNCH, TORCH_LAUNCH, QUEUED, FORWARD = "HostToDevice", "async_npu", "async_task_queue", "fwdbwd"
#: Makes the keys of flows of frameworks' ops different from those of calls with the same connection.
_OF_TORCH = 1 << 60
START, END = 0, 2
TIMES = ("startNs", "endNs")


class Point(NamedTuple):
    """Points of flows: their events in a batch, their connections, and which side of the flow they are."""

    category: str
    places: Int64
    connections: Int64
    step: int


class Tables(SqliteReader):
    """Reads tables of one database."""

    def __init__(self, request: ReadRequest) -> None:
        export = "torch_npu writes databases with export_type=Db, msprof with --export=on"
        super().__init__(request, "a database of torch_npu or msprof", export)

    @cached_property
    def _names(self) -> Names:
        """What describes the rows."""
        return Names(self._db, self._log, self._accounts)

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Int64, dict[str, Values]]]:
        """Yield the rowids of some rows, and their columns; missing ones are NULL."""
        for _, (rowids, *found) in self._db.columns_of(table, (ROWID, *columns), self._report):
            yield integer_array(rowids), dict(zip(columns, found, strict=True))

    def _threads(self, threads: Values, pid: str, process: str) -> tuple[Coded, Coded]:
        return pairs_of(lambda thread: self._thread(thread, pid, process), threads)

    def _thread(self, thread: object, pid: str, process: str) -> tuple[Label, Label | NamedTrack]:
        if not isinstance(thread, int):
            self._name_once(pid.format("unknown"), None, process)
            return pid.format("unknown"), None
        number = thread & NONE
        owner = (thread >> 32) & NONE
        label: Label = owner if pid == "{}" else pid.format(owner)
        return self._named_track(label, process, number, f"Thread {number}")

    def _texts(self, numbers: Values) -> Coded:
        return renamed(coded(numbers), self._names.known)

    def _args(self, keys: Mapping[str, str], columns: Mapping[str, Values]) -> dict[str, Values]:
        """The args of these columns, as far as they exist."""
        found: dict[str, Values] = {}
        for key, column in keys.items():
            if column in TEXT_ARGS and column in columns:
                found[key] = self._texts(columns[column])
            elif column in ENUM_ARGS and column in columns:
                found[key] = renamed(coded(columns[column]), partial(self._names.enum, ENUM_ARGS[column]))
            elif column in columns:
                found[key] = columns[column]
        return found

    def _finished(
        self,
        place: tuple[str, Int64],
        categories: Coded | None,
        names: Coded,
        track: tuple[Sequence[Any], Sequence[Any]],
        columns: Mapping[str, Values],
        args: Mapping[str, Values],
        points: Sequence[Point] = (),
        phases: Coded | None = None,
    ) -> TraceBatch:
        table, rowids = place
        count = len(rowids)
        self.place = (table, rowids.tolist())
        texts = json_objects(list(args), list(args.values()), count)
        times = _integers(columns["startNs"]), _integers(columns["endNs"])
        events = Events(phases or same("X", count), names, *track, *times, texts)
        return self._batch(categories or same(None, count), events, flows_of(points))


def flows_of(points: Sequence[Point]) -> EventFlows | None:
    points = [point for point in points if len(point.places)]
    if not points:
        return None
    places = np.concatenate([point.places for point in points])
    connections = np.concatenate([point.connections for point in points])
    which = np.repeat(np.arange(len(points)), [len(point.places) for point in points])
    order = np.argsort(places, kind="stable")
    places, connections, which = places[order], connections[order], which[order]
    categories = [point.category for point in points]
    keys = connections + np.array([category == TORCH_LAUNCH for category in categories], np.int64)[which] * _OF_TORCH
    steps = np.array([point.step for point in points], np.int32)[which]
    texts = pa.array(connections).cast(pa.string())
    return EventFlows(places, keys, steps, Coded(which.astype(np.int32), categories), texts)


def device_label(device: object) -> str:
    return f"NPU {device}" if isinstance(device, int) else "NPU"


def _integers(column: Values) -> Values:
    """Times, which older versions of torch_npu write as text."""
    values = column.distinct if isinstance(column, Coded) else column
    if isinstance(column, pa.Array) or not any(isinstance(value, str) for value in values):
        return column
    numbers = [_integer(value) for value in values]
    return [numbers[code] for code in column.codes.tolist()] if isinstance(column, Coded) else numbers


def _integer(value: object) -> object:
    is_number = isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit()
    return int(value) if is_number else value  # type: ignore[call-overload]
