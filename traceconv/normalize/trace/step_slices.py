"""Find the slices that are steps of a program or device, or the markers that end steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import parse_int64
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.classify import Rule, StepEnds
from traceconv.normalize.trace.column_builder import Numbers
from traceconv.normalize.trace.complete_nesting import UNFINISHED
from traceconv.normalize.trace.end_events import with_ends
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.step_ends import EndedSteps
from traceconv.normalize.trace.steps import Mark, Steps

#: A step number with more digits does not fit its column: such a slice is not a step.
_STEP_DIGITS = 18


class StepFinder:
    """Finds the steps of a trace. `codes`: the rules of some slices, by the first row and their number."""

    def __init__(
        self, first: FirstPass, rules: Sequence[Rule], nested: Spool, codes: Callable[[int, int], NDArray[np.int16]]
    ) -> None:
        self._first = first
        self._rules = rules
        self._tracks = first.tracks
        self._nested = nested
        self._codes = codes

    def ended(self, marker: StepEnds) -> EndedSteps | None:
        """Return the steps that end at markers; None if there are none."""
        ends = self._step_ends(marker.name)
        if not ends:
            return None
        self._tracks.load(np.array(list(ends)))
        return EndedSteps(
            ends,
            self._first_starts(ends),
            self._tracks.process_id_of,
            lambda track: self._tracks.names_of(track)[1] == marker.thread,
        )

    def marked(self) -> Steps:
        """Return the steps that are slices."""
        numbers = [number for number, rule in enumerate(self._rules) if rule.step]
        if not numbers:
            return Steps()
        marks: list[Mark] = []
        for first_row, count, read in self._first.slices.parts():
            codes = self._codes(first_row, count)
            present = [number for number in numbers if np.any(codes == number)]
            batch = read() if present else None
            for number in present:
                rows, steps = _step_numbers(batch, np.flatnonzero(codes == number), self._rules[number])
                marks += self._marks(batch, rows, number, steps)
        return Steps(marks, self._first.time_places)

    def _step_ends(self, name: str) -> dict[int, Int64]:
        """Return the sorted times of the markers with this name on each track."""
        found: dict[int, list[Int64]] = {}
        for _, batch in self._first.markers.batches():
            rows = np.flatnonzero(pc.equal(batch.column("name"), name).fill_null(False).to_numpy(zero_copy_only=False))
            marks = batch.take(pa.array(rows))
            tracks, times = marks.column("track_id"), marks.column("ts_ns")
            known = np.flatnonzero(times.is_valid().to_numpy(zero_copy_only=False))
            track, ns = tracks.to_numpy(zero_copy_only=False)[known], times.fill_null(0).to_numpy()[known]
            for one in np.unique(track).tolist():
                found.setdefault(int(one), []).append(ns[track == one])
        return {track: np.sort(np.concatenate(parts)) for track, parts in found.items()}

    def _first_starts(self, wanted: Mapping[int, object]) -> dict[int, int]:
        """Return the start of the first slice of each of these tracks."""
        found: dict[int, int] = {}
        for _, batch in self._first.slices.batches("track_id", "start_ns"):
            track, start = batch.column("track_id").to_numpy(), batch.column("start_ns").to_numpy()
            for one in wanted:
                own = start[track == one]
                if len(own):
                    found[one] = min(found.get(one, int(own[0])), int(own.min()))
        return found

    def _marks(self, batch: pa.RecordBatch, rows: Int64, number: int, steps: Sequence[int]) -> Iterator[Mark]:
        """Yield the steps that slices mark, without those whose end is unknown."""
        rule = self._rules[number]
        marked = batch.take(pa.array(rows))
        columns = (marked.column(name).to_pylist() for name in ("row", "track_id", "start_ns", "dur_ns"))
        texts = marked.column("args").to_pylist() if rule.times else [None] * len(rows)
        owners: dict[int, tuple[int | None, int | None]] = {}
        for at, (step, place, track, start, dur, args) in enumerate(zip(steps, *columns, texts, strict=True)):
            if dur is None:
                dur, args = self._ended(marked.slice(at, 1), place, rule)
            if dur is None:
                continue
            if track not in owners:
                named = rule.named(*self._tracks.names_of(track)) or {}
                owners[track] = self._tracks.process_id_of(track), parse_int64(named.get("model_id"))
            yield Mark(step, start, start + dur, track, *owners[track], (number, place), rule.times, args)

    def _ended(self, mark: pa.RecordBatch, place: int, rule: Rule) -> tuple[int | None, str | None]:
        """Return the duration of a slice that began without one; its args have those of its end if times need them."""
        nested = self._nested.read(place, 1)
        if nested["link"][0] < 0 or nested["kind"][0] == UNFINISHED:
            return None, None
        args = with_ends(self._first, mark, nested).column("args")[0].as_py() if rule.times else None
        return int(nested["dur_ns"][0]), args


def _step_numbers(batch: pa.RecordBatch, rows: Int64, rule: Rule) -> tuple[Int64, list[int]]:
    """Return those of the rows that have a step number, and the numbers."""
    if rule.step_arg is not None:
        reader = ArgColumns({"step": (rule.step_arg,)}, ("step",))
        [(_, found)] = reader.read(batch.column("args"), rows)
        assert isinstance(found, Numbers)
        usable = ~found.null & (found.values >= 0) & (found.values < 10**_STEP_DIGITS)
        return rows[usable], found.values[usable].tolist()
    if rule.name is None:
        return rows[:0], []
    numbers: dict[int, int] = {}
    for row, name in zip(rows.tolist(), batch.column("name").take(pa.array(rows)).to_pylist(), strict=True):
        match = rule.name.fullmatch(name or "")
        if match is not None and 0 < len(match["step"] or "") <= _STEP_DIGITS:
            numbers[row] = int(match["step"])
    return np.array(list(numbers), np.int64), list(numbers.values())
