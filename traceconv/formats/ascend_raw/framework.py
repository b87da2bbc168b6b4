"""What torch_npu records next to the raw data of CANN: operators, its queue of tasks, functions, and memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code
from traceconv.formats.ascend_raw.clocks import Clock
from traceconv.formats.ascend_raw.folder import Stream
from traceconv.formats.ascend_raw.records import Layout
from traceconv.formats.ascend_raw.staging import Staging
from traceconv.formats.ascend_raw.tagged import DamagedRecords, Records, tagged_records

#: Operators: the last byte, the scope, is missing in older versions.
_OP = [
    *((name, "<i8") for name in ("start", "end", "sequence")),
    *((name, "<u8") for name in ("pid", "thread", "end_thread", "forward_thread")),
]
_OP_SIZES = (58, 57)
_OP_NAME, _OP_TYPES, _OP_SHAPES, _OP_STACK = 2, 3, 4, 8
#: Starts and ends of entries of the queue, and the tag of their name, which was 2 once.
_MARK = [("ns", "<i8"), *((name, "<u8") for name in ("category", "correlation", "thread", "pid"))]
_ENQUEUE, _DEQUEUE = (0, 1), (2, 3)
#: Changes of blocks of memory, by the size of the record: versions have added fields.
_TOTALS = ("address", "ns", "bytes", "allocated", "reserved")
_DEVICE, _ENDS = (("device_type", "i1"), ("device", "i1")), ("thread", "pid")
_MEMORY = {
    58: (_TOTALS, ()),
    76: ((*_TOTALS, "active", "stream"), ("component", "kind")),
    77: ((*_TOTALS, "active", "stream"), ("component", "kind", "allocator")),
}
_NPU, _FREE = 20, 1
#: Calls (0, 2) and returns (1, 3) of functions in Python and C; collections of garbage.
_CALL = Layout(
    np.dtype([("ns", "<u8"), ("thread", "<u8"), ("pid", "<u8"), ("key", "<u8"), ("tag", "u1")]), "tag", (0, 1, 2, 3)
)
_TAGS = 4
_COLLECTION = Layout(np.dtype([("pid", "<u8"), ("start", "<u8"), ("end", "<u8")]), None, ())


class Framework:
    """Reads these files into the tables raw.fwk_*."""

    def __init__(self, staging: Staging, clock: Clock) -> None:
        self._staging = staging
        self._clock = clock

    def read(self, files: tuple[Path, ...]) -> None:
        """Read all of them; those of other kinds are reported."""
        readers: dict[str, Callable[[Records], None]] = {
            "torch.op_range": self._operators,
            "torch.op_mark": self._marks,
            "torch.memory_usage": self._memory,
            "torch.python_tracer_hash": self._functions,
        }
        plain: dict[str, tuple[Layout, Callable[[NDArray[np.void]], None]]] = {
            "torch.python_tracer_func": (_CALL, self._calls),
            "torch.gc_record": (_COLLECTION, self._collections),
        }
        for file in files:
            self._stream = stream = Stream(f"FRAMEWORK/{file.name}", False, (file,))
            if file.name in plain:
                layout, take = plain[file.name]
                for found in self._staging.records(stream, layout):
                    take(found)
                continue
            fill = readers.get(file.name)
            if fill is None:
                self._staging.skip(stream)
                continue
            try:
                for records in tagged_records(self._staging.pieces(stream)):
                    fill(records)
            except DamagedRecords as error:
                what = f"{error.args[0]} bytes at the end, in which no record is found"
                self._staging.lose(stream, 1, Code.DAMAGED_BLOCK, what)

    def _operators(self, records: Records) -> None:
        for size in _OP_SIZES:
            whole = _at_least(records, size)
            texts, complete = whole.fields(size)
            if complete:
                break
        fixed = whole.fixed(_op_layout(size))
        self._count_short(len(records.starts) - len(whole.starts))
        columns: list[Any] = [
            fixed["thread"],
            self._staging.ns(self._clock, fixed["start"].view(np.uint64)),
            self._staging.ns(self._clock, fixed["end"].view(np.uint64)),
            *(self._ids(texts.get(tag), len(fixed)) for tag in (_OP_NAME, _OP_SHAPES, _OP_TYPES, _OP_STACK)),
            fixed["sequence"],
            fixed["forward_thread"],
        ]
        names = "thread, start_ns, end_ns, name, shapes, types, stack, sequence, forward_thread"
        self._staging.insert("fwk_op", names, columns)

    def _marks(self, records: Records) -> None:
        size = np.dtype(_MARK).itemsize
        whole = _at_least(records, size)
        self._count_short(len(records.starts) - len(whole.starts))
        fixed, (texts, _) = whole.fixed(np.dtype(_MARK)), whole.fields(size)
        name = next(iter(texts.values())) if texts else None
        is_end, is_dequeue = (fixed["category"] & np.uint64(1)) == 1, fixed["category"] >= _DEQUEUE[0]
        times = self._staging.ns(self._clock, fixed["ns"].view(np.uint64))
        columns = [fixed["thread"], times, is_dequeue, is_end, fixed["correlation"], self._ids(name, len(fixed))]
        self._staging.insert("fwk_mark", None, columns, fixed["category"] <= _DEQUEUE[1])

    def _memory(self, records: Records) -> None:
        sizes = records.ends - records.starts
        for size, (totals, kinds) in _MEMORY.items():
            rows = np.flatnonzero(sizes == size)
            if not len(rows):
                continue
            small, ends = [(name, "u1") for name in kinds], [(name, "<u8") for name in _ENDS]
            dtype = np.dtype([*((name, "<i8") for name in totals), *_DEVICE, *small, *ends])
            fixed = Records(records.data, records.starts[rows], records.ends[rows]).fixed(dtype)
            is_free = fixed["kind"] == _FREE if "kind" in kinds else fixed["bytes"] < 0
            used = (fixed["device_type"] == _NPU) & (is_free | (fixed["bytes"] > 0))
            nothing = np.zeros(len(fixed), np.int64)
            columns = [
                fixed["device"].astype(np.int64),
                self._staging.ns(self._clock, fixed["ns"].view(np.uint64)),
                fixed["thread"],
                fixed["address"],
                np.where(is_free, -np.abs(fixed["bytes"]), fixed["bytes"]),
                *(fixed[name] if name in totals else nothing for name in ("allocated", "reserved", "active", "stream")),
            ]
            self._staging.insert("fwk_memory", None, columns, used)
        self._count_short(int(np.count_nonzero(~np.isin(sizes, list(_MEMORY)))))

    def _functions(self, records: Records) -> None:
        whole = _at_least(records, 8)
        self._count_short(len(records.starts) - len(whole.starts))
        keys, (texts, _) = whole.fixed(np.dtype([("key", "<u8")]))["key"], whole.fields(8)
        self._staging.insert("fwk_function", None, [keys, self._ids(next(iter(texts.values()), None), len(keys))])

    def _calls(self, found: NDArray[np.void]) -> None:
        columns = [found["thread"], self._staging.ns(self._clock, found["ns"]), found["tag"] & 1, found["key"]]
        self._staging.insert("fwk_call", None, columns, found["tag"] < _TAGS)

    def _collections(self, found: NDArray[np.void]) -> None:
        times = [self._staging.ns(self._clock, found[name]) for name in ("start", "end")]
        self._staging.insert("fwk_collection", None, [found["pid"], *times])

    def _count_short(self, count: int) -> None:
        if count:
            self._staging.lose(self._stream, count, Code.UNKNOWN_RECORD, "records of an unknown size")

    def _ids(self, texts: pa.Array | None, count: int) -> list[int | None]:
        """Return the IDs of texts; None for those that are missing or empty."""
        if texts is None:
            return [None] * count
        encoded = texts.dictionary_encode()
        known = [text.decode("utf-8", "replace") if text else None for text in encoded.dictionary.to_pylist()]
        ids = [self._staging.text_id(text) if text else None for text in known]
        return pa.array(ids, pa.int64()).take(encoded.indices).to_pylist() if ids else [None] * count


def _at_least(records: Records, size: int) -> Records:
    """Return the records that have the fixed fields."""
    chosen = records.ends - records.starts >= size
    return Records(records.data, records.starts[chosen], records.ends[chosen])


def _op_layout(size: int) -> np.dtype[np.void]:
    names, kinds = zip(*_OP, strict=True)
    return np.dtype({"names": names, "formats": kinds, "itemsize": size})
