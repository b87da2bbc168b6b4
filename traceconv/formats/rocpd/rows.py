"""Rows of the tables of a rocpd database, with what other tables have about their events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import printable
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, coded
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import ROWID, Damage, Database
from traceconv.formats.common.sqlite_lookup import Lookup, matched
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import renamed, taken
from traceconv.formats.rocpd.names import Process, call_arguments

ALLOCATIONS = "memory_allocate"
#: Category of the records of the driver.
DRIVER = "kfd"
#: Categories of rocprofv3 (HIP_RUNTIME_API) and rocprof-sys (rocm_hip_api) → those of rocprofv3's JSON.
_CALLS = re.compile(r"(?:rocm_)?(?P<what>hip|hsa|marker|rccl|rocshmem|rocdecode|rocjpeg)_?\w*", re.IGNORECASE)
#: Rows of other tables that belong to a batch; an event has some arguments and counters.
_MOST_JOINED = 2_000_000
_EVENT = ("category_id", "stack_id", "call_stack", "line_info", "extdata")
#: Columns that are not read: the same in all rows, or empty.
_UNUSED = ("guid", "nid")
_NOTHING = ("", "{}")


@dataclass(slots=True)
class Rows:
    """Rows of a table of a process, with what the table of events has about them.

    columns  name → values
    events   IDs of their events; -1: unknown
    calls    correlation ID of the call, or of the call that launched the work; 0 and NULL: unknown
    """

    process: Process
    table: str
    rowids: Int64
    columns: dict[str, Values]
    events: Int64
    categories: Coded
    calls: Values

    def __len__(self) -> int:
        return len(self.rowids)

    def __getitem__(self, name: str) -> Values:
        """Return a column; NULLs if the table doesn't have it."""
        return self.columns[name] if name in self.columns else [None] * len(self)

    def take(self, places: NDArray[np.intp]) -> Rows:
        """Return some of the rows."""
        columns = {name: taken(column, places) for name, column in self.columns.items()}
        categories, calls = taken(self.categories, places), taken(self.calls, places)
        return Rows(
            self.process, self.table, self.rowids[places], columns, self.events[places], coded(categories), calls
        )

    def args(self, *names: str) -> dict[str, Values]:
        """Return some of the columns, as far as the table has them."""
        return {name: self.columns[name] for name in names if name in self.columns}


class Tables:
    """Reads rows of tables. `report`: what is called with damage."""

    def __init__(self, db: Database, log: ImportLog, report: Callable[[Damage], None]) -> None:
        self._db = db
        self._log = log
        self._report = report
        self._lookups: dict[str, Lookup] = {}

    def rows(self, process: Process, table: str) -> Iterator[Rows]:
        """Yield the rows of a table, with those of the table of events."""
        unused = _UNUSED if table == process.tables.get(ALLOCATIONS) else (*_UNUSED, "extdata")
        names = [name for name in self._db.columns(table) if name not in unused]
        events = process.tables.get("event", "")
        for count, (rowids, *values) in self._db.columns_of(table, (ROWID, *names), self._report):
            columns = dict(zip(names, values, strict=True))
            ids = integer_array(columns.get("event_id", [None] * count))
            found = self._found(events, "id", ids, _EVENT)
            if found is None:
                self._lost_details(events, table, count)
                found = np.zeros(0, np.int64), [[] for _ in _EVENT]
            event = dict(zip(_EVENT, matched(ids, *found), strict=True))
            columns["event.extdata"] = event["extdata"]
            for name in ("call_stack", "line_info"):
                columns[name] = renamed(coded(event[name]), lambda text: None if text in _NOTHING else text)
            kinds = coded(event["category_id"])
            categories = renamed(kinds, lambda number: _category(process.strings.get(number)))
            yield Rows(process, table, integer_array(rowids), columns, ids, categories, event["stack_id"])

    def _found(self, table: str, key: str, events: Int64, columns: Sequence[str]) -> tuple[Int64, list[Values]] | None:
        """Return the events of rows that belong to some events, and columns; there may be other rows among them."""
        if key not in self._db.columns(table):
            return None
        if table not in self._lookups:
            self._lookups[table] = Lookup(self._db, table, key, self._report)
        return self._lookups[table].columns(np.unique(events[events >= 0]), columns, _MOST_JOINED)

    def _details(self, rows: Rows, what: str, *columns: str) -> tuple[Int64, list[Coded]]:
        """Return the events of rows of a table of details that belong to these rows, and columns."""
        table = rows.process.tables.get(what)
        nothing = np.zeros(0, np.int64), [coded([]) for _ in columns]
        if table is None or not self._db.row_count(table):
            return nothing
        found = self._found(table, "event_id", rows.events, columns)
        if found is not None:
            events, values = found
            mine = np.isin(events, rows.events)
            numbers, counts = np.unique(rows.events, return_counts=True)
            # Rows may refer to the same event.
            if counts[np.searchsorted(numbers, events[mine])].sum() <= _MOST_JOINED:
                return events[mine], [coded(column).take(np.flatnonzero(mine)) for column in values]
        self._lost_details(table, rows.table, len(rows))
        return nothing

    def arguments(self, rows: Rows) -> Coded:
        """Return the arguments of each row's call, as JSON."""
        events, (names, values) = self._details(rows, "arg", "name", "value")
        return by_event(rows, call_arguments(events, names, values))

    def counters(self, rows: Rows) -> tuple[list[tuple[int, Any, Any]], int]:
        """Return the values of counters, each after its event, and how many are samples of streaming counters instead.

        Since version 3.0.3 of the schema, those samples belong to the event of a kernel, too, but the kernel's own
        values don't include them.
        """
        if "sample_id" not in self._db.columns(rows.process.tables.get("pmc_event", "")):
            events, (counters, numbers) = self._details(rows, "pmc_event", "pmc_id", "value")
            return list(zip(events.tolist(), counters, numbers, strict=True)), 0
        events, (counters, numbers, samples) = self._details(rows, "pmc_event", "pmc_id", "value", "sample_id")
        found = zip(events.tolist(), counters, numbers, samples, strict=True)
        values = [row[:3] for row in found if row[3] is None]
        return values, len(events) - len(values)

    def _lost_details(self, table: str, of: str, count: int) -> None:
        message = f"{printable(table)}: what belongs to rows of {printable(of)} can't be read"
        self._log.count(Code.DAMAGED_BLOCK, message, count, SOURCE_ID)


def _category(text: str | None) -> str:
    found = _CALLS.fullmatch(text or "")
    if (text or "").startswith("KFD_"):
        return DRIVER
    return f"{found['what'].lower()}_api" if found else (text or "other").lower()


def by_event(rows: Rows, values: Mapping[int, Any]) -> Coded:
    """Return the value of each row's event."""
    places = dict(zip(values, range(len(values)), strict=True))
    codes = [places.get(event, len(values)) for event in rows.events.tolist()]
    return Coded(np.array(codes, np.int32), [*values.values(), None])
