"""What the passes over one raw log share: texts, tracks, clocks, the time base, and what is put aside for later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import sums
from traceconv.normalize.clock import DeviceClock
from traceconv.normalize.names import Texts
from traceconv.normalize.rows import Nullable
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.tracks import Tracks
from traceconv.schema import RecordSchema
from traceconv.schema.dtypes import RecordArray

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

FLOW_DTYPE = np.dtype([("src_id", "<i8"), ("src_ns", "<i8"), ("dst_id", "<i8"), ("dst_ns", "<i8")])
COUNTER_DTYPE = np.dtype([("track_id", "<i8"), ("ts_ns", "<i8"), ("value", "<i8")])
_INT64_MAX = np.uint64(2**63 - 1)


class RunContext:
    """State of one run on its way into the store. `close` frees what lies on disk."""

    def __init__(self, log: ImportLog, accounts: Accounts) -> None:
        self.log = log
        self.accounts = accounts
        self.texts = Texts({})
        self.tracks = Tracks()
        self.clocks: dict[int, DeviceClock] = {}
        #: Added to host times: what lies between the host clock and the Unix epoch.
        self.offset_ns = 0
        self.epoch_known = False
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.launches = SpillIndex(("id", "start_ns"))
        self.flows = Spool(FLOW_DTYPE)
        self.counters = Spool(COUNTER_DTYPE)
        self.model_names: dict[int, str | None] = {}
        #: Fusions of which the log says what they were made of.
        self.fusion_ids: set[int] = set()
        self.op_indices = np.zeros(0, np.uint32)
        self.op_name_hashes = np.zeros(0, np.uint64)
        self._out_of_range = 0

    def close(self) -> None:
        """Frees the disk space of what was put aside."""
        self.tracks.close()
        self.launches.close()
        self.flows.close()
        self.counters.close()

    def note_times(self, *times: Int64) -> None:
        """Widens the run's bounds to hold `times`."""
        for ns in times:
            if len(ns):
                low, high = int(ns.min()), int(ns.max())
                self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
                self.last_ns = high if self.last_ns is None else max(self.last_ns, high)

    def host_times(self, host_ns: Int64) -> tuple[Int64, Mask | None]:
        """Host clock → the run's clock, and which are valid (None: all)."""
        return self._in_range(host_ns, None)

    def device_times(self, device_id: int, ticks: NDArray[np.uint64]) -> tuple[Int64, Mask | None]:
        """Device ticks → the run's clock, and which are valid (None: all)."""
        return self._in_range(*self.clocks[device_id].to_host_ns(ticks))

    def _in_range(self, host_ns: Int64, valid: Mask | None) -> tuple[Int64, Mask | None]:
        """Times moved to the run's clock; not valid are those that 64 bits can't hold there."""
        ns, beyond = sums(np.ascontiguousarray(host_ns), np.int64(self.offset_ns))
        if beyond.any():
            return np.where(beyond, self.offset_ns, ns), ~beyond if valid is None else ~beyond & valid
        return ns, valid

    def number(self, schema: RecordSchema, records: RecordArray, name: str) -> Nullable:
        """A number field as int64, NULL where it is the field's null value or does not fit."""
        values = np.ascontiguousarray(records[name])
        field = schema.field(name)
        null = values == values.dtype.type(field.null) if field.null is not None else None
        if values.dtype == np.uint64:
            over = values > _INT64_MAX
            if null is not None:
                over &= ~null
            if over.any():
                self._out_of_range += int(np.count_nonzero(over))
                null = over if null is None else null | over
        return Nullable(values.astype(np.int64), null)

    def small(self, number: int) -> int | None:
        """A single number for a signed 64-bit column; None, and counted, where it does not fit."""
        if number <= int(_INT64_MAX):
            return number
        self._out_of_range += 1
        return None

    def lose(self, record: str, code: Code, count: int, message: str) -> None:
        """Books `count` records as lost, with the reason."""
        if count:
            self.accounts[record].lost += count
            self.log.add(code, f"{record}: {message}", event_count=count)

    def note(self, record: str, code: Code, count: int, message: str) -> None:
        """Says something about `count` records that are booked elsewhere."""
        if count:
            self.log.add(code, f"{record}: {message}", event_count=count)

    def report_values(self) -> None:
        """Says what was NULL for want of a text or of room; once, when all passes are done."""
        if self.texts.missing:
            message = "names without text in the dictionary"
            self.log.add(Code.MISSING_TEXT, message, event_count=self.texts.missing)
        if self._out_of_range:
            self.log.add(Code.OUT_OF_RANGE, "numbers of more than 63 bits", event_count=self._out_of_range)
