"""A process that reads recordings for an ingest: it sends their rows and statements instead of executing them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from traceconv.base import errors
from traceconv.base.errors import PUBLIC, InputError, InternalError, TraceconvError, printable
from traceconv.base.malloc_tuning import is_starved
from traceconv.pipeline import reader_messages as messages
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import Recording, RunTarget
from traceconv.store.small_inserts import SmallInserts, if_small

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter

#: How often progress is sent.
_SECONDS_BETWEEN = 0.1
#: In place of the run's ID, which only the ingest knows.
_NO_RUN = 0


class _SmallRecordings:
    """Small recordings of an order that were read, to be sent together."""

    def __init__(self, channel: messages.Channel, spill: BinaryIO) -> None:
        self._channel = channel
        self._spill = spill
        self._rows = SmallInserts()
        self._messages: list[tuple[int, list[messages.OfRecording]]] = []

    def add(
        self, place: int, rows: Sequence[tuple[str, list[pa.RecordBatch]]], sent: list[messages.OfRecording]
    ) -> None:
        """Add a recording: its rows, and its other messages."""
        for table, batches in rows:
            self._rows.take(table, place, iter(batches))
        self._messages.append((place, sent))
        if self._rows.full:
            self.send()

    def send(self) -> None:
        """Send all that was added."""
        if not self._messages:
            return
        collected, self._messages = self._messages, []
        try:
            rows = [
                messages.Collected(
                    table, places, counts, [messages.write_rows(self._spill, batch) for batch in joined.to_batches()]
                )
                for table, places, counts, joined in self._rows.give_batches()
            ]
        except TraceconvError as error:  # the disk is full
            failure = _failure(error)
            collected = [
                (place, sent if isinstance(sent[-1], messages.Failure) else [failure]) for place, sent in collected
            ]
        else:
            # A recording that failed has no run.
            last = next((sent for _, sent in reversed(collected) if isinstance(sent[-1], messages.Content)), [])
            last[-1:-1] = rows
        self._channel.send(messages.SmallRecordings(collected))


class _Writer:
    """Sends the calls of a StoreWriter: those for a small recording together with others, as far as possible."""

    def __init__(
        self,
        place: int,
        small: _SmallRecordings,
        channel: messages.Channel,
        answers: SimpleQueue[messages.Answer],
        spill: BinaryIO,
    ) -> None:
        self._place = place
        self._small = small
        self._channel = channel
        self._answers = answers
        self._spill = spill
        #: What was not sent yet; None: all is sent.
        self._messages: list[messages.OfRecording] | None = []
        self._rows: list[tuple[str, list[pa.RecordBatch]]] = []

    def insert(self, table: str, run_id: int, batches: Iterator[pa.RecordBatch]) -> int:
        """Send rows of a table; return their number."""
        if self._messages is not None:
            found = if_small(batches)
            if isinstance(found, list):
                self._rows.append((table, found))
                return sum(batch.num_rows for batch in found)
            batches = found
        self._send(messages.Insert(table), at_once=False)
        return self._send_rows(batches)

    def stage(self, table: str, batches: Iterator[pa.RecordBatch], columns: dict[str, str]) -> int:
        """Send rows of a temporary table; return their number."""
        self._send(messages.Stage(table, columns), at_once=False)
        return self._send_rows(batches)

    def run_sql(self, statement: str, parameters: Mapping[str, object] | None = None) -> None:
        """Send a statement."""
        self._send(messages.RunSql(statement, dict(parameters or {})))

    def fetch(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        """Send a query and wait for its rows, until the ingest has executed everything before it."""
        self._send(messages.Fetch(statement, dict(parameters or {})))
        return self._answers.get().rows

    def at_commit(self, work: Callable[[StoreWriter, str], None], run_id: int) -> None:
        """Send what to do before the commit."""
        self._send_later(messages.AtCommit(work))

    def make_room(self, text_bytes: int) -> None:
        """Send the size of the longest text."""
        self._send_later(messages.MakeRoom(text_bytes))

    def end(self, message: messages.Content | messages.Failure) -> None:
        """Send the content of the recording, or why there is none."""
        if self._messages is None:
            self._channel.send(message, at_once=isinstance(message, messages.Failure))
        elif isinstance(message, messages.Failure):
            self._small.add(self._place, [], [message])
        else:
            self._small.add(self._place, self._rows, [*self._messages, message])

    def _send_later(self, message: messages.OfRecording) -> None:
        if self._messages is None:
            self._channel.send(message, at_once=False)
        else:
            self._messages.append(message)

    def _send(self, message: messages.OfRecording, *, at_once: bool = True) -> None:
        """Send a message after all earlier ones, of earlier recordings too."""
        if self._messages is not None:
            self._small.send()
            kept, self._messages = self._messages, None
            for one in kept:
                self._channel.send(one, at_once=False)
            for table, batches in self._rows:
                self._channel.send(messages.Insert(table), at_once=False)
                self._send_rows(iter(batches))
            self._rows = []
        self._channel.send(message, at_once=at_once)

    def _send_rows(self, batches: Iterator[pa.RecordBatch]) -> int:
        count = 0
        at_once = False  # the ingest has little to do with few rows
        for batch in batches:
            count += batch.num_rows
            rows = messages.write_rows(self._spill, batch)
            at_once = at_once or rows.byte_count > messages.SMALL_BYTES
            self._channel.send(rows, at_once=at_once)
        self._channel.send(messages.EndOfRows(), at_once=at_once)
        return count


class _Observer(Observer):
    """Sends the progress of a recording, a few times per second."""

    def __init__(self, channel: messages.Channel) -> None:
        self._channel = channel
        self._lock = Lock()  # a thread may read ahead
        self._counts = [0, 0, 0]
        self._sent = time.monotonic()

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        self._counts = [0, 0, 0]
        self._channel.send(messages.Start(label, total_bytes, passes), at_once=False)

    def advance(self, byte_count: int) -> None:
        self._add(0, byte_count)

    def counted(self, event_count: int) -> None:
        self._add(1, event_count)

    def stored(self, row_count: int) -> None:
        self._add(2, row_count)

    def storing(self) -> None:
        self._send(storing=True)

    def done(self) -> None:
        self._send()

    def _add(self, which: int, count: int) -> None:
        with self._lock:
            self._counts[which] += count
        if time.monotonic() - self._sent > _SECONDS_BETWEEN:
            self._send()

    def _send(self, *, storing: bool = False) -> None:
        with self._lock:
            (byte_count, event_count, row_count), self._counts = self._counts, [0, 0, 0]
        now = time.monotonic()
        is_due, self._sent = now - self._sent > _SECONDS_BETWEEN, now
        self._channel.send(messages.Progress(byte_count, event_count, row_count, storing), at_once=is_due)


def read_orders(connection: int, spills: Sequence[int], *, command_line: bool) -> None:
    """Read what the ingest orders until it ends this process.

    connection    descriptor of the socket to the ingest
    spills        descriptors of the spill files
    command_line  messages write options as the command line does
    """
    channel = messages.Channel(socket.socket(fileno=connection))
    orders: SimpleQueue[messages.Order] = SimpleQueue()
    answers: SimpleQueue[messages.Answer] = SimpleQueue()
    Thread(target=_receive, args=(channel, orders, answers), daemon=True).start()
    with ExitStack() as stack:
        if command_line:
            stack.enter_context(errors.command_line())
        files = [stack.enter_context(os.fdopen(descriptor, "r+b")) for descriptor in spills]
        while True:
            channel.send(messages.Ready(os.getpid()))
            order = orders.get()
            spill = files[order.spill]
            spill.seek(0)
            small = _SmallRecordings(channel, spill)
            for place, recording, label in order.recordings:
                channel.send(messages.Begin(place))  # at once: it says which recording ended a process
                _read(recording, label, _Writer(place, small, channel, answers, spill), channel)
                if not order.together:
                    small.send()
            small.send()


def _read(recording: Recording, label: str, writer: _Writer, channel: messages.Channel) -> None:
    """Read a recording and send its content, or why there is none."""
    observer = _Observer(channel)
    try:
        content = recording.read(RunTarget(writer, _NO_RUN, label, observer))
        observer.done()
        writer.end(messages.Content(content))
    except TraceconvError as error:
        writer.end(_failure(error))
    except Exception as error:  # noqa: BLE001 - the ingest reports it
        shown = printable(str(recording.path))
        if is_starved(error):
            message = f"{shown} needs more memory than there is; ingest it alone"
            writer.end(messages.Failure(InputError(message)))
        else:
            what = f"{type(error).__name__} while reading {shown}: {printable(str(error), 300)}"
            writer.end(messages.Failure(InternalError(what)))


def _failure(error: TraceconvError) -> messages.Failure:
    # Errors of other packages may not be picklable.
    is_ours = type(error) in (*PUBLIC, InternalError)
    return messages.Failure(error if is_ours else InputError(str(error)))


def _receive(
    channel: messages.Channel, orders: SimpleQueue[messages.Order], answers: SimpleQueue[messages.Answer]
) -> None:
    while True:
        message = channel.receive()
        if message is None:  # the ingest has ended, perhaps killed
            os._exit(1)
        if isinstance(message, messages.Order):
            orders.put(message)
        else:
            answers.put(message)
