"""State that the passes over one raw log share: texts, tracks, clocks, the time base, and spilled rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import Int64, Mask, sums
from traceconv.normalize.clock import DeviceClock
from traceconv.normalize.names import Texts
from traceconv.normalize.npulog.wall_clock import WallClock
from traceconv.normalize.rows import Nullable
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.time_bounds import TimeBounds
from traceconv.normalize.tracks import Tracks
from traceconv.schema import RecordSchema
from traceconv.schema.dtypes import RecordArray

FLOW_DTYPE = np.dtype([("src_id", "<i8"), ("src_ns", "<i8"), ("dst_id", "<i8"), ("dst_ns", "<i8")])
COUNTER_DTYPE = np.dtype([("track_id", "<i8"), ("ts_ns", "<i8"), ("value", "<i8")])
_INT64_MAX = 2**63 - 1


class RunContext(TimeBounds):
    """State of one run during ingest."""

    def __init__(self, log: ImportLog, accounts: Accounts) -> None:
        super().__init__()
        self.log = log
        self.accounts = accounts
        self.texts = Texts({})
        self.tracks = Tracks()
        self.clocks: dict[int, DeviceClock] = {}
        #: Added to host times: the difference between the Unix epoch and the host clock.
        self.offset_ns = 0
        #: Host clock when the capture began.
        self.capture_ns = 0
        self.wall_clock = WallClock(is_known=False)
        self.epoch_known = False
        #: Calls by correlation ID; call_ns is -1 if unknown.
        self.launches = SpillIndex(("id", "start_ns", "call_ns"))
        self.flows = Spool(FLOW_DTYPE)
        self.counters = Spool(COUNTER_DTYPE)
        self.model_names: dict[int, str | None] = {}
        #: Fusions whose original ops are in the log.
        self.fusion_ids: set[int] = set()
        self.op_indices = np.zeros(0, np.uint32)
        self.op_name_hashes = np.zeros(0, np.uint64)
        self._out_of_range = 0

    def close(self) -> None:
        """Free the disk space."""
        for part in (self.tracks, self.launches, self.flows, self.counters):
            part.close()

    def times(self, device_id: int | None, records: RecordArray) -> tuple[Int64, Mask | None]:
        """Return the records' times on the run's clock, and which are valid (None: all). `device_id` None: the host."""
        if device_id is None:
            host_ns, valid = records["host_ns"], None
        else:
            host_ns, valid = self.clocks[device_id].to_host_ns(records["ticks"])
        ns, beyond = sums(np.ascontiguousarray(host_ns), np.int64(self.offset_ns))
        if beyond.any():
            return np.where(beyond, self.offset_ns, ns), ~beyond if valid is None else ~beyond & valid
        return ns, valid

    def read_clock_stops(self, stops: Iterator[RecordArray]) -> None:
        """Read when the host clock stopped."""
        known = self.wall_clock.is_known
        self.wall_clock = WallClock([part.copy() for part in stops], self.capture_ns, is_known=known)
        if not self.wall_clock.is_valid:
            self.log.add(Code.BAD_DURATION, "clock_stop: contradictory durations: wall-clock times are NULL")

    def number(self, schema: RecordSchema, records: RecordArray, name: str) -> Nullable:
        """Return a number field as int64, NULL where it is the field's null value or does not fit."""
        values, field = np.ascontiguousarray(records[name]), schema.field(name)
        if values.dtype != np.uint64:
            return Nullable(values.astype(np.int64), None if field.null is None else values == field.null)
        numbers = values.view(np.int64)
        over = numbers < 0  # of more than 63 bits
        if not over.any() and (field.null is None or field.null > _INT64_MAX):
            return Nullable(numbers, None)
        null = None if field.null is None else values == np.uint64(field.null)
        if null is not None:
            over &= ~null
        if over.any():
            self._out_of_range += int(np.count_nonzero(over))
            null = over if null is None else null | over
        return Nullable(numbers, null)

    def small(self, number: int) -> int | None:
        """Return a number for a signed 64-bit column; None, and counted, if it does not fit."""
        if number <= _INT64_MAX:
            return number
        self._out_of_range += 1
        return None

    def lose(self, record: str, code: Code, count: int, message: str) -> None:
        """Count `count` records as lost, and log the reason."""
        if count:
            self.accounts[record].lost += count
        self.note(record, code, count, message)

    def note(self, record: str, code: Code, count: int, message: str) -> None:
        """Log something about `count` records that are accounted for elsewhere."""
        self.log.count(code, f"{record}: {message}", count)

    def report_values(self) -> None:
        """Log which values are NULL because of a missing text or a large number; once, after all passes."""
        self.log.count(Code.MISSING_TEXT, "name without text in the dictionary", self.texts.missing)
        self.log.count(Code.OUT_OF_RANGE, "number of more than 63 bits", self._out_of_range)
