"""Times in ns that args have, where `ts` and `dur` are whole microseconds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask, differences
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.classify import TimeArgs
from traceconv.normalize.trace.column_builder import Values
from traceconv.normalize.trace.times import Times, exact_ns

_US = 1000
#: A larger difference between the times of a file and those in its args is an error.
_LARGEST_OFFSET_NS = 2**62


class ExactTimes:
    """Replaces the times of events by those in their args, if both are the same in whole microseconds.

    The times of a file may count from another moment than those in its args: the difference is that of the first event
    whose durations are the same.
    """

    def __init__(self, keys: TimeArgs) -> None:
        self._args = ArgColumns({name: (key,) for name, key in keys._asdict().items()}, ())
        self._offset_ns: int | None = None

    @property
    def is_used(self) -> bool:
        """Whether events had such times."""
        return self._offset_ns is not None

    def of(self, args: pa.Array, ts: Times, dur: Times) -> tuple[Int64, Int64]:
        """Return the starts and durations of events. `args`: a text column; NULL: none."""
        found = {name: _ns(texts) for name, texts in self._args.read(args, None) if isinstance(texts, Values)}
        (start_ns, has_start), (end_ns, has_end) = found["start_ns"], found["end_ns"]
        length, beyond = differences(end_ns, start_ns)
        # rocprof writes a duration below 1 µs as 1.
        same: Mask = ts.valid & dur.valid & has_start & has_end & ~beyond & (length >= 0) & (dur.ns >= 0)
        same &= np.maximum(length // _US, 1) * _US == np.maximum(dur.ns, _US)
        rows = np.flatnonzero(same)
        if not len(rows):
            return ts.ns, dur.ns
        if self._offset_ns is None:
            self._offset_ns = (int(start_ns[rows[0]]) // _US - int(ts.ns[rows[0]]) // _US) * _US
        if abs(self._offset_ns) > _LARGEST_OFFSET_NS:
            return ts.ns, dur.ns
        shifted, beyond = differences(start_ns, np.full(len(start_ns), self._offset_ns))
        same &= ~beyond & (shifted // _US * _US == ts.ns)
        return np.where(same, shifted, ts.ns), np.where(same, length, dur.ns)


def _ns(texts: Values) -> tuple[Int64, Mask]:
    """Return the integers of a column, and which rows have one."""
    found = exact_ns(pa.array([*(str(text).encode() for text in texts.distinct), b""], pa.binary()), 0)
    return found.ns[texts.codes], found.valid[texts.codes]
