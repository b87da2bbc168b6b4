"""Which events a row of each table was made of, for all formats but raw logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import duckdb
import msgspec

from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.nsys.tables import GPU_METRICS
from traceconv.normalize.trace import phases
from traceconv.normalize.vendor_csv.spec import counter_title
from traceconv.provenance import documents, tables_csv
from traceconv.provenance.evidence import Evidence, RowRef
from traceconv.provenance.files import SourceFile, Sources
from traceconv.provenance.nsys_rows import nsys_event, nsys_moment
from traceconv.provenance.rows import EVENT_TABLES, fetch
from traceconv.provenance.trace_scan import Batch, find_end, find_events
from traceconv.provenance.trace_text import text_evidence, trace_event

#: Readers of which events stand in a text one by one, so that the file can be looked through for others.
_LISTS = ("chrome_json", "vendor_folder")
#: A complete event says so: most do, and need no search for an end.
_COMPLETE = re.compile(rb'"ph"\s*:\s*"X"')
_FLOW_PHASES = {"src": ("s", "t"), "dst": ("t", "f")}
Found = tuple[list[Evidence], list[RowRef]]


class TraceRows:
    """The events behind the rows of one run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sources: Sources) -> None:
        self._connection = connection
        self._sources = sources
        self.run_id = sources.run_id
        self._reader = sources.reader

    def of(self, table: str, row: Mapping[str, Any]) -> Found:
        """The evidence of a row, and the rows that it was made of. InputError when a file is gone or changed."""
        if table in EVENT_TABLES:
            return self._event(table, row), []
        if table == "task_pmu":
            return self._completing(self._row("task", "id", row["id"])), [RowRef("task", int(row["id"]), "its task")]
        if table == "flow":
            return self._flow(row)
        if table == "counter":
            return self._counter(row), []
        if table == "step":
            return self._step(row)
        if table == "memory":
            return self._from_tables("memory", self._is_block(row)), []
        if table == "fusion":
            op = self._row("op", "op_id", row["op_id"])
            return self._from_tables("fusion", lambda one: one["name"] == op.get("name")), []
        if table == "op":
            return self._op(row)
        if table in ("track", "process"):
            return self._named(table, row)
        if table == "device":
            return [], self._first("task", "device_id = ?", [row["device_id"]], "a task on it")
        return [], []

    # -- rows of single events --

    def event(self, event_id: int, role: str, row: Mapping[str, Any] | None = None) -> list[Evidence]:
        """The event with an id; `row`: what was made of it, where that helps to find it."""
        row = row if row is not None else {"id": event_id}
        if self._reader in _LISTS:
            source = self._sources.file(event_id >> ORDINAL_BITS)
            if tables_csv.kind_of(source) is not None:
                return [tables_csv.csv_record(self._sources, event_id, role)]
            return [trace_event(self._sources, event_id, role)]
        if self._reader == "nsys":
            return [nsys_event(self._sources, event_id, role)]
        if self._reader == "furiosa_csv":
            return tables_csv.furiosa_record(self._sources, row, role)
        if self._reader == "json_items":
            return documents.item_of(self._sources, row, role)
        if self._reader == "rocprofv3":
            return documents.rocprof_record(self._sources, row, role)
        track = self._row("track", "track_id", row.get("track_id"))
        if self._reader == "speedscope":
            return documents.speedscope_event(self._sources, row, track, role)
        if self._reader == "megengine_static":
            return documents.static_operator(self._sources, row, track, role)
        return self._block(event_id, role)

    def _block(self, event_id: int, role: str) -> list[Evidence]:
        """Of a format that is not known here: the stretch of the file that the event came from."""
        block = self._sources.block_of(event_id)
        if block is None or block.byte_offset is None or block.byte_count is None:
            return []
        source = self._sources.file(event_id >> ORDINAL_BITS)
        text = source.text(block.byte_offset, block.byte_count)
        where = f"a block of {block.event_count} events, number {event_id - block.first_id} of them"
        found = text_evidence(source, f"{role} is in this block", block.byte_offset, text, where)
        return [replace(found, is_text=_is_text(found.data))]

    def _event(self, table: str, row: Mapping[str, Any]) -> list[Evidence]:
        event_id = int(row["id"])
        is_list = self._reader in (*_LISTS, "speedscope")
        found = self.event(event_id, "its event", row)
        start, dur = row.get("start_ns"), row.get("dur_ns")
        source = self._sources.file(event_id >> ORDINAL_BITS)
        if table != "marker" and is_list and None not in (start, dur) and _may_begin(found, source):
            found += self._end(source, event_id, int(start or 0), int(start or 0) + int(dur or 0))
        if table == "task":
            found += self._completing(row)
        return found

    def _end(self, source: SourceFile, event_id: int, start_ns: int, end_ns: int) -> list[Evidence]:
        ends = find_end(source, self._reader, event_id, start_ns, end_ns)
        if ends is None:
            return []
        role = "its end" if ends.sure else f"its end is one of these {len(ends.ids)}"
        return [one for id_ in ends.ids[:8] for one in self.event(id_, role)]

    def _completing(self, row: Mapping[str, Any]) -> list[Evidence]:
        """Records of CSV files beside the timeline that say more of a task."""
        if self._reader != "vendor_folder" or not row:
            return []
        found: list[Evidence] = []
        for source_id in self._sources.rows:
            if source_id != int(row["id"]) >> ORDINAL_BITS and self._is_table(source_id):
                found += tables_csv.completing_task(self._sources.file(source_id), row)
        return found

    def _is_table(self, source_id: int) -> bool:
        return str(self._sources.rows[source_id]["format"]) != "chrome_json"

    # -- rows of other tables --

    def _flow(self, row: Mapping[str, Any]) -> Found:
        refs = [
            RowRef(name, int(row[f"{end}_id"]), role)
            for end, role in (("src", "where it starts"), ("dst", "where it ends"))
            if row[f"{end}_id"] is not None
            for name in [self._table_of(int(row[f"{end}_id"]))]
        ]
        found: list[Evidence] = []
        if self._reader not in _LISTS:
            return found, refs
        for end, role in (("src", "the event that starts it"), ("dst", "the event that ends it")):
            moment = row[f"{end}_ns"]
            if moment is None:
                continue

            def same(batch: Batch, place: int, letters: tuple[str, ...] = _FLOW_PHASES[end]) -> bool:
                id_text, _ = batch.id_text(place)
                ph = str(batch.label("ph", place))[:1]
                return (
                    ph in letters
                    and id_text == row["external_id"]
                    and batch.label("cat", place) == row["category"]
                    and batch.label("name", place) == row["name"]
                )

            found += self._look((phases.FLOW,), same, role, int(moment), 2)
        return found, refs

    def _counter(self, row: Mapping[str, Any]) -> list[Evidence]:
        track = self._row("track", "track_id", row["track_id"])
        if self._reader == "nsys":
            # A sample stands alone at its time, or with those of other metrics.
            return nsys_moment(self._sources.file(1), GPU_METRICS, "timestamp", int(row["ts_ns"]), "a sample of then")
        found: list[Evidence] = []
        if self._reader in _LISTS:

            def same(batch: Batch, place: int) -> bool:
                return batch.label("name", place) == track.get("name") and (
                    track.get("scope") is None or batch.id_text(place)[0] == track["scope"]
                )

            found += self._look((phases.COUNTER,), same, "its event", int(row["ts_ns"]), 4)
        if self._reader == "vendor_folder" and not found:
            name = str(track.get("name"))
            found += self._from_tables(
                "counter",
                lambda one: (
                    one["ts_ns"] == row["ts_ns"]
                    and counter_title(one["track"] or one["kind"], one["kind"], one["stream_text"]) == name
                ),
            )
        return found

    def _step(self, row: Mapping[str, Any]) -> Found:
        found: list[Evidence] = []
        if self._reader == "vendor_folder":
            found = self._from_tables(
                "step", lambda one: one["iteration"] == row["iteration"] and one["end_ns"] in (row["end_ns"], None)
            )
        start, end = row["start_ns"], row["end_ns"]
        refs: list[RowRef] = []
        for table in ("range", "task", "api"):
            refs += self._first(
                table,
                "start_ns = ? AND start_ns + dur_ns = ? AND regexp_matches(name, '[0-9]')",
                [start, end],
                "a slice with its bounds",
            )
        return found, refs

    def _op(self, row: Mapping[str, Any]) -> Found:
        refs: list[RowRef] = []
        for table in ("task", "api", "range"):
            refs += self._first(table, "op_id = ?", [row["op_id"]], "the first that says what it is")
        if refs or self._reader != "vendor_folder":
            return [], refs[:2]
        return self._from_tables("memory", lambda one: one["name"] == row["name"]) or self._from_tables(
            "fusion", lambda one: one["name"] == row["name"]
        ), []

    def _named(self, table: str, row: Mapping[str, Any]) -> Found:
        """Metadata that names a process or a thread, and the first row that stands on it."""
        found: list[Evidence] = []
        if self._reader in _LISTS:
            process = self._row("process", "process_id", row.get("process_id"))
            tid = row.get("tid_text")

            def same(batch: Batch, place: int) -> bool:
                if str(batch.label("pid", place)) != process.get("pid_text"):
                    return False
                words = ("process_",) if table == "process" else ("thread_",)
                if not str(batch.label("name", place)).startswith(words):
                    return False
                own = batch.label("tid", place)
                return table == "process" or str(batch.label("pid", place) if own is None else own) == tid

            if row.get("kind", "thread") in ("thread", "stream"):
                found += self._look((phases.METADATA,), same, "what it is called, and where it is shown", None, 8)
        refs: list[RowRef] = []
        if table == "track":
            for name in EVENT_TABLES:
                refs += self._first(name, "track_id = ?", [row["track_id"]], "the first on it")
        return found, refs[:2]

    # -- help --

    def _look(self, kinds: tuple[int, ...], test: Any, role: str, ns: int | None, limit: int) -> list[Evidence]:
        found: list[Evidence] = []
        for source_id in self._sources.rows:
            if self._reader == "vendor_folder" and self._is_table(source_id):
                continue
            source = self._sources.file(source_id)
            for event_id in find_events(source, self._reader, kinds, test, ns, limit):
                found += self.event(event_id, role)
        return found[:limit]

    def _is_block(self, row: Mapping[str, Any]) -> tables_csv.Test:
        name = self._row("op", "op_id", row["op_id"]).get("name")
        if name is None:
            # Made of the totals beside allocations: that which showed it, else the first.
            shown_ns = row["alloc_ns"] if row["alloc_ns"] is not None else row["free_ns"]
            if shown_ns is None:
                where = "run_id = ? AND pool IS NOT DISTINCT FROM ? AND op_id IS NOT NULL"
                sql = f"SELECT min(alloc_ns) AS ns FROM memory WHERE {where}"  # noqa: S608 - of ours
                shown_ns = fetch(self._connection, sql, [self._sources.run_id, row["pool"]])[0]["ns"]
            return lambda one: one["alloc_ns"] == shown_ns

        def same(one: Mapping[str, Any]) -> bool:
            size = None if one["size_bytes"] is None else abs(one["size_bytes"])
            return (one["alloc_ns"], size, one["name"]) == (row["alloc_ns"], row["size_bytes"], name)

        return same

    def _from_tables(self, becomes: str, test: tables_csv.Test) -> list[Evidence]:
        """Records of the folder's CSV files of one kind that pass a test."""
        found: list[Evidence] = []
        for source_id in self._sources.rows:
            if not self._is_table(source_id) or self._reader != "vendor_folder":
                continue
            source = self._sources.file(source_id)
            kind = tables_csv.kind_of(source)
            if kind is not None and kind.becomes == becomes:
                found += tables_csv.matching(source, "its record", partial(_of_kind, kind.kind, test))
        return found

    def _row(self, table: str, key: str, value: object) -> dict[str, Any]:
        if value is None:
            return {}
        sql = f'SELECT * FROM "{table}" WHERE run_id = ? AND {key} = ? LIMIT 1'  # noqa: S608 - names of ours
        found = fetch(self._connection, sql, [self._sources.run_id, value])
        return found[0] if found else {}

    def _table_of(self, event_id: int) -> str:
        return next((name for name in EVENT_TABLES if self._row(name, "id", event_id)), "range")

    def _first(self, table: str, condition: str, values: list[object], role: str) -> list[RowRef]:
        sql = f'SELECT id FROM "{table}" WHERE run_id = ? AND {condition} ORDER BY id LIMIT 1'  # noqa: S608 - ours
        return [
            RowRef(table, int(one["id"]), role) for one in fetch(self._connection, sql, [self._sources.run_id, *values])
        ]


def _of_kind(kind: str, test: tables_csv.Test, one: Mapping[str, Any]) -> bool:
    """The test of a record, with the kind of its file."""
    return test({**one, "kind": kind})


def _may_begin(found: list[Evidence], source: SourceFile) -> bool:
    """Whether an end may belong to an event: not to complete events, nor to records of tables."""
    if tables_csv.kind_of(source) is not None or not found:
        return False
    data = found[0].data
    if not found[0].cut:
        try:
            event = msgspec.json.decode(data)
            return not isinstance(event, dict) or event.get("ph", "B") not in ("X", 1)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return _COMPLETE.search(data) is None


def _is_text(data: bytes) -> bool:
    """Whether bytes are for people to read, and no binary format."""
    try:
        return data.decode().replace("\n", "").replace("\t", "").isprintable()
    except UnicodeDecodeError:
        return False
