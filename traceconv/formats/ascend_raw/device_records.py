"""The streams of a device → tables of its records."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64
from traceconv.formats.ascend_raw import records as layouts
from traceconv.formats.ascend_raw.clocks import Clock
from traceconv.formats.ascend_raw.folder import Side, Stream
from traceconv.formats.ascend_raw.records import COUNTERS, NONE
from traceconv.formats.ascend_raw.staging import Fillers, RecordArray, Staging
from traceconv.formats.common.file_reader import SOURCE_ID

_JOB_TASK = re.compile(r"(\S.*?) +(\d{1,9}) +(\d{1,9}) +(\d{1,9})[\0\r ]*")
#: Kinds of records in stars_soc.data, ffts_profile.data and ts_track.data.
_TASK_STARTS, _TASK_ENDS = (0b000000, 0b100010), (0b000001, 0b100011)
_CONTEXT_POINTS = (0b100010, 0b100011)
_PMU_OF_TASK, _PMU_OF_BLOCK, _PMU_OF_WIDE_TASK = 0b101000, 0b101001, 0b101010
_STEP_MARK, _DEVICE_FLIP = 10, 14
#: What samples of low power are of: MHz, not voltages.
_FREQUENCY = 0


class DeviceRecords:
    """Reads the records of one device."""

    def __init__(self, staging: Staging, device: int) -> None:
        self._staging = staging
        self._insert, self._ns = staging.insert, staging.ns
        self._device = device

    def read(self, side: Side, clock: Clock | None) -> None:
        """Read all streams."""
        wide = self._staging.is_wide_chip
        fillers: Fillers = {
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
        for stream in side.streams:
            if stream.name == "Framework.host.vm.task_desc_info":
                self._job_tasks(stream)
            else:
                self._staging.read(stream, fillers, clock)

    def _stars(self, found: RecordArray, clock: Clock) -> None:
        kind = found["head"] & 0x3F
        chosen = found[np.isin(kind, (*_TASK_STARTS, *_TASK_ENDS))]
        kind, sqe = chosen["head"] & 0x3F, (chosen["head"] >> 10).astype(np.int64)
        stream, task = self._ids(chosen["stream"].astype(np.int64), chosen["task"].astype(np.int64), sqe)
        in_context = np.isin(kind, _CONTEXT_POINTS)
        context = np.where(in_context, chosen["sub_task"].astype(np.int64), NONE)
        # Types of contexts follow those of entries.
        types = np.where(in_context, (chosen["sub_type"] & 0xFF).astype(np.int64) + 1000, sqe)
        self._points(stream, task, context, self._ns(clock, chosen["ticks"]), np.isin(kind, _TASK_ENDS), types)

    def _stars_wide(self, found: RecordArray, clock: Clock) -> None:
        chosen = found[np.isin(found["head"] & 0x3F, (_TASK_STARTS[0], _TASK_ENDS[0]))]
        count = len(chosen)
        is_end = (chosen["head"] & 0x3F) == _TASK_ENDS[0]
        types = (chosen["head"] >> 10).astype(np.int64)
        # Streams are found by the tasks of the host.
        stream, context = np.full(count, -1), np.full(count, NONE)
        self._points(stream, chosen["task"].astype(np.int64), context, self._ns(clock, chosen["ticks"]), is_end, types)

    def _hwts(self, found: RecordArray, clock: Clock) -> None:
        # A number that runs in all records shows how many are missing, up to 15 in a row.
        running = found["head"] >> 4
        missing = int(((running[1:] - running[:-1] - 1) & 15).sum())
        self._staging.log.count(Code.MISSING_RECORDS, "hwts.data: records that the device lost", missing, SOURCE_ID)
        chosen = found[(found["head"] & 7) <= 1]
        stream, task = (chosen["stream"] % 2048).astype(np.int64), chosen["task"].astype(np.int64)
        is_end, types = (chosen["head"] & 7) == 1, chosen["task_type"].astype(np.int64)
        self._points(stream, task, np.full(len(chosen), NONE), self._ns(clock, chosen["ticks"]), is_end, types)

    def _points(
        self, stream: Int64, task: Int64, context: Int64, times: Any, is_end: NDArray[np.bool_], types: Int64
    ) -> None:
        self._insert("point", None, [self._devices(stream), stream, task, context, times, is_end, types])

    def _ffts(self, found: RecordArray, clock: Clock) -> None:
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

    def _ffts_wide(self, found: RecordArray, clock: Clock) -> None:
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

    def _known_pmu(self, found: RecordArray, kind: NDArray[Any], known: tuple[int, int]) -> RecordArray:
        """Return the records of counters of these kinds; others are lost."""
        chosen = found[np.isin(kind, known)]
        message = "ffts_profile.data: counters of an unknown kind"
        self._staging.log.count(Code.UNKNOWN_RECORD, message, len(found) - len(chosen), SOURCE_ID)
        return chosen

    def _aicore(self, found: RecordArray, clock: Clock) -> None:
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
        found: RecordArray,
        *,
        has_span: bool = False,
    ) -> None:
        times = [None] * len(found) if clock is None else self._ns(clock, found["end"])
        starts = self._ns(clock, found["start"]) if clock is not None and has_span else [None] * len(found)
        counters: list[Any] = list(found["pmu"].T)
        counters += [[None] * len(found)] * (COUNTERS - len(counters))
        self._insert(
            "pmu",
            None,
            [self._devices(stream), stream, task, context, starts, times, core, is_block, found["cycles"], *counters],
        )

    def _ts_track(self, found: RecordArray, clock: Clock) -> None:
        times = self._ns(clock, found["ticks"])
        is_mark, is_flip = found["kind"] == _STEP_MARK, found["kind"] == _DEVICE_FLIP
        words = found["words"]
        most = 0x7FFF if self._staging.wide_streams else 0x7FF
        stream, tag = (words[:, 1], words[:, 0]) if self._staging.is_wide_chip else (words[:, 0] & most, words[:, 2])
        marks = [self._devices(times), times, found["model"], found["index"], tag, stream]
        self._insert("mark", None, marks, is_mark)
        if self._staging.has_flips:
            ids = found["index"]
            ones = np.ones(len(found), np.int64)
            flips = [
                ones,
                self._devices(times),
                ids & np.uint64(most),
                times,
                (ids >> np.uint64(48)) & np.uint64(0xFFFF),
            ]
            self._insert("flip", None, flips, is_flip)

    def _job_marks(self, found: RecordArray, clock: Clock) -> None:
        columns = [self._devices(found), self._ns(clock, found["ticks"]), found["tag"], found["stream"]]
        self._insert("job_mark", "device, ns, tag, stream", columns)

    def _job_tasks(self, stream: Stream) -> None:
        """Read lines `NAME BLOCKS TASK STREAM`; names may contain blanks."""

        def row_of(line: str) -> tuple[int, ...] | None:
            match = _JOB_TASK.fullmatch(line)
            if match is None:
                return None
            blocks, task, of_stream = (int(one) for one in match.groups()[1:])
            return self._device, of_stream, task, self._staging.text_id(match[1]), blocks

        statement = "INSERT INTO raw.job_task VALUES (?, ?, ?, ?, ?)"
        self._staging.insert_lines(stream, statement, row_of, "lines that describe no task")

    def _frequencies(self, found: RecordArray, clock: Clock) -> None:
        for record in found[found["kind"] == _FREQUENCY]:
            samples = np.frombuffer(record["samples"].tobytes(), layouts.FREQUENCY)[: min(int(record["count"]), 55)]
            times = self._ns(clock, samples["ticks"])
            self._insert("frequency", None, [self._devices(samples), times, samples["value"]])

    def _module_memory(self, found: RecordArray, clock: Clock) -> None:
        times = self._ns(clock, found["ticks"])
        self._insert("module_memory", None, [self._devices(found), times, found["module"], found["bytes"]])

    def _ids(self, stream: Int64, task: Int64, sqe: Any) -> tuple[Int64, Int64]:
        """Return the IDs of streams and tasks, which share their bits in a record of STARS."""
        if self._staging.wide_streams:
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

    def _devices(self, rows: Any) -> Int64:
        return np.full(len(rows), self._device)
