"""Read the recordings of an ingest in parallel processes, and store them in their order.

The processes decode and normalise; this one executes, recording after recording, exactly the calls on the store that it
would make if it read them itself. So rows, IDs and the order of everything are the same with any number of processes.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import BinaryIO

import pyarrow as pa

from traceconv.base.errors import InputError, option, printable
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.identity import RunNames
from traceconv.normalize import memory_budget
from traceconv.normalize.sort.spool import close_quietly, spill_file
from traceconv.pipeline import reader_messages as messages
from traceconv.pipeline.reader_forks import ForkServer
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import Recording, RunContent, RunTarget
from traceconv.store.writer import StoreWriter

#: Small recordings are ordered together, up to this size and number.
_ORDER_BYTES, _ORDER_RECORDINGS = 8 << 20, 64
#: Spill files per process: recordings that were read and wait to be stored.
_SPILLS = 3


@dataclass(slots=True, eq=False)
class _Order:
    """Places of recordings that one process reads.

    unread, unstored  places that were not read, or not stored, yet
    together          whether rows of several recordings may be stored together, with the last of them
    """

    places: list[int]
    unread: set[int] = field(default_factory=set)
    unstored: set[int] = field(default_factory=set)
    is_given: bool = False
    together: bool = True


@dataclass(slots=True, eq=False)
class _Process:
    """A reading process.

    orders   what is in each of its spill files; None: the file is free
    reading  the order that it reads
    place    the recording that it reads
    pid      its ID; None: it has not started
    """

    channel: messages.Channel
    spills: list[BinaryIO]
    orders: list[_Order | None]
    reading: _Order | None = None
    place: int | None = None
    pid: int | None = None
    receiver: Thread = field(init=False)


@dataclass(slots=True)
class _Reading:
    """A recording that a process reads: what came from it and was not used yet, and the spill file of its rows.

    run_id  of the run that it becomes; 0: it was not given one yet
    """

    observer: Observer
    received: deque[messages.OfRecording] = field(default_factory=deque)
    process: _Process | None = None
    spill: int = 0
    run_id: int = 0


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """A recording that another process reads."""

    recording: Recording
    known_digest: str
    readers: Readers
    reading: _Reading

    @property
    def path(self) -> Path:
        return self.recording.path

    @property
    def format(self) -> str:
        return self.recording.format

    @property
    def size_bytes(self) -> int:
        return self.recording.size_bytes

    def digest(self) -> str | None:
        return self.known_digest

    def read(self, target: RunTarget) -> RunContent:
        """Store its events. Raises InputError if it contains no usable events, or its process was killed."""
        if self.readers.has_begun(self.reading):
            return self.readers.execute(self.reading, target)
        return self.recording.read(target)


class Readers:
    """Processes that read recordings. Use as a context manager: leaving it ends them."""

    def __init__(
        self,
        recordings: Sequence[Recording],
        names: Sequence[RunNames],
        jobs: int,
        is_wanted: Callable[[str], bool],
        observer: Observer,
        *,
        one_store: bool = True,
    ) -> None:
        """Parameters as of `reading`; `jobs`: the number of processes."""
        self._recordings = recordings
        self._names = names
        self._jobs = jobs
        self._is_wanted = is_wanted
        self._observer = observer
        self._one_store = one_store
        self._server: ForkServer | None = None
        self._processes: list[_Process] = []
        self._ended: list[_Process] = []
        self._received: SimpleQueue[tuple[_Process, messages.FromReader]] = SimpleQueue()
        self._readings: dict[int, _Reading] = {}
        self._digests: dict[int, str] = {}
        self._seen: set[str] = set()
        self._orders = deque(map(_Order, together(recordings)))
        self._order_of = {place: order for order in self._orders for place in order.places}

    def __enter__(self) -> Readers:
        try:
            if not sys.executable or hasattr(sys, "frozen"):  # there is no interpreter: the program would start itself
                return self
            modules = sorted({type(recording).__module__ for recording in self._recordings})
            with suppress(OSError):  # without a process, this one reads all
                self._server = ForkServer(modules, memory_budget.MEMORY_ENTRIES // self._jobs)
            for _ in range(min(self._jobs, len(self._orders))):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._processes, *self._ended):
            process.channel.end()
        if self._server is not None:
            self._server.close()
        for process in (*self._processes, *self._ended):
            if process.receiver.ident is not None:  # Ctrl-C may have prevented its start
                process.receiver.join()
            process.channel.close()
            for file in process.spills:
                close_quietly(file)

    def recordings(self) -> Iterator[tuple[Recording, Observer]]:
        """Yield all recordings in order, each with its observer. Each has to be stored before the next."""
        for place, recording in enumerate(self._recordings):
            order = self._order_of.get(place)
            while order is not None and not order.is_given and self._processes:
                self._take(*self._received.get())
            reading = self._readings.get(place)
            if reading is None:
                yield recording, self._observer.of_run()
            else:
                yield _Elsewhere(recording, self._digests[place], self, reading), reading.observer
            self._free(place)

    def has_begun(self, reading: _Reading) -> bool:
        """Wait until a process begins with a recording; False if all processes have ended before."""
        while not reading.received and self._processes:
            self._take(*self._received.get())
        return bool(reading.received)

    def execute(self, reading: _Reading, target: RunTarget) -> RunContent:
        """Execute the calls that a process sends for a recording, and return its content."""
        writer, run_id = target.writer, target.run_id
        assert isinstance(writer, StoreWriter)
        reading.run_id = run_id
        while True:
            match message := self._next(reading):
                case messages.Insert():
                    writer.insert(message.table, run_id, self._rows(reading))
                case messages.Stage():
                    writer.stage(message.table, self._rows(reading), message.columns)
                case messages.Collected():
                    runs = [self._readings[place].run_id for place in message.places]
                    assert 0 not in runs
                    descriptor = self._descriptor(reading)
                    batches = [batch for rows in message.rows for batch in messages.read_rows(descriptor, rows)]
                    writer.insert_of_runs(message.table, runs, message.counts, batches)
                case messages.RunSql():
                    writer.run_sql(message.statement, _of_run(run_id, message.values))
                case messages.Fetch():
                    rows = writer.fetch(message.statement, _of_run(run_id, message.values))
                    assert reading.process is not None
                    _send(reading.process, messages.Answer(rows))
                case messages.AtCommit():
                    writer.at_commit(message.work, run_id)
                case messages.MakeRoom():
                    writer.make_room(message.text_bytes)
                case messages.Content():
                    return message.content
                case messages.Failure():
                    raise message.error

    @staticmethod
    def _descriptor(reading: _Reading) -> int:
        """Return the descriptor of the spill file of a recording."""
        assert reading.process is not None
        return reading.process.spills[reading.spill].fileno()

    def _rows(self, reading: _Reading) -> Iterator[pa.RecordBatch]:
        descriptor = self._descriptor(reading)
        while True:
            with suppress(Empty):  # no process shall wait for its next order
                while True:
                    self._take(*self._received.get_nowait())
            match message := self._next(reading):
                case messages.Rows():
                    yield from messages.read_rows(descriptor, message)
                case messages.EndOfRows():
                    return
                case messages.Failure():  # raised after the INSERT, since an error in it would undo all runs
                    reading.received.appendleft(message)
                    return

    def _next(self, reading: _Reading) -> messages.OfRecording:
        while not reading.received:
            self._take(*self._received.get())
        return reading.received.popleft()

    def _take(self, process: _Process, message: messages.FromReader) -> None:
        """Use a message, or keep it until its recording is stored."""
        if isinstance(message, messages.Ready):
            process.pid, process.reading = message.pid, None
            self._give_order(process)
        elif isinstance(message, messages.Ended):
            self._replace(process)
        elif isinstance(message, messages.Begin):
            process.place = message.place
        elif isinstance(message, messages.SmallRecordings):
            for place, sent in message.messages:
                self._readings[place].received.extend(sent)
                assert process.reading is not None
                process.reading.unread.discard(place)
                if process.place == place:
                    process.place = None
        else:
            assert process.place is not None
            reading = self._readings[process.place]
            if isinstance(message, messages.Start):
                reading.observer.start(message.label, message.total_bytes, message.passes)
            elif isinstance(message, messages.Progress):
                message.report(reading.observer)
            else:
                reading.received.append(message)
            if isinstance(message, (messages.Content, messages.Failure)):
                assert process.reading is not None
                process.reading.unread.discard(process.place)
                process.place = None

    def _give_order(self, process: _Process) -> None:
        """Give a process that has nothing to do its next order, if one of its spill files is free."""
        while self._orders and None in process.orders and process in self._processes:
            order = self._orders.popleft()
            spill = process.orders.index(None)
            recordings = []
            order.together = order.together and self._one_store
            for place in order.places:
                if self._is_for_process(place, order):
                    reading = self._readings.setdefault(place, _Reading(self._observer.of_run()))
                    reading.process, reading.spill = process, spill
                    recordings.append((place, self._recordings[place], self._names[place].label))
            order.is_given = True
            if recordings:
                order.unread = {place for place, _, _ in recordings}
                order.unstored = set(order.unread)
                process.orders[spill] = process.reading = order
                _send(process, messages.Order(recordings, spill, order.together))
                return

    def _is_for_process(self, place: int, order: _Order) -> bool:
        """Whether a recording has content that no earlier one has, and that the store doesn't have."""
        if place in self._digests:
            return True
        try:
            digest = self._recordings[place].digest()
        except InputError:  # it is reported in its turn
            return False
        if digest in self._seen:
            order.together = False  # it may replace the run of one in this order, whose rows must be stored before
            return False
        if digest is None or not self._is_wanted(digest):
            return False
        self._seen.add(digest)
        self._digests[place] = digest
        return True

    def _free(self, place: int) -> None:
        """Free the spill file of an order of which all recordings are stored."""
        order = self._order_of.get(place)
        if order is None:
            return
        order.unstored.discard(place)
        for process in (*self._processes, *self._ended):
            if order in process.orders and not order.unstored:
                spill = process.orders.index(order)
                process.orders[spill] = None
                os.ftruncate(process.spills[spill].fileno(), 0)
                if process.pid is not None and process.reading is None:
                    self._give_order(process)

    def _start(self) -> None:
        """Start a process, if possible; this one reads what no other reads."""
        if self._server is None:
            return
        ours, its = socket.socketpair()
        spills: list[BinaryIO] = []
        process = _Process(messages.Channel(ours), spills, [None] * _SPILLS)
        process.receiver = Thread(target=self._receive, args=(process,), daemon=True)
        self._processes.append(process)
        with its:
            spills += [spill_file() for _ in range(_SPILLS)]
            self._server.start([its.fileno(), *(file.fileno() for file in spills)])
        process.receiver.start()

    def _receive(self, process: _Process) -> None:
        """Receive all messages of a process, in a thread."""
        try:
            while (message := process.channel.receive()) is not None:
                self._received.put((process, message))
        finally:
            self._received.put((process, messages.Ended()))

    def _replace(self, process: _Process) -> None:
        """Fail the recording that a process was reading when it ended, and order the others again."""
        self._processes.remove(process)
        self._ended.append(process)
        code = None if self._server is None or process.pid is None else self._server.end(process.pid)
        order = process.reading
        if order is not None:
            if process.place is not None:
                path = self._recordings[process.place].path
                self._readings[process.place].received.append(messages.Failure(InputError(_why_ended(path, code))))
                order.unread.discard(process.place)
            again = _Order(sorted(order.unread), together=order.together)
            order.unstored -= order.unread
            for place in again.places:
                self._order_of[place] = again
            if again.places:
                self._orders.appendleft(again)
        # One that ended for another reason than a recording would do so the next time.
        if process.place is not None and self._orders:
            self._start()
        for other in self._processes:
            if other.pid is not None and other.reading is None:
                self._give_order(other)


def together(recordings: Sequence[Recording]) -> Iterator[list[int]]:
    """Divide recordings into lists of places, small ones together. Standard input is in none."""
    places: list[int] = []
    size = 0
    for place, recording in enumerate(recordings):
        if recording.path == STDIN:
            continue
        if places and (size + recording.size_bytes > _ORDER_BYTES or len(places) == _ORDER_RECORDINGS):
            yield places
            places, size = [], 0
        places.append(place)
        size += recording.size_bytes
    if places:
        yield places


def _send(process: _Process, message: messages.ToReader) -> None:
    with suppress(OSError):  # it has ended, as its last message will show
        process.channel.send(message)


def _of_run(run_id: int, values: Mapping[str, object]) -> dict[str, object]:
    return {**values, "run": run_id} if "run" in values else dict(values)


def _why_ended(path: Path, code: int | None) -> str:
    how = "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    advice = f"ingest it again with {option('--jobs 1', 'jobs=1')}"
    return f"{printable(str(path))} was not read: its process {how}, perhaps for lack of memory; {advice}"
