"""Find the events from which a row was made, by its table, for all formats except raw logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.ascend_db.format import FORMAT as ASCEND_DB
from traceconv.formats.ascend_raw.format import FORMAT as ASCEND_RAW
from traceconv.formats.common.elements import json_object
from traceconv.formats.locate import Evidence
from traceconv.formats.vendor_folder.locate import locate as locate_record
from traceconv.normalize.trace import phases
from traceconv.normalize.vendor_csv.spec import counter_title
from traceconv.provenance import tables_csv
from traceconv.provenance.answer import Found, RowRef
from traceconv.provenance.files import Sources
from traceconv.provenance.rows import EVENT_TABLES
from traceconv.provenance.trace_scan import Batch, find_end, find_events

_COMPLETE = re.compile(rb'"ph"\s*:\s*"X"')
_ENDS = (("src", "st", "where it starts"), ("dst", "tf", "where it ends"))


class TraceRows:
    """The events from which the rows of one run were made."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._tables = {
            source_id: kind
            for source_id, row in sources.rows.items()
            if (kind := tables_csv.kind_of(str(row["format"]))) is not None
        }

    def of(self, table: str, row: Mapping[str, Any]) -> Found:
        """Return a row's evidence, and the rows that it was made from. InputError: a file is missing or has changed."""
        if table in EVENT_TABLES:
            return self._slice(table, row), []
        if table in ("task_pmu", "event_wait"):
            return self._completing(self._sources.row("task", "id", row["id"])), [
                RowRef("task", int(row["id"]), "its task")
            ]
        if table == "flow":
            return self._flow(row)
        if table == "counter":
            return self._counter(row), []
        if table == "step":
            return self._step(row)
        if table == "memory":
            return self._blocks(self._is_block(row)) or self._changes(row), []
        if table == "fusion":
            op = self._sources.row("op", "op_id", row["op_id"])
            return self._records("fusion", lambda record: record["name"] == op.get("name")), []
        if table == "op":
            return self._op(row)
        if table in ("track", "process"):
            return self._named(table, row)
        if table == "device":
            return [], self._first("task", "device_id = ?", [row["device_id"]], "a task on it")
        return [], []

    # -- rows of single events --

    def event(self, event_id: int, role: str, row: Mapping[str, Any] | None = None) -> list[Evidence]:
        """Return the event with an id. `row`: the row that was made from it, which helps to find it."""
        row = row or {}
        track = self._sources.row("track", "track_id", row.get("track_id"))
        known = {**row, "tid_text": track.get("tid_text")}
        if event_id >> ORDINAL_BITS in self._tables:
            return locate_record(self._sources.wanted(event_id, role, known))
        return self._sources.locate(event_id, role, known)

    def _slice(self, table: str, row: Mapping[str, Any]) -> list[Evidence]:
        event_id = int(row["id"])
        found = self.event(event_id, "its event", row)
        if found and not _is_complete(found[0].data):
            found += self._end(event_id, row.get("start_ns"), row.get("dur_ns"))
        return found + self._completing(row) if table == "task" else found

    def _end(self, event_id: int, start_ns: int | None, dur_ns: int | None) -> list[Evidence]:
        """Return the event that ends a slice, if it has one."""
        source_id = event_id >> ORDINAL_BITS
        source_format = self._sources.format_of(source_id)
        can_be_found = source_format is not None and source_format.locate and self._has("B", "b", "S")
        if start_ns is None or dur_ns is None or not can_be_found:
            return []
        ends = find_end(self._sources.file(source_id), event_id, start_ns, start_ns + dur_ns)
        if ends is None:
            return []
        role = "its end" if ends.sure else f"its end is one of these {len(ends.ids)}"
        return [one for id_ in ends.ids[:8] for one in self.event(id_, role)]

    def _completing(self, row: Mapping[str, Any]) -> list[Evidence]:
        """Return the CSV records that completed a task of the timeline."""
        return [
            evidence
            for source_id in self._tables
            if row and source_id != int(row["id"]) >> ORDINAL_BITS
            for evidence in tables_csv.completing_task(self._sources.file(source_id), row)
        ]

    # -- rows of other tables --

    def _flow(self, row: Mapping[str, Any]) -> Found:
        refs = [
            RowRef(self._table_of(int(row[f"{end}_id"])), int(row[f"{end}_id"]), role)
            for end, _, role in _ENDS
            if row[f"{end}_id"] is not None
        ]
        found: list[Evidence] = []
        for (end, letters, _), role in zip(_ENDS, ("the event that starts it", "the event that ends it"), strict=True):

            def same(batch: Batch, place: int, letters: str = letters) -> bool:
                return (
                    str(batch.label("ph", place))[:1] in letters
                    and batch.id_text(place)[0] == row["external_id"]
                    and batch.label("cat", place) == row["category"]
                    and batch.label("name", place) == row["name"]
                )

            if row[f"{end}_ns"] is not None:
                found += self._scan("stf", phases.FLOW, same, role, int(row[f"{end}_ns"]), 2)
        return found, refs

    def _counter(self, row: Mapping[str, Any]) -> list[Evidence]:
        track = self._sources.row("track", "track_id", row["track_id"])
        name, scope = track.get("name"), track.get("scope")

        def same(batch: Batch, place: int) -> bool:
            return batch.label("name", place) == name and scope in (None, batch.id_text(place)[0])

        def same_record(record: Mapping[str, Any]) -> bool:
            kind = record["kind"]
            title = counter_title(record["track"] or kind, kind, record["stream_text"])
            return record["ts_ns"] == row["ts_ns"] and title == str(name)

        found = self._scan("C", phases.COUNTER, same, "its event", int(row["ts_ns"]), 4)
        return found or self._records("counter", same_record)

    def _step(self, row: Mapping[str, Any]) -> Found:
        found = self._records(
            "step",
            lambda record: record["iteration"] == row["iteration"] and record["end_ns"] in (row["end_ns"], None),
        )
        condition = "start_ns = ? AND start_ns + dur_ns = ? AND regexp_matches(name, '[0-9]')"
        bounds, role = [row["start_ns"], row["end_ns"]], "a slice with its bounds"
        refs = [ref for table in ("range", "task", "api") for ref in self._first(table, condition, bounds, role)]
        return found, refs

    def _op(self, row: Mapping[str, Any]) -> Found:
        refs = [
            ref
            for table in ("task", "api", "range")
            for ref in self._first(table, "op_id = ?", [row["op_id"]], "the first event that names it")
        ]
        if refs:
            return [], refs[:2]

        def same_name(record: Mapping[str, Any]) -> bool:
            return bool(record["name"] == row["name"])

        return self._records("memory", same_name) or self._records("fusion", same_name), []

    def _named(self, table: str, row: Mapping[str, Any]) -> Found:
        """Return the metadata that names a process or a thread, and the first row on it."""
        process = self._sources.row("process", "process_id", row.get("process_id"))
        lead = "process_" if table == "process" else "thread_"

        def same(batch: Batch, place: int) -> bool:
            pid, tid = batch.label("pid", place), batch.label("tid", place)
            if str(pid) != process.get("pid_text") or not str(batch.label("name", place)).startswith(lead):
                return False
            return table == "process" or str(pid if tid is None else tid) == row.get("tid_text")

        found: list[Evidence] = []
        if row.get("kind", "thread") in ("thread", "stream"):
            found = self._scan("M", phases.METADATA, same, "its name and position", None, 8)
        if table == "process":
            return found, []
        condition, values = "track_id = ?", [row["track_id"]]
        refs = [ref for name in EVENT_TABLES for ref in self._first(name, condition, values, "the first event on it")]
        return found, refs[:2]

    # -- helpers --

    @cached_property
    def _accounts(self) -> set[str]:
        rows = self._sources.fetch("SELECT record FROM import_account WHERE run_id = ?", [self._sources.run_id])
        return {str(row["record"]) for row in rows}

    def _has(self, *letters: str) -> bool:
        """Whether the run has events with one of these phases."""
        return not self._accounts.isdisjoint(map(phases.account_of, letters))

    def _scan(
        self, letters: str, kind: int, test: Callable[[Batch, int], bool], role: str, ns: int | None, limit: int
    ) -> list[Evidence]:
        """Find events that have no id in the store: read every source with single events until `limit` are found."""
        found: list[Evidence] = []
        for source_id in self._sources.rows if self._has(*letters) else ():
            source_format = self._sources.format_of(source_id)
            if source_format is not None and source_format.locate:
                for event_id in find_events(self._sources.file(source_id), (kind,), test, ns, limit):
                    found += self.event(event_id, role)
        return found[:limit]

    def _is_block(self, row: Mapping[str, Any]) -> tables_csv.Test:
        name = self._sources.row("op", "op_id", row["op_id"]).get("name")
        if name is None:
            # Made from the totals logged with allocations: from the allocation that showed it, else from the first.
            shown_ns = row["alloc_ns"] if row["alloc_ns"] is not None else row["free_ns"]
            if shown_ns is None:
                where = "run_id = ? AND pool IS NOT DISTINCT FROM ? AND op_id IS NOT NULL"
                sql = f"SELECT min(alloc_ns) AS ns FROM memory WHERE {where}"  # noqa: S608 - of ours
                shown_ns = self._sources.fetch(sql, [self._sources.run_id, row["pool"]])[0]["ns"]
            return lambda record: record["alloc_ns"] == shown_ns

        def same(record: Mapping[str, Any]) -> bool:
            size = None if record["size_bytes"] is None else abs(record["size_bytes"])
            return (record["alloc_ns"], size, record["name"]) == (row["alloc_ns"], row["size_bytes"], name)

        return same

    def _changes(self, row: Mapping[str, Any]) -> list[Evidence]:
        """Return the instants of a block's allocation and free; of one without times, any that has its address."""
        size = str(row["size_bytes"])
        place = size if row["address"] is None else str(row["address"])
        is_free = "contains(args, '-' || ?)"
        wanted = [
            ("its allocation", f"ts_ns = ? AND contains(args, ?) AND NOT {is_free}", [row["alloc_ns"], place, size]),
            ("its free", f"ts_ns = ? AND contains(args, ?) AND {is_free}", [row["free_ns"], place, size]),
        ]
        if row["alloc_ns"] is None and row["free_ns"] is None:
            wanted = [("the block", f"contains(args, ?) AND contains(args, ?) AND NOT {is_free}", [place, size, size])]
        refs = [
            ref
            for role, condition, values in wanted
            if values[0] is not None
            for ref in self._first("marker", condition, values, role)
        ]
        return [one for ref in refs for one in self.event(int(ref.id), ref.role)]

    def _records(self, becomes: str, test: tables_csv.Test) -> list[Evidence]:
        """Return records that pass a test, from the CSV files whose records become rows of one kind."""
        return [
            evidence
            for source_id, kind in self._tables.items()
            if kind.becomes == becomes
            for evidence in tables_csv.matching(self._sources.file(source_id), "its record", test)
        ]

    def _blocks(self, test: tables_csv.Test) -> list[Evidence]:
        """Return the record of a block of memory, or its row in a database."""
        found = self._records("memory", test)
        for source_id, row in self._sources.rows.items():
            if row["format"] in (ASCEND_DB.name, ASCEND_RAW.name) and not found:
                from traceconv.formats.ascend_db.locate import locate_block  # few runs need it

                found = locate_block(self._sources.file(source_id), test)
        return found

    def _table_of(self, event_id: int) -> str:
        return next((name for name in EVENT_TABLES if self._sources.row(name, "id", event_id)), "range")

    def _first(self, table: str, condition: str, values: list[object], role: str) -> list[RowRef]:
        sql = f'SELECT id FROM "{table}" WHERE run_id = ? AND {condition} ORDER BY id LIMIT 1'  # noqa: S608 - ours
        return [
            RowRef(table, int(one["id"]), role) for one in self._sources.fetch(sql, [self._sources.run_id, *values])
        ]


def _is_complete(data: bytes) -> bool:
    """Whether an event of a Chrome trace is complete, as most are, so that no end must be found."""
    event = json_object(data)
    return event["ph"] == "X" if "ph" in event else _COMPLETE.search(data) is not None
