"""A file in speedscope's own format → batches of events: evented profiles as they are, sampled ones as slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Raw

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.integers import LARGEST, is_time
from traceconv.events.trace import TOO_LONG, EventColumns, TraceBatch, TrackName, binary_column
from traceconv.formats.common.columns import integers
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.json_document import ENTER, KEEP, STREAM, Elements, JsonDocument, JsonPath, decode_all
from traceconv.formats.format import ReadRequest
from traceconv.formats.speedscope.stacks import SampledStacks, rounded

#: Nanoseconds of the units of time.
UNITS = {"nanoseconds": 1, "microseconds": 1000, "milliseconds": 10**6, "seconds": 10**9}
_LISTS = ("events", "samples", "weights")
_BATCH = 16384
_PID = 1
_NULL = Raw(b"null")


class _Frame(msgspec.Struct, gc=False):
    name: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str
    frame: int
    at: Raw


@dataclass(slots=True)
class _Profile:
    """The values of a profile other than its lists."""

    values: dict[str, object] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return str(self.values.get("unit", "none"))

    @property
    def quantity(self) -> str:
        return "time" if self.unit in UNITS else self.unit


class SpeedscopeReader(FileReader):
    """Reads one file twice: names and units first, since they may come after what they describe."""

    def __init__(self, request: ReadRequest) -> None:
        if request.path == STDIN:
            raise InputError("a speedscope file can't be read from standard input; specify its path")
        super().__init__(request)
        self._names: list[str] = []
        self._frame_args: dict[int, bytes] = {}
        self._profiles: dict[int, _Profile] = {}
        #: Profiles of another quantity than the others, such as bytes next to times.
        self._not_counted: set[int] = set()
        self._rounded = 0
        self._unknown_frames = 0
        #: Frames of the current evented profile that are open, and its last time.
        self._open: Counter[int] = Counter()
        self._last_ns = -LARGEST
        self._closed = 0
        #: For each slice of the last batch of a sampled profile: the number of its first sample.
        self.first_samples: list[int] = []

    def batches(self) -> Iterator[TraceBatch]:
        """All events, profile by profile. Raises InputError if the file can't be read or contains no profiles."""
        self._read_names()
        if not self._profiles:
            raise InputError(f"{printable(str(self._path))} is a speedscope file without profiles")
        self._name_tracks()
        chunks, damaged = self._source.chunks(), "damaged elements"
        document = JsonDocument(chunks, document_shape, self._log, self._limits, self._accounts, damaged)
        number, stacks = -1, SampledStacks()
        for item in document.items():
            if not isinstance(item, Elements) or item.path[0] != "profiles" or not isinstance(item.path[1], int):
                continue
            if item.path[1] != number:
                yield from self._rest(number, stacks)
                number, stacks = item.path[1], SampledStacks()
            self.found_events = True
            if item.path[2] == "events":
                yield from self._evented(number, item)
            elif item.path[2] == "samples":
                self._take_samples(stacks, item.texts)
            else:
                self._take_weights(number, stacks, item.texts)
        yield from self._rest(number, stacks)
        self._log.count(Code.FINE_TIME, "times finer than a nanosecond", self._rounded, SOURCE_ID)
        message = "frames without an end; they end with their profile (endValue)"
        self._log.count(Code.UNFINISHED, message, self._closed, SOURCE_ID)
        message = "frames that are not in the list of frames"
        self._log.count(Code.MISSING_TEXT, message, self._unknown_frames, SOURCE_ID)

    # -- names and units --

    def _read_names(self) -> None:
        """Read the frames and everything but the profiles' lists. Damage is reported when the lists are read."""
        document = JsonDocument(self._second_pass().chunks(), document_shape, ImportLog(), self._limits, Accounts(), "")
        for item in document.items():
            if isinstance(item, Elements):
                if item.path == ("shared", "frames"):
                    self._take_frames(item.texts)
                continue
            try:
                value = msgspec.json.decode(item.text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            if len(item.path) == 3 and item.path[0] == "profiles" and isinstance(item.path[1], int):
                known = isinstance(value, (str, int)) and item.path[2] not in ("startValue", "endValue")
                self._profiles.setdefault(item.path[1], _Profile()).values[str(item.path[2])] = (
                    value if known else item.text
                )
            elif len(item.path) == 1:
                self.keys[str(item.path[0])] = msgspec.json.encode(value)
        self.keys["speedscope"] = self.keys.pop("$schema", b"true")

    def _take_frames(self, texts: Sequence[Raw]) -> None:
        for text, frame in zip(texts, decode_all(_Frame, texts), strict=True):
            if frame is None:
                self._names.append(f"frame {len(self._names)}")
                continue
            keys = msgspec.json.decode(text, type=dict[str, Raw])
            keys.pop("name", None)
            if any(value != _NULL for value in keys.values()):
                self._frame_args[len(self._names)] = msgspec.json.encode(keys)
            self._names.append(frame.name)

    def _name_tracks(self) -> None:
        title = self.keys.get("name")
        name = str(msgspec.json.decode(title)) if title else None
        if name:
            self._track_names.append(TrackName(_PID, None, name))
        quantities = [profile.quantity for profile in self._profiles.values()]
        counted = "time" if "time" in quantities else quantities[0]
        self._not_counted = {number for number, one in self._profiles.items() if one.quantity != counted}
        for number, profile in self._profiles.items():
            shown = str(profile.values.get("name", f"profile {number}"))
            self._track_names.append(TrackName(_PID, number + 1, shown, number))
            if profile.unit not in UNITS:
                message = f"profile {number} counts {printable(profile.unit, 40)}, shown as nanoseconds"
                self._log.add(Code.NOT_TIME, message, source_id=SOURCE_ID)

    def _factor(self, number: int) -> int:
        profile = self._profiles.get(number)
        return UNITS.get(profile.unit, 1) if profile is not None else 1

    def _ns(self, text: bytes, factor: int) -> int | None:
        """A number in units of `factor` ns, rounded to ns; None if it is not a number or out of range."""
        exact = self._exact_ns(text, factor)
        return None if exact is None else rounded(exact)

    def _exact_ns(self, text: bytes, factor: int) -> int | Decimal | None:
        """A number in units of `factor` ns, exactly; None if it is not a number or out of range."""
        try:
            return int(text) * factor
        except ValueError:
            pass
        try:
            exact = Decimal(text.decode().strip('" ')) * factor
            if not -LARGEST - 1 < exact < LARGEST + 1:
                return None
            integer = exact.to_integral_value()
        except (ArithmeticError, ValueError):  # not a number, or its exponent is out of range
            return None
        if exact == integer:
            return int(integer)
        self._rounded += 1
        return exact

    def _name(self, frame: int) -> str:
        if 0 <= frame < len(self._names):
            return self._names[frame]
        self._unknown_frames += 1
        return f"frame {frame}"

    # -- evented --

    def _evented(self, number: int, item: Elements) -> Iterator[TraceBatch]:
        factor = self._factor(number)
        phases, frames, times, lost = [], [], [], 0
        for event in decode_all(_Event, item.texts):
            ph = {"O": "B", "C": "E"}.get(event.type) if event is not None else None
            if ph is None:
                lost += 1
                continue
            phases.append(ph)
            frames.append(event.frame)
            ns = self._ns(bytes(event.at), factor)
            times.append(ns)
            if ns is not None:
                self._last_ns = max(self._last_ns, ns)
                self._open[event.frame] += 1 if ph == "B" else -1 if self._open[event.frame] else 0
        self._lost("events", lost, lost)
        if phases:
            yield self._batch(number, phases, frames, times, None, item.byte_offset, item.byte_count)

    def _rest(self, number: int, stacks: SampledStacks) -> Iterator[TraceBatch]:
        """The slices of the samples of a profile, and ends for frames of its events that have none.

        In a damaged file, the ends may have been lost.
        """
        yield from self._sampled(number, stacks)
        is_intact = not self._log.lossy and all(entry.code is not Code.NO_END for entry in self._log)
        frames = list(self._open.elements()) if is_intact else []
        text = self._profiles[number].values.get("endValue") if number in self._profiles else None
        end_ns = self._ns(text, self._factor(number)) if isinstance(text, bytes) else None
        if frames and end_ns is not None and end_ns >= self._last_ns:
            self._closed += len(frames)
            yield self._batch(number, ["E"] * len(frames), frames, [end_ns] * len(frames), None, None, None)
        self._open, self._last_ns = Counter(), -LARGEST

    def _lost(self, what: str, records: int, lost: int) -> None:
        if not records:
            return
        self._accounts[what].add(used=records - lost, lost=lost)
        self._log.count(Code.DAMAGED_EVENT, f"{what} that can't be used", lost, SOURCE_ID)

    # -- sampled --

    def _take_samples(self, stacks: SampledStacks, texts: Sequence[Raw]) -> None:
        bad = 0
        for stack in decode_all(list[int], texts):
            bad += stack is None
            stacks.add_sample(tuple(stack or ()))
        self._lost("samples", len(texts), bad)

    def _take_weights(self, number: int, stacks: SampledStacks, texts: Sequence[Raw]) -> None:
        factor, bad = self._factor(number), 0
        for text in texts:
            ns = self._exact_ns(bytes(text), factor)
            usable = ns is not None and 0 <= ns <= LARGEST
            bad += not usable
            stacks.add_weight(ns if usable and ns is not None else 0)
        self._log.count(Code.BAD_DURATION, "weights of samples that are not durations", bad, SOURCE_ID)

    def _sampled(self, number: int, stacks: SampledStacks) -> Iterator[TraceBatch]:
        message = "samples without a weight, or weights without a sample"
        self._log.count(Code.DAMAGED_EVENT, message, stacks.unpaired, SOURCE_ID)
        if not stacks.sample_count:
            return
        start = self._profiles[number].values.get("startValue") if number in self._profiles else None
        start_ns = self._ns(start, self._factor(number)) if isinstance(start, bytes) else 0
        slices = stacks.slices(start_ns or 0)
        while part := list(islice(slices, _BATCH)):
            times = [began if start_ns is not None else None for began, _, _, _ in part]
            lengths = [dur_ns if is_time(dur_ns) else TOO_LONG for _, dur_ns, _, _ in part]
            frames = [frame for _, _, frame, _ in part]
            self.first_samples = [sample for _, _, _, sample in part]
            yield self._batch(number, ["X"] * len(part), frames, times, lengths, None, None)

    def _batch(
        self,
        number: int,
        phases: Sequence[str],
        frames: Sequence[int],
        times: Sequence[int | None],
        lengths: Sequence[int | None] | None,
        byte_offset: int | None,
        byte_count: int | None,
    ) -> TraceBatch:
        count = len(frames)
        labels: dict[str, Sequence[Any]] = {
            "ph": phases,
            "name": list(map(self._name, frames)),
            "pid": [_PID] * count,
            "tid": [number + 1] * count,
        }
        if number in self._not_counted:
            labels["cat"] = [self._profiles[number].unit] * count
        raw: dict[str, pa.Array] = {"ts": integers(times)}
        if lengths is not None:
            raw["dur"] = integers(lengths)
        if self._frame_args:
            known = self._frame_args
            args = [known.get(frame, b"") if ph != "E" else b"" for ph, frame in zip(phases, frames, strict=True)]
            raw["args"] = binary_column(args)
        return self._next_batch(EventColumns(count, labels, raw, None), byte_offset, byte_count)


def document_shape(path: JsonPath) -> str:
    """The parts of the document that are entered or streamed."""
    if not path or path == ("shared",) or (path[0] == "profiles" and len(path) < 3):
        return ENTER
    if path == ("shared", "frames") or (path[0] == "profiles" and path[2] in _LISTS):
        return STREAM
    return KEEP
