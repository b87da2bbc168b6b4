"""A memory snapshot of PyTorch → batches of instants: the entries of its traces, and what was in use before them.

The structure: torch/csrc/cuda/Module.cpp and memory_snapshot.cpp of PyTorch, which torch_npu and others follow. Pairing
allocations with frees is left to the rules of such files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.integers import LARGEST
from traceconv.events.trace import EventColumns, TraceBatch
from traceconv.formats.common.columns import json_objects
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest
from traceconv.formats.torch_memory.device import CALL_STACK, HOST, Device, Row, allocated_by, plain, text_of
from traceconv.formats.torch_memory.unpickle import MOST_DEVICES, Damaged, Items, SnapshotPickle

_TRACES = {"device_traces": None, "host_traces": HOST}
_SEGMENTS = {"segments": None, "host_segments": HOST}
_ANNOTATIONS = "external_annotations"
_LISTS = frozenset((*_TRACES, *_SEGMENTS, _ANNOTATIONS))
#: Stages of annotations → phases of slices.
_STAGES = {"START": "B", "END": "E"}
_BATCH = 16384
#: Blocks and segments in use at once.
_MOST_HELD = 1_000_000
#: Characters of one call stack, of those in a batch, and of all: they may share the texts of their frames.
_MOST_STACK_BYTES, _STACK_BYTES, _MOST_STACKS_BYTES = 256 << 10, 4 << 20, 256 << 20


class TorchMemoryReader(FileReader):
    """Reads one snapshot."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request, is_text=False)
        self._devices: dict[int, Device] = {}
        #: Numbers of call stacks that have an event; whether it has their frames.
        self._stacks: dict[int, bool] = {}
        self._read_bytes = self._stack_bytes = self._unsent_bytes = 0
        #: The position of each event of the last batch: a list of the snapshot, and a number in it.
        self.places: list[tuple[str, int]] = []

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all entries, list by list. Raises InputError if the file can't be read."""
        chunks = self._chunks()
        pickle = SnapshotPickle(chunks, self._limits, _LISTS)
        rows: list[Row] = []
        begin = end = 0
        is_complete = True
        try:
            for found in pickle.items():
                self.found_events = True
                end = found.byte_offset + found.byte_count
                for row in self._rows(found):
                    rows.append(row)
                    if len(rows) >= _BATCH or self._unsent_bytes > _STACK_BYTES:
                        yield self._events(rows, begin, end)
                        rows, begin = [], end
                if sum(device.held_count for device in self._devices.values()) > _MOST_HELD:
                    raise Damaged(f"more than {_MOST_HELD:,} blocks in use", end, is_large=True)
        except Damaged as damage:
            is_complete = False
            for _ in chunks:
                pass
            self._damaged(damage)
        if rows:
            yield self._events(rows, begin, end)
        for key, value in pickle.values.items():
            if key not in _LISTS:
                self.keys[key] = msgspec.json.encode(plain(value))
        counts = {str(number): device.entry_count for number, device in sorted(self._devices.items())}
        self.keys["device_traces"] = msgspec.json.encode(counts)
        if is_complete:
            if not self.found_events:
                raise InputError(
                    f"{printable(str(self._path))} is a memory snapshot of PyTorch without any memory or history; "
                    "call torch.cuda.memory._record_memory_history() before the part to record"
                )
            yield from self._before()
        self._report(is_complete=is_complete)

    def _chunks(self) -> Iterator[bytes]:
        for chunk in self._source.chunks():
            self._read_bytes += len(chunk)
            yield chunk

    # -- rows --

    def _rows(self, found: Items) -> Iterator[Row]:
        if found.key == _ANNOTATIONS:
            yield from self._annotations(found.items)
        elif found.key in _SEGMENTS:
            self._take_segments(found)
        else:
            number = _TRACES[found.key]
            device = self._device((found.device or 0) if number is None else number)
            before = device.damaged
            yield from self._with_stacks(device.entries(found.items))
            lost = device.damaged - before
            self._accounts["trace entries"].add(used=len(found.items) - lost, lost=lost)

    def _take_segments(self, found: Items) -> None:
        lost = 0
        for segment in found.items:
            number = _SEGMENTS[found.key]
            if number is None and type(segment) is dict:
                number = segment.get("device", 0)
            if type(segment) is not dict or type(number) is not int or not HOST <= number <= MOST_DEVICES:
                lost += 1
            else:
                lost += not self._device(number).segment(segment)
        self._accounts["segments"].add(used=len(found.items) - lost, lost=lost)
        self._log.count(Code.DAMAGED_EVENT, "segments without an address, a size or blocks", lost, SOURCE_ID)

    def _annotations(self, items: Any) -> Iterator[Row]:
        lost = 0
        for place, item in enumerate(items):
            found = item if type(item) is dict else {}
            us, device = found.get("time_us"), found.get("device")
            if (
                not isinstance(us, int)
                or not isinstance(device, int)
                or not 0 <= us <= LARGEST // 1000
                or not HOST <= device <= MOST_DEVICES
            ):
                lost += 1
                continue
            name, stage = text_of(found.get("name")), text_of(found.get("stage"))
            yield Row(us * 1000, name or "", stage, int(device), (_ANNOTATIONS, place))
        self._accounts["annotations"].add(used=len(items) - lost, lost=lost)
        self._log.count(Code.NO_TIME, "annotations without a time or a device", lost, SOURCE_ID)

    def _before(self) -> Iterator[TraceBatch]:
        """Yield what was in use before the traces, at their start."""
        starts = [device.first_ns for device in self._devices.values() if device.first_ns is not None]
        for device in self._devices.values():
            first_ns = device.first_ns if device.first_ns is not None else min(starts, default=0)
            rows: list[Row] = []
            for row in self._with_stacks(device.before(first_ns)):
                rows.append(row)
                if len(rows) >= _BATCH or self._unsent_bytes > _STACK_BYTES:
                    yield self._events(rows, None, None)
                    rows = []
            if rows:
                yield self._events(rows, None, None)

    def _with_stacks(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield rows, each call stack before the first row that has it."""
        for row in rows:
            if row.stack is not None and row.stack.number not in self._stacks:
                size = sum(map(len, row.stack.frames))
                fits = size <= _MOST_STACK_BYTES and self._stack_bytes + size <= _MOST_STACKS_BYTES
                self._stacks[row.stack.number] = fits
                self._stack_bytes += size if fits else 0
                self._unsent_bytes += size if fits else 0
                yield Row(row.ts_ns, CALL_STACK, None, row.device, row.origin, stack=row.stack)
            yield row

    def _device(self, number: int) -> Device:
        return self._devices.setdefault(number, Device(number))

    # -- batches --

    def _events(self, rows: list[Row], begin: int | None, end: int | None) -> TraceBatch:
        """Return the rows as events: instants, and the bounds of annotations."""
        self.places, self._unsent_bytes = [row.origin for row in rows], 0
        stacks = [row.stack for row in rows]
        described = [stack if row.name == CALL_STACK else None for row, stack in zip(rows, stacks, strict=True)]
        args = {
            "address": [row.address for row in rows],
            "bytes": [row.size_bytes for row in rows],
            "device": [row.device if row.device != HOST else None for row in rows],
            "device_type": [0 if row.device == HOST else None for row in rows],
            "stream": [row.stream for row in rows],
            "kind": ["segment" if row.is_segment else None for row in rows],
            "before": [row.is_before or None for row in rows],
            "stack": [stack.number if stack else None for stack in stacks],
            "allocated_by": [allocated_by(stack) if stack else None for stack in described],
            "frames": [stack.frames if stack and self._stacks[stack.number] else None for stack in described],
            "device_free": [row.device_free for row in rows],
            "user_metadata": [row.metadata for row in rows],
            "compile_context": [row.compile_context for row in rows],
        }
        is_annotation = [row.origin[0] == _ANNOTATIONS for row in rows]
        stages = [_STAGES.get(row.category or "", "i") for row in rows]
        count = len(rows)
        labels: dict[str, list[Any]] = {
            "name": [row.name for row in rows],
            "ph": [stage if annotated else "i" for stage, annotated in zip(stages, is_annotation, strict=True)],
            "cat": [row.category for row in rows],
            "pid": [f"device {row.device}" if row.device != HOST else "host" for row in rows],
            "tid": ["annotations" if annotated else "allocator" for annotated in is_annotation],
        }
        raw = {
            "ts": pa.array([row.ts_ns for row in rows], pa.int64()),
            "args": json_objects(list(args), list(args.values()), count),
        }
        byte_count = None if begin is None or end is None else end - begin
        return self._next_batch(EventColumns(count, labels, raw, None), begin, byte_count)

    # -- losses --

    def _damaged(self, damage: Damaged) -> None:
        message = (
            f"{damage}: all before is read; the rest of the snapshot is lost, and what was in use before the trace"
        )
        lost = self._read_bytes - damage.offset
        code = Code.TRUNCATED if damage.is_end else Code.TOO_LARGE if damage.is_large else Code.DAMAGED_EVENT
        self._log.add(code, message, source_id=SOURCE_ID, byte_offset=damage.offset, byte_count=lost)

    def _report(self, *, is_complete: bool) -> None:
        devices = self._devices.values()
        message = "call stacks without their frames: too long, alone or all together"
        self._log.count(Code.TOO_MUCH_TEXT, message, list(self._stacks.values()).count(False), SOURCE_ID)
        for code, message, name in (
            (Code.DAMAGED_EVENT, "entries without an action, address, size or valid time", "damaged"),
            (
                Code.NOT_TIME,
                "entries without a time, as PyTorch wrote before 2.3: each counts as a nanosecond",
                "untimed",
            ),
            (Code.UNORDERED_TIME, "entries that are earlier than the entry before: shown at its time", "backward"),
            (
                Code.MISSING_RECORDS,
                "allocations at an address in use: the free of the block before is missing",
                "not_freed",
            ),
            (
                Code.END_WITHOUT_BEGIN,
                "frees of blocks that were allocated before the trace, or whose entry was overwritten",
                "freed_before",
            ),
            (
                Code.END_WITHOUT_BEGIN,
                "blocks in use at the snapshot that were allocated before the trace, or whose entry was overwritten",
                "in_use_before",
            ),
        ):
            self._log.count(code, message, sum(getattr(device, name) for device in devices), SOURCE_ID)
