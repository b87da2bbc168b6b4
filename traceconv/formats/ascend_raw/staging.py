"""The streams of a recording → tables of its records, in a database of its own."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import compress, islice, pairwise
from typing import Any, TypeAlias

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.digest import blake2b
from traceconv.base.errors import printable
from traceconv.base.int64 import Int64
from traceconv.formats.ascend_raw import records as layouts
from traceconv.formats.ascend_raw.clocks import Clock
from traceconv.formats.ascend_raw.folder import Side, Stream
from traceconv.formats.ascend_raw.names import CHIPS_WITHOUT_FLIPS, FLIP, HCCL, MAINTENANCE, RUNTIME, SIMT, WIDE_CHIPS
from traceconv.formats.ascend_raw.records import COUNTERS, HALF, NONE, Layout
from traceconv.formats.ascend_raw.slices import Slices
from traceconv.formats.ascend_raw.tensors import Tensors
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import file_size

_NUMBER = re.compile(r"[0-9]{1,20}")
_JOB_TASK = re.compile(r"(\S.*?) +(\d{1,9}) +(\d{1,9}) +(\d{1,9})[\0\r ]*")
#: Lines of text that are stored at once.
_LINES = 1 << 14
_Records: TypeAlias = NDArray[np.void]
#: By stream: the layout of its records, and what inserts them.
_Fillers: TypeAlias = dict[str, tuple[Layout, Callable[[_Records, Clock], None]]]
#: Streams whose records describe what others contain: nothing of them is an event.
_DESCRIBING = frozenset(
    (
        "additional.Multi_Thread",
        "additional.capture_op_info",
        "additional.fusion_op_info",
        "additional.graph_id_map",
        "additional.logic_stream_info",
        "additional.mc2_comm_info",
        "additional.memory_application",
        "additional.model_exeom",
        "additional.static_op_mem",
        "aicpu.data",
        "Framework.host.vm.graph_desc_info",
        "Framework.host.vm.point",
        "compact.capture_stream_info",
        "compact.capture_stream_info_v2",
        "compact.task_track_v2",
    )
)
#: Parts of stars_soc and ts_track that are no tasks.
_TASK_STARTS, _TASK_ENDS = (0b000000, 0b100010), (0b000001, 0b100011)
_CONTEXT_POINTS = (0b100010, 0b100011)
_PMU_OF_TASK, _PMU_OF_BLOCK, _PMU_OF_WIDE_TASK = 0b101000, 0b101001, 0b101010
_STEP_MARK, _DEVICE_FLIP = 10, 14
#: What samples of low power are of: MHz, not voltages.
_FREQUENCY = 0
#: Contexts of one range, whose numbers have 16 bits, and of all of them: a damaged record may have any.
_MOST_CONTEXTS, _MOST_IN_ALL = 1 << 16, 1 << 26
#: Contexts that are listed at once.
_CONTEXTS = 1 << 20


def schema() -> str:
    """Return the statements that create the tables."""
    return files("traceconv.formats.ascend_raw").joinpath("staging.sql").read_text("utf-8")


class Staging:
    """Fills the tables from one recording.

    chip     `platform_version` of info.json
    tensors  what raw.tensor numbers
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        log: ImportLog,
        accounts: Accounts,
        advance: Callable[[int], None],
        chip: int,
    ) -> None:
        self._connection = connection
        self._log = log
        self._slices = Slices(log, accounts, advance)
        self._is_wide_chip = chip in WIDE_CHIPS
        self._has_flips = chip not in CHIPS_WITHOUT_FLIPS and not self._is_wide_chip
        self._wide_streams = False
        self.tensors = Tensors()
        self._dynamic = False
        self._contexts_left = _MOST_IN_ALL

    # -- the host --

    def add_host(self, side: Side, clock: Clock | None) -> None:
        """Read the streams of the host."""
        fillers: _Fillers = {
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
                for found in self._slices.records(stream, layouts.EXPAND_STREAMS):
                    self._wide_streams = bool(found["expand"].any()) or self._wide_streams
            elif stream.name == "additional.hash_dic":
                self._texts(stream, "hash", 1)
            elif stream.name == "additional.type_info_dic":
                self._texts(stream, "type", 2)
            else:
                self._dynamic = stream.is_aging
                self._read(stream, fillers, clock)

    def _texts(self, stream: Stream, table: str, count: int) -> None:
        """Read lines `NUMBER:TEXT` or `LEVEL_TYPE:TEXT`; of repeated ones, the last is kept."""
        damaged = 0
        lines = self._slices.text(stream)
        while some := list(islice(lines, _LINES)):
            rows: list[tuple[int | str, ...]] = []
            for line in some:
                key, colon, text = line.partition(":")
                numbers = key.split("_")
                if colon and len(numbers) == count and all(_NUMBER.fullmatch(one) for one in numbers):
                    value = self.text_id(text) if table == "type" else text
                    rows.append((*(_signed(int(one)) for one in numbers), value))
                elif line.strip("\0\r "):
                    damaged += 1
            marks = ", ".join("?" * (count + 1))
            self._connection.executemany(f"INSERT OR REPLACE INTO raw.{table} VALUES ({marks})", rows)  # noqa: S608 - a name above
        self._log.count(Code.BAD_TEXT, f"{printable(stream.name)}: lines that are no text", damaged, SOURCE_ID)

    def text_id(self, text: str) -> int:
        """Return the ID of a text that the recording has no number for."""
        number = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little", signed=True)
        self._connection.execute("INSERT OR REPLACE INTO raw.hash VALUES (?, ?)", (number, text))
        return number

    def _api_events(self, found: _Records, clock: Clock) -> None:
        start, end = self.ns(clock, found["begin"]), self.ns(clock, np.where(found["end"] == HALF, 0, found["end"]))
        columns = [found["thread"], found["level"], found["type"], found["request"], found["item"]]
        is_half = found["end"] == np.uint64(HALF)
        self.insert("half", "thread, level, type, request, item, ns", [*columns, start], is_half)
        self.insert("api", "thread, level, type, request, item, start_ns, end_ns", [*columns, start, end], ~is_half)

    def _node_basics(self, found: _Records, clock: Clock) -> None:
        blocks, ratio = found["blocks"] & 0xFFFF, found["blocks"] >> 16
        columns = [found["op"], found["task_type"], found["op_type"], blocks, blocks * ratio, found["flag"] != 0]
        self.insert("basic", None, [*self._at(found, clock), *columns, np.full(len(found), self._dynamic)])

    def _node_attrs(self, found: _Records, clock: Clock) -> None:
        self.insert("attr", None, [*self._at(found, clock), found["op"], found["attr"]])

    def _tensors(self, found: _Records, clock: Clock) -> None:
        numbers = self.tensors.numbered(found["count"], found["tensors"])
        self.insert("tensor", None, [*self._at(found, clock), found["op"], numbers])

    def _contexts(self, found: _Records, clock: Clock) -> None:
        threads, times = self._at(found, clock)
        # Of HCCL, two contexts are the first and the last one.
        ids, counts = found["ids"].astype(np.int64), np.minimum(found["count"].astype(np.int64), 55)
        ranges = (found["level"] == HCCL) & (counts == 2)
        spans = np.clip(ids[:, 1] - ids[:, 0] + 1, 0, _MOST_CONTEXTS)
        listed = np.where(ranges, spans, counts)
        lengths = np.where(np.cumsum(listed) <= self._contexts_left, listed, 0)
        dropped = int(np.count_nonzero(lengths < listed))
        self._log.count(Code.TOO_LARGE, "lists of contexts of tasks", dropped, SOURCE_ID)
        ends = np.cumsum(lengths)
        self._contexts_left -= int(ends[-1])
        cuts = np.searchsorted(ends, np.arange(_CONTEXTS, ends[-1], _CONTEXTS)).tolist()
        for first, last in pairwise([0, *cuts, len(found)]):
            some = lengths[first:last]
            rows = np.repeat(np.arange(first, last), some)
            places = np.arange(len(rows)) - np.repeat(np.cumsum(some) - some, some)
            contexts = np.where(ranges[rows], ids[rows, 0] + places, ids[rows, np.minimum(places, 54)])
            columns = [threads[rows], times[rows], found["level"][rows], found["op"][rows], contexts]
            self.insert("context", None, columns)

    def _hccl_ops(self, found: _Records, clock: Clock) -> None:
        columns = [found["bits"] & 1, (found["bits"] >> 1) & 1, found["data_type"], found["alg"], found["count"]]
        self.insert("hccl_op", None, [*self._at(found, clock), *columns, found["group"]])

    def _hccl_infos(self, found: _Records, clock: Clock) -> None:
        names = "item group local_rank remote_rank rank_size plane context notify bytes data_type link transport rdma"
        self.insert("hccl", None, [*self._at(found, clock), *(found[name] for name in names.split())])

    def _copies(self, found: _Records, clock: Clock) -> None:
        self.insert("copy", None, [*self._at(found, clock), found["bytes"], found["direction"]])

    def _task_tracks(self, found: _Records, clock: Clock) -> None:
        threads, times = self._at(found, clock)
        device, kind = found["device"] & 0xFFF, found["task_type"]
        task = found["task"] if self._is_wide_chip else found["task"] & 0xFFFF
        batch = np.zeros(len(found), np.int64) if self._is_wide_chip else found["task"] >> 16
        launch = found["launch"].astype(np.int64)
        is_simt = np.isin(kind, self._types_named(SIMT))
        has_blocks = (found["length"] >= 40) & ~is_simt
        blocks = np.where(has_blocks, launch[:, 0], -1)
        mix = np.where(has_blocks, blocks * (launch[:, 2] & 7), -1)
        is_flip, is_npu = kind == FLIP, found["device"] >> 12 == 0
        columns = [threads, times, device, found["stream"], task, batch, kind, found["kernel"], blocks, mix]
        names = "thread, ns, device, stream, task, batch, type, kernel, blocks, mix_blocks"
        chosen = is_npu & ~is_flip & (kind != MAINTENANCE)
        has_grid = chosen & is_simt & (found["length"] >= 40)
        self.insert("track", names, columns, chosen & ~has_grid)
        if has_grid.any():
            extents = [self._extents(launch[has_grid, :3]), self._extents(launch[has_grid, 3:6])]
            self.insert("track", f"{names}, grid, block", [*(column[has_grid] for column in columns), *extents])
        if self._has_flips:
            zeros = np.zeros(len(found), np.int64)
            self.insert("flip", None, [zeros, device, found["stream"], times, found["task"] & 0xFFFF], is_npu & is_flip)

    def _extents(self, extents: Int64) -> Int64:
        """Return the IDs of texts `x,y,z`."""
        distinct, places = np.unique(extents, axis=0, return_inverse=True)
        ids = [self.text_id(",".join(map(str, one))) for one in distinct.tolist()]
        return np.array(ids, np.int64)[places.ravel()]

    def _types_named(self, name: str) -> list[int]:
        """Return the types of tasks with a name, which are read before the tasks."""
        rows = self._connection.execute(
            "SELECT y.type FROM raw.type AS y JOIN raw.hash AS h ON h.id = y.text WHERE y.level = ? AND h.text = ?",
            (RUNTIME, name),
        )
        return [kind for (kind,) in rows]

    def _memory(self, found: _Records, clock: Clock) -> None:
        names = ("addr", "bytes", "op", "allocated", "reserved")
        _, times = self._at(found, clock)
        self.insert("memory", None, [found["device"], times, *(found[name] for name in names)])

    def _program_marks(self, found: _Records, clock: Clock) -> None:
        texts = [one.split(b"\0", 1)[0].decode("utf-8", "replace") for one in found["message"].tolist()]
        times = [self.ns(clock, found[name]) for name in ("start", "end")]
        columns = [found["tid"], *times, found["kind"], found["category"], found["domain"], found["mark"]]
        self.insert("tx", None, [*columns, found["segment"], texts])

    # -- devices --

    def add_device(self, side: Side, clock: Clock | None) -> None:
        """Read the streams of a device."""
        wide = self._is_wide_chip
        fillers: _Fillers = {
            "stars_soc.data": (layouts.STARS_WIDE, self._stars_wide) if wide else (layouts.STARS, self._stars),
            "hwts.data": (layouts.HWTS, self._hwts),
            "hwts.aiv_data": (layouts.HWTS, self._hwts),
            "ffts_profile.data": (
                (layouts.FFTS_PROFILE_WIDE, self._ffts_wide) if wide else (layouts.FFTS_PROFILE, self._ffts)
            ),
            "aicore.data": (layouts.AICORE, self._aicore),
            "ts_track.data": (layouts.TS_TRACK, self._ts_track),
            "ts_track.aiv_data": (layouts.TS_TRACK, self._ts_track),
            "lpmFreqConv.data": (layouts.FREQUENCIES, self._frequencies),
            "lpmInfoConv.data": (layouts.FREQUENCIES, self._frequencies),
            "npu_module_mem.data": (layouts.NPU_MODULE_MEMORY, self._module_memory),
            "hwts.log.data.45": (layouts.HWTS, self._hwts),
            "training_trace.46": (layouts.TRAINING_TRACE, self._job_marks),
        }
        self._device = side.device or 0
        for stream in side.streams:
            if stream.name == "Framework.host.vm.task_desc_info":
                self._job_tasks(stream)
            else:
                self._read(stream, fillers, clock)

    def _stars(self, found: _Records, clock: Clock) -> None:
        kind = found["head"] & 0x3F
        chosen = found[np.isin(kind, (*_TASK_STARTS, *_TASK_ENDS))]
        kind, sqe = chosen["head"] & 0x3F, (chosen["head"] >> 10).astype(np.int64)
        stream, task = self._ids(chosen["stream"].astype(np.int64), chosen["task"].astype(np.int64), sqe)
        in_context = np.isin(kind, _CONTEXT_POINTS)
        context = np.where(in_context, chosen["sub_task"].astype(np.int64), NONE)
        # Types of contexts follow those of entries.
        types = np.where(in_context, (chosen["sub_type"] & 0xFF).astype(np.int64) + 1000, sqe)
        self._points(stream, task, context, self.ns(clock, chosen["ticks"]), np.isin(kind, _TASK_ENDS), types)

    def _stars_wide(self, found: _Records, clock: Clock) -> None:
        chosen = found[np.isin(found["head"] & 0x3F, (_TASK_STARTS[0], _TASK_ENDS[0]))]
        count = len(chosen)
        is_end = (chosen["head"] & 0x3F) == _TASK_ENDS[0]
        types = (chosen["head"] >> 10).astype(np.int64)
        # Streams are found by the tasks of the host.
        stream, context = np.full(count, -1), np.full(count, NONE)
        self._points(stream, chosen["task"].astype(np.int64), context, self.ns(clock, chosen["ticks"]), is_end, types)

    def _hwts(self, found: _Records, clock: Clock) -> None:
        # A number that runs in all records shows how many are missing, up to 15 in a row.
        running = found["head"] >> 4
        missing = int(((running[1:] - running[:-1] - 1) & 15).sum())
        self._log.count(Code.MISSING_RECORDS, "hwts.data: records that the device lost", missing, SOURCE_ID)
        chosen = found[(found["head"] & 7) <= 1]
        stream, task = (chosen["stream"] % 2048).astype(np.int64), chosen["task"].astype(np.int64)
        is_end, types = (chosen["head"] & 7) == 1, chosen["task_type"].astype(np.int64)
        self._points(stream, task, np.full(len(chosen), NONE), self.ns(clock, chosen["ticks"]), is_end, types)

    def _points(
        self, stream: Int64, task: Int64, context: Int64, times: Any, is_end: NDArray[np.bool_], types: Int64
    ) -> None:
        self.insert("point", None, [self._devices(stream), stream, task, context, times, is_end, types])

    def _ffts(self, found: _Records, clock: Clock) -> None:
        kind = found["head"] & 0x3F
        chosen = self._known_pmu(found, kind, (_PMU_OF_TASK, _PMU_OF_BLOCK))
        kind, ffts, sub = chosen["head"] & 0x3F, chosen["bits"] >> 5, chosen["sub_type"] & 0xFF
        stream, task = self._ids(chosen["stream"].astype(np.int64), chosen["task"].astype(np.int64), 0)
        context = np.where(ffts == 4, chosen["sub_task"].astype(np.int64), NONE)
        core = np.where((ffts == 0) | ((ffts == 4) & (sub == 0)), "AIC", "AIV")
        core = np.where((ffts == 4) & (sub == 6), "MIX_AIC", np.where((ffts == 4) & (sub == 7), "MIX_AIV", core))
        is_block = kind == _PMU_OF_BLOCK
        # A block's own core, which of MIX is the other one.
        core = np.where(is_block, np.where(chosen["core"] & 1 == 1, "BLOCK_AIV", "BLOCK_AIC"), core)
        self._counted(stream, task, context, clock, core, is_block, chosen)

    def _ffts_wide(self, found: _Records, clock: Clock) -> None:
        # What the blocks of a task counted is in the records of the task.
        known = self._known_pmu(found, found["head"] & 0x3F, (_PMU_OF_WIDE_TASK, _PMU_OF_BLOCK))
        chosen = known[(known["head"] & 0x3F) == _PMU_OF_WIDE_TASK]
        count = len(chosen)
        is_mix, is_vector = (chosen["bits"] >> 1 & 1) == 1, chosen["core"] & 1 == 1
        core = np.where(is_mix, np.where(is_vector, "MIX_AIV", "MIX_AIC"), np.where(is_vector, "AIV", "AIC"))
        self._counted(
            np.full(count, -1),
            chosen["task"].astype(np.int64),
            np.full(count, NONE),
            clock,
            core,
            np.zeros(count, np.bool_),
            chosen,
            has_span=True,
        )

    def _known_pmu(self, found: _Records, kind: NDArray[Any], known: tuple[int, int]) -> _Records:
        """Return the records of counters of these kinds; others are lost."""
        chosen = found[np.isin(kind, known)]
        message = "ffts_profile.data: counters of an unknown kind"
        self._log.count(Code.UNKNOWN_RECORD, message, len(found) - len(chosen), SOURCE_ID)
        return chosen

    def _aicore(self, found: _Records, clock: Clock) -> None:
        stream, task = (found["stream"] % 2048).astype(np.int64), found["task"].astype(np.int64)
        count = len(found)
        self._counted(stream, task, np.full(count, NONE), None, np.full(count, "AIC"), np.zeros(count, np.bool_), found)

    def _counted(
        self,
        stream: Int64,
        task: Int64,
        context: Int64,
        clock: Clock | None,
        core: NDArray[np.str_],
        is_block: NDArray[np.bool_],
        found: _Records,
        *,
        has_span: bool = False,
    ) -> None:
        times = [None] * len(found) if clock is None else self.ns(clock, found["end"])
        starts = self.ns(clock, found["start"]) if clock is not None and has_span else [None] * len(found)
        counters: list[Any] = list(found["pmu"].T)
        counters += [[None] * len(found)] * (COUNTERS - len(counters))
        self.insert(
            "pmu",
            None,
            [self._devices(stream), stream, task, context, starts, times, core, is_block, found["cycles"], *counters],
        )

    def _ts_track(self, found: _Records, clock: Clock) -> None:
        times = self.ns(clock, found["ticks"])
        is_mark, is_flip = found["kind"] == _STEP_MARK, found["kind"] == _DEVICE_FLIP
        words = found["words"]
        most = 0x7FFF if self._wide_streams else 0x7FF
        stream, tag = (words[:, 1], words[:, 0]) if self._is_wide_chip else (words[:, 0] & most, words[:, 2])
        marks = [self._devices(times), times, found["model"], found["index"], tag, stream]
        self.insert("mark", None, marks, is_mark)
        if self._has_flips:
            ids = found["index"]
            ones = np.ones(len(found), np.int64)
            flips = [
                ones,
                self._devices(times),
                ids & np.uint64(most),
                times,
                (ids >> np.uint64(48)) & np.uint64(0xFFFF),
            ]
            self.insert("flip", None, flips, is_flip)

    def _job_marks(self, found: _Records, clock: Clock) -> None:
        columns = [self._devices(found), self.ns(clock, found["ticks"]), found["tag"], found["stream"]]
        self.insert("job_mark", "device, ns, tag, stream", columns)

    def _job_tasks(self, stream: Stream) -> None:
        """Read lines `NAME BLOCKS TASK STREAM`; names may contain blanks."""
        damaged = 0
        lines = self._slices.text(stream)
        while some := list(islice(lines, _LINES)):
            rows: list[tuple[int, ...]] = []
            for line in some:
                if match := _JOB_TASK.fullmatch(line):
                    blocks, task, of_stream = (int(one) for one in match.groups()[1:])
                    rows.append((self._device, of_stream, task, self.text_id(match[1]), blocks))
                elif line.strip("\0\r "):
                    damaged += 1
            self._connection.executemany("INSERT INTO raw.job_task VALUES (?, ?, ?, ?, ?)", rows)
        self._log.count(Code.BAD_TEXT, f"{printable(stream.name)}: lines that describe no task", damaged, SOURCE_ID)

    def _frequencies(self, found: _Records, clock: Clock) -> None:
        for record in found[found["kind"] == _FREQUENCY]:
            samples = np.frombuffer(record["samples"].tobytes(), layouts.FREQUENCY)[: min(int(record["count"]), 55)]
            times = self.ns(clock, samples["ticks"])
            self.insert("frequency", None, [self._devices(samples), times, samples["value"]])

    def _module_memory(self, found: _Records, clock: Clock) -> None:
        times = self.ns(clock, found["ticks"])
        self.insert("module_memory", None, [self._devices(found), times, found["module"], found["bytes"]])

    def _ids(self, stream: Int64, task: Int64, sqe: Any) -> tuple[Int64, Int64]:
        """Return the IDs of streams and tasks, which share their bits in a record of STARS."""
        if self._wide_streams:
            is_plain, is_long = np.isin(sqe, (3, 4)), stream & 0x8000 != 0
            swapped = ~is_plain & is_long
            return (
                np.where(swapped, task & 0x7FFF, stream & 0x7FFF),
                np.where(swapped, (task & 0x8000) | (stream & 0x7FFF), task),
            )
        is_low, is_high = stream & 0x1000 != 0, (stream & 0x3000) == 0x2000
        return (
            np.where(is_high, (task & 0xFFF) % 2048, stream % 2048),
            np.where(
                is_low, (task & 0x1FFF) | (stream & 0xE000), np.where(is_high, (stream & 0xFFF) | (task & 0xF000), task)
            ),
        )

    # -- tables --

    def _read(self, stream: Stream, fillers: _Fillers, clock: Clock | None) -> None:
        if stream.name not in fillers:
            self.skip(stream)
            return
        layout, fill = fillers[stream.name]
        for found in self._slices.records(stream, layout):
            if clock is None:
                self.lose(stream, len(found), Code.NO_CLOCK_SYNC, "the start of the clock is not recorded")
            else:
                fill(found, clock)

    def pieces(self, stream: Stream) -> Iterator[bytes]:
        """Yield the bytes of a stream."""
        return self._slices.pieces(stream, 0)

    def records(self, stream: Stream, layout: Layout) -> Iterator[_Records]:
        """Yield the records of a stream."""
        return self._slices.records(stream, layout)

    def skip(self, stream: Stream) -> None:
        """Account for a stream that is not read."""
        size = sum(map(file_size, stream.files))
        if stream.name in _DESCRIBING or not size:
            self._log.add(Code.NOT_READ, f"{printable(stream.name)}: not read", source_id=SOURCE_ID, byte_count=size)
        else:
            self.lose(stream, 1, Code.UNKNOWN_RECORD, f"{size} bytes of a stream that is not read")

    def lose(self, stream: Stream, count: int, code: Code, what: str) -> None:
        """Account for records of a stream that are lost."""
        self._slices.lose(stream, count, code, what)

    def _at(self, found: _Records, clock: Clock) -> tuple[Any, Any]:
        """Return the columns that begin each record of the host."""
        return found["thread"], self.ns(clock, found["time"])

    def ns(self, clock: Clock, ticks: NDArray[np.uint64]) -> NDArray[Any]:
        """Return times; None for those that are not valid."""
        times, valid = clock.ns(ticks)
        if valid.all():
            return times
        found = times.astype(object)
        found[~valid] = None
        return found

    def _devices(self, rows: Any) -> Int64:
        return np.full(len(rows), self._device)

    def insert(
        self, table: str, names: str | None, columns: Sequence[Any], chosen: NDArray[np.bool_] | None = None
    ) -> None:
        """Insert rows, or those that are chosen, into a table of `raw`.

        names  of the columns; None: all of the table
        """
        listed = [_listed(column, chosen) for column in columns]
        marks = ", ".join("?" * len(columns))
        shown = f" ({names})" if names else ""
        self._connection.executemany(f"INSERT INTO raw.{table}{shown} VALUES ({marks})", zip(*listed, strict=True))  # noqa: S608 - names above


def _signed(number: int) -> int:
    """Return the number with a sign that has the same 64 bits."""
    return (number & 2**64 - 1) - (number >> 63 & 1) * 2**64


def _listed(column: Any, chosen: NDArray[np.bool_] | None) -> list[Any]:
    """Return values that SQLite can store: numbers without a sign as those with the same bits."""
    if isinstance(column, list):
        return column if chosen is None else list(compress(column, chosen.tolist()))
    column = column if chosen is None else column[chosen]
    found: list[Any] = (column.view(np.int64) if column.dtype == np.uint64 else column).tolist()
    return found
