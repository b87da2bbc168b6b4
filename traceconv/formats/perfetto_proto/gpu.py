"""Packets of GPU producers → rows: render stages (kernels, copies, passes), counters, memory, submissions, log lines.

Source: Perfetto's published protos/perfetto/trace/gpu/*.proto, and how its trace processor reads them. Each GPU is a
process `GPU n` with its hardware queues as threads.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from traceconv.events.trace import Label, NamedTrack, TrackName
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Member, double, object_of, quoted
from traceconv.formats.perfetto_proto.message import Message, varints
from traceconv.formats.perfetto_proto.rows import LAUNCH, WAIT, Rows
from traceconv.formats.perfetto_proto.sequences import Sequence
from traceconv.formats.perfetto_proto.tracks import Descriptors
from traceconv.wire.protobuf import LEN, WireError, encode_varint, fields, signed

_APIS = ("UNDEFINED", "OPEN_GL", "VULKAN", "OPEN_CL", "CUDA", "HIP")
#: GpuCounterDescriptor.MeasureUnit, as trace processor writes them.
_UNITS = (
    "", "bit", "Kb", "Mb", "Gb", "Tb", "Pb", "B", "KB", "MB", "GB", "TB", "PB", "Hz", "KHz", "MHz", "GHz", "THz", "PHz",
    "ns", "us", "ms", "s", "min", "h", "Vertex", "Pixel", "Triangle", "mW", "W", "kW", "J", "V", "A", "C", "F", "K",
    "%", "Primitive", "Fragment", "Instruction",
)  # fmt: skip
_FORWARDS = 2
_SEVERITIES = ("UNSPECIFIED", "VERBOSE", "DEBUG", "INFO", "WARNING", "ERROR")
#: GpuTrackEvent.gpu_api.
TRACK_EVENT_APIS = tuple(f"GPU_API_{api}" for api in _APIS)
#: Categories of rows: by InternedGpuRenderStageSpecification.RenderStageCategory; None if the source has none.
_CATEGORIES = {None: "gpu_render_stage", 0: "gpu_other", 1: "gpu_graphics", 2: "gpu_compute"}
#: Fields of a GpuRenderStageEvent with numbers, and the args that trace processor makes of them.
_NUMBERS = {1: "event_id", 5: "context_id", 8: "render_target", 9: "render_pass", 12: "command_buffer",
            10: "submission_id", 22: "logical_queue_id"}  # fmt: skip
#: Any event has one of these; others describe queues and stages.
_OF_EVENT = frozenset((1, 2, 13))
_OF_PLACE = (11, 13, 14, 5, 19, 20)
_REPEATED = (15, 18)
_LOG = NamedTrack("async", "gpu_log")


class _Counter(NamedTuple):
    """A counter. `is_backwards`: a sample is the value from the one before it on."""

    gpu: int
    name: str
    is_backwards: bool


class _Place(NamedTuple):
    """What events of a queue, stage and kernel have in common. `args`: members of an object."""

    pid: Label
    tid: Label
    name: str
    category: str
    args: str


@dataclass(slots=True)
class GpuPackets:
    """Turns packets into rows, one after another.

    described  packets without events, which describe later ones
    """

    tracks: Descriptors
    losses: Counter[str]
    described: int = 0
    _names: dict[tuple[Label, Label | NamedTrack, str | None], TrackName] = field(default_factory=dict)
    #: Queues and stages that have no interned description, by number, and the threads of queues.
    _queues: dict[int, str] = field(default_factory=dict)
    _stages: list[tuple[str, str]] = field(default_factory=list)
    _threads: dict[tuple[int, str, int, str], Label] = field(default_factory=dict)
    _first_queues: dict[tuple[int, int], tuple[int, str, int, str]] = field(default_factory=dict)
    #: By sequence, GPU and number; None for the first with the others.
    _counters: dict[tuple[int | None, int | None, int], _Counter] = field(default_factory=dict)
    _last_ns: dict[_Counter, int] = field(default_factory=dict)

    def take(
        self, rows: Rows, number: int, start: int, end: int, data: bytes, sequence: Sequence, ns: int | None
    ) -> None:
        """Add the rows of a packet. `number`: its field in the packet; `ns`: the packet's timestamp."""
        takers = {
            pb.GPU_COUNTERS: self._samples,
            pb.GPU_MEMORY: self._memory,
            pb.GPU_FREQUENCY: self._frequency,
            pb.VULKAN_CALL: self._submit,
            pb.GPU_LOG: self._log,
        }
        try:
            if number == pb.GPU_STAGE:
                self._stage(rows, data, start, end, sequence, ns)
            else:
                takers[number](rows, Message(data, start, end), sequence, ns)
        except WireError:
            self.losses["damaged"] += 1

    def names(self) -> tuple[TrackName, ...]:
        """The names of all tracks of the rows so far."""
        return tuple(self._names.values())

    # -- render stages --

    def _stage(self, rows: Rows, data: bytes, start: int, end: int, sequence: Sequence, ns: int | None) -> None:
        numbers, parts = _fields(data, start, end)
        self._describe(parts.get(7, ()))
        if not numbers.keys() & _OF_EVENT:
            self.described += 1
            return
        if ns is None:
            self.losses["timeless"] += 1
            return
        place = self._place(numbers, parts, sequence)
        # The args are in the order of trace processor, which is nearly that of the fields.
        members = [f'"{key}":{numbers[number]}' for number, key in _NUMBERS.items() if number in numbers]
        members += [place.args] if place.args else []
        for launch in parts.get(21, ()):
            members.append(sequence.make((21, launch), partial(_launch, launch, sequence)))
        if numbers.get(16):
            members.append(f'"correlation_id":"rp:#{numbers[16]}"')
        masks, waits = _repeated(numbers, parts, 15), _repeated(numbers, parts, 18)
        members += [f'"render_subpasses":"{_subpasses(masks)}"'] if masks else []
        members += [sequence.make((6, extra), partial(_extra, extra)) for extra in parts.get(6, ())]
        members += [f'"event_wait_ids":[{",".join(map(str, waits))}]'] if waits else []
        args = f"{{{','.join(filter(None, members))}}}"
        row = rows.add("X", place.name, place.category, place.pid, place.tid, ns, args)
        rows.set_time("dur", row, numbers.get(2, 0))
        if (event := numbers.get(1)) is not None:
            rows.link(row, event, LAUNCH, is_end=True)
            rows.link(row, event, WAIT, is_end=False)
        if numbers.get(10):
            rows.link(row, _submission(numbers[10]), LAUNCH, is_end=True)
        for one in waits:
            rows.link(row, one, WAIT, is_end=True)

    def _place(self, numbers: dict[int, int], parts: dict[int, list[bytes]], sequence: Sequence) -> _Place:
        """Return what events of a queue, stage and kernel have in common."""
        key = (*map(numbers.get, _OF_PLACE), *parts.get(17, ()))
        if 13 in numbers and 14 in numbers:
            return sequence.make(key, partial(self._find_place, numbers, parts, sequence))
        return self._find_place(numbers, parts, sequence)

    def _find_place(self, numbers: dict[int, int], parts: dict[int, list[bytes]], sequence: Sequence) -> _Place:
        gpu = signed(numbers.get(11, 0))
        queue, tid = self._queue(numbers, sequence, gpu)
        args: list[Member] = []
        context = sequence.described(pb.CONTEXTS, numbers[5], _context) if 5 in numbers else None
        if context is not None:
            pid, api = context
            args += [("pid", str(pid))] if pid is not None else []
            args += [("gpu_api", quoted(api))] if api is not None else []
        args.append(("hw_queue_id", str(queue)))
        stage, description, category = self._stage_kind(numbers, sequence)
        kernel, attributes = self._kernel(sequence, numbers[19]) if 19 in numbers else (None, [])
        name = kernel or self._event_name(numbers, parts, sequence) or stage
        args += [("render_stage", quoted(stage))] if stage != name else []
        args += [("description", quoted(description))] if description else []
        category = 2 if 19 in numbers else category
        text = object_of([*args, *attributes])[1:-1]
        return _Place(self._gpu(gpu), tid, name, _CATEGORIES.get(category, "gpu_other"), text)

    def _describe(self, specifications: Iterable[bytes]) -> None:
        """Take the names of queues and stages that are not interned."""
        for text in specifications:
            specification = Message(text, 0, len(text))
            for number, queue in enumerate(specification.messages(2)):
                name = _text(queue, 1)
                if name is not None:
                    self._queues[number] = name
            self._stages += [(_text(one, 1) or "", _text(one, 2) or "") for one in specification.messages(3)]

    def _queue(self, numbers: dict[int, int], sequence: Sequence, gpu: int) -> tuple[int, Label]:
        """Number and thread of the event's hardware queue."""
        iid, number = numbers.get(13), numbers.get(3, 0)
        if iid is not None:
            found = sequence.described(pb.GPU_STAGES, iid, _specification)
            self._count_unknown(found)
            key = (gpu, "iid", iid, found[0] if found else f"GPU queue {iid}")
        else:
            number &= 0xFFFF_FFFF
            key = (gpu, "id", number, self._queues.get(number, f"Unknown GPU Queue {number}"))
        tid = self._threads.get(key)
        if tid is None:
            # Queues of different names may have one number, in parts of a trace or from different writers.
            is_first = self._first_queues.setdefault((gpu, key[2]), key) == key
            tid = self._threads[key] = key[2] if is_first else f"{key[2]} {key[3]}"
            self._name(self._gpu(gpu), tid, key[3])
        return key[2], tid

    def _stage_kind(self, numbers: dict[int, int], sequence: Sequence) -> tuple[str, str, int | None]:
        """Name, description and category of the event's stage."""
        iid, number = numbers.get(14), signed(numbers.get(4, 0))
        if iid is not None:
            found = sequence.described(pb.GPU_STAGES, iid, _specification)
            self._count_unknown(found)
            return found or (f"render stage({iid})", "", None)
        if 0 <= number < len(self._stages):
            return *self._stages[number], None
        return f"render stage({number & (1 << 64) - 1})", "", None

    def _event_name(self, numbers: dict[int, int], parts: dict[int, list[bytes]], sequence: Sequence) -> str | None:
        if 20 not in numbers:
            return parts[17][-1].decode("utf-8", "replace") if 17 in parts else None
        name = sequence.texts["names"].get(numbers[20])
        self._count_unknown(name)
        return name

    def _kernel(self, sequence: Sequence, iid: int) -> tuple[str | None, list[Member]]:
        """Name and args of a kernel."""

        def described(kernel: Message) -> tuple[str | None, list[Member]]:
            texts = {
                "kernel_name": _text(kernel, 2),
                "kernel_demangled_name": _text(kernel, 3),
                "arch": _text(kernel, 4),
            }
            members = [(key, quoted(text)) for key, text in texts.items() if text is not None]
            name = texts["kernel_demangled_name"] or texts["kernel_name"]
            return name, [*members, *_attributes(kernel, 5, sequence)]

        found = sequence.described(pb.KERNELS, iid, described)
        self._count_unknown(found)
        return found or (None, [])

    def _count_unknown(self, found: object) -> None:
        if found is None:
            self.losses["unknown text"] += 1

    # -- counters --

    def _samples(self, rows: Rows, event: Message, sequence: Sequence, ns: int | None) -> None:
        iid, gpu = event.number(4), event.signed(3) or 0
        for descriptor in event.messages(1):
            for number, counter in self._specified(descriptor, gpu):
                for key in _counter_keys(sequence, gpu, number):
                    self._counters.setdefault(key, counter)

        def described(interned: Message) -> dict[int, _Counter]:
            of = interned.signed(3) or 0
            return {number: one for inner in interned.messages(2) for number, one in self._specified(inner, of)}

        interned = None if iid is None else sequence.described(pb.COUNTERS, iid, described) or {}
        samples = event.messages(2)
        self.described += not samples
        if samples and ns is None:
            self.losses["timeless"] += 1
            return
        for sample in samples:
            number = sample.number(1) or 0
            if interned is not None:
                found = interned.get(number)
            else:
                keys = _counter_keys(sequence, gpu, number)
                found = next((self._counters[key] for key in keys if key in self._counters), None)
            value: int | float | None = sample.signed(2)
            bits = sample.number(3)
            if value is None and bits is not None:
                value = double(bits)
            if found is None or value is None:
                self.losses["valueless" if found else "unknown text"] += 1
            elif ns is not None:
                self._sample(rows, found, value, ns)

    def _specified(self, descriptor: Message, gpu: int) -> Iterator[tuple[int, _Counter]]:
        """Yield the counters of a GpuCounterDescriptor with their numbers."""
        for one in descriptor.messages(1):
            number, name = one.number(1), _text(one, 2)
            if number is None or name is None:
                continue
            units, per = ([_unit(unit) for unit in one.numbers(of)] for of in (7, 8))
            unit = ":".join(units) + "".join(f"{':' if at else '/'}{text}" for at, text in enumerate(filter(None, per)))
            properties = json.dumps({"description": text}) if (text := _text(one, 3)) else None
            self._name(self._gpu(gpu), NamedTrack("counter", ""), name, unit or None, properties)
            yield number, _Counter(gpu, name, one.number(11) != _FORWARDS)

    def _sample(self, rows: Rows, counter: _Counter, value: float, ns: int) -> None:
        if not counter.is_backwards:
            self._count(rows, counter, value, ns)
            return
        before = self._last_ns.get(counter)
        if before is None:
            self.losses["before counter"] += 1
        else:
            self._count(rows, counter, value, before)
        self._last_ns[counter] = ns

    def _count(self, rows: Rows, counter: _Counter, value: float, ns: int) -> None:
        self._put(rows, self._gpu(counter.gpu), counter.name, value, ns)

    def _put(self, rows: Rows, pid: Label, name: str, value: float, ns: int | None) -> None:
        if ns is None:
            self.losses["timeless"] += 1
        else:
            rows.add("C", name, None, pid, None, ns, f'{{"value":{value!r}}}')

    def _memory(self, rows: Rows, event: Message, sequence: Sequence, ns: int | None) -> None:
        gpu, pid = event.number(1) or 0, event.number(2) or 0
        process: Label = self.tracks.process_at(pid, rows.position) if pid else self._gpu(gpu)
        name = f"GPU {gpu} memory" if pid else "GPU memory"
        self._name(process, NamedTrack("counter", ""), name, "bytes")
        self._put(rows, process, name, event.number(3) or 0, ns)

    def _frequency(self, rows: Rows, event: Message, sequence: Sequence, ns: int | None) -> None:
        process, name = self._gpu(event.number(1) or 0), "gpufreq"
        self._name(process, NamedTrack("counter", ""), name, "kHz")
        self._put(rows, process, name, event.number(2) or 0, ns)

    # -- calls and log --

    def _submit(self, rows: Rows, event: Message, sequence: Sequence, ns: int | None) -> None:
        calls = event.messages(2)
        self.described += not calls
        for call in calls:
            if ns is None:
                self.losses["timeless"] += 1
                continue
            pid, tid = call.number(2) or 0, call.number(3) or 0
            args = [("command_buffers", f"[{','.join(map(str, call.numbers(5)))}]")]
            submission = call.number(6)
            args += [("submission_id", str(submission))] if submission is not None else []
            process = self.tracks.process_at(pid, rows.position)
            place = rows.add("X", "vkQueueSubmit", "vulkan_api", process, tid, ns, object_of(args))
            rows.set_time("dur", place, call.number(1) or 0)
            if submission:
                rows.link(place, _submission(submission), LAUNCH, is_end=False)

    def _log(self, rows: Rows, event: Message, sequence: Sequence, ns: int | None) -> None:
        if ns is None:
            self.losses["timeless"] += 1
            return
        severity = event.number(1) or 0
        texts = {"tag": _text(event, 2), "message": _text(event, 3)}
        args = [(key, quoted(text)) for key, text in texts.items() if text is not None]
        name = _SEVERITIES[severity] if severity < len(_SEVERITIES) else "UNKNOWN_SEVERITY"
        self._name(None, _LOG, "GPU Log")
        rows.add("i", name, "gpu_log", None, _LOG, ns, object_of(args) if args else "")

    # -- names --

    def _gpu(self, gpu: int) -> Label:
        pid = f"GPU {gpu}"
        self._name(pid, None, pid)
        return pid

    def _name(
        self, pid: Label, tid: Label | NamedTrack, name: str, unit: str | None = None, properties: str | None = None
    ) -> None:
        is_counter = isinstance(tid, NamedTrack) and tid.kind == "counter"
        key = (pid, tid, name if is_counter else None)
        if key not in self._names:
            self._names[key] = TrackName(pid, tid, name, unit=unit, properties=properties)


def gpu_names(data: bytes, start: int, end: int) -> list[dict[str, object]]:
    """Return number and name of each GPU of a GpuInfo. Raises WireError."""
    gpus = Message(data, start, end).messages(1)
    return [{"id": number, "name": _text(gpu, 1) or _text(gpu, 3) or ""} for number, gpu in enumerate(gpus)]


def _fields(data: bytes, start: int, end: int) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """The numbers of a message, of a repeated one the last, and its texts and inner messages. Raises WireError."""
    numbers: dict[int, int] = {}
    parts: dict[int, list[bytes]] = {}
    for number, kind, value, at in fields(data, start, end):
        if kind == LEN:
            parts.setdefault(number, []).append(data[at : at + value])
        elif number in numbers and number in _REPEATED:
            parts.setdefault(number, []).append(encode_varint(value))
        else:
            numbers[number] = value
    return numbers, parts


def _repeated(numbers: dict[int, int], parts: dict[int, list[bytes]], number: int) -> list[int]:
    """All values of a repeated number, packed or not. Raises WireError."""
    packed = [one for text in parts.get(number, ()) for one in varints(text, LEN, len(text), 0)]
    return [numbers[number], *packed] if number in numbers else packed


def _launch(text: bytes, sequence: Sequence) -> str:
    """Sizes and attributes of a launch, as members of an object."""
    launch, sizes = Message(text, 0, len(text)), []
    for key, number in (("grid_size", 1), ("workgroup_size", 2)):
        for size in launch.messages(number):
            axes = [(axis, str(size.number(of))) for of, axis in enumerate("xyz", 1) if of in size]
            sizes.append((key, object_of(axes)))
    return object_of([*([("launch", object_of(sizes))] if sizes else []), *_attributes(launch, 3, sequence)])[1:-1]


def _extra(text: bytes) -> str:
    """An ExtraData, as a member of an object."""
    extra = Message(text, 0, len(text))
    return f"{quoted(_text(extra, 1) or '')}:{_value(_text(extra, 2))}"


def _text(message: Message, number: int) -> str | None:
    found = message.text(number)
    return None if found is None else found.decode("utf-8", "replace")


def _value(text: str | None) -> str:
    """JSON of the value of an ExtraData, which is text: an integer if it looks like one."""
    if text is not None and text.isascii() and text.isdecimal() and len(text) < 19 and (text[0] != "0" or text == "0"):
        return text
    return "null" if text is None else quoted(text)


def _counter_keys(sequence: Sequence, gpu: int, number: int) -> tuple[tuple[int | None, int | None, int], ...]:
    """Where a counter that is described in a sequence is found: producers may use the same numbers."""
    return (id(sequence), gpu, number), (id(sequence), None, number), (None, None, number)


def _unit(number: int) -> str:
    return _UNITS[number] if number < len(_UNITS) else "Unknown"


def _submission(number: int) -> int:
    """Submissions have numbers of their own: 32 bits."""
    return number | 1 << 63


def _subpasses(masks: list[int]) -> str:
    bits = (64 * at + bit for at, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1)
    return ",".join(map(str, bits))


def _context(context: Message) -> tuple[int | None, str | None]:
    api = context.number(3)
    return context.signed(2), _APIS[api] if api is not None and 0 < api < len(_APIS) else None


def _specification(stage: Message) -> tuple[str, str, int | None]:
    return _text(stage, 2) or "", _text(stage, 3) or "", stage.number(4)


def _attributes(message: Message, number: int, sequence: Sequence) -> list[Member]:
    """The ExtraComputeArgs in a field."""
    found = []
    for one in message.messages(number):
        iid, name = one.number(1), _text(one, 2)
        key = sequence.texts["compute_args"].get(iid, f"arg {iid}") if iid is not None else name
        text_iid, bits, unsigned, number_ = one.number(7), one.number(5), one.number(4), one.signed(3)
        if number_ is not None or unsigned is not None:
            value = str(number_ if number_ is not None else unsigned)
        elif bits is not None:
            value = json.dumps(double(bits)) if abs(double(bits)) < float("inf") else quoted(str(double(bits)))
        elif text_iid is not None:
            value = quoted(sequence.texts["values"].get(text_iid, f"text {text_iid}"))
        else:
            value = quoted(_text(one, 6) or "")
        found.append((key or "", value))
    return found
