"""Spilled slices → rows of task, api and range, with the columns that rules define."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from operator import attrgetter

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.memory_budget import NumberedRows
from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.normalize.rows import ColumnData, Nullable, row_batch, rows_from_tuples
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.binary import codes_of
from traceconv.normalize.trace.classify import DEFAULT, OP_COLUMNS, Op, RuleSet
from traceconv.normalize.trace.column_builder import Numbers
from traceconv.normalize.trace.complete_nesting import NO_PARENT, UNKNOWN
from traceconv.normalize.trace.distinct import distinct_rows
from traceconv.normalize.trace.end_events import durations, with_ends
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.launches import Launches, TaskBatch
from traceconv.normalize.trace.rule_columns import RuleColumns, dictionary_of
from traceconv.normalize.trace.shared_track_gaps import SharedTrackGaps
from traceconv.normalize.trace.step_ends import EndedSteps
from traceconv.normalize.trace.step_slices import StepFinder
from traceconv.normalize.trace.steps import Steps
from traceconv.normalize.trace.stream_owners import NO_ARG
from traceconv.schema.dtypes import RecordArray

_SHAPES = attrgetter(*OP_COLUMNS[1:])
#: Columns that no slice of a trace may have, and those to which values of end events are added.
_OPTIONAL = frozenset(("category", "thread_start_ns", "thread_dur_ns", "args"))
_OF_SLICE = {"thread_end_ns": "thread_dur_ns", "args": "args"}


class SliceRows:
    """Produces the rows of slices, table by table. Ask for `range` first, then `api`, then `task`."""

    def __init__(self, first: FirstPass, rules: RuleSet, nested: Spool, codes: Spool) -> None:
        self._first = first
        self._set = rules
        self._rules = [*rules.rules, DEFAULT]
        self._tracks = first.tracks
        self._nested = nested
        self._codes = codes
        self._rule_columns = RuleColumns(self._rules, rules.filled_columns, first.tracks)
        arg = rules.launch_arg
        #: Columns without values, which rows don't have: such columns are not stored.
        self._empty = (
            _OPTIONAL - first.slices.valued - {_OF_SLICE[name] for name in first.ends.valued & _OF_SLICE.keys()}
        )
        self._launch_arg = None if arg is None else ArgColumns({arg: (arg,)}, (arg,))
        self._steps: Steps | EndedSteps = Steps.none()
        self.launches = Launches(first.tracks, self._calls, self._call_args, self._launched)
        #: Pairs of step and device of the tasks of each batch.
        self._step_devices: list[Int64] = []
        self._ops = NumberedRows(first.budget, "op", Op)
        self._devices: set[int] = set()
        #: By device; None: tasks whose device is unknown.
        self.op_summary_waits: dict[int | None, OpSummaryWaits] = {}

    def close(self) -> None:
        """Free the disk space."""
        self.launches.close()

    def _rule_codes(self, first_row: int, count: int) -> NDArray[np.int16]:
        codes = self._codes.read(first_row, count)["rule"]
        return np.where(codes < 0, len(self._rules) - 1, codes).astype(np.int16)

    def find_steps(self) -> None:
        """Find the slices that are steps, or the markers that end them; other slices are then assigned to them."""
        finder, ends = StepFinder(self._first, self._rules, self._nested, self._rule_codes), self._set.step_ends
        ended = finder.ended(ends) if ends is not None else None
        self._steps = finder.marked() if ended is None else ended

    def correct_gaps(self, corrected: Mask) -> None:
        """Recompute the gaps of tasks on these tracks from tasks alone. `corrected`: by track_id."""
        with closing(SharedTrackGaps()) as gaps:
            for tasks, _ in self._spilled_for("task", "id", "row", "track_id", "start_ns", "dur_ns"):
                batch = tasks.take(pa.array(np.flatnonzero(corrected[tasks.column("track_id").to_numpy()])))
                row, ids, track, start = (
                    batch.column(name).to_numpy() for name in ("row", "id", "track_id", "start_ns")
                )
                gaps.add(row, ids, track, start, *durations(batch, self._nested.take(row)))
            gaps.put(self._nested)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one table."""
        for batch, codes in self._spilled_for(table):
            nested = self._nested.take(batch.column("row").to_numpy())
            yield row_batch(table, self._columns(table, batch, codes, nested))

    def _spilled_for(
        self, table: str, *columns: str
    ) -> Generator[tuple[pa.RecordBatch, NDArray[np.int16]], None, None]:
        """Yield the slices of a table (only these columns, with `row`; none: all), and the rule of each.

        The slices of a batch are in the order of the source.
        """
        own = np.array([rule.table == table for rule in self._rules], np.bool_)
        for first_row, count, read in self._first.slices.parts():
            codes = self._rule_codes(first_row, count)
            wanted = own[codes]
            rows = np.flatnonzero(wanted)
            if not len(rows):
                continue
            batch = read(*columns)
            places = batch.column("row").to_numpy()[rows]
            if not np.all(places[1:] > places[:-1]):  # a batch of several groups
                rows = rows[np.argsort(places)]
                yield batch.take(pa.array(rows)), codes[rows]
            elif rows[-1] - rows[0] + 1 == len(rows):
                first, stop = int(rows[0]), int(rows[-1]) + 1
                yield batch.slice(first, stop - first), codes[first:stop]
            else:
                yield batch.take(pa.array(rows)), codes[rows]

    def _columns(
        self, table: str, batch: pa.RecordBatch, codes: NDArray[np.int16], nested: RecordArray
    ) -> dict[str, ColumnData]:
        count = batch.num_rows
        batch = with_ends(self._first, batch, nested)
        dur_ns, no_dur = durations(batch, nested)
        start = batch.column("start_ns").to_numpy()
        parent, self_ns = (np.ascontiguousarray(nested[name]) for name in ("parent_id", "self_ns"))
        columns: dict[str, ColumnData] = {
            "id": batch.column("id"),
            "track_id": batch.column("track_id").to_numpy().astype(np.int64),
            "parent_id": Nullable(parent, parent == NO_PARENT),
            "depth": np.ascontiguousarray(nested["depth"]),
            "category": batch.column("category"),
            "name": batch.column("name"),
            "start_ns": start,
            "dur_ns": Nullable(dur_ns, no_dur),
            "self_ns": Nullable(self_ns, no_dur),
            "args": batch.column("args"),
        }
        if table != "task":
            columns["thread_start_ns"] = batch.column("thread_start_ns")
            columns["thread_dur_ns"] = batch.column("thread_dur_ns")
        for name in self._empty.intersection(columns):
            del columns[name]
        filled = self._rule_columns.of_batch(table, batch, codes)
        columns.update({name: column for name, column in filled.items() if name not in OP_COLUMNS})
        if table == "range":
            steps, _ = self._steps_at(batch, start, tasks=False)
            if self._steps:
                columns["step_id"] = steps
            calls = np.flatnonzero(np.isin(codes, [place for place, rule in enumerate(self._rules) if rule.launches]))
            if len(calls):
                tracks = batch.column("track_id").to_numpy()
                self._add_launches(columns, tracks, start, steps, calls, of_api=False)
        elif table == "api":
            steps, _ = self._steps_at(batch, start, tasks=False)
            if self._steps:
                columns["step_id"] = steps
            tracks = batch.column("track_id").to_numpy()
            self._add_launches(columns, tracks, start, steps, np.arange(count), of_api=True)
        else:
            self._task(columns, batch, codes, nested, filled, start)
            if not self._set.no_starts:
                columns["wait_ns"] = self._op_summary_waits(columns, start, start + dur_ns, no_dur)
        if self._set.no_starts:
            columns.update(dict.fromkeys(("start_ns", "stream_wait_ns", "step_id"), Nullable(start, start == start)))
        return columns

    def _steps_at(self, batch: pa.RecordBatch, start: Int64, *, tasks: bool) -> tuple[Nullable, Mask]:
        return self._steps.at(batch.column("track_id").to_numpy(), start, self._tracks.process_id_of, tasks=tasks)

    # -- tasks --

    def _calls(self) -> Iterator[tuple[Int64, ...]]:
        """Yield start_ns, step_id, id and dur_ns of calls, -1 if unknown."""
        for batch, _ in self._spilled_for("api", "id", "row", "track_id", "start_ns", "dur_ns"):
            start = batch.column("start_ns").to_numpy()
            steps, _ = self._steps_at(batch, start, tasks=False)
            dur_ns, no_dur = durations(batch, self._nested.take(batch.column("row").to_numpy()))
            step = np.where(steps.mask, -1, steps.values).astype(np.int64)
            yield start, step, batch.column("id").to_numpy(), np.where(no_dur, -1, dur_ns)

    def _call_args(self) -> Iterator[tuple[Int64, Int64]]:
        """Yield the IDs of calls, and what they share with the tasks that they launched."""
        for batch, _ in self._spilled_for("api", "id", "row", "args"):
            yield batch.column("id").to_numpy(), self._launch_args(batch)

    def _launch_args(self, batch: pa.RecordBatch) -> Int64:
        """Return what tasks and calls share with each other, NO_ARG if that is unknown."""
        if self._launch_arg is None:
            return np.full(batch.num_rows, NO_ARG)
        [(_, found)] = self._launch_arg.read(batch.column("args"), None)
        assert isinstance(found, Numbers)
        return np.where(found.null, NO_ARG, found.values)

    def _launched(self) -> Iterator[TaskBatch]:
        """Yield the tasks as `Launches` needs them."""
        for batch, codes in self._spilled_for("task"):
            yield self._task_batch(batch, self._rule_columns.of_batch("task", batch, codes))

    def _task_batch(self, batch: pa.RecordBatch, filled: Mapping[str, ColumnData]) -> TaskBatch:
        ids, tracks, start_ns = (batch.column(name).to_numpy() for name in ("id", "track_id", "start_ns"))
        correlation, known = _known(filled.get("correlation_id"), len(ids))
        device, has_device = _known(filled.get("device_id"), len(ids))
        device_id = np.where(has_device, device, -1)
        return TaskBatch(ids, tracks, start_ns, correlation, known > 0, device_id, partial(self._launch_args, batch))

    def _add_launches(
        self,
        columns: Mapping[str, ColumnData],
        tracks: NDArray[np.int32],
        start: Int64,
        steps: Nullable,
        rows: NDArray[np.intp],
        *,
        of_api: bool,
    ) -> None:
        """Index calls, or ranges, which are not rows of `api`."""
        correlation, ids, durations = (columns.get(name) for name in ("correlation_id", "id", "dur_ns"))
        if not isinstance(correlation, Nullable):
            return
        assert isinstance(ids, pa.Array) and isinstance(durations, Nullable)
        known = rows[~correlation.mask[rows]]
        step, dur_ns, api_id = (
            np.where(mask, -1, values).astype(np.int64)[known]
            for values, mask in (
                (steps.values, steps.mask),
                (durations.values, durations.mask | (not of_api)),
                (ids.to_numpy(), not of_api),
            )
        )
        keys = correlation.values[known].astype(np.int64)
        self.launches.add(keys, tracks[known], start[known], step, api_id, dur_ns)

    def _task(
        self,
        columns: dict[str, ColumnData],
        batch: pa.RecordBatch,
        codes: NDArray[np.int16],
        nested: RecordArray,
        filled: dict[str, ColumnData],
        start: Int64,
    ) -> None:
        steps, of_device = self._steps_at(batch, start, tasks=True)
        found, launched = self.launches.look_up(self._task_batch(batch, filled))
        columns["submit_ns"] = Nullable(launched["start_ns"], ~found)
        for name in ("api_id", "call_ns"):
            columns[name] = Nullable(launched[name], ~found | (launched[name] < 0))
        # A task belongs to the program's step in which it was launched.
        found &= ~of_device
        known = found & (launched["step_id"] >= 0)
        steps = Nullable(
            np.where(known, launched["step_id"], np.where(found, 0, steps.values)), np.where(found, ~known, steps.mask)
        )
        columns["step_id"] = steps
        gap = np.ascontiguousarray(nested["gap_ns"])
        columns["stream_wait_ns"] = Nullable(gap, gap == UNKNOWN)
        columns["op_id"] = self._op_ids(batch, codes, filled)
        self._note_devices(batch, filled, steps)

    def _op_summary_waits(self, columns: Mapping[str, ColumnData], start: Int64, end: Int64, endless: Mask) -> Nullable:
        """Return the wait of each row of op_summary, i.e. of ops and collectives; NULL for other tasks."""
        ids, op_ids, kind = columns["id"], columns["op_id"], columns.get("kind")
        assert isinstance(ids, pa.Array) and isinstance(op_ids, Nullable)
        is_row = ~op_ids.mask
        if isinstance(kind, pa.DictionaryArray) and "collective" in (kinds := kind.dictionary.to_pylist()):
            is_row |= codes_of(kind) == kinds.index("collective")
        wait, unknown = np.zeros(len(start), np.int64), np.ones(len(start), np.bool_)
        device, known = _known(columns.get("device_id"), len(start))
        firsts, number = distinct_rows(device, known)
        for place, first in enumerate(firsts.tolist()):
            waits = self.op_summary_waits.setdefault(int(device[first]) if known[first] else None, OpSummaryWaits())
            rows = np.flatnonzero(is_row & (number == place))
            wait[rows], unknown[rows] = waits.take(ids.to_numpy()[rows], start[rows], end[rows], endless[rows])
        return Nullable(wait, unknown)

    def _op_ids(self, batch: pa.RecordBatch, codes: NDArray[np.int16], filled: dict[str, ColumnData]) -> Nullable:
        count = batch.num_rows
        is_op = np.isin(codes, [number for number, rule in enumerate(self._rules) if rule.op])
        rows = np.flatnonzero(is_op)
        ids = np.zeros(count, np.int64)
        if len(rows):
            columns = (filled.get("name", batch.column("name")), *(filled[column] for column in OP_COLUMNS))
            texts = [dictionary_of(column) for column in columns]
            of_texts = [codes_of(column)[rows] for column in texts]
            firsts, number = distinct_rows(*of_texts)
            keys = zip(*(_texts(column, own[firsts]) for column, own in zip(texts, of_texts, strict=True)), strict=True)
            ids[rows] = np.array([self._ops.number(key, *key) for key in keys], np.int64)[number]
        return Nullable(ids, ~is_op)

    def _note_devices(self, batch: pa.RecordBatch, filled: dict[str, ColumnData], steps: Nullable) -> None:
        count = batch.num_rows
        track = batch.column("track_id").to_numpy().astype(np.int64)
        self._tracks.load(track)
        device, stream = (_known(filled.get(name), count) for name in ("device_id", "stream_id"))
        rows = distinct_rows(track, *device, *stream)[0]
        found = ((values[rows], known[rows]) for values, known in (device, stream))
        self._tracks.make_streams(track[rows], *found)
        self._devices.update(device[0][rows[device[1][rows] > 0]].tolist())
        known = np.flatnonzero(~steps.mask & (device[1] > 0))
        if len(known):
            pairs = np.stack([steps.values[known].astype(np.int64), device[0][known]], axis=1)
            self._step_devices.append(pairs[distinct_rows(*pairs.T)[0]])

    # -- tables of few rows --

    def op_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table op."""
        for ops in self._ops.rows():
            rows = [(op.op_id, op.name, *self._type_of(op.name, op.op_type), *_SHAPES(op)) for op in ops]
            yield rows_from_tuples("op", ("op_id", "name", "op_type_source", *OP_COLUMNS), rows)

    def _type_of(self, name: str | None, op_type: str | None) -> tuple[str | None, str | None]:
        """Return the source of an op's type, and the type."""
        if op_type is not None:
            return "recorded", op_type
        return ("name", self._set.type_in(name)) if name is not None else (None, None)

    def step_rows(self, ran: Iterable[tuple[int, int]] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table step: a step on each device that ran part of it.

        ran  pairs of step and device of tasks, if they changed when tasks were stored
        """
        if not self._steps:
            return
        pairs = self._step_devices if ran is None else [np.array(list(ran), np.int64).reshape(-1, 2)]
        yield self._steps.rows(np.unique(np.concatenate([np.zeros((0, 2), np.int64), *pairs]), axis=0))

    def device_rows(self, names: Mapping[int, str]) -> pa.RecordBatch:
        """Return the rows of table device."""
        rows = [(device, self._set.device_kind, names.get(device) or None) for device in sorted(self._devices)]
        return rows_from_tuples("device", ("device_id", "kind", "name"), rows)


def _known(column: ColumnData | None, count: int) -> tuple[Int64, Int64]:
    """Return numbers, 0 for NULL, and whether each is known (1)."""
    if not isinstance(column, Nullable):
        return np.zeros(count, np.int64), np.zeros(count, np.int64)
    known = ~column.mask
    return np.where(known, column.values, 0).astype(np.int64), known.astype(np.int64)


def _texts(column: pa.DictionaryArray, codes: NDArray[np.int32]) -> list[str | None]:
    """Return the texts with these codes."""
    if not len(column.dictionary):
        return [None] * len(codes)
    texts = column.dictionary
    if len(texts) > 4 * len(codes):
        return texts.take(pa.array(codes, mask=codes < 0)).to_pylist()  # type: ignore[no-any-return]
    known = [*texts.to_pylist(), None]
    return [known[code] for code in codes.tolist()]
