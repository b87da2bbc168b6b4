"""Find the slices that are steps of a program or device, or the markers that end steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import parse_int64
from traceconv.events.trace import binary_column
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.classify import Rule, StepEnds
from traceconv.normalize.trace.column_builder import Numbers
from traceconv.normalize.trace.end_events import durations, with_ends
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.step_ends import EndedSteps
from traceconv.normalize.trace.steps import MARK, NO_STEP, RANGE, Steps, none_as_no_step
from traceconv.normalize.trace.times import exact_ns
from traceconv.schema.dtypes import RecordArray, join

#: A step number with more digits does not fit its column: such a slice is not a step.
_STEP_DIGITS = 18
#: Names of a slice's start and end in rules.
_SLICE_START, _SLICE_END = "@start", "@end"


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
            return Steps.none()
        ranges, marks = [np.zeros(0, RANGE)], [np.zeros(0, MARK)]
        for first_row, count, read in self._first.slices.parts():
            codes = self._codes(first_row, count)
            present = [number for number in numbers if np.any(codes == number)]
            batch = read() if present else None
            for number in present:
                rows, steps = _step_numbers(batch, np.flatnonzero(codes == number), self._rules[number])
                (marks if self._rules[number].times else ranges).append(self._marks(batch, rows, number, steps))
        return Steps(join(ranges), join(marks)) if len(ranges) + len(marks) > 2 else Steps.none()

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

    def _marks(self, batch: pa.RecordBatch, rows: Int64, number: int, steps: Int64) -> RecordArray:
        """Return the slices that mark steps, without those whose end is unknown."""
        rule = self._rules[number]
        slices = batch.take(pa.array(rows))
        nested = self._nested.take(slices.column("row").to_numpy())
        dur_ns, unknown = durations(slices, nested)
        found = np.full(len(rows), NO_STEP, MARK if rule.times else RANGE)
        found["number"], found["rule"] = steps, number
        for name, column in (("row", "row"), ("track_id", "track_id"), ("low_ns", "start_ns")):
            found[name] = slices.column(column).to_numpy()
        found["high_ns"] = found["low_ns"] + dur_ns
        tracks, of_track = np.unique(found["track_id"], return_inverse=True)
        processes = map(self._tracks.process_id_of, tracks.tolist())
        found["process_id"] = np.array([*map(none_as_no_step, processes)], np.int64)[of_track]
        if rule.times:
            named = (rule.named(*self._tracks.names_of(track)) or {} for track in tracks.tolist())
            models = [none_as_no_step(parse_int64(one.get("model_id"))) for one in named]
            found["model_id"] = np.array(models, np.int64)[of_track]
            _read_times(found, with_ends(self._first, slices, nested).column("args"), rule, self._first.time_places)
        return found[~unknown]


def _read_times(marks: RecordArray, args: pa.Array, rule: Rule, time_places: int) -> None:
    """Fill the times that a vendor's slices define. Times in args must be inside of their slice."""
    objects = list(map(_object, args.to_pylist()))
    of_slice = {_SLICE_START: marks["low_ns"], _SLICE_END: marks["high_ns"]}
    for column, words in rule.times.items():
        for word in reversed(words):
            if word in of_slice:
                marks[column] = of_slice[word]
                continue
            texts = (value.strip() if isinstance(value := one.get(word), str) else "" for one in objects)
            binary = binary_column([text.encode("utf-8", "replace") for text in texts])
            for places in (0, time_places):  # some versions wrote nanoseconds
                times = exact_ns(binary, places)
                inside = times.valid & (times.ns >= marks["low_ns"]) & (times.ns <= marks["high_ns"])
                marks[column][inside] = times.ns[inside]


def _object(args: str | None) -> Mapping[str, object]:
    """Decode args, with numbers as their text."""
    try:
        found = json.loads(args or "{}", parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _step_numbers(batch: pa.RecordBatch, rows: Int64, rule: Rule) -> tuple[Int64, Int64]:
    """Return those of the rows that have a step number, and the numbers."""
    if rule.step_arg is not None:
        reader = ArgColumns({"step": (rule.step_arg,)}, ("step",))
        [(_, found)] = reader.read(batch.column("args"), rows)
        assert isinstance(found, Numbers)
        usable = ~found.null & (found.values >= 0) & (found.values < 10**_STEP_DIGITS)
        return rows[usable], found.values[usable]
    if rule.name is None:
        return rows[:0], rows[:0]
    numbers: dict[int, int] = {}
    for row, name in zip(rows.tolist(), batch.column("name").take(pa.array(rows)).to_pylist(), strict=True):
        match = rule.name.fullmatch(name or "")
        if match is not None and 0 < len(match["step"] or "") <= _STEP_DIGITS:
            numbers[row] = int(match["step"])
    return np.array(list(numbers), np.int64), np.array(list(numbers.values()), np.int64)
