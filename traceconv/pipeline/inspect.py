"""Inspect a trace file without ingesting it: format, writer, events by kind, time range, damage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog, LogEntry, Severity
from traceconv.base.int64 import sums
from traceconv.events.trace import TraceBatch
from traceconv.formats.common.files import head_of
from traceconv.formats.format import ReadRequest
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.json_items.outline import Outline, outline
from traceconv.formats.registry import SURE, best_match, open_source
from traceconv.formats.unsupported import what_it_is
from traceconv.normalize.time_bounds import TimeBounds
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import arg_keys
from traceconv.normalize.trace.classify import RuleSet, identifying_words, rules_of
from traceconv.normalize.trace.counters import samples_of
from traceconv.normalize.trace.event_batch import without_keys
from traceconv.normalize.trace.metadata import BUFFER_FULL, read_metadata, time_places
from traceconv.normalize.trace.own_export import header_of
from traceconv.normalize.trace.rule_files import built_in
from traceconv.normalize.trace.times import US_PLACES, exact_ns
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.pipeline.run_import import not_a_trace

_LOSSES = {
    Code.UNKNOWN_PHASE: "events with an unknown ph",
    Code.NO_PHASE: "events without ph",
    Code.NO_TIME: "events without a valid ts",
    Code.BAD_DURATION: "durations that are not numbers, or end beyond 64 bits",
    Code.BAD_NUMBER: "counters with a value that is not a number, or args that are not an object",
    Code.MISSING_RECORDS: "the writer's buffer was full: later events are missing",
}


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The content of a trace file.

    scanned        all of it was read; if not, only its first events
    writer         title of the rules that match it; None if none do
    keys           keys next to the events, as far as they were read
    events         number of events by kind, with the names of the accounting
    first_ns       earliest begin of an event; `last_ns`: latest begin or end; None without times
    process_count  number of processes that the events name
    log            what an ingest would log about the file's text; entries about rows are missing
    """

    path: Path
    reader: str
    container: str
    size_bytes: int
    scanned: bool
    writer: str | None
    keys: tuple[str, ...]
    events: dict[str, int]
    first_ns: int | None
    last_ns: int | None
    process_count: int
    log: tuple[LogEntry, ...]

    @property
    def event_count(self) -> int:
        """The number of events read."""
        return sum(self.events.values())

    @property
    def intact(self) -> bool:
        """Whether nothing that was read is damaged. Records of types that traceconv doesn't know aren't damage."""
        return all(entry.severity is Severity.INFO or entry.code is Code.UNKNOWN_RECORD for entry in self.log)

    @property
    def unread_count(self) -> int:
        """The number of records of unknown types."""
        return sum(entry.event_count or 0 for entry in self.log if entry.code is Code.UNKNOWN_RECORD)

    @property
    def closed(self) -> bool:
        """Whether the text closes its brackets; killed writers leave them open, and some never close them."""
        return all(entry.code is not Code.NO_END for entry in self.log)


def inspect_trace(path: Path, reader: str, *, scan: bool = True, rules: Sequence[RuleSet] = ()) -> TraceSummary:
    """Read a trace file without storing it. `scan` false: read only its first events.

    Raises InputError if it can't be read or contains no usable events.
    """
    log = ImportLog()
    source = open_source(reader, ReadRequest(path, log))
    seen = _EventFacts((*rules, *built_in()))
    for batch in source.batches():
        seen.take(batch)
        if not scan and seen.counts:
            break
    for code, count in seen.lost.items():
        log.count(code, _LOSSES[code], count)
    if not seen.counts.keys() - {"other events"} and (not source.found_events or log.lossy):
        raise not_a_trace(path, log, source.size_bytes)
    header = header_of(source.keys)
    found = seen.rules(source.keys)
    complete_events = 0 if source.keeps_all else seen.counts["X events"]
    missing = found.missing_events(complete_events, source.keys) if scan else None
    if missing is not None:
        log.add(Code.MISSING_RECORDS, missing)
    return TraceSummary(
        path,
        reader,
        source.container,
        source.size_bytes if scan else path.stat().st_size,
        scan,
        header.writer if header is not None else found.title or None,
        tuple(source.keys),
        dict(sorted(seen.counts.items())),
        None if found.no_starts else seen.first_ns,
        None if found.no_starts else seen.last_ns,
        seen.tracks.process_count,
        tuple(log),
    )


def inspect_document(path: Path, *, scan: bool = True) -> Outline | None:
    """Return the outline of a JSON document that no reader recognises; None for other files. Raises InputError."""
    if not os.path.isfile(path):
        return None
    head = head_of(path)
    if best_match(head, path)[1] >= SURE or not may_have_items(head) or what_it_is(head, path.name) is not None:
        return None
    found = outline(path, scan=scan)
    return found if len(found.prefixes) > 1 else None


class _EventFacts(TimeBounds):
    """Facts about the events, collected batch by batch."""

    def __init__(self, rule_sets: Sequence[RuleSet]) -> None:
        super().__init__()
        self._rule_sets = rule_sets
        self.counts: Counter[str] = Counter()
        #: Events that ingest can't store, or not completely.
        self.lost: Counter[Code] = Counter()
        self.tracks = TraceTracks()
        self._categories: set[str] = set()
        self._threads: set[str] = set()
        self._arg_keys: set[str] = set()
        self._places = US_PLACES
        self._kinds = phases.Kinds()

    def take(self, batch: TraceBatch) -> None:
        columns = batch.columns
        if batch.first_ordinal == 0:
            self._places = time_places(columns)
            self._arg_keys = arg_keys(columns.raw.get("args"))
        for track in batch.names:
            self.tracks.describe(track)
        ph = columns.label("ph")
        for value, count in zip(ph.distinct, ph.counts(), strict=True):
            if count:
                self.counts[phases.account_of(value)] += count
        categories = (category for category in columns.label("cat").distinct if category is not None)
        self._categories = identifying_words(chain(self._categories, categories), "categories", self._rule_sets)
        threads = (str(tid) for tid in columns.label("tid").distinct if tid is not None)
        self._threads = identifying_words(chain(self._threads, threads), "threads", self._rule_sets)
        for pid in columns.label("pid").distinct:
            self.tracks.process_of(pid)
        kinds = np.array([self._kinds[value] for value in ph.distinct], np.int8)[ph.codes]
        self.lost[Code.UNKNOWN_PHASE] += int(np.count_nonzero(kinds == phases.UNKNOWN))
        missing = kinds == phases.MISSING
        if missing.any():
            self.lost[Code.NO_PHASE] += int(np.count_nonzero(missing & ~without_keys(batch)))
        timed = self._note_times(batch, (kinds < phases.UNKNOWN) & (kinds != phases.METADATA), kinds == phases.COMPLETE)
        names, pids, tids = (columns.label(field) for field in ("name", "pid", "tid"))
        args = columns.raw.get("args")
        counters = np.flatnonzero(timed & (kinds == phases.COUNTER))
        if args is not None and len(counters):
            samples = samples_of(args.take(pa.array(counters)))
            self.lost[Code.BAD_NUMBER] += len(np.union1d(samples.bad, samples.unread))
        for row in np.flatnonzero(kinds == phases.METADATA).tolist():
            text = args[row].as_py() if args is not None else None
            self.lost[Code.MISSING_RECORDS] += names[row] == BUFFER_FULL
            read_metadata(self.tracks, names[row], pids[row], tids[row], text or b"")

    def _note_times(
        self, batch: TraceBatch, timed: NDArray[np.bool_], complete: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Note the times of events; return which of `timed` have a valid one."""
        raw = batch.columns.raw.get("ts")
        if raw is None:
            self.lost[Code.NO_TIME] += int(np.count_nonzero(timed))
            return np.zeros_like(timed)
        times = exact_ns(raw, self._places)
        self.lost[Code.NO_TIME] += int(np.count_nonzero(timed & ~times.valid))
        timed = times.valid & timed
        ns = times.ns[timed]
        durations = batch.columns.raw.get("dur")
        if durations is not None:
            durs = exact_ns(durations, self._places)
            ends, beyond = sums(ns, durs.ns[timed])
            ns = np.where(beyond | ~complete[timed], ns, np.maximum(ns, ends))
            wrong = ~durs.valid & ~durs.absent
            wrong[timed] |= beyond
            self.lost[Code.BAD_DURATION] += int(np.count_nonzero(wrong & timed & complete))
        self.note_times(times.ns[timed], ns)
        return timed

    def rules(self, keys: Iterable[str]) -> RuleSet:
        """Return the first rules that match the trace."""
        words = {
            "keys": keys,
            "categories": self._categories,
            "processes": identifying_words(self.tracks.process_names(), "processes", self._rule_sets),
            "threads": identifying_words(chain(self._threads, self.tracks.thread_names()), "threads", self._rule_sets),
            "args": self._arg_keys,
        }
        return rules_of(words, self._rule_sets)
