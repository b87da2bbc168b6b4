"""The two clocks: the host's, which by default is stopped during emulation, and the device's counter, which drifts.

`docs/explanation/clock.md` explains them. All arithmetic is in integers: a time is rounded down to its tick, and a tick
is converted to its first nanosecond.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceconv import native
from traceconv.runtime.cost import ceil_div

_PER_BILLION = 1_000_000_000
#: Returns monotonic ns; None: C reads them itself.
SOURCE: Callable[[], int] | None = None if native.AVAILABLE and sys.platform == "linux" else time.monotonic_ns


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The device's counter: `offset_ticks` at `origin_ns` of the host clock, and `drift_ppb` faster than `clock_hz`.

    Once, at tick `jump_at`, it jumps ahead by `jump_ticks`. All other methods count ticks evenly, without the jump;
    `reading` converts such a tick to what the counter shows.
    """

    origin_ns: int
    offset_ticks: int
    clock_hz: int
    drift_ppb: int
    jump_at: int = 0
    jump_ticks: int = 0

    @property
    def _rate(self) -> int:
        """Ticks in 10^18 ns."""
        return self.clock_hz * (_PER_BILLION + self.drift_ppb)

    def reading(self, ticks: int) -> int:
        """Return what the counter shows at a tick."""
        return ticks + self.jump_ticks if ticks >= self.jump_at else ticks

    def ticks_at(self, host_ns: int) -> int:
        """Return the tick at a time of the host clock."""
        return self.offset_ticks + (host_ns - self.origin_ns) * self._rate // 10**18

    def ticks_after(self, host_ns: int) -> int:
        """Return the first tick not before a time of the host clock."""
        return self.offset_ticks + ceil_div((host_ns - self.origin_ns) * self._rate, 10**18)

    def ns_at(self, ticks: int) -> int:
        """Return the first nanosecond of a tick on the host clock."""
        return self.origin_ns + ceil_div((ticks - self.offset_ticks) * 10**18, self._rate)


if TYPE_CHECKING or native.AVAILABLE:
    from traceconv.native import Clock
else:

    class Clock:
        """The same without the C extension."""

        __slots__ = ("is_stopped", "source", "stopped_ns")

        def now(self) -> int:
            """Return the clock in ns. Takes no lock: a reading is valid if no stop began or ended meanwhile."""
            while True:
                stopped_ns = self.stopped_ns
                if not self.is_stopped:
                    read_ns = self.source()
                    if self.stopped_ns is stopped_ns and not self.is_stopped:
                        return read_ns - stopped_ns
                elif (shown_ns := self.wait()) is not None:
                    return shown_ns


class LiveClock(Clock):
    """Monotonic time minus the time that emulation took; other threads can't read it while emulation runs."""

    __slots__ = ("_lock", "_shown_ns", "_stopped_by", "is_wall")

    def __init__(self, *, is_wall: bool = False) -> None:
        #: Whether the clock goes on during emulation, as the wall clock does; changed only while nothing runs.
        self.is_wall = is_wall
        self._lock = threading.Lock()
        self.source = SOURCE
        self.stopped_ns, self.is_stopped = 0, False
        #: The thread that stops the clock, and the time that it shows then.
        self._stopped_by: int | None = None
        self._shown_ns: int | None = None

    def wait(self) -> int | None:
        """Wait until the clock runs again. The thread that stopped it gets the time that it shows instead.

        There, a signal handler or the garbage collector may begin or end a span during emulation.
        """
        if self._stopped_by != threading.get_ident():
            with self._lock:
                return None
        return self._running_ns() if self._shown_ns is None else self._shown_ns

    def _running_ns(self) -> int:
        """Return what the clock would show if the current stop did not count."""
        return (self.source or time.monotonic_ns)() - self.stopped_ns

    def after_fork(self) -> None:
        """In the child of a fork, where nobody else can have stopped the clock."""
        self._lock = threading.Lock()
        self.is_stopped = False
        self._stopped_by = self._shown_ns = None

    @contextmanager
    def stopped(self, log: Callable[[int, int], None] = lambda host_ns, dur_ns: None) -> Iterator[None]:
        """Stop the clock for all threads within a block. `log` gets the time that it showed, and for how long."""
        with self._lock:
            self._stopped_by = threading.get_ident()
            self.is_stopped = True
            shown_ns = self._shown_ns = self._running_ns()
            try:
                yield
            finally:
                dur_ns = self._running_ns() - shown_ns
                log(shown_ns, dur_ns)
                self.stopped_ns += dur_ns
                self.is_stopped = False
                self._stopped_by = self._shown_ns = None


class LiveThread:
    """A host thread in real time."""

    def __init__(self, thread_id: int, name: str, clock: LiveClock) -> None:
        self.thread_id = thread_id
        self.name = name
        self.now = clock.now

    def spend(self, ns: int) -> None:
        """Do nothing: work takes its real time."""

    def wait_until(self, host_ns: int) -> None:
        """Sleep until a time of the host clock."""
        while (left := host_ns - self.now()) > 0:
            time.sleep(left / _PER_BILLION)


class ModelledThread:
    """A host thread in modelled time: each piece of work costs its price and a seeded jitter."""

    def __init__(self, thread_id: int, name: str, start_ns: int, seed: int) -> None:
        self.thread_id = thread_id
        self.name = name
        self._now = start_ns
        self._random = Random(seed)

    def now(self) -> int:
        """Return the host clock in ns, as this thread sees it."""
        return self._now

    def spend(self, ns: int) -> None:
        """Advance by `ns`, plus up to a quarter."""
        self._now += ns + self._random.below(ns // 4 + 1)

    def wait_until(self, host_ns: int) -> None:
        """Advance to a time, unless it is past."""
        self._now = max(self._now, host_ns)


HostThread = LiveThread | ModelledThread


class Random:
    """splitmix64 (Steele, Lea, Flood 2014): the same integers for a seed on every machine, in every version."""

    _MASK = (1 << 64) - 1

    def __init__(self, seed: int) -> None:
        self._state = seed & self._MASK

    def bits64(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & self._MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & self._MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & self._MASK
        return mixed ^ (mixed >> 31)

    def below(self, limit: int) -> int:
        """Return an integer from 0 to limit − 1."""
        return self.bits64() % limit
