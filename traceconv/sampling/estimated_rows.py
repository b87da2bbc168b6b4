"""The rows of a report, estimated from a sampled text: what the report would say of the complete file.

The text is ingested like any trace, and the report's own SQL runs on it, with a run for each part: the events of a
block on a track. So the names, categories and types are those of the exact answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError
from traceconv.base.int64 import Int64
from traceconv.base.temporary_folder import temporary_folder
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.normalize.trace.rule_files import built_in
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.ingest_text import losses_of
from traceconv.reports.catalog import define_report, reports
from traceconv.reports.fetch import reading
from traceconv.reports.question import Question, find_report
from traceconv.reports.run import answer
from traceconv.sampling.answer import ESTIMATED, FOUND, KEYS, SUMMARY, SUMMARY_KEYS, EstimatedRow
from traceconv.sampling.blocks import CERTAIN, NotSampled, SampledText
from traceconv.sampling.estimate import (
    UNKNOWN_SHARE,
    HiddenTime,
    Interval,
    Sample,
    ShareInterval,
    TrackSample,
    hidden_time,
)
from traceconv.store.database import new_cursor, open_own_file

#: Items of an answer: those with most time, and most calls, in the sample.
_MOST_ITEMS = 500
#: Times of a block above it, which is 13 days, are not computed with: sums must not exceed 64 bits.
_LONGEST_NS = 1 << 50
#: Rows of each section of a summary, as in the report.
_ROWS_OF_SECTION = 5
#: Sections of a summary that are sizes.
_OF_SIZES = ("memory", "losses")
_NOTHING = Interval(None, None, None)

_VIEWS = """
CREATE TEMP TABLE part AS
  SELECT (row_number() OVER (ORDER BY block, track_id))::BIGINT AS run_id, block, track_id
  FROM (SELECT DISTINCT e.block, t.track_id FROM store.main.task AS t JOIN event AS e ON e.id = t.id);
CREATE TEMP VIEW task AS
  SELECT p.run_id, t.* EXCLUDE (run_id)
  FROM store.main.task AS t JOIN event AS e ON e.id = t.id
  JOIN part AS p ON p.block = e.block AND p.track_id = t.track_id
  WHERE e.is_complete;
CREATE TEMP VIEW op AS
  SELECT u.run_id, o.* EXCLUDE (run_id)
  FROM (SELECT DISTINCT run_id, op_id FROM task) AS u JOIN store.main.op AS o ON o.op_id = u.op_id;
-- Totals are of all stored tasks.
CREATE TEMP TABLE op_total AS FROM store.main.op_total LIMIT 0;
CREATE TEMP VIEW run AS SELECT run_id FROM part
"""
_TRACKS = """
SELECT t.track_id, e.block, t.start_ns, coalesce(TRY(t.start_ns + t.dur_ns), t.start_ns) AS end_ns
FROM store.main.task AS t JOIN event AS e ON e.id = t.id
WHERE t.kind IS DISTINCT FROM 'sync' AND e.is_complete AND t.start_ns IS NOT NULL AND t.track_id IS NOT NULL
ORDER BY t.track_id, t.id
"""
#: `kinds`: a condition.
_RANGES = """
WITH named AS (
  SELECT e.block, r.name, e.is_complete
  FROM store.main."range" AS r JOIN event AS e ON e.id = r.id
  WHERE r.kind {kinds} AND r.dur_ns IS NOT NULL AND r.name IS NOT NULL
)
SELECT block, NULL, name, count(*), 0
FROM named
WHERE name NOT IN (SELECT name FROM named WHERE NOT is_complete)
GROUP BY block, name
"""
_OTHER_TASKS = """
SELECT count(*) FROM store.main.task AS t LEFT JOIN event AS e ON e.id = t.id WHERE e.is_complete IS DISTINCT FROM true
"""
_STEPS = "SELECT count(DISTINCT step_id) FROM store.main.step"
_CHANGED_EXPORT = f"SELECT count(*) FROM import_log WHERE code = '{Code.CHANGED_EXPORT.text}'"  # noqa: S608 - ours

#: Names that events on sampled tracks lack: (tracks without the name of their process, tracks without their own).
_UNNAMED = """
SELECT count(*) FILTER (p.name IS NULL), count(*) FILTER (t.name IS NULL)
FROM (SELECT DISTINCT s.track_id FROM store.main.slice AS s JOIN event AS e ON e.id = s.id) AS u
JOIN store.main.track AS t ON t.track_id = u.track_id
LEFT JOIN store.main.process AS p ON p.process_id = t.process_id
"""

_HAS_ARG = """
SELECT EXISTS (
  FROM (
    SELECT args FROM store.main.task UNION ALL SELECT args FROM store.main.api
    UNION ALL SELECT args FROM store.main."range")
  WHERE contains(args, ?))
"""


@dataclass(slots=True)
class _Item:
    """The events of a kind: their number and time in the blocks that have some, CERTAIN for what is read in any case.

    time_known  their time can be computed with
    """

    cells: dict[int, tuple[int, int]] = field(default_factory=dict)
    tracks: set[int] = field(default_factory=set)
    time_known: bool = True

    def add(self, block: int, count: int, time_ns: int | None) -> None:
        if time_ns is None or time_ns > _LONGEST_NS:
            self.time_known, time_ns = False, 0
        count_before, before_ns = self.cells.get(block, (0, 0))
        self.cells[block] = (count_before + count, before_ns + time_ns)

    def merge(self, other: _Item) -> None:
        for block, (count, time_ns) in other.cells.items():
            self.add(block, count, time_ns)
        self.tracks |= other.tracks
        self.time_known &= other.time_known

    @property
    def seen(self) -> tuple[int, int]:
        """Number and time in what is read in any case."""
        return self.cells.get(CERTAIN, (0, 0))

    @property
    def all_ns(self) -> int:
        return sum(time_ns for _, time_ns in self.cells.values())

    @property
    def all_count(self) -> int:
        return sum(count for count, _ in self.cells.values())

    def columns(self, block_count: int) -> tuple[Int64, Int64]:
        """Return the numbers and times by block."""
        found = np.zeros((2, block_count), np.int64)
        in_blocks = {block: cell for block, cell in self.cells.items() if block != CERTAIN}
        found[:, list(in_blocks)] = np.array(list(in_blocks.values()), np.int64).reshape(-1, 2).T
        return found[0], found[1]


_Key = tuple[str | int | None, ...]


def estimated_rows(text: SampledText, report: str) -> tuple[tuple[EstimatedRow, ...], tuple[str, ...]]:
    """Return what a sample tells about a report, one of SAMPLED_REPORTS, and losses, if it is all of a file.

    Raises NotSampled if it tells nothing, InputError if it has no usable events.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        trace, store = folder / "sample.json", folder / "sample.duckdb"
        if not text.is_all:
            with trace.open("wb") as file:
                file.writelines(text.texts)
        try:
            # Estimates read no table that is computed from others.
            result = ingest([text.path if text.is_all else trace], store, jobs=1, derive=text.is_all)
        except InputError:
            if text.is_all:
                raise
            raise NotSampled("the part that was read has no usable events") from None
        losses = tuple(losses_of(result)) if text.is_all and result.lossy else ()
        trace.unlink(missing_ok=True)
        exact = stack.enter_context(open_own_file(store))
        if text.is_all:
            return tuple(_exact_rows(exact, report)), losses
        sampled = stack.enter_context(new_cursor(exact))
        with reading():
            return tuple(_Estimates(text, exact, sampled).rows(report)), losses


def _exact_rows(connection: duckdb.DuckDBPyConnection, name: str) -> Iterator[EstimatedRow]:
    """Yield the rows of a report on a store, with intervals of no width; of a summary, without rows of sizes."""
    report = find_report(name)
    shown = {*KEYS.get(name, SUMMARY_KEYS), *FOUND.get(name, ())}
    keys = [column for column in report.columns if column.name in shown]
    values = [column for wanted in ESTIMATED[name] for column in report.columns if column.name == wanted]
    for batch in answer(connection, Question(report, {}, (*keys, *values))):
        for row in batch:
            values_of_row: tuple[Any, ...] = tuple(row)
            found = dict(zip((column.name for column in keys), values_of_row, strict=False))
            if name == SUMMARY and found["section"] in _OF_SIZES:
                continue
            count, time, percent = values_of_row[len(keys) :]
            yield EstimatedRow(
                found,
                Interval(count, count, count),
                Interval(time, time, time),
                ShareInterval(percent, percent, percent),
            )


class _Estimates:
    """Estimates from a store of the sample: `exact` shows it as it is, `sampled` with a run for each part."""

    def __init__(self, text: SampledText, exact: duckdb.DuckDBPyConnection, sampled: duckdb.DuckDBPyConnection) -> None:
        self._exact = exact
        self._sampled = sampled
        self._is_prefix = not text.blocks
        self._sample = Sample(max(1, text.blocks), max(1, text.drawn), text.missing)
        self._usable = text.drawn - text.missing
        self._place_events(text)
        sampled.execute(_VIEWS)
        if self._number(_CHANGED_EXPORT):
            raise NotSampled("it is an export of traceconv, which is read completely")
        if not self._is_prefix:
            self._check_names()
            if self._number(_OTHER_TASKS):
                raise NotSampled("its tasks are recorded as begins and ends")
        self._tracks = self._track_samples()
        self._wholes_by_block: dict[int, Int64] = {}

    def rows(self, report: str) -> Iterator[EstimatedRow]:
        """Yield the rows of a report, those with most time first."""
        if report != SUMMARY:
            items = self._items_of(report, KEYS[report])
            found = self._found(report, KEYS[report], FOUND[report])
            names = [column.name for column in reports()[report].columns]
            wholes = self._wholes(items, lambda key: key[0])
            most = _most(items)
            for key, item in self._largest(items):
                given = dict(zip((*KEYS[report], *FOUND[report]), (*key, *found.get(key, ())), strict=False))
                ordered = {name: given[name] for name in names if name in given}
                yield self._row(ordered, item, wholes[key[0]], most)
            return
        yield from self._summary()

    def _summary(self) -> Iterator[EstimatedRow]:
        kernels = self._items_of("kernels", KEYS["kernels"])
        found = self._found("kernels", KEYS["kernels"], FOUND["kernels"])
        label = _merged(kernels, lambda key: found.get(key, (None, None)))
        category = _merged(label, lambda key: (key[1],))
        whole = self._wholes(kernels, lambda key: None)
        everything = _merged(label, lambda key: ())
        for item in everything.values():
            yield EstimatedRow(_line("run", "tasks"), self._count(item, _most(everything)), _NOTHING, UNKNOWN_SHARE)
        if steps := self._number(_STEPS):
            yield EstimatedRow(_line("steps", "mean"), self._seen(steps), _NOTHING, UNKNOWN_SHARE)
        for section, items in (("category", category), ("kernel", label)):
            most = _most(items)
            for key, item in self._largest(items)[:_ROWS_OF_SECTION]:
                note = (key[1] or "unknown") if section == "kernel" else None
                name = key[0] or ("-" if section == "kernel" else "unknown")
                yield self._row(_line(section, name, note), item, whole[None], most)
        # As in the report: of a run without tasks, all ranges.
        section, kinds = ("host op", "= 'host_op'") if kernels else ("range", "IS DISTINCT FROM 'summary'")
        ranges = self._items(self._sampled.execute(_RANGES.format(kinds=kinds)).fetchall())
        by_count = sorted(ranges.items(), key=lambda one: (-one[1].all_count, str(one[0])))
        for key, item in by_count[:_ROWS_OF_SECTION]:
            yield EstimatedRow(_line(section, key[0]), self._count(item, _most(ranges)), _NOTHING, UNKNOWN_SHARE)

    # -- the sample --

    def _place_events(self, text: SampledText) -> None:
        """Create the table of events with the block of each."""
        total = self._number("SELECT coalesce(sum(record_count), 0)::BIGINT FROM import_account")
        if self._is_prefix:
            block, complete = np.full(total, CERTAIN, np.int32), np.ones(total, np.bool_)
        else:
            tail = _phases_of(text.texts[-1])
            block = np.append(text.block_of, np.full(len(tail), CERTAIN, np.int32))
            complete = np.append(text.is_complete, tail)
            if len(block) != total:
                raise NotSampled("its end is malformed")
        events = pa.table(
            {
                "id": pa.array((SOURCE_ID << ORDINAL_BITS) + np.arange(total, dtype=np.int64)),
                "block": pa.array(block),
                "is_complete": pa.array(complete),
            }
        )
        self._sampled.register("sampled_events", events)
        self._sampled.execute("CREATE TEMP TABLE event AS FROM sampled_events")
        self._sampled.unregister("sampled_events")

    def _check_names(self) -> None:
        """Check that the kinds of events, if they follow from names of processes and threads, can be known."""
        [(writer,)] = self._sampled.execute("SELECT writer FROM store.main.run").fetchall()
        rules = [rule for rules in built_in() if rules.title == writer for rule in rules.rules]
        [(in_processes, of_tracks)] = self._sampled.execute(_UNNAMED).fetchall()
        categories = {
            one for (one,) in self._sampled.execute("SELECT DISTINCT category FROM store.main.slice").fetchall()
        }
        used = [
            rule
            for rule in rules
            if (rule.process or rule.thread)
            and (rule.categories is None or rule.categories & categories)
            and all(map(self._has_arg, rule.where))
        ]
        # An unknown writer may be one that is known by such names.
        by_process = not rules or any(rule.process for rule in used)
        by_thread = any(rule.thread for rule in used)
        if (by_process and in_processes) or (by_thread and of_tracks):
            raise NotSampled("names of processes or threads, which tell what events are, are elsewhere in the file")

    def _has_arg(self, key: str) -> bool:
        """Whether the args of a slice have this key."""
        [(found,)] = self._sampled.execute(_HAS_ARG, [json.dumps(key)]).fetchall()
        return bool(found)

    def _number(self, sql: str) -> int:
        [(found,)] = self._sampled.execute(sql).fetchall()
        return int(found)

    def _track_samples(self) -> dict[int, TrackSample]:
        found = self._sampled.execute(_TRACKS).fetchnumpy()
        track, block, start, end = (np.asarray(found[name]) for name in ("track_id", "block", "start_ns", "end_ns"))
        self._first_ns, self._last_ns = (int(start.min()), int(end.max())) if len(start) else (0, 0)
        cuts = np.flatnonzero(np.diff(track)) + 1
        parts = zip(*(np.split(column, cuts) for column in (track, block, start, end)), strict=True)
        return {int(one[0][0]): TrackSample(*one[1:]) for one in parts if len(one[0])}

    def _hidden(self, tracks: set[int]) -> HiddenTime | None:
        known = [self._tracks[track] for track in sorted(tracks) if track in self._tracks]
        return hidden_time(known, self._first_ns, self._last_ns)

    # -- items --

    def _items_of(self, report: str, keys: Sequence[str]) -> dict[_Key, _Item]:
        """Return the rows of a report in each part."""
        define_report(self._sampled, reports()[report])
        columns = ", ".join(f"k.{key}" for key in keys)
        sql = f"""SELECT p.block, p.track_id, {columns}, k.count, k.total_ns
        FROM {report}() AS k JOIN part AS p ON p.run_id = k.run_id"""  # noqa: S608 - our own names
        return self._items(self._sampled.execute(sql).fetchall())

    @staticmethod
    def _items(rows: Sequence[Any]) -> dict[_Key, _Item]:
        found: dict[_Key, _Item] = {}
        for block, track, *key, count, time_ns in rows:
            item = found.setdefault(tuple(key), _Item())
            item.add(block, count, time_ns)
            if track is not None:
                item.tracks.add(track)
        return found

    def _found(self, report: str, keys: Sequence[str], found: Mapping[str, str]) -> dict[_Key, _Key]:
        """Return what the report says of each item next to its key, in all parts together."""
        define_report(self._exact, reports()[report])
        rows = self._exact.execute(f"SELECT {', '.join((*keys, *found.values()))} FROM {report}()").fetchall()  # noqa: S608 - our own names
        return {row[: len(keys)]: row[len(keys) :] for row in rows}

    @staticmethod
    def _wholes(items: Mapping[_Key, _Item], of: Callable[[_Key], str | int | None]) -> dict[str | int | None, _Item]:
        """Return all items with the same value together, by that value."""
        return {key[0]: item for key, item in _merged(items, lambda key: (of(key),)).items()}

    @staticmethod
    def _largest(items: Mapping[_Key, _Item]) -> list[tuple[_Key, _Item]]:
        """Return the items with most time in the sample, in this order; times beyond the limit first."""
        ordered = sorted(items.items(), key=lambda one: (one[1].time_known, -one[1].all_ns, str(one[0])))
        return ordered[:_MOST_ITEMS]

    def _row(self, key: Mapping[str, str | int | None], item: _Item, whole: _Item, most: int) -> EstimatedRow:
        count, time, percent = self._count(item, most), _NOTHING, UNKNOWN_SHARE
        if self._is_prefix:
            if item.time_known:
                time = self._seen(item.all_ns)
        elif item.time_known:
            hidden, sums = self._hidden(item.tracks), item.columns(self._usable)[1]
            time = self._sample.duration(sums, item.seen[1], hidden)
            if whole.time_known:
                wholes, seen = self._dense(whole), (item.seen[1], whole.seen[1])
                share = self._sample.share(sums, wholes, seen, hidden, self._hidden(whole.tracks))
                percent = ShareInterval(*(None if one is None else 100 * one for one in astuple(share)))
        return EstimatedRow(key, count, time, percent)

    def _dense(self, whole: _Item) -> Int64:
        """Return the times of all events by block, which many rows need."""
        found = self._wholes_by_block.get(id(whole))
        if found is None:
            found = self._wholes_by_block[id(whole)] = whole.columns(self._usable)[1]
        return found

    @staticmethod
    def _seen(value: int) -> Interval:
        return Interval(value, None, None)

    def _count(self, item: _Item, most: int) -> Interval:
        if self._is_prefix:
            return self._seen(item.all_count)
        return self._sample.count(item.columns(self._usable)[0], item.seen[0], most)


def _line(section: str, item: str | int | None, note: str | int | None = None) -> dict[str, str | int | None]:
    """Return what names a row of a summary."""
    return {"section": section, "item": item, "note": note}


def _most(items: Mapping[_Key, _Item]) -> int:
    """Return how many events of any kind are in the block that has most of it."""
    cells = (cell for item in items.values() for cell in item.cells.items())
    return max((count for block, (count, _) in cells if block != CERTAIN), default=0)


def _merged(items: Mapping[_Key, _Item], key_of: Callable[[_Key], _Key]) -> dict[_Key, _Item]:
    """Add up the items with the same key."""
    found: dict[_Key, _Item] = {}
    for key, item in items.items():
        found.setdefault(key_of(key), _Item()).merge(item)
    return found


def _phases_of(tail: bytes) -> NDArray[np.bool_]:
    """Return which events of the end of a file are complete ones."""
    parser = TraceParser(ImportLog())
    found = [np.zeros(0, np.bool_)]
    for batch in (*parser.feed(b"[" + tail), *parser.finish()):
        phases = batch.columns.label("ph")
        found.append(phases.mask(lambda phase: phase == "X"))
    return np.concatenate(found)
