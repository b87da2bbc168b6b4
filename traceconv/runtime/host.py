"""The host side of a device: three threads, their calls, and the comparisons of the clocks.

The channel thread is the user's: it takes calls and hands work over. The worker thread launches. The device thread is
the driver's: it learns what the device has done. With live clocks channel and worker are threads of the process, and
the driver uses the same clock. With modelled clocks there are no threads: each has its own time, the same code runs
in turn, and handing work over passes the time on.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

from traceconv.runtime.calls import call_log
from traceconv.runtime.clock import HostThread, LiveClock, LiveThread, ModelledThread, Random
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import (
    CALL_BEGINS,
    CALL_ENDS,
    NONE32,
    WHOLE_CALL,
    CaptureIds,
    EventLog,
    RangeBegin,
    append,
)

#: Cost of a call on the modelled host, in ns: (before, after) its body.
_PRICES_NS: dict[str, tuple[int, int]] = {
    "aclInit": (60_000, 4_000),
    "aclFinalize": (30_000, 4_000),
    "aclrtSetDevice": (150_000, 6_000),
    "aclrtResetDevice": (80_000, 6_000),
    "aclrtCreateStream": (18_000, 2_000),
    "aclrtDestroyStream": (9_000, 1_000),
    "aclmdlLoadFromFile": (40_000, 12_000),
    "aclmdlUnload": (12_000, 4_000),
    "ModelLoad": (90_000, 8_000),
    "ModelExecute": (1_800, 700),
    "InputCopy": (600, 300),
    "OutputCopy": (600, 300),
    "OpDispatch": (420, 180),
    "launch": (900, 450),
    "LaunchKernel": (1_300, 600),
    "MemcpyAsync": (1_700, 500),
    "StreamSynchronize": (500, 350),
    "HandleCompletion": (350, 150),
}
_PRICE_NS = (500, 250)  # any other call
_HANDOVER_NS = 800  # until work from the channel arrives at the worker
_ALLOC_NS = 140  # the allocator's work on one block
_SYNC_PERIOD_NS = 1_000_000
_SYNC_GOOD_NS = 1_000  # a reading that takes longer is repeated
_SYNC_ATTEMPTS = 8
_SYNC_READ_NS = (120, 400)  # modelled time of reading the counter: minimum, and spread
_SYNC_LATE = 12  # one modelled reading in this many is interrupted
_SYNC_LATE_NS = (20_000, 180_000)  # length of the interruption: minimum, and spread
_SYNC_FIRST = 3  # readings before any is interrupted

#: Kind of modelled host work on tensors → bytes read and written per microsecond.
_HOST_BYTES_PER_US = {"Quantize": 2_000, "Dequantize": 3_000, "Lower": 8_000, "Unlower": 8_000}


class Host:
    """The threads of one device.

    correlations, span_ids  number calls and ranges: one source of each for all hosts of a capture
    """

    def __init__(
        self,
        recorder: EventLog,
        threads: tuple[HostThread, HostThread, HostThread],
        clock: LiveClock | None,
        seed: int = 0,
        correlations: Iterator[int] | None = None,
        span_ids: Iterator[int] | None = None,
    ) -> None:
        self.recorder = recorder
        self._span_ids = span_ids or itertools.count(1)
        self.channel, self.worker, self.driver = threads
        self.clock = clock
        self.is_live = clock is not None
        #: Live calls have even numbers: see `CaptureIds`.
        self.correlations = correlations or (itertools.count(2, 2) if self.is_live else itertools.count(1))
        #: The log of live calls.
        self.call_log = None if clock is None else call_log(recorder.calls, clock, self.correlations)
        #: Channel thread → index of an op → head and shape of its dispatch, as one word.
        self._dispatch_words: dict[int, dict[int, int]] = {}
        #: Two nested calls on a channel thread → 4 · head of the outer one.
        self._nested_words: dict[tuple[tuple[str, str], tuple[str, str], int], int] = {}
        #: False: the host does not wait for the device. Only for measuring the host alone.
        self.waits = True
        self._readings = 0
        self._sync_random = Random(seed)
        self._next_sync_ns = self.channel.now()
        self._start()

    def _start(self) -> None:
        self._sync_lock = threading.Lock()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        if self.is_live:
            self._thread = threading.Thread(target=self._work, name=self.worker.name, daemon=True)
            self._thread.start()

    # Calls

    def call(
        self, thread: HostThread, level: str, name: str, *, op_index: int = NONE32, step_id: int = NONE32
    ) -> AbstractContextManager[int]:
        """A call around a `with` block, which gets the call's correlation_id for its launches."""
        if self.call_log is not None:
            if not self.recorder.store.calls_on:
                return nullcontext(0)  # modelled time needs the call's price anyway
            head = self.recorder.call_head(name, thread.thread_id, op_index, level)
            return self.call_log.call(4 * head, step_id, False)
        return Call(self.recorder, thread, level, name, op_index, step_id, next(self.correlations))

    def calls(
        self, outer: tuple[str, str], inner: tuple[str, str], step_id: int = NONE32
    ) -> AbstractContextManager[object]:
        """A call (level, name) on the channel, and another inside it, around a `with` block."""
        thread = self.channel
        if self.call_log is None:
            stack = ExitStack()
            for level, name in (outer, inner):
                stack.enter_context(self.call(thread, level, name, step_id=step_id))
            return stack
        if not self.recorder.store.calls_on:
            return nullcontext()
        key = outer, inner, thread.thread_id
        word = self._nested_words.get(key)
        if word is None:
            names = outer[::-1], inner[::-1]
            word = self._nested_words[key] = 4 * self.recorder.call_heads(names, thread.thread_id, NONE32)
        return self.call_log.call(word, step_id, True)

    def call_all(self, *names: str) -> None:
        """Make calls of the ACL on the channel, one after another."""
        for name in names:
            with self.call(self.channel, "acl", name):
                pass

    def dispatcher(self, step_id: int) -> Callable[[int, Callable[[], None]], None]:
        """Return a function that hands over the launch of an op (index, work), as a call on the channel."""
        if self._thread is None:
            return partial(self._dispatch, step_id)
        put, thread_id, log = self._queue.put, self.channel.thread_id, self.recorder
        if self.call_log is None or not log.store.calls_on:
            return lambda _, work: put(work)
        words = self._dispatch_words.setdefault(thread_id, {})

        def add_word(op_index: int) -> int:
            word = words[op_index] = 4 * log.call_head("OpDispatch", thread_id, op_index, "node") + WHOLE_CALL
            return word

        return partial(self.call_log.dispatch, put, words, add_word, step_id)

    def _dispatch(self, step_id: int, op_index: int, work: Callable[[], None]) -> None:
        with self.call(self.channel, "node", "OpDispatch", op_index=op_index, step_id=step_id):
            self.hand_over(work)

    @contextmanager
    def stopped(self, name: str = "emulation") -> Iterator[None]:
        """Stop the host clocks within a block, for emulation. A wall clock goes on: a range shows the block."""
        if self.clock is None:
            yield
        elif not self.clock.is_wall:
            with self.clock.stopped(partial(self.recorder.clock_stop, self.channel.thread_id)):
                yield
        else:
            thread, log, span_id = self.channel, self.recorder, next(self._span_ids)
            log.range_begin(RangeBegin(thread.now(), span_id, thread.thread_id, "emulation", name, "emulation"), 0)
            try:
                yield
            finally:
                log.range_end(thread.now(), span_id, thread.thread_id, "emulation")

    def price_alloc(self, thread: HostThread) -> int:
        """Spend the price of an allocation or a free on `thread`; return the time."""
        thread.spend(_ALLOC_NS)
        return thread.now()

    def work_on(self, thread: HostThread, kind: str, size_bytes: int, work: Callable[[], None]) -> None:
        """Work on tensors: do `work` in real time, or spend its price in modelled time."""
        if self.clock is None:
            thread.spend(1_000 + size_bytes * 1_000 // _HOST_BYTES_PER_US[kind])
        else:
            work()

    # Worker

    def hand_over(self, work: Callable[[], None]) -> None:
        """Have the worker do `work`, after everything handed over before."""
        if self._thread is None:
            self.worker.wait_until(self.channel.now() + _HANDOVER_NS)
            work()
        else:
            self._queue.put(work)

    def drain(self) -> None:
        """Wait until the worker is idle; raise the error that occurred there."""
        if self._thread is None:
            self.channel.wait_until(self.worker.now())
            return
        self._idle.clear()
        self._queue.put(self._idle.set)
        self._idle.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def stop(self) -> None:
        """End the worker."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def dismiss(self) -> None:
        """End the worker without waiting, from any thread."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread = None

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            if self._failure is not None and work != self._idle.set:
                continue  # the next `drain` raises it
            try:
                work()
            except BaseException as failure:  # noqa: BLE001 - raised on the channel
                self._failure = failure

    # Clocks

    def clocks_are_due(self, host_ns: int) -> bool:
        """Whether `compare_clocks` is due at a time of the host clock."""
        return host_ns >= self._next_sync_ns and self.recorder.store.on

    def compare_clocks(self, device: Device, thread: HostThread, *, now: bool = False) -> None:
        """Read both clocks at the end of each period, and log the readings.

        `now`: also before the end of the period, but at least half a period after the last time, since readings
        that are close together give a poor rate.
        """
        if isinstance(thread, ModelledThread):
            while self._next_sync_ns <= thread.now():
                self._modelled_reading(device, self._next_sync_ns)
            if now:
                before = max(thread.now(), self._next_sync_ns - _SYNC_PERIOD_NS // 2)
                self._modelled_reading(device, before, undisturbed=True)
            return
        if not self.recorder.store.on:
            return
        if now:
            thread.wait_until(self._next_sync_ns - _SYNC_PERIOD_NS // 2)
        with self._sync_lock:
            before = thread.now()
            if before < self._next_sync_ns and not now:
                return
            self._read_well(device, thread)

    def read_clocks(self, device: Device) -> None:
        """Read both live clocks and log the readings, when logging begins or ends."""
        if isinstance(self.channel, LiveThread):
            with self._sync_lock:
                self._read_well(device, self.channel)

    def _read_well(self, device: Device, thread: LiveThread) -> None:
        best = _live_reading(device, thread)
        for _ in range(_SYNC_ATTEMPTS - 1):
            if best[2] - best[1] <= _SYNC_GOOD_NS:
                break
            # Another thread or process interrupted the reading.
            best = min(best, _live_reading(device, thread), key=lambda reading: reading[2] - reading[1])
        self.recorder.sync(device.device_id, *best)
        self._next_sync_ns = best[2] + _SYNC_PERIOD_NS

    def after_fork(self) -> None:
        """In the child of a fork: restart the worker."""
        if self._thread is not None:
            self._start()

    def _modelled_reading(self, device: Device, before: int, *, undisturbed: bool = False) -> None:
        base, spread = _SYNC_READ_NS
        random = self._sync_random
        read = before + base + random.below(spread)
        after = read + base + random.below(spread)
        self._readings += 1
        if random.below(_SYNC_LATE) == 0 and self._readings > _SYNC_FIRST and not undisturbed:
            # Interrupted before the counter was read, or after.
            late = _SYNC_LATE_NS[0] + random.below(_SYNC_LATE_NS[1])
            after += late
            read += late * random.below(2)
        self.recorder.sync(device.device_id, device.clock.reading(device.clock.ticks_at(read)), before, after)
        self._next_sync_ns = before + _SYNC_PERIOD_NS

    def wait_for_device(self, device: Device, thread: HostThread, host_ns: int, step_id: int) -> None:
        """Wait on `thread` until the driver learns at `host_ns` that the device is done; compare clocks meanwhile."""
        while True:
            self.compare_clocks(device, thread)
            if thread.now() >= host_ns or not self.waits:
                break
            thread.wait_until(min(host_ns, self._next_sync_ns) if self.recorder.store.on else host_ns)
        if self.waits:
            self.driver.wait_until(host_ns)
        with self.call(self.driver, "runtime", "HandleCompletion", step_id=step_id):
            pass
        thread.wait_until(self.driver.now())


def _live_reading(device: Device, thread: LiveThread) -> tuple[int, int, int]:
    """Return (ticks, host before, host after)."""
    before, read, after = thread.now(), thread.now(), thread.now()
    return device.clock.reading(device.clock.ticks_at(read)), before, after


class Call:
    """A call in modelled time that begins and ends with its `with` block."""

    __slots__ = ("_after_ns", "_before_ns", "_calls", "_correlation_id", "_head", "_step_id", "_thread")

    def __init__(
        self,
        recorder: EventLog,
        thread: HostThread,
        level: str,
        name: str,
        op_index: int,
        step_id: int,
        correlation_id: int,
    ) -> None:
        #: None: it only spends modelled time.
        self._calls = recorder.calls if recorder.store.calls_on else None
        self._head = 4 * recorder.call_head(name, thread.thread_id, op_index, level)
        self._thread = thread
        self._step_id = step_id
        self._correlation_id = correlation_id
        self._before_ns, self._after_ns = _PRICES_NS.get(name, _PRICE_NS)

    def __enter__(self) -> int:
        thread = self._thread
        if self._calls is not None:
            append(self._calls, thread.now(), 0, 0, self._correlation_id, self._head + CALL_BEGINS, self._step_id)
        thread.spend(self._before_ns)
        return self._correlation_id

    def __exit__(self, *error: object) -> None:
        self._thread.spend(self._after_ns)
        if self._calls is not None:
            append(self._calls, self._thread.now(), 0, 0, self._correlation_id, self._head + CALL_ENDS, NONE32)


#: Threads of one device: the user's, the launching one, the driver's.
THREADS = ("channel", "worker", "device")


def live_host(
    recorder: EventLog, thread_ids: Sequence[int], names: Sequence[str], clock: LiveClock, ids: CaptureIds
) -> Host:
    """Return host threads in real time; every host of a capture has the same clock."""
    channel, worker, driver = (LiveThread(id, name, clock) for id, name in zip(thread_ids, names, strict=True))
    return Host(recorder, (channel, worker, driver), clock, 0, ids.live_correlations, ids.spans)


def modelled_host(
    recorder: EventLog, thread_ids: range, names: tuple[str, ...], start_ns: int, seed: int, correlations: Iterator[int]
) -> Host:
    """Return host threads in modelled time that begins at `start_ns`."""
    random = Random(seed)
    channel, worker, driver = (
        ModelledThread(id, name, start_ns, random.bits64()) for id, name in zip(thread_ids, names, strict=True)
    )
    return Host(recorder, (channel, worker, driver), None, random.bits64(), correlations)
