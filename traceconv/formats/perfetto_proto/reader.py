"""A Perfetto trace in protobuf → batches of events.

The file is read twice, since descriptors of tracks and clock snapshots may follow the events that need them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from traceconv.base.deflate import Damaged, inflated, inflater
from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.zstd_frames import ZstdFrames
from traceconv.events.trace import TraceBatch, TrackName
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.limits import FREE_BYTES
from traceconv.formats.format import ReadRequest
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.chrome_metadata import read_metadata
from traceconv.formats.perfetto_proto.clocks import clock_name, parse_snapshot, parse_sync
from traceconv.formats.perfetto_proto.framing import PacketFramer, Window
from traceconv.formats.perfetto_proto.gpu import gpu_names
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.own_export import HEADER, HEADER_START, SHIFT, shift_of, undone
from traceconv.formats.perfetto_proto.rows import Rows
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.translate import Table, Translator
from traceconv.wire.protobuf import LEN, FieldTable, UInt64, WireError

_PIECE = 1 << 20
#: Levels of compressed packets inside compressed packets; writers make one.
_MAX_NESTING = 4
_DAMAGED = "damaged packets"
#: The sequence of the service, which also writes about other machines than its own.
_SERVICE = 1
_MAX_METADATA_BYTES = 1 << 20


class PerfettoReader(FileReader):
    """Reads one trace. Its other attributes are complete once `batches` is exhausted."""

    def __init__(self, request: ReadRequest) -> None:
        if request.path == STDIN:
            raise InputError("a Perfetto trace in protobuf can't be read from standard input; specify its path")
        super().__init__(request, is_text=False)
        self._trace = TraceState()
        self._names: tuple[TrackName, ...] = ()
        self._unread: Counter[int] = Counter()
        self._decompressed_bytes = 0
        #: Packets before the window being read.
        self._position = 0
        #: Sequences whose first packet is in the trace.
        self._with_first: set[int] = set()
        self._chrome: dict[str, object] = {}
        self._chrome_bytes = 0
        #: What the buffers lost in total, from the last statistics of the recording.
        self._lost: dict[str, int] | None = None
        #: What an export of ours added to its timestamps.
        self._shift_ns: int | None = None
        #: Headers of our exports. Traces that were joined have several.
        self._headers: list[bytes] = []

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all events, in the order of the file. Raises InputError if the file can't be read."""
        self._describe()
        translator = Translator(self._trace)
        for window in self._windows(self._source.chunks()):
            yield from self._events(window, translator, None, 0)
        late = (*self._trace.tracks.late_names(), *self._trace.gpu.names())
        if late:
            yield Rows(0).batch(self._ordinal, None, None, late)
        self._report()

    def _windows(self, chunks: Iterable[bytes], byte_offset: int = 0) -> Iterator[Window]:
        framer = PacketFramer(byte_offset, self._limits.event_bytes)
        for chunk in chunks:
            yield from framer.feed(chunk)
        yield from framer.finish()

    # -- descriptors and clocks, anywhere in the file --

    def _describe(self) -> None:
        for window in self._windows(self._second_pass().chunks()):
            self._descriptions(window, 0)
        self._names = self._trace.tracks.names()
        self._decompressed_bytes = self._position = 0
        clocks = self._trace.clocks
        readings = {} if clocks.first is None else {clock_name(one.clock): one.ns for one in clocks.first.readings}
        about: dict[str, object] = {"trace_clock": clock_name(clocks.trace_clock), "clocks": readings}
        if self._lost is not None:
            about["buffers"] = self._lost
        self.keys["perfetto"] = json.dumps(about).encode()
        if self._shift_ns is not None:
            self.keys["traceconv"] = json.dumps({SHIFT: self._shift_ns}).encode()
        if len(self._headers) == 1:
            self._trace.is_own = True
            self.keys["otherData"] = self._headers[0]

    def _descriptions(self, window: Window, depth: int) -> None:
        tracks, first, machine = self._trace.tracks, self._position, 0
        self._position += len(window.starts)
        takers = {
            pb.TRACK_DESCRIPTOR: tracks.take_track,
            pb.PROCESS_DESCRIPTOR: tracks.take_process,
            pb.THREAD_DESCRIPTOR: tracks.take_thread,
            pb.PROCESS_TREE: tracks.take_process_tree,
            pb.EXTENSIONS: self._trace.schema.take_descriptors,
            pb.TRANSLATIONS: self._trace.translations.take_table,
            pb.MODULE_SYMBOLS: self._trace.translations.take_symbols,
            pb.CLOCK_SNAPSHOT: lambda *place: self._trace.clocks.add(parse_snapshot(*place), machine),
            pb.REMOTE_SYNC: lambda *place: self._trace.clocks.sync(parse_sync(*place), machine),
            pb.TRACE_STATS: self._take_stats,
            pb.CHROME_EVENTS: self._take_shift,
            pb.GPU_INFO: self._take_gpus,
            pb.OWN: self._take_header,
        }
        found = window.fields
        sequences = window.packets.sequence
        machines = self._machines(found, sequences)
        wanted = np.isin(found.number, [*takers, pb.PACKED, pb.PACKED_ZSTD]) & (found.kind == LEN)
        of = np.flatnonzero(wanted)
        if not len(of):
            return
        data = window.data
        is_first = (found.number == pb.FIRST_ON_SEQUENCE) & (found.value != 0)
        self._with_first.update(sequences[found.row[is_first]].tolist())
        columns = (column[of].tolist() for column in (found.row, found.number, found.at, found.value))
        for row, number, at, size in zip(*columns, strict=True):
            if number in (pb.PACKED, pb.PACKED_ZSTD):
                if depth < _MAX_NESTING:
                    for inner in self._inner_windows(data[at : at + size], number, None, 0):
                        self._descriptions(inner, depth + 1)
                continue
            tracks.position, tracks.is_first = first + row, int(sequences[row]) in self._with_first
            machine = machines.get(row, 0)
            try:
                takers[number](data, at, at + size)
            except WireError:
                # Those that the second pass reads again are counted there.
                self._trace.losses.counts["state"] += number not in (pb.CLOCK_SNAPSHOT, pb.THREAD_DESCRIPTOR)

    def _machines(self, found: FieldTable, sequences: UInt64) -> dict[int, int]:
        """Return the machines of packets that are not the host's; note those of sequences."""
        of = np.flatnonzero((found.number == pb.MACHINE) & (found.value != 0))
        machines = dict(zip(found.row[of].tolist(), found.value[of].tolist(), strict=True))
        for row, machine in machines.items():
            if sequences[row] != _SERVICE:
                self._trace.sequences.machines[int(sequences[row])] = machine
        return machines

    def _take_stats(self, data: bytes, start: int, end: int) -> None:
        if end - start > _MAX_METADATA_BYTES:
            return
        lost = dict.fromkeys(pb.BUFFER_LOSSES, 0)
        for buffer in Message(data, start, end).messages(1):
            for name, number in pb.BUFFER_LOSSES.items():
                lost[name] += buffer.number(number) or 0
        self._lost = lost

    def _take_gpus(self, data: bytes, start: int, end: int) -> None:
        if end - start <= _MAX_METADATA_BYTES:
            self.keys["gpu_info"] = json.dumps(gpu_names(data, start, end)).encode()

    def _take_shift(self, data: bytes, start: int, end: int) -> None:
        if self._shift_ns is None and end - start <= _MAX_METADATA_BYTES:
            self._shift_ns = shift_of(read_metadata(data, start, end) or {})

    def _take_header(self, data: bytes, start: int, end: int) -> None:
        header = Message(data, start, end).text(HEADER)
        if header is not None and header.startswith(HEADER_START) and len(self._headers) < 2:
            self._headers.append(header)

    # -- events --

    def _events(
        self, window: Window, translator: Translator, outer: tuple[int, int] | None, depth: int
    ) -> Iterator[TraceBatch]:
        """Yield the events of a window. `outer`: byte offset and size of the compressed packet around it."""
        self._count_packets(window, outer)
        data = window.data
        found = window.fields
        count = len(window.starts)
        compressed = np.flatnonzero(np.isin(found.number, (pb.PACKED, pb.PACKED_ZSTD)) & (found.kind == LEN))
        first = 0
        table = translator.open(window, self._position)
        self._position += count
        for place in compressed.tolist():
            row = int(found.row[place])
            yield from self._batch(translator, table, window, first, row, outer)
            first = row + 1
            at, size = int(found.at[place]), int(found.value[place])
            here = outer or (window.byte_offset + int(window.starts[row]), int(window.ends[row] - window.starts[row]))
            if depth >= _MAX_NESTING:
                self._lose_packet("too deeply nested compressed packets", *here)
                continue
            for inner in self._inner_windows(data[at : at + size], int(found.number[place]), here, here[0]):
                yield from self._events(inner, translator, here, depth + 1)
        yield from self._batch(translator, table, window, first, count, outer)

    def _batch(
        self,
        translator: Translator,
        table: Table,
        window: Window,
        first: int,
        last: int,
        outer: tuple[int, int] | None,
    ) -> Iterator[TraceBatch]:
        if last <= first:
            return
        rows = translator.take(table, first, last)
        count = len(rows)
        if not count and not (self._names and last == len(window.starts)):
            return
        if outer is not None:
            offset, size = outer
        else:
            begin = int(window.starts[first]) if first else 0
            stop = window.byte_count if last == len(window.starts) else int(window.ends[last - 1])
            offset, size = window.byte_offset + begin, stop - begin
        batch = rows.batch(self._ordinal, offset, size, self._names)
        if self._shift_ns is not None and count:
            batch = undone(batch, self._shift_ns)
        self._names = ()
        if count:
            self._note_block(batch)
            self._ordinal += count
        yield batch

    # -- compressed packets --

    def _inner_windows(
        self, compressed: bytes, number: int, where: tuple[int, int] | None, byte_offset: int
    ) -> Iterator[Window]:
        """Yield the windows of compressed packets. `where`: logged if they are damaged, unless it is None."""
        yield from self._windows(self._decompressed(compressed, number, where), byte_offset)

    def _decompressed(self, compressed: bytes, number: int, where: tuple[int, int] | None) -> Iterator[bytes]:
        limit = max(FREE_BYTES, self._limits.ratio * max(self._source.size_bytes, len(compressed)))
        try:
            for piece in _zlib_pieces(compressed) if number == pb.PACKED else _zstd_pieces(compressed):
                self._decompressed_bytes += len(piece)
                if self._decompressed_bytes > limit:
                    raise Damaged("decompresses to more than the limit; raise it with --max-ratio", b"")
                yield piece
        except Damaged as error:
            if where is not None:
                self._lose_packet(f"a compressed packet ({printable(str(error))})", *where)

    # -- accounting --

    def _count_packets(self, window: Window, outer: tuple[int, int] | None) -> None:
        """Account for packets by kind; those with events are counted as events."""
        for damage in window.damage:
            offset, size = (damage.byte_offset, damage.byte_count) if outer is None else outer
            cut = damage.cut and outer is None
            message = "the file ends inside a packet" if cut else "bytes that are not a packet"
            self._lose_packet(message, offset, size, Code.CUT_EVENT if cut else Code.DAMAGED_EVENT)
        if window.damage:
            self._trace.sequences.doubt()
        self.found_events = self.found_events or len(window.starts) > 0
        found = window.fields
        kept = np.isin(found.number, list(pb.BOOKKEEPING), invert=True)
        numbers = np.minimum(found.number[kept], 1 << 16)
        for number, count in enumerate(np.bincount(numbers).tolist()):
            if not count or number == pb.TRACK_EVENT or number in pb.EVENT_PACKETS:
                continue
            if number == pb.OWN and self._trace.is_own:
                self._accounts["rows of traceconv"].add(used=count)
                continue
            if number in pb.READ:
                self._accounts[pb.READ[number]].add(used=count)
            elif number == pb.CHROME_EVENTS:
                self._chrome_events(window)
            else:
                self._unread[number] += count

    def _chrome_events(self, window: Window) -> None:
        """Keep Chrome's bundles that have metadata only."""
        data = window.data
        found = window.fields
        for place in np.flatnonzero((found.number == pb.CHROME_EVENTS) & (found.kind == LEN)).tolist():
            at, size = int(found.at[place]), int(found.value[place])
            self._chrome_bytes += size
            metadata = read_metadata(data, at, at + size) if self._chrome_bytes <= _MAX_METADATA_BYTES else None
            if metadata is None:
                self._unread[pb.CHROME_EVENTS] += 1
                continue
            self._accounts["chrome's metadata"].add(used=1)
            self._chrome.update(metadata)

    def _lose_packet(self, message: str, offset: int, size: int, code: Code = Code.DAMAGED_EVENT) -> None:
        self._accounts[_DAMAGED].add(lost=1)
        self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, byte_count=size, event_count=1)

    def _report(self) -> None:
        losses = self._trace.losses
        if self._chrome:
            self.keys["chrome"] = json.dumps(self._chrome).encode()
        for number, count in sorted(self._unread.items()):
            about = pb.ABOUT.get(number)
            if number == pb.OWN and self._headers:
                about = "rows of several traceconv exports in one trace"
            title = about or pb.OTHER_DATA.get(number, f"packets of type {number}")
            account = self._accounts[f"packets: {title}"]
            if about is not None:
                account.add(used=count)
                self._log.count(Code.NOT_READ, f"{title}: not read", count, SOURCE_ID)
            else:
                account.add(lost=count)
                message = f"{title}: an unsupported data source, not read"
                self._log.count(Code.UNKNOWN_RECORD, message, count, SOURCE_ID)
        if self._trace.gpu.described:
            self._accounts["gpu descriptions"].add(used=self._trace.gpu.described)
        for kind, (code, message) in losses.KINDS.items():
            self._log.count(code, message, losses.counts[kind], SOURCE_ID)
            if losses.counts[kind] and kind in losses.LOST:
                self._accounts["lost track events"].add(lost=losses.counts[kind])
        for clock, count in sorted(losses.clocks.items()):
            message = f"no snapshot maps clock {clock_name(clock)} to the trace's clock: its timestamps are unchanged"
            self._log.count(Code.NO_CLOCK_SYNC, message, count, SOURCE_ID)
        unused = self._trace.translations.unused
        self._log.count(Code.NOT_READ, "translations of slice names and studies: not applied", unused, SOURCE_ID)
        undescribed = len(self._trace.tracks.undescribed)
        self._log.count(Code.NO_NAME, "tracks without a descriptor", undescribed, SOURCE_ID)


def _zlib_pieces(compressed: bytes) -> Iterator[bytes]:
    stream = inflater()
    for at in range(0, len(compressed), _PIECE):
        yield from inflated(stream, compressed[at : at + _PIECE])
    if not stream.eof:
        raise Damaged("truncated", b"")


def _zstd_pieces(compressed: bytes) -> Iterator[bytes]:
    frames = ZstdFrames()
    yield from frames.feed(compressed)
    if frames.is_inside:
        raise Damaged("truncated", b"")
