"""What an ingest and its reading processes send each other: pickled messages on a socket, rows through a spill file.

A reading process doesn't open the store. It sends the calls that a recording makes on it, in their order, and the
ingest repeats them. Rows are Arrow streams in a temporary file without a name, which both processes have open.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import pyarrow as pa

from traceconv.normalize.sort.spool import spilling
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import Recording, RunContent

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter

#: Arrow's threads would take longer to wake up than to compress a batch.
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_COMPRESSED = pa.ipc.IpcWriteOptions(use_threads=False, compression="lz4")
#: Smaller batches are not worth compressing, nor sending at once.
SMALL_BYTES = 64 << 10


class Order(NamedTuple):
    """Recordings to read, as (place, recording, label), with their rows in spill file `spill`.

    together  whether rows of several recordings may be sent together
    """

    recordings: Sequence[tuple[int, Recording, str]]
    spill: int
    together: bool


class Answer(NamedTuple):
    """The rows of a query."""

    rows: list[Any]


class Ready(NamedTuple):
    """The process has started, or has finished an order."""

    pid: int


class Begin(NamedTuple):
    """The process begins with the recording at this place; what follows belongs to it."""

    place: int


class Start(NamedTuple):
    """Observer.start."""

    label: str
    total_bytes: int
    passes: int


class Progress(NamedTuple):
    """Bytes read, events read and rows made since the last message; `storing`: all events were read."""

    byte_count: int
    event_count: int
    row_count: int
    storing: bool

    def report(self, observer: Observer) -> None:
        """Pass it on."""
        observer.counted(self.event_count)
        observer.advance(self.byte_count)
        if self.storing:
            observer.storing()
        observer.stored(self.row_count)


class Insert(NamedTuple):
    """StoreWriter.insert; its rows follow."""

    table: str


class Stage(NamedTuple):
    """StoreWriter.stage; its rows follow."""

    table: str
    columns: dict[str, str]


class Rows(NamedTuple):
    """An Arrow stream in the spill file."""

    offset: int
    byte_count: int


class EndOfRows(NamedTuple):
    """All rows of a table were sent."""


class Collected(NamedTuple):
    """StoreWriter.insert_of_runs; with `counts`, the rows of each recording at `places`."""

    table: str
    places: Sequence[int]
    counts: Sequence[int]
    rows: Sequence[Rows]


class SmallRecordings(NamedTuple):
    """All that small recordings have sent, by place: several at once, since each message has a fixed cost.

    Their rows are with the last one, when the runs of all are known.
    """

    messages: Sequence[tuple[int, Sequence[OfRecording]]]


class RunSql(NamedTuple):
    """StoreWriter.run_sql; the value of `run` is the ingest's."""

    statement: str
    values: Mapping[str, object]


class Fetch(NamedTuple):
    """StoreWriter.fetch, which waits for an answer."""

    statement: str
    values: Mapping[str, object]


class AtCommit(NamedTuple):
    """StoreWriter.at_commit."""

    work: Callable[[StoreWriter, str], None]


class MakeRoom(NamedTuple):
    """StoreWriter.make_room."""

    text_bytes: int


class Content(NamedTuple):
    """The recording was read."""

    content: RunContent


class Failure(NamedTuple):
    """The recording can't be used, or reading failed."""

    error: BaseException


class Ended(NamedTuple):
    """The process ended (this message is the ingest's own)."""


OfRecording: TypeAlias = (
    "Insert | Stage | Rows | EndOfRows | Collected | RunSql | Fetch | AtCommit | MakeRoom | Content | Failure | Start "
    "| Progress"
)
FromReader: TypeAlias = "Ready | Begin | SmallRecordings | Ended | OfRecording"
ToReader: TypeAlias = "Order | Answer"


class Channel:
    """Sends and receives messages. Any thread may send."""

    def __init__(self, end: socket.socket) -> None:
        """Take over one end of a pair of connected sockets."""
        self._socket = end
        self._received: BinaryIO = end.makefile("rb")
        self._sent: BinaryIO = end.makefile("wb")
        self._lock = Lock()

    def send(self, message: FromReader | ToReader, *, at_once: bool = True) -> None:
        """Send a message; if not at once, then with the next one. Raises OSError if the other process has ended."""
        packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._sent.write(packed)
            if at_once:
                self._sent.flush()

    def receive(self) -> Any:
        """Wait for the next message; None at the end."""
        try:
            return pickle.load(self._received)  # sent by our own process
        except (EOFError, OSError, pickle.UnpicklingError):  # it was killed, perhaps within a message
            return None

    def end(self) -> None:
        """End both directions, for both processes: what waits for a message gets None."""
        with suppress(OSError):  # the other process has ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        for stream in (self._sent, self._received, self._socket):
            try:
                stream.close()
            except OSError:  # the other process has ended before it received all
                continue


def write_rows(file: BinaryIO, batch: pa.RecordBatch) -> Rows:
    """Append a batch to a spill file."""
    options = _COMPRESSED if batch.nbytes > SMALL_BYTES else _PLAIN
    content = pa.BufferOutputStream()
    with pa.ipc.new_stream(content, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    written = content.getvalue()
    with spilling():
        offset = file.tell()
        file.write(written)
        file.flush()
    return Rows(offset, written.size)


def read_rows(descriptor: int, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Read what `write_rows` has written. The other process may append to the file meanwhile."""
    parts: list[bytes] = []
    at, rest = rows.offset, rows.byte_count
    while rest:
        with spilling():
            parts.append(os.pread(descriptor, rest, at))
        if not parts[-1]:
            raise EOFError("a spill file is shorter than what was written to it")
        at, rest = at + len(parts[-1]), rest - len(parts[-1])
    with pa.ipc.open_stream(parts[0] if len(parts) == 1 else b"".join(parts)) as stream:
        yield from stream
