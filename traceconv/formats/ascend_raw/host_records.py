"""The streams of the host → tables of its records."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64
from traceconv.formats.ascend_raw import records as layouts
from traceconv.formats.ascend_raw.clocks import Clock
from traceconv.formats.ascend_raw.folder import Side, Stream
from traceconv.formats.ascend_raw.names import FLIP, HCCL, MAINTENANCE, RUNTIME, SIMT
from traceconv.formats.ascend_raw.records import HALF
from traceconv.formats.ascend_raw.staging import Fillers, RecordArray, Staging
from traceconv.formats.ascend_raw.tensors import Tensors
from traceconv.formats.common.file_reader import SOURCE_ID

_NUMBER = re.compile(r"[0-9]{1,20}")
#: Contexts of one range, whose numbers have 16 bits, and of all of them: a damaged record may have any.
_MOST_CONTEXTS, _MOST_IN_ALL = 1 << 16, 1 << 26
#: Contexts that are listed at once.
_CONTEXTS = 1 << 20


class HostRecords:
    """Reads the records of the host. `tensors`: what raw.tensor numbers."""

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._insert, self._ns = staging.insert, staging.ns
        self.tensors = Tensors()
        self._dynamic = False
        self._contexts_left = _MOST_IN_ALL

    def read(self, side: Side, clock: Clock | None) -> None:
        """Read all streams."""
        fillers: Fillers = {
            "api_event.data": (layouts.API_EVENT, self._api_events),
            "compact.node_basic_info": (layouts.NODE_BASIC, self._node_basics),
            "compact.node_attr_info": (layouts.NODE_ATTR, self._node_attrs),
            "compact.task_track": (layouts.TASK_TRACK, self._task_tracks),
            "compact.memcpy_info": (layouts.MEMCPY_INFO, self._copies),
            "compact.hccl_op_info": (layouts.HCCL_OP_INFO, self._hccl_ops),
            "additional.tensor_info": (layouts.TENSOR_INFO, self._tensors),
            "additional.context_id_info": (layouts.CONTEXT_IDS, self._contexts),
            "additional.hccl_info": (layouts.HCCL_INFO, self._hccl_infos),
            "additional.task_memory_info": (layouts.TASK_MEMORY, self._memory),
            "additional.msproftx": (layouts.TX, self._program_marks),
        }
        # The second version has the same tasks: it is read if the first one is missing.
        if all(stream.name != "compact.task_track" for stream in side.streams):
            fillers["compact.task_track_v2"] = (layouts.TASK_TRACK_V2, self._task_tracks)
        for stream in side.streams:
            if stream.name == "compact.expand_stream_spec":
                for found in self._staging.records(stream, layouts.EXPAND_STREAMS):
                    self._staging.wide_streams = bool(found["expand"].any()) or self._staging.wide_streams
            elif stream.name == "additional.hash_dic":
                self._texts(stream, "hash", 1)
            elif stream.name == "additional.type_info_dic":
                self._texts(stream, "type", 2)
            else:
                self._dynamic = stream.is_aging
                self._staging.read(stream, fillers, clock)

    def _texts(self, stream: Stream, table: str, count: int) -> None:
        """Read lines `NUMBER:TEXT` or `LEVEL_TYPE:TEXT`; of repeated ones, the last is kept."""

        def row_of(line: str) -> tuple[int | str, ...] | None:
            key, colon, text = line.partition(":")
            numbers = key.split("_")
            if not colon or len(numbers) != count or not all(_NUMBER.fullmatch(one) for one in numbers):
                return None
            value = self._staging.text_id(text) if table == "type" else text
            return (*(_signed(int(one)) for one in numbers), value)

        statement = f"INSERT OR REPLACE INTO raw.{table} VALUES ({', '.join('?' * (count + 1))})"  # noqa: S608 - a name above
        self._staging.insert_lines(stream, statement, row_of, "lines that are no text")

    def _api_events(self, found: RecordArray, clock: Clock) -> None:
        start, end = self._ns(clock, found["begin"]), self._ns(clock, np.where(found["end"] == HALF, 0, found["end"]))
        columns = [found["thread"], found["level"], found["type"], found["request"], found["item"]]
        is_half = found["end"] == np.uint64(HALF)
        self._insert("half", "thread, level, type, request, item, ns", [*columns, start], is_half)
        self._insert("api", "thread, level, type, request, item, start_ns, end_ns", [*columns, start, end], ~is_half)

    def _node_basics(self, found: RecordArray, clock: Clock) -> None:
        blocks, ratio = found["blocks"] & 0xFFFF, found["blocks"] >> 16
        columns = [found["op"], found["task_type"], found["op_type"], blocks, blocks * ratio, found["flag"] != 0]
        self._insert("basic", None, [*self._at(found, clock), *columns, np.full(len(found), self._dynamic)])

    def _node_attrs(self, found: RecordArray, clock: Clock) -> None:
        self._insert("attr", None, [*self._at(found, clock), found["op"], found["attr"]])

    def _tensors(self, found: RecordArray, clock: Clock) -> None:
        numbers = self.tensors.numbered(found["count"], found["tensors"])
        self._insert("tensor", None, [*self._at(found, clock), found["op"], numbers])

    def _contexts(self, found: RecordArray, clock: Clock) -> None:
        threads, times = self._at(found, clock)
        # Of HCCL, two contexts are the first and the last one.
        ids, counts = found["ids"].astype(np.int64), np.minimum(found["count"].astype(np.int64), 55)
        ranges = (found["level"] == HCCL) & (counts == 2)
        spans = np.clip(ids[:, 1] - ids[:, 0] + 1, 0, _MOST_CONTEXTS)
        listed = np.where(ranges, spans, counts)
        lengths = np.where(np.cumsum(listed) <= self._contexts_left, listed, 0)
        dropped = int(np.count_nonzero(lengths < listed))
        self._staging.log.count(Code.TOO_LARGE, "lists of contexts of tasks", dropped, SOURCE_ID)
        ends = np.cumsum(lengths)
        self._contexts_left -= int(ends[-1])
        cuts = np.searchsorted(ends, np.arange(_CONTEXTS, ends[-1], _CONTEXTS)).tolist()
        for first, last in pairwise([0, *cuts, len(found)]):
            some = lengths[first:last]
            rows = np.repeat(np.arange(first, last), some)
            places = np.arange(len(rows)) - np.repeat(np.cumsum(some) - some, some)
            contexts = np.where(ranges[rows], ids[rows, 0] + places, ids[rows, np.minimum(places, 54)])
            columns = [threads[rows], times[rows], found["level"][rows], found["op"][rows], contexts]
            self._insert("context", None, columns)

    def _hccl_ops(self, found: RecordArray, clock: Clock) -> None:
        columns = [found["bits"] & 1, (found["bits"] >> 1) & 1, found["data_type"], found["alg"], found["count"]]
        self._insert("hccl_op", None, [*self._at(found, clock), *columns, found["group"]])

    def _hccl_infos(self, found: RecordArray, clock: Clock) -> None:
        names = "item group local_rank remote_rank rank_size plane context notify bytes data_type link transport rdma"
        self._insert("hccl", None, [*self._at(found, clock), *(found[name] for name in names.split())])

    def _copies(self, found: RecordArray, clock: Clock) -> None:
        self._insert("copy", None, [*self._at(found, clock), found["bytes"], found["direction"]])

    def _task_tracks(self, found: RecordArray, clock: Clock) -> None:
        threads, times = self._at(found, clock)
        device, kind = found["device"] & 0xFFF, found["task_type"]
        task = found["task"] if self._staging.is_wide_chip else found["task"] & 0xFFFF
        batch = np.zeros(len(found), np.int64) if self._staging.is_wide_chip else found["task"] >> 16
        launch = found["launch"].astype(np.int64)
        is_simt = np.isin(kind, self._simt_types())
        has_blocks = (found["length"] >= 40) & ~is_simt
        blocks = np.where(has_blocks, launch[:, 0], -1)
        mix = np.where(has_blocks, blocks * (launch[:, 2] & 7), -1)
        is_flip, is_npu = kind == FLIP, found["device"] >> 12 == 0
        columns = [threads, times, device, found["stream"], task, batch, kind, found["kernel"], blocks, mix]
        names = "thread, ns, device, stream, task, batch, type, kernel, blocks, mix_blocks"
        chosen = is_npu & ~is_flip & (kind != MAINTENANCE)
        has_grid = chosen & is_simt & (found["length"] >= 40)
        self._insert("track", names, columns, chosen & ~has_grid)
        if has_grid.any():
            extents = [self._extents(launch[has_grid, :3]), self._extents(launch[has_grid, 3:6])]
            self._insert("track", f"{names}, grid, block", [*(column[has_grid] for column in columns), *extents])
        if self._staging.has_flips:
            zeros = np.zeros(len(found), np.int64)
            self._insert(
                "flip", None, [zeros, device, found["stream"], times, found["task"] & 0xFFFF], is_npu & is_flip
            )

    def _extents(self, extents: Int64) -> Int64:
        """Return the IDs of texts `x,y,z`."""
        distinct, places = np.unique(extents, axis=0, return_inverse=True)
        ids = [self._staging.text_id(",".join(map(str, one))) for one in distinct.tolist()]
        return np.array(ids, np.int64)[places.ravel()]

    def _simt_types(self) -> list[int]:
        """Return the types of SIMT tasks, whose names are read before the tasks."""
        rows = self._staging.connection.execute(
            "SELECT y.type FROM raw.type AS y JOIN raw.hash AS h ON h.id = y.text WHERE y.level = ? AND h.text = ?",
            (RUNTIME, SIMT),
        )
        return [kind for (kind,) in rows]

    def _memory(self, found: RecordArray, clock: Clock) -> None:
        names = ("addr", "bytes", "op", "allocated", "reserved")
        _, times = self._at(found, clock)
        self._insert("memory", None, [found["device"], times, *(found[name] for name in names)])

    def _program_marks(self, found: RecordArray, clock: Clock) -> None:
        texts = [one.split(b"\0", 1)[0].decode("utf-8", "replace") for one in found["message"].tolist()]
        times = [self._ns(clock, found[name]) for name in ("start", "end")]
        columns = [found["tid"], *times, found["kind"], found["category"], found["domain"], found["mark"]]
        self._insert("tx", None, [*columns, found["segment"], texts])

    def _at(self, found: RecordArray, clock: Clock) -> tuple[Any, Any]:
        """Return the columns that begin each record of the host."""
        return found["thread"], self._ns(clock, found["time"])


def _signed(number: int) -> int:
    """Return the number with a sign that has the same 64 bits."""
    return (number & 2**64 - 1) - (number >> 63 & 1) * 2**64
