"""A trace file in JSON → the text of a smaller trace: its beginning, its end, and blocks spread over it.

The text is that of an ordinary trace, so that it can be ingested like any other. Since what comes before and after the
events is in it, and most metadata, its events mean what they mean in the file.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import ImportLog
from traceconv.events.trace import EventColumns
from traceconv.formats.chrome_json.decode import BLANKS, MalformedText, decode_events
from traceconv.formats.chrome_json.scan import EVENT_START, end_of_bracketed
from traceconv.formats.common.files import TextSource, container_of, encoding_of, file_size
from traceconv.formats.common.limits import Limits
from traceconv.normalize.trace.distinct import distinct_rows

#: Size of a block, without the rest of its last event.
BLOCK_BYTES = 4 << 10
#: Number of blocks of a first sample.
FIRST_BLOCKS = 2000
#: Blocks that are decoded together.
_TOGETHER = 64
#: Text that is read at both ends.
_HEAD_BYTES, _TAIL_BYTES = 512 << 10, 256 << 10
#: How far beyond a block the next event is searched, at first and at most.
_AHEAD_BYTES, _MOST_AHEAD_BYTES = 4 << 10, 4 << 20
#: How far the end of a file may reach back, with what comes after its events.
_MOST_TAIL_BYTES = 8 << 20
#: Bytes before a block: a separator, and what is between it and the event.
_BEFORE_BYTES = 64
#: How much text between blocks is searched for names of processes that are not in the sample.
_MOST_SEARCHED_BYTES = 96 << 20
_NAME = re.compile(rb'"(?:process|thread)_name"')
#: If more of the drawn blocks can't be used, the file is not a sound trace of many small events.
_MOST_MISSING = 0.05
_EVENTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[|\{(?:[^\0]*?[,{\s])??"traceEvents"\s*:\s*\[)')
#: The block number of events at the beginning and end of the file, which are read in any case.
CERTAIN = -1


class NotSampled(Exception):
    """The file can't be sampled, or doesn't need to be; the message says why."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Text of events that begin between two places of the file; empty if none do."""

    start: int
    end: int
    text: bytes


@dataclass(slots=True)
class SampledText:
    """The text of a trace with some of a file's events.

    path            of the file
    texts           its parts, in order
    blocks          number of blocks of the file, without its beginning and end
    drawn, missing  number of blocks that were drawn, and of those that could not be used
    block_of        int32: the usable block of each event, from 0 in the order of the file, CERTAIN for the beginning;
                    events after these are at the end of the file
    is_complete     whether each event is a complete one (ph X), in the same order
    read_bytes      bytes of the file that were read for the text
    size_bytes      bytes of the file
    is_all          it is all text of the file, so that nothing has to be estimated
    """

    path: Path
    texts: list[bytes] = field(default_factory=list)
    blocks: int = 0
    drawn: int = 0
    missing: int = 0
    block_of: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    is_complete: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    read_bytes: int = 0
    size_bytes: int = 0
    is_all: bool = False


def sampled_text(
    path: Path, *, blocks: int = FIRST_BLOCKS, block_bytes: int = BLOCK_BYTES, seed: int = 0
) -> SampledText:
    """Read blocks of a plain JSON trace. Raises NotSampled, OSError."""
    with path.open("rb") as stream:
        return BlockReader(path, stream.fileno(), block_bytes).sample(blocks, random.Random(seed))


def first_text(path: Path, text_bytes: int) -> SampledText:
    """Read the beginning of a trace, which may be compressed, as a sample without blocks. Raises InputError."""
    source = TextSource(path, ImportLog(), Limits(), lambda size: None)
    found = SampledText(path, size_bytes=file_size(path), is_all=True)
    size = 0
    for chunk in source.chunks():
        found.texts.append(chunk)
        size += len(chunk)
        if size >= text_bytes:
            found.is_all = False
            break
    found.read_bytes = source.size_bytes
    return found


class BlockReader:
    """Draws blocks of an open file."""

    def __init__(self, path: Path, descriptor: int, block_bytes: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._block_bytes = block_bytes
        self._block_of: list[NDArray[np.int32]] = []
        self._is_complete: list[NDArray[np.bool_]] = []
        self._found = SampledText(path, size_bytes=self._size)
        self._usable = 0
        #: Phase of events that are put between blocks which are decoded together.
        self._border = os.urandom(16).hex()
        self._named: set[object] = set()
        #: Kind of event (process, category, phase) → where the first block with it begins.
        self._first_of: dict[tuple[object, ...], int] = {}

    def sample(self, wanted: int, rng: random.Random) -> SampledText:
        """Draw `wanted` blocks. Raises NotSampled."""
        found = self._found
        head, first = self._head()
        tail, last = self._tail()
        found.blocks = max(0, -(-(last - first) // self._block_bytes))
        if found.blocks < 2 * wanted:
            raise NotSampled("it is so small that all of it can be read")
        found.texts.append(head)
        found.drawn = wanted
        edges = [first]
        starts = (first + drawn * self._block_bytes for drawn in _drawn(found.blocks, wanted, rng))
        while group := list(islice(starts, _TOGETHER)):
            for block in self._sound([(start, min(start + self._block_bytes, last)) for start in group]):
                if block.text:
                    found.texts += (b",\n", block.text)
                    edges += (block.start, block.end)
        found.missing = wanted - self._usable
        if found.missing > _MOST_MISSING * wanted:
            raise NotSampled(f"{found.missing} of {wanted} blocks have no events that can be found on their own")
        names = self._names(edges)
        if names and self._note([_Block(0, 0, names)], CERTAIN):
            found.texts += (b",\n", names)
        found.texts += (b",\n", tail)
        found.block_of = np.concatenate(self._block_of)
        found.is_complete = np.concatenate(self._is_complete)
        found.read_bytes = sum(map(len, found.texts))
        return found

    def _head(self) -> tuple[bytes, int]:
        """Return the text up to an event, without separators at its end, and where that event begins."""
        text = os.pread(self._descriptor, _HEAD_BYTES + _MOST_AHEAD_BYTES, 0)
        if container_of(text) != "plain":
            raise NotSampled("it is compressed")
        if encoding_of(text) != "utf-8":
            raise NotSampled("it is not in UTF-8")
        opening = _EVENTS.match(text)
        cut = _event_at(text, min(_HEAD_BYTES, len(text)))
        if opening is None or cut is None:
            raise NotSampled("its beginning is not that of a list of many events")
        if not self._note([_Block(0, 0, text[opening.end() : cut])], CERTAIN):
            raise NotSampled("its first events are malformed")
        return text[:cut].rstrip(BLANKS), cut

    def _tail(self) -> tuple[bytes, int]:
        """Return the text from an event near the end on, and where it begins."""
        size = _TAIL_BYTES
        while True:
            start = max(0, self._size - size)
            text = os.pread(self._descriptor, self._size - start, start)
            cut = _event_at(text, _BEFORE_BYTES)
            if cut is not None:
                return text[cut:], start + cut
            if size >= min(self._size, _MOST_TAIL_BYTES):
                raise NotSampled("what comes after its events is long")
            size *= 4

    def events_between(self, start: int, end: int) -> bytes | None:
        """Return the text of the events that begin between `start` and `end`; None if they can't be found."""
        ahead = _AHEAD_BYTES
        base = start - _BEFORE_BYTES
        while True:
            text = os.pread(self._descriptor, end - base + ahead, base)
            low = _event_at(text, _BEFORE_BYTES)
            high = _event_at(text, end - base)
            if low is not None and high is not None:
                return text[low:high].rstrip(BLANKS) if low < high else b""
            if ahead >= _MOST_AHEAD_BYTES:
                return None
            ahead *= 16

    def _names(self, edges: Sequence[int]) -> bytes:
        """Find names of processes and threads between blocks, if the sample lacks those of processes.

        A program writes them next to the first events that they are for, or between parts of the file that differ in
        their events: so before a block that is the first with events of a kind.

        edges  where the text between two blocks begins and ends, in turn
        """
        if all(process in self._named for process, *_ in self._first_of):
            return b""
        gaps = dict(zip(edges[1::2], edges[::2], strict=False))
        found, searched = [], 0
        for end in sorted(set(self._first_of.values()) & gaps.keys()):
            searched += end - gaps[end]
            if searched > _MOST_SEARCHED_BYTES:
                break
            base = gaps[end] - _BEFORE_BYTES
            text = os.pread(self._descriptor, end - base + _AHEAD_BYTES, base)
            starts = (text.rfind(b"{", 0, match.start()) for match in _NAME.finditer(text))
            found += [text[at : end_of_bracketed(text, at)] for at in starts if _event_at(text, at) == at < end - base]
        return b",\n".join(found)

    def _sound(self, places: Sequence[tuple[int, int]]) -> list[_Block]:
        """Note the events of the next blocks, given by start and end; return those that can be used."""
        found = [(start, end, self.events_between(start, end)) for start, end in places]
        blocks = [_Block(start, end, text) for start, end, text in found if text is not None]
        return blocks if self._note(blocks) else [block for block in blocks if self._note([block])]

    def _note(self, blocks: Sequence[_Block], number: int | None = None) -> bool:
        """Note the events of blocks; False, and nothing is noted, if one is not a sequence of sound events.

        number  of the first block, which has the events of all; None: the blocks are the next usable ones
        """
        filled = [(self._usable + place, block) for place, block in enumerate(blocks) if block.text]
        if filled and not self._note_events(
            [block for _, block in filled], [place if number is None else number for place, _ in filled]
        ):
            return False
        self._usable += len(blocks) if number is None else 0
        return True

    def _note_events(self, blocks: Sequence[_Block], numbers: Sequence[int]) -> bool:
        border = b',{"ph":"%s"},' % self._border.encode()
        try:
            decoded = decode_events(border.join(block.text for block in blocks), lines=False)
        except MalformedText:
            return False
        events = decoded.columns
        phases = events.label("ph")
        used = np.unique(phases.codes).tolist()
        is_border = phases.mask(lambda phase: phase == self._border)
        place = np.cumsum(is_border, dtype=np.intp)
        # A border inside of an event is of a block that ends or begins inside of one.
        if (
            decoded.non_objects
            or any(not phases.distinct[code] for code in used)
            or np.count_nonzero(is_border) != len(blocks) - 1
        ):
            return False
        self._note_kinds(events, [block.start for block in blocks], place)
        complete = np.array([phase == "X" for phase in phases.distinct], np.bool_)
        self._is_complete.append(complete[phases.codes[~is_border]])
        self._block_of.append(np.array(numbers, np.int32)[place[~is_border]])
        return True

    def _note_kinds(self, events: EventColumns, starts: Sequence[int], place: NDArray[np.intp]) -> None:
        """Note processes with a name, and the starts of the first blocks with events of each kind.

        place  of each event's block in `starts`
        """
        labels = [events.label(field) for field in ("pid", "cat", "ph", "name")]
        firsts, _ = distinct_rows(*(label.codes for label in labels[:3]))
        for first in firsts.tolist():
            process, category, phase = (label.distinct[label.codes[first]] for label in labels[:3])
            if phase not in ("M", self._border):
                self._first_of.setdefault((process, category, phase), starts[place[first]])
        naming = [code for code, name in enumerate(labels[3].distinct) if name == "process_name"]
        if naming:
            processes = labels[0].codes[np.isin(labels[3].codes, naming)]
            self._named.update(labels[0].distinct[code] for code in np.unique(processes).tolist())


def _drawn(blocks: int, wanted: int, rng: random.Random) -> Iterator[int]:
    """Yield a block of each of `wanted` strata."""
    for number in range(wanted):
        yield rng.randrange(number * blocks // wanted, (number + 1) * blocks // wanted)


class _Event(msgspec.Struct):
    """An object that is an event, not one in the args of an event."""

    ph: msgspec.Raw


_EVENT = msgspec.json.Decoder(_Event)


def _event_at(text: bytes, at: int) -> int | None:
    """Return where the first event from `at` on begins: an object after a comma or the opening bracket.

    None if the text ends before this event does.
    """
    for match in EVENT_START.finditer(text, at):
        start = match.start()
        lead = text[max(0, start - _BEFORE_BYTES) : start].rstrip(b" \t\r\n")
        if not lead.endswith((b",", b"[")):
            continue
        end = end_of_bracketed(text, start)
        if end is None:
            return None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            _EVENT.decode(memoryview(text)[start:end])
            return start
    return None
