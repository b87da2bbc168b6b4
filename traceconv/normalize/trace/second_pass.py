"""Second pass over a trace: match begins with ends, nest slices, bind flows to slices; then produce all rows."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.prefetch import prefetch
from traceconv.base.workers import AtOnce, Workers
from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.normalize.rows import row_batch
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.sort.placed_rows import PlacedRows
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.begin_end import TOO_LONG_PAIR, BeginEndMatcher
from traceconv.normalize.trace.classify import Classifier, identifying_words, rules_of
from traceconv.normalize.trace.complete_nesting import ENCLOSING_DTYPE, NESTED_DTYPE, POINT, CompleteNester
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.flows import Flows
from traceconv.normalize.trace.slice_rows import SliceRows
from traceconv.normalize.trace.spans_by_track import SpansByTrack
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.schema.dtypes import RecordArray

TableRows = tuple[str, Iterator[pa.RecordBatch]]

_CODE_DTYPE = np.dtype([("rule", "<i2")])

#: Slices for which a thread isn't worth its start.
_FEW_SLICES = 4096
_WITHOUT_DURATION = (Code.NO_DURATION, Code.BAD_DURATION, Code.BACKWARD)


class SecondPass:
    """Produces the rows of one trace: call `prepare`, then `tables`, then `close`."""

    def __init__(self, first: FirstPass, keys: Mapping[str, bytes], *, keeps_all: bool = False) -> None:
        """`keys`, `keeps_all`: of the `TraceSource`."""
        self._first = first
        self._keys = keys
        self._keeps_all = keeps_all
        self._nested = PlacedRows(NESTED_DTYPE)
        self._codes = Spool(_CODE_DTYPE)
        self._enclosing = ExternalSort(ENCLOSING_DTYPE, "id")
        self.rules = rules_of(
            {
                "keys": keys,
                "categories": first.categories,
                "processes": identifying_words(first.tracks.process_names(), "processes", first.rule_sets),
                "threads": identifying_words(first.tracks.thread_names(), "threads", first.rule_sets),
                "args": first.arg_keys,
            },
            first.rule_sets,
        )
        self._flows = Flows(self.rules.launch_flows, first.tracks)
        self.slices = SliceRows(first, self.rules, self._nested, self._codes)
        #: By track_id: which tracks have tasks, and which have other slices.
        self._of_tasks = np.zeros(first.tracks.count + 1, np.bool_)
        self._of_others = np.zeros(first.tracks.count + 1, np.bool_)
        self._is_small = first.slice_numbers.count < _FEW_SLICES
        self._thread = AtOnce() if self._is_small else Workers(1, "traceconv-second-pass")
        self._flows_bound: Future[None] | None = None

    def close(self) -> None:
        """Free the disk space."""
        self._thread.shutdown(cancel_futures=True)
        for part in (self._nested, self._codes, self._enclosing, self._flows, self.slices):
            part.close()

    def prepare(self) -> None:
        """Do everything that needs the events in another order than the source's. Binding flows may still go on."""
        complete = self._first.accounts.by_record.get("X events")
        complete_events = 0 if complete is None or self._keeps_all else complete.records
        missing = self.rules.missing_events(complete_events, self._keys)
        if missing is not None:
            self._first.log.add(Code.MISSING_RECORDS, missing, source_id=1)
        classified = self._thread.submit(self._classify)
        self._match_ends()
        self._nest()
        classified.result()
        self._flows_bound = self._thread.submit(self._bind_flows)
        self._nested.end(self._first.slice_numbers.count)

    def _match_ends(self) -> None:
        """Match the begins and ends that are not adjacent in the source."""
        first = self._first
        matcher = BeginEndMatcher(first.budget)
        for points in first.points.windows():
            first.spans.add(matcher.feed(points))
        unfinished = 0
        for begins in matcher.finish():
            unfinished += len(begins)
            first.spans.add(begins)
        for ph, (matched, alone) in matcher.ends.items():
            account = first.accounts[f"{ph} events"]
            account.rows -= matched + alone
            account.paired += matched
            account.used += alone
        unmatched = sum(counts[1] for counts in matcher.ends.values())
        first.log.count(Code.END_WITHOUT_BEGIN, "end events without a begin", unmatched, 1)
        first.log.count(Code.BAD_DURATION, TOO_LONG_PAIR, matcher.too_long, 1)
        first.log.count(Code.UNFINISHED, "begin events without an end", unfinished, 1)

    def _nest(self) -> None:
        overlaps, numbers = 0, self._first.slice_numbers
        with closing(SpansByTrack(self._spans(), self._first.tracks.count)) as parts:
            for windows in parts:
                nester = CompleteNester(self.rules.start_step_ns)
                found = self._nested_windows(nester, windows)
                with closing(found if self._is_small else prefetch(found)) as nested:
                    for rows, points in nested:
                        self._nested.place(rows, numbers.of(rows["id"] - self._first.first_id))
                        self._enclosing.add(points)
                        if self._first.has_flow_ends:
                            self._enclosing.add(_ends(rows))
                overlaps += nester.overlaps
        message = "slices that partially overlap an earlier slice of their track"
        self._first.log.count(Code.PARTIAL_OVERLAP, message, overlaps, 1)

    def _spans(self) -> Iterator[RecordArray]:
        """Yield all spans, with flow points on the host's or the device's track of their pid and tid."""
        pairs = self._first.tracks.pairs
        for window in self._first.spans.windows():
            if pairs:
                points = np.flatnonzero((window["kind"] >= POINT) & np.isin(window["track"], list(pairs)))
                tracks, is_of_device = (window[name][points].tolist() for name in ("track", "link"))
                window["track"][points] = [pairs[one][side] for one, side in zip(tracks, is_of_device, strict=True)]
            yield window

    @staticmethod
    def _nested_windows(
        nester: CompleteNester, spans: Iterator[RecordArray]
    ) -> Generator[tuple[RecordArray, RecordArray], None, None]:
        with closing(prefetch(spans)) as windows:
            yield from map(nester.feed, windows)
        yield nester.finish()

    def _bind_flows(self) -> None:
        first, flows = self._first, self._flows
        flows.bind(first.flows, self._enclosing.windows())
        flows.match(self.rules.flow_chains)
        message = f"{flows.loose_ends} flow ends without a start, {flows.loose_starts} flow starts without an end"
        first.log.count(Code.LOOSE_FLOW, message, flows.loose_ends + flows.loose_starts, 1)
        # Flow events are used up by rows of the table flow, which are not counted here, like all derived rows.
        for ph in ("s", "t", "f"):
            account = first.accounts.by_record.get(f"{ph} events")
            if account is not None:
                markers = first.flow_markers.get(ph, 0)
                account.used += account.rows - markers
                account.rows = markers

    def _classify(self) -> None:
        tracks = self._first.tracks
        classifier = Classifier(tuple(self.rules.rules), tracks.names_of, self._first.categories)
        # The last entry is for slices without a rule.
        is_task = np.array([*(rule.table == "task" for rule in self.rules.rules), False], np.bool_)
        parts = ((read("track_id", "name", "category"), read) for _, _, read in self._first.slices.parts())
        for batch, read in prefetch(parts):
            track = batch.column("track_id").to_numpy()
            if self.rules.rules:
                tracks.load(track)
            args = partial(read, "args")
            codes = classifier.codes(track, batch.column("category"), batch.column("name"), args)
            self._codes.append(codes.astype(np.int16).view(_CODE_DTYPE))
            tasks = is_task[codes]
            self._of_tasks[track[tasks]] = True
            self._of_others[track[~tasks]] = True

    def tables(self) -> Iterator[TableRows]:
        """Yield all tables with their batches. Read each table to its end before asking for the next."""
        first, slices = self._first, self.slices
        assert self._flows_bound is not None
        slices.find_steps()
        # Nesting takes the start of a slice without a duration for its end.
        endless = any(entry.code in _WITHOUT_DURATION for entry in first.log)
        corrected = self._of_tasks if endless else self._of_tasks & self._of_others
        if corrected.any():
            slices.correct_gaps(corrected)
        for name in ("range", "api"):
            yield name, slices.batches(name)
        # Meanwhile, other rows are stored.
        sorted_launches = self._thread.submit(slices.launches.sort)
        yield "marker", _table_rows("marker", first.markers)
        yield "counter", _table_rows("counter", first.counters)
        self._flows_bound.result()
        yield "flow", self._flow_rows()
        sorted_launches.result()
        yield "task", slices.batches("task")
        # The last tasks are still stored while this one frees the disk space, which takes a while.
        for part in (first.slices, first.flows, self._nested, self._flows):
            part.close()
        yield "op", slices.op_rows()
        yield "step", slices.step_rows()
        yield "device", iter([slices.device_rows(_device_names(self._keys))])
        yield "process", first.tracks.process_rows()
        yield "track", first.tracks.track_rows()

    def _flow_rows(self) -> Iterator[pa.RecordBatch]:
        for batch in self._flows.batches(self._first.flows):
            self.slices.launches.add_flows(batch)
            yield batch

    @property
    def op_summary_waits(self) -> dict[int | None, OpSummaryWaits]:
        """Corrections of the tasks' waits, by device, once all tables were read."""
        return self.slices.op_summary_waits

    @property
    def launch_arg(self) -> str | None:
        """The arg by which launches are found, if calls have no correlation IDs."""
        return self.rules.launch_arg if self.slices.launches.is_empty else None

    @property
    def has_flows_between_tasks(self) -> bool:
        """Whether flows of a category of launches start on tracks with tasks."""
        return any(self._of_tasks[track] for track in self._flows.starting)

    @property
    def unclear_launches(self) -> int:
        """The number of tasks whose launch is unknown although calls have their ID."""
        return self.slices.launches.unclear


def _table_rows(table: str, rows: SpilledRows) -> Iterator[pa.RecordBatch]:
    for _, batch in rows.batches():
        yield row_batch(table, dict(zip(batch.schema.names, batch.columns, strict=True)))


def _device_names(keys: Mapping[str, bytes]) -> dict[int, str]:
    """Return the names of devices that the file lists next to its events."""
    names = ("deviceProperties", "computeProperties", "xplane_devices", "npu_devices", "ncu_devices", "gpu_info")
    for key in [name for name in names if name in keys]:
        try:
            listed = json.loads(keys[key])
        except (ValueError, RecursionError):
            continue
        if isinstance(listed, list):
            entries = [entry for entry in listed if isinstance(entry, dict) and type(entry.get("id")) is int]
            if entries:
                return {entry["id"]: _name(entry.get("name")) for entry in entries}
    return {}


def _name(value: object) -> str:
    """Return a name as valid text: unpaired surrogates, which JSON may contain, become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _ends(rows: RecordArray) -> RecordArray:
    """Return the end events of slices, each with its slice."""
    paired = rows[rows["link"] >= 0]
    found = np.zeros(len(paired), ENCLOSING_DTYPE)
    found["id"], found["slice_id"] = paired["link"], paired["id"]
    return found
