"""msprof's timeline of a run, msprof_*.json, and its step trace, step_trace_*.json.

Events are written from the columns of one time window after another, so memory doesn't grow with the run.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.export import msprof_events as events
from traceconv.export.chrome import check_written
from traceconv.export.json_sql import json_text
from traceconv.export.msprof_layout import (
    APPLICATION,
    CANN,
    COMMUNICATION,
    HARDWARE,
    NO_TRACK,
    OVERLAP,
    OVERLAPS,
    Layout,
    Process,
    Track,
    head,
)
from traceconv.export.output import CountedFile
from traceconv.export.record_file import RecordFile, record_file
from traceconv.export.record_kinds import Kind
from traceconv.export.row_lookup import look_up
from traceconv.export.row_order import Places, order_of, ordered_batches, rows_of_window
from traceconv.export.templates import Template
from traceconv.export.windows import WINDOW_ROWS, condition, time_windows
from traceconv.reports.catalog import define_report
from traceconv.reports.question import find_report

#: Processes of counters that captures name differently.
_COUNTER_PROCESSES = {
    "HBM Bandwidth": "HBM",
    "HBM Used": "NPU MEM",
    "Memory used": "NPU MEM",
    "Memory reserved": "NPU MEM",
}
_MEMORY_UNITS = ("byte", "KB", "MB", None)
#: Of the rows of each table: the time that they are ordered by, and their events.
_ROWS = {
    "task": ("start_ns", events.task_events),
    "api": ("start_ns", events.api_events),
    "range": ("start_ns", events.range_events),
    "marker": ("ts_ns", events.marker_events),
    "counter": ("ts_ns", events.counter_events),
}
_HAS_OP = ("task", "api")


class Timeline:
    """The timeline of a run. It needs temporary tables of the connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
        self._connection = connection
        self._run_id = run_id
        self._layout = Layout(connection, run_id)
        self._places: list[tuple[str, int | None, str, int, str, int, bool, str | None]] = []
        self._labels: list[str | None] = []
        self._heads: dict[tuple[int, object], tuple[str, int]] = {}
        self._steps = self._step_source()
        [(self.steps,)] = self._fetch(f"SELECT count(*) FROM {self._steps}")
        self._sources = {name: self._source(name) for name in _ROWS}
        self._place()

    def write(self, file: CountedFile) -> tuple[dict[str, int], dict[str, int]]:
        """Write msprof_*.json; return how many rows of each table were written, and omitted. Raises StoreError."""
        with record_file(file) as records:
            records.write(("[\n" + ",\n".join(self._layout.metadata())).encode())
            counts = {name: self._write_rows(records, name) for name in _ROWS}
            if self._overlaps:
                self._write_texts(records, self._overlap_texts())
            counts["step"] = self._write_steps(records)
            counts["flow"] = self._write_flows(records)
            records.write(b"\n]\n")
        return counts, self._omitted(counts)

    def write_steps(self, file: CountedFile) -> None:
        """Write step_trace_*.json."""
        with record_file(file) as records:
            records.write(("[\n" + ",\n".join(self._layout.metadata("Step Trace"))).encode())
            self._write_steps(records)
            records.write(b"\n]\n")

    # -- rows --

    def _fetch(self, sql: str) -> list[tuple[int | None, ...]]:
        return self._connection.execute(sql).fetchall()

    def _source(self, name: str) -> str:
        """Return the rows of a table that are events of their own, as a FROM clause."""
        where = f"run_id = {self._run_id}"
        if name == "marker":
            where += " AND ts_ns IS NOT NULL"
        if name == "range" and self.steps:
            shown = ", ".join(f"'{category}'" for category in events.STEP_CATEGORIES)
            where += f" AND coalesce(category, '') NOT IN ({shown})"
        return f'(SELECT * FROM "{name}" WHERE {where})'

    def _step_source(self) -> str:
        """Return the iterations of models, without the steps of the host's program."""
        define_report(self._connection, find_report("step-trace"))
        return (
            "(SELECT * REPLACE (coalesce(iteration, step_id) AS iteration), row_number() OVER (ORDER BY device_id, "
            f"model_id, iteration, step_id) AS number FROM step_trace(run := {self._run_id}) "
            "WHERE coalesce(step_source, '') NOT IN ('annotation', 'marker'))"
        )

    def _placed(self, name: str) -> str:
        """Return the rows of a table with the place of their events."""
        kind, detail = f"'{name}'", "''"
        if name == "task":
            kind = "CASE WHEN s.kind = 'collective' THEN 'collective' ELSE 'task' END"
            detail = "CASE WHEN s.kind = 'collective' THEN coalesce(s.comm_group, '') ELSE '' END"
        joined = f"p.source = {kind} AND p.track_id IS NOT DISTINCT FROM s.track_id AND p.detail = {detail}"
        columns = "s.*, p.place, p.tid, p.made, p.unit"
        return f"(SELECT {columns} FROM {self._sources[name]} AS s LEFT JOIN export_place AS p ON {joined})"

    def _write_rows(self, file: RecordFile, name: str) -> int:
        time, make = _ROWS[name]
        source = self._sources[name]
        joined = f"{self._placed(name)} AS s"
        if name in _HAS_OP:
            joined += f" LEFT JOIN (SELECT * FROM op WHERE run_id = {self._run_id}) AS o ON o.op_id = s.op_id"
        found = make(self._lists)
        columns = [*found.columns, "s.place"]
        # Series are text, so samples are sorted in SQL.
        rest = f" ORDER BY s.{time}, s.track_id, s.series" if name == "counter" else ""
        if name != "counter":
            columns.append("s.id AS _id")
        size = WINDOW_ROWS if name == "counter" else rows_of_window(self._connection, source)
        written = 0
        for window in time_windows(self._connection, source, time, size):
            query = f"SELECT {', '.join(columns)} FROM {joined} WHERE {condition(f's.{time}', window)}{rest}"
            if name == "counter":
                written += sum(file.query(self._connection, found.template, query))
                continue
            for batch, places in ordered_batches(self._connection, query, lambda rows: _by_time(rows, time, "_id")):
                written += file.rows(found.template, batch, places)
        check_written(self._connection, name, source, written)
        return written

    def _overlap_texts(self) -> str:
        return (
            f"SELECT {events.overlap_events()} AS text FROM (SELECT o.*, p.head FROM export_overlap AS o "
            "JOIN export_place AS p ON p.source = 'overlap' AND p.track_id IS NOT DISTINCT FROM o.device_id "
            "AND p.detail = o.place::VARCHAR) AS s ORDER BY s.device_id, s.start_ns, s.place"
        )

    def _write_steps(self, file: RecordFile) -> int:
        source = (
            f"(SELECT t.*, p.head FROM {self._steps} AS t JOIN export_place AS p ON p.source = 'step' "
            "AND p.track_id IS NOT DISTINCT FROM t.device_id AND p.detail = coalesce(t.model_id::VARCHAR, ''))"
        )
        query = f"SELECT {events.step_events()} AS text FROM {source} AS s ORDER BY s.number"
        return self._write_texts(file, query) if self.steps else 0

    def _write_texts(self, file: RecordFile, query: str) -> int:
        """Write the column `text` of a query; return the number of rows."""
        return sum(file.query(self._connection, Template().put(Kind.RAW, "text"), query))

    def _write_flows(self, file: RecordFile) -> int:
        source = (
            f"(SELECT * FROM flow WHERE run_id = {self._run_id} AND src_id IS NOT NULL AND dst_id IS NOT NULL "
            f"AND src_ns IS NOT NULL AND dst_ns IS NOT NULL AND {self._own_flow})"
        )
        slices = " UNION ALL ".join(
            f"SELECT id, place FROM {self._placed(name)}" for name in _ROWS if name != "counter"
        )
        flow = events.flow_events(self._lists)
        written = 0
        for window in time_windows(self._connection, source, "src_ns"):
            query = f"SELECT {', '.join(flow.columns)} FROM {source} AS s WHERE {condition('s.src_ns', window)}"
            for batch, places in ordered_batches(
                self._connection, query, lambda rows: _by_time(rows, "src_ns", "flow_id")
            ):
                order = np.arange(batch.num_rows) if places is None else places
                for end, column in (("src_id", events.SOURCE_PLACE), ("dst_id", events.TARGET_PLACE)):
                    is_known, [found] = look_up(
                        self._connection,
                        lambda wanted: f"SELECT * FROM ({slices}) WHERE {wanted}",
                        batch.column(end).to_numpy(),
                    )
                    batch = batch.append_column(column, pa.array(found, pa.int64()))
                    order = order[is_known[order]]
                written += file.rows(flow.template, batch, order)
        return written

    @property
    def _own_flow(self) -> str:
        """The condition that a flow is not written with the steps."""
        return f"category IS DISTINCT FROM '{events.STEP_FLOW}'" if self.steps else "true"

    def _omitted(self, counts: dict[str, int]) -> dict[str, int]:
        queries = {
            "flows with an unknown end": f"SELECT count(*) - {counts['flow']} FROM flow "
            f"WHERE run_id = {self._run_id} AND {self._own_flow}",
            "memory blocks": f"SELECT count(*) FROM memory WHERE run_id = {self._run_id}",
        }
        return {what: self._fetch(sql)[0][0] or 0 for what, sql in queries.items()}

    # -- places --

    def _place(self) -> None:
        """Fill `export_place`, and `export_overlap` unless the source has an Overlap Analysis."""
        for name in _ROWS:
            self._place_rows(name)
        self._overlaps = not any(track.process == OVERLAP for track in self._layout.tracks.values())
        if self._overlaps:
            query = events.overlap_query(self._run_id)
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE export_overlap AS {query}")
            for (device_id,) in self._fetch("SELECT DISTINCT device_id FROM export_overlap ORDER BY 1"):
                process = self._layout.of_device(OVERLAP, device_id)
                for place, name in enumerate(OVERLAPS):
                    self._add("overlap", device_id, str(place), self._layout.thread(process, name, place))
        for device_id, model_id in self._fetch(f"SELECT DISTINCT device_id, model_id FROM {self._steps} ORDER BY ALL"):
            detail = "" if model_id is None else str(model_id)
            self._add("step", device_id, detail, self._layout.steps(device_id, model_id))
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE export_place (source VARCHAR, track_id BIGINT, detail VARCHAR, place BIGINT, "
            "head VARCHAR, tid BIGINT, made BOOLEAN, unit VARCHAR)"
        )
        if self._places:
            self._connection.executemany("INSERT INTO export_place VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._places)
        heads = [head for _, _, _, _, head, *_ in self._places]
        self._lists = {"head": pa.array(heads, pa.string()), "label": pa.array(self._labels, pa.string())}

    def _place_rows(self, name: str) -> None:
        """Place the rows of a table; processes of the source come first, since they keep their numbers."""
        columns = "track_id, NULL, NULL, NULL"
        if name == "task":
            columns = "track_id, CASE WHEN kind = 'collective' THEN coalesce(comm_group, '') END"
            columns += ", min(device_id), min(stream_id)"
        query = f"SELECT {columns} FROM {self._sources[name]} GROUP BY ALL ORDER BY ALL"
        found: list[tuple[int | None, str | None, int | None, int | None]] = self._connection.execute(query).fetchall()
        placed = [(NO_TRACK if row[0] is None else self._layout.tracks.get(row[0], NO_TRACK), row) for row in found]
        for track, (track_id, group, device_id, stream_id) in sorted(placed, key=lambda one: not one[0].in_layout):
            if name == "task":
                device_id = track.device_id if track.device_id is not None else device_id
                if group is not None:
                    self._add("collective", track_id, group, self._collective(track, device_id, group))
                else:
                    self._add(name, track_id, "", self._stream(track, device_id, stream_id))
            elif name == "counter":
                process = self._counter_process(track)
                self._add(name, track_id, "", (head(process), 0), label=track.name or "counter", unit=track.unit)
            elif name == "api":
                made = track.process != CANN
                place = self._on(self._layout.of_host(CANN, track), track, None if made else track.name)
                self._add(name, track_id, "", place, made=made)
            else:
                made = not track.in_layout and track.process_order is None
                process = self._range_process(track, made)
                self._add(name, track_id, "", self._on(process, track, None if made else track.name), made=made)

    def _add(
        self, source: str, track_id: int | None, detail: str, place: tuple[str, int], *, made: bool = False,
        label: str | None = None, unit: str | None = None,
    ) -> None:  # fmt: skip
        self._places.append((source, track_id, detail, len(self._places), *place, made, unit))
        self._labels.append(None if label is None else json_text(label))

    def _on(self, process: Process, track: Track, name: str | None, tid: int | None = None) -> tuple[str, int]:
        """Return the thread of a track in a process."""
        key = (process.pid, track.track_id)
        if key not in self._heads:
            order = track.order if track.in_layout else None
            self._heads[key] = self._layout.thread(process, name, track.tid if tid is None else tid, order)
        return self._heads[key]

    def _stream(self, track: Track, device_id: int | None, stream_id: int | None) -> tuple[str, int]:
        if track.process == HARDWARE:
            return self._on(self._layout.of_device(HARDWARE, device_id, track), track, track.name)
        number = track.stream_id if track.stream_id is not None else stream_id
        name = "Stream not recorded" if number is None else f"Stream {number}"
        return self._on(self._layout.of_device(HARDWARE, device_id), track, name, number)

    def _collective(self, track: Track, device_id: int | None, group: str) -> tuple[str, int]:
        if track.process in (COMMUNICATION, "HCCL"):
            return self._on(self._layout.of_device(COMMUNICATION, device_id, track), track, track.name)
        process = self._layout.of_device(COMMUNICATION, device_id)
        key = (process.pid, group)
        if key not in self._heads:
            name = f"{'' if group.startswith('Group ') else 'Group '}{group} Communication" if group else COMMUNICATION
            self._heads[key] = self._layout.thread(process, name, 0)
        return self._heads[key]

    def _range_process(self, track: Track, made: bool) -> Process:
        if track.in_layout and track.process not in (CANN, APPLICATION):
            return self._layout.of_device(str(track.process), track.device_id, track)
        return self._layout.of_host(APPLICATION if made else track.process or APPLICATION, track)

    def _counter_process(self, track: Track) -> Process:
        if track.in_layout:
            return self._layout.of_device(str(track.process), track.device_id, track)
        if track.device_id is None:
            return self._layout.of_host(
                APPLICATION if track.process_order is None else track.process or APPLICATION, track
            )
        name = track.name or "counter"
        memory = "NPU MEM" if track.unit in _MEMORY_UNITS else name
        return self._layout.of_device(_COUNTER_PROCESSES.get(name, memory), track.device_id)


def _by_time(rows: pa.Table, time: str, last: str) -> Places | None:
    return order_of([rows.column(time).to_numpy(), rows.column(last).to_numpy()])
