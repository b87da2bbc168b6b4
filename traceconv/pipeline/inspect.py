"""What a trace file is, before it is ingested: its format and writer, its events by kind, its times, its damage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traceconv.base.diagnostics import Code, ImportLog, LogEntry, Severity
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import sums
from traceconv.events.trace import TraceBatch
from traceconv.formats.common.files import head_of
from traceconv.formats.format import ReadRequest
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.json_items.outline import Outline, outline
from traceconv.formats.registry import SURE, best_match, open_source
from traceconv.formats.unsupported import what_it_is
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import arg_keys
from traceconv.normalize.trace.classify import RuleSet, built_in, rules_of, telling
from traceconv.normalize.trace.metadata import read_metadata, time_places
from traceconv.normalize.trace.own_export import header_of
from traceconv.normalize.trace.times import US_PLACES, exact_ns
from traceconv.normalize.trace.tracks import TraceTracks


@dataclass(frozen=True, slots=True)
class TraceState:
    """What a file holds.

    scanned        all of it was read; else only its first events
    writer         the title of the rules that know it; None when none does
    keys           what stands around the events, as far as it was read
    events         how many there are of each kind, by the names of the books
    first_ns       when the first event begins; `last_ns`: the latest begin or end of one; None without times
    process_count  processes that the events name
    log            what an ingest would say of the file's text; what it would say of the rows is not known here
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
        """All events that were read."""
        return sum(self.events.values())

    @property
    def whole(self) -> bool:
        """Whether nothing of what was read is damaged."""
        return all(entry.severity is Severity.INFO for entry in self.log)

    @property
    def closed(self) -> bool:
        """Whether the text closes its brackets: a killed writer leaves them open, and some never close them."""
        return all(entry.code is not Code.NO_END for entry in self.log)


def inspect_trace(path: Path, reader: str, *, scan: bool = True, rules: Sequence[RuleSet] = ()) -> TraceState:
    """Reads a trace file, and stores nothing. `scan` false: only its first events.

    Raises InputError when it can't be read, or holds nothing that can be used.
    """
    log = ImportLog()
    source = open_source(reader, ReadRequest(path, log))
    seen = _Seen((*rules, *built_in()))
    for batch in source.batches():
        seen.take(batch)
        if not scan and seen.counts:
            break
    if not seen.counts and (not source.found_events or log.lossy):
        reasons = [entry.message for entry in log if entry.severity is not Severity.INFO]
        reason = reasons[0] if reasons else "there is no array of events in it"
        raise InputError(f"{printable(str(path))}: nothing in it can be used ({printable(reason)}); is it a trace?")
    header = header_of(source.keys)
    return TraceState(
        path,
        reader,
        source.container,
        source.size_bytes if scan else path.stat().st_size,
        scan,
        header.writer if header is not None else seen.writer(source.keys),
        tuple(source.keys),
        dict(sorted(seen.counts.items())),
        seen.first_ns,
        seen.last_ns,
        seen.tracks.process_count,
        tuple(log),
    )


def inspect_document(path: Path, *, scan: bool = True) -> Outline | None:
    """What a JSON document holds that no reader knows; None when the file is none. InputError when it can't be read."""
    if not path.is_file():
        return None
    head = head_of(path)
    if best_match(head)[1] >= SURE or not may_have_items(head) or what_it_is(head, path.name) is not None:
        return None
    found = outline(path, scan=scan)
    return found if len(found.prefixes) > 1 else None


class _Seen:
    """What was seen of the events."""

    def __init__(self, rule_sets: Sequence[RuleSet]) -> None:
        self._rule_sets = rule_sets
        self.counts: Counter[str] = Counter()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.tracks = TraceTracks()
        self._categories: set[str] = set()
        self._threads: set[str] = set()
        self._arg_keys: set[str] = set()
        self._places = US_PLACES
        self._kinds = phases.Kinds()

    def take(self, batch: TraceBatch) -> None:
        """Takes the next events."""
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
        self._categories = telling(chain(self._categories, categories), "categories", self._rule_sets)
        threads = (str(tid) for tid in columns.label("tid").distinct if tid is not None)
        self._threads = telling(chain(self._threads, threads), "threads", self._rule_sets)
        for pid in columns.label("pid").distinct:
            self.tracks.process_of(pid)
        kinds = np.array([self._kinds[value] for value in ph.distinct], np.int8)[ph.codes]
        self._note_times(batch, kinds < phases.METADATA)
        metadata = np.flatnonzero(kinds == phases.METADATA).tolist()
        names, pids, tids = (columns.label(field) for field in ("name", "pid", "tid"))
        args = columns.raw.get("args")
        for place in metadata:
            text = args[place].as_py() if args is not None else None
            read_metadata(self.tracks, names[place], pids[place], tids[place], text or b"")

    def _note_times(self, batch: TraceBatch, timed: NDArray[np.bool_]) -> None:
        raw = batch.columns.raw.get("ts")
        if raw is None:
            return
        times = exact_ns(raw, self._places)
        timed = times.valid & timed
        ns = times.ns[timed]
        if len(ns):
            low, high = int(ns.min()), int(ns.max())
            durations = batch.columns.raw.get("dur")
            if durations is not None:
                ends, beyond = sums(ns, exact_ns(durations, self._places).ns[timed])
                high = max(high, int(np.where(beyond, ns, ends).max()))
            self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
            self.last_ns = high if self.last_ns is None else max(self.last_ns, high)

    def writer(self, keys: Iterable[str]) -> str | None:
        """The title of the first rules that know the trace."""
        words = {
            "keys": keys,
            "categories": self._categories,
            "processes": telling(self.tracks.process_names(), "processes", self._rule_sets),
            "threads": telling(chain(self._threads, self.tracks.thread_names()), "threads", self._rule_sets),
            "args": self._arg_keys,
        }
        return rules_of(words, self._rule_sets).title or None
