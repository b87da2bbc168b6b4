"""A Perfetto trace in protobuf → batches of events: packet by packet, each sequence with its own state.

The file is read twice: what describes tracks and clocks may stand behind the events that need it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import numpy as np

from traceconv.base.deflate import Damaged, inflater, unfolded
from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.zstd_frames import ZstdFrames
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import TraceBatch, TrackName
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.limits import FREE_BYTES
from traceconv.formats.format import ReadRequest
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Notes
from traceconv.formats.perfetto_proto.chrome_metadata import read_metadata
from traceconv.formats.perfetto_proto.clocks import NAMES, Clocks, parse_snapshot
from traceconv.formats.perfetto_proto.framing import PacketFramer, Window
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.own_export import SHIFT, shift_of, undone
from traceconv.formats.perfetto_proto.sequences import MAX_TEXT_BYTES, Sequences, Texts
from traceconv.formats.perfetto_proto.tracks import Descriptors
from traceconv.formats.perfetto_proto.translate import Table, Translator
from traceconv.wire.protobuf import LEN, WireError

_PIECE = 1 << 20
#: Packets within packets within packets …: more than this no writer makes.
_MAX_NESTING = 4
_DAMAGED = "damaged packets"
_MAX_METADATA_BYTES = 1 << 20


class PerfettoReader(FileReader):
    """Reads one trace. After `batches` has come to its end, the rest is known."""

    def __init__(self, request: ReadRequest) -> None:
        if request.path == STDIN:
            raise InputError("a Perfetto trace in protobuf can't be read from standard input: give its path")
        super().__init__(request, is_text=False)
        self._texts = Texts()
        self._clocks = Clocks()
        self._tracks = Descriptors(self._texts)
        self._sequences = Sequences(self._clocks)
        self._notes = Notes()
        self._losses = Losses()
        self._said: tuple[TrackName, ...] = ()
        self._unread: Counter[int] = Counter()
        self._unfolded = 0
        self._chrome: dict[str, object] = {}
        self._chrome_bytes = 0
        #: Of an export of ours: what was added to its times.
        self._shift_ns: int | None = None

    def batches(self) -> Iterator[TraceBatch]:
        """All events, in the order of the file. Raises InputError when the file can't be read."""
        self._describe()
        translator = Translator(self._tracks, self._clocks, self._sequences, self._texts, self._notes, self._losses)
        framer = PacketFramer(max_bytes=self._limits.event_bytes)
        for chunk in self._source.chunks():
            for window in framer.feed(chunk):
                yield from self._events(window, translator, None, 0)
        for window in framer.finish():
            yield from self._events(window, translator, None, 0)
        self._report()

    # -- what stands anywhere in the file: descriptors, clocks --

    def _describe(self) -> None:
        framer = PacketFramer(max_bytes=self._limits.event_bytes)
        for chunk in self._second_pass().chunks():
            for window in framer.feed(chunk):
                self._descriptions(window, 0)
        for window in framer.finish():
            self._descriptions(window, 0)
        self._said = self._tracks.names()
        self._unfolded = 0
        first = self._clocks.first
        readings = {} if first is None else {NAMES.get(one.clock, str(one.clock)): one.ns for one in first.readings}
        about = {"trace_clock": NAMES.get(self._clocks.trace_clock, str(self._clocks.trace_clock)), "clocks": readings}
        self.keys["perfetto"] = json.dumps(about).encode()
        if self._shift_ns is not None:
            self.keys["traceconv"] = json.dumps({SHIFT: self._shift_ns}).encode()

    def _descriptions(self, window: Window, depth: int) -> None:
        takers = {
            pb.TRACK_DESCRIPTOR: self._tracks.take_track,
            pb.PROCESS_DESCRIPTOR: self._tracks.take_process,
            pb.THREAD_DESCRIPTOR: self._tracks.take_thread,
            pb.PROCESS_TREE: self._tracks.take_process_tree,
            pb.CLOCK_SNAPSHOT: self._take_clocks,
            pb.CHROME_EVENTS: self._take_shift,
        }
        found = window.fields
        wanted = np.isin(found.number, [*takers, pb.PACKED, pb.PACKED_ZSTD]) & (found.kind == LEN)
        of = np.flatnonzero(wanted)
        if not len(of):
            return
        data = window.data
        for number, at, size in zip(
            found.number[of].tolist(), found.at[of].tolist(), found.value[of].tolist(), strict=True
        ):
            if number in (pb.PACKED, pb.PACKED_ZSTD):
                if depth < _MAX_NESTING:
                    for inner in self._unfold(data[at : at + size], number, None, 0):
                        self._descriptions(inner, depth + 1)
                continue
            try:
                takers[number](data, at, at + size)
            except WireError:
                continue  # counted when the events are read

    def _take_clocks(self, data: bytes, start: int, end: int) -> None:
        self._clocks.add(parse_snapshot(data, start, end))

    def _take_shift(self, data: bytes, start: int, end: int) -> None:
        if self._shift_ns is None and end - start <= _MAX_METADATA_BYTES:
            self._shift_ns = shift_of(read_metadata(data, start, end) or {})

    # -- events --

    def _events(
        self, window: Window, translator: Translator, outer: tuple[int, int] | None, depth: int
    ) -> Iterator[TraceBatch]:
        """The events of a window. `outer`: offset and size of the packet that it was packed in."""
        self._book(window, outer)
        data = window.data
        found = window.fields
        count = len(window.starts)
        packed = np.flatnonzero(np.isin(found.number, (pb.PACKED, pb.PACKED_ZSTD)) & (found.kind == LEN))
        first = 0
        table = translator.open(window)
        for place in packed.tolist():
            row = int(found.row[place])
            yield from self._batch(translator, table, window, first, row, outer)
            first = row + 1
            at, size = int(found.at[place]), int(found.value[place])
            here = outer or (window.byte_offset + int(window.starts[row]), int(window.ends[row] - window.starts[row]))
            if depth >= _MAX_NESTING:
                self._lose_packet("packets packed in packets", *here)
                continue
            for inner in self._unfold(data[at : at + size], int(found.number[place]), here, here[0]):
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
        told = translator.take(table, first, last)
        count = len(told)
        if not count and not (self._said and last == len(window.starts)):
            return
        if outer is not None:
            offset, size = outer
        else:
            begin = int(window.starts[first]) if first else 0
            stop = window.byte_count if last == len(window.starts) else int(window.ends[last - 1])
            offset, size = window.byte_offset + begin, stop - begin
        batch = told.batch(self._ordinal, offset, size, self._said)
        if self._shift_ns is not None and count:
            batch = undone(batch, self._shift_ns)
        self._said = ()
        if count:
            self.blocks.append(((SOURCE_ID << ORDINAL_BITS) + self._ordinal, count, offset, size))
            self._ordinal += count
        yield batch

    # -- packed packets --

    def _unfold(self, packed: bytes, number: int, where: tuple[int, int] | None, byte_offset: int) -> Iterator[Window]:
        """The windows of packets that are compressed. `where` None: nothing is logged."""
        framer = PacketFramer(byte_offset, self._limits.event_bytes)
        pieces = _inflate(packed) if number == pb.PACKED else _zstd(packed)
        try:
            for piece in pieces:
                self._unfolded += len(piece)
                if self._unfolded > max(FREE_BYTES, self._limits.ratio * max(self._source.size_bytes, len(packed))):
                    raise ValueError("unfolds to more than the limit; raise it with --max-ratio")
                yield from framer.feed(piece)
        except ValueError as error:
            if where is not None:
                self._lose_packet(f"a compressed packet ({printable(str(error))})", *where)
        yield from framer.finish()

    # -- books --

    def _book(self, window: Window, outer: tuple[int, int] | None) -> None:
        """Counts packets by what they hold; those of events are counted as events."""
        for damage in window.damage:
            offset, size = (damage.byte_offset, damage.byte_count) if outer is None else outer
            cut = damage.cut and outer is None
            message = "the file ends inside a packet" if cut else "bytes that are no packet"
            self._lose_packet(message, offset, size, Code.CUT_EVENT if cut else Code.DAMAGED_EVENT)
        if window.damage:
            self._sequences.doubt()
        self.found_events = self.found_events or len(window.starts) > 0
        found = window.fields
        kept = np.isin(found.number, list(pb.BOOKKEEPING), invert=True)
        numbers = np.minimum(found.number[kept], 1 << 16)
        for number, count in enumerate(np.bincount(numbers).tolist()):
            if not count or number == pb.TRACK_EVENT:
                continue
            if number in pb.READ:
                account = self._accounts[pb.READ[number]]
                account.records += count
                account.used += count
            elif number == pb.CHROME_EVENTS:
                self._chrome_events(window)
            else:
                self._unread[number] += count

    def _chrome_events(self, window: Window) -> None:
        """Bundles of Chrome: those of metadata only are kept beside the events."""
        data = window.data
        found = window.fields
        for place in np.flatnonzero((found.number == pb.CHROME_EVENTS) & (found.kind == LEN)).tolist():
            at, size = int(found.at[place]), int(found.value[place])
            self._chrome_bytes += size
            said = read_metadata(data, at, at + size) if self._chrome_bytes <= _MAX_METADATA_BYTES else None
            if said is None:
                self._unread[pb.CHROME_EVENTS] += 1
                continue
            account = self._accounts["chrome's metadata"]
            account.records += 1
            account.used += 1
            self._chrome.update(said)

    def _lose_packet(self, message: str, offset: int, size: int, code: Code = Code.DAMAGED_EVENT) -> None:
        account = self._accounts[_DAMAGED]
        account.records += 1
        account.lost += 1
        self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, byte_count=size, event_count=1)

    def _report(self) -> None:
        log, losses, notes = self._log, self._losses, self._notes
        if self._chrome:
            self.keys["chrome"] = json.dumps(self._chrome).encode()
        for number, count in sorted(self._unread.items()):
            about = pb.ABOUT.get(number)
            title = about or pb.OTHER_DATA.get(number, f"packets of type {number}")
            account = self._accounts[f"packets: {title}"]
            account.records += count
            if about is not None:
                account.used += count
                log.add(Code.NOT_READ, f"{title}: not read", source_id=SOURCE_ID, event_count=count)
            else:
                account.lost += count
                message = f"{title}: a source of data that is not read"
                log.add(Code.UNKNOWN_RECORD, message, source_id=SOURCE_ID, event_count=count)
        for title, (code, message) in losses.KINDS.items():
            count = losses.counts[title]
            if count and title in losses.LOST:
                account = self._accounts["lost track events"]
                account.records += count
                account.lost += count
            if count:
                log.add(code, message, source_id=SOURCE_ID, event_count=count)
        for clock, count in sorted(losses.clocks.items()):
            message = (
                f"no snapshot ties clock {NAMES.get(clock, clock)} to the trace's: its times are taken as they are"
            )
            log.add(Code.NO_CLOCK_SYNC, message, source_id=SOURCE_ID, event_count=count)
        counts = (
            (Code.MISSING_TEXT, "numbers of texts that nothing explains", notes.unknown),
            (Code.BAD_BYTES, "texts that are not UTF-8", self._texts.bad),
            (Code.DAMAGED_TEXT, "debug annotations that can't be read", notes.damaged),
            (Code.DAMAGED_TEXT, "debug annotations nested too deep: null", notes.deep),
            (Code.NO_NAME, "tracks that nothing describes", len(self._tracks.undescribed)),
        )
        for code, message, count in counts:
            if count:
                log.add(code, message, source_id=SOURCE_ID, event_count=count)
        if losses.text_over:
            message = f"more than {MAX_TEXT_BYTES >> 20} MiB of numbered texts"
            log.add(Code.TOO_MUCH_TEXT, message, source_id=SOURCE_ID, event_count=losses.text_over)


def _inflate(packed: bytes) -> Iterator[bytes]:
    """zlib data, piece by piece. Raises ValueError where it is damaged or cut off."""
    stream = inflater()
    try:
        for at in range(0, len(packed), _PIECE):
            yield from unfolded(stream, packed[at : at + _PIECE], _PIECE)
            if stream.eof:
                return
    except Damaged as error:
        raise ValueError(str(error)) from error
    raise ValueError("it is cut off")


def _zstd(packed: bytes) -> Iterator[bytes]:
    frames = ZstdFrames()
    try:
        yield from frames.feed(packed)
    except Damaged as error:
        raise ValueError(str(error)) from error
    if frames.inside:
        raise ValueError("it is cut off")
