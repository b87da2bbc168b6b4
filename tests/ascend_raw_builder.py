"""Write raw data as the profiler of CANN does: by the layouts in its headers, with struct, not with our reader's."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

#: Host: ticks of 10 ns; device: ticks of 20 ns. Both counters are read at MONO, which is 56,579.9 s after the boot.
MONO, HOST_TICK, DEVICE_TICK = 56_579_931_060_630, 10, 20
HOST_FIRST, DEVICE_FIRST = 5_657_993_106, 1_000_000
#: µs since 1970 when CLOCK_MONOTONIC_RAW was START.
WALL_US, START = 1_692_340_024_324_979, 56_579_931_000_000
NONE = 2**32 - 1
PID, THREAD = 4711, 4712
ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
TYPES = {
    (ACL, 0x50001): "aclnnMatmul",
    (ACL, 0x30002): "aclrtMemcpyAsync",
    (MODEL, 1): "ModelExecute",
    (NODE, 5): "launch",
    (HCCL, 0x10001): "master",
    (HCCL, 0x10002): "slave",
    (RUNTIME, 1000): "KernelLaunch",
    (RUNTIME, 0): "KERNEL_AICORE",
    (RUNTIME, 1): "KERNEL_AICPU",
    (RUNTIME, 3): "EVENT_RECORD",
    (RUNTIME, 5): "MEMCPY_ASYNC",
    (RUNTIME, 66): "KERNEL_AIVEC",
    (RUNTIME, 67): "FFTS_PLUS",
    (RUNTIME, 68): "KERNEL_MIX_AIC",
    (RUNTIME, 69): "KERNEL_SIMT",
}


def ns_of_host(ticks: int) -> int:
    """The time of a number of ticks after the start, counted by hand."""
    return MONO + ticks * HOST_TICK + WALL_US * 1000 - START


def ns_of_device(ticks: int) -> int:
    """The time of a number of ticks after the start, counted by hand."""
    return MONO + ticks * DEVICE_TICK + WALL_US * 1000 - START


def text_hash(text: str) -> int:
    """A number for a text, with all 64 bits in use."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value | 1 << 63


@dataclass
class Capture:
    """Records by stream. Times of the host and of devices are ticks from the start of each clock."""

    host: dict[str, bytearray] = field(default_factory=dict)
    devices: dict[int, dict[str, bytearray]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    torch: dict[str, bytearray] = field(default_factory=dict)
    chip: int = 5
    tracks: str = "task_track"
    host_frequency: object = "100.000000"

    def hash(self, text: str) -> int:
        self.texts[text_hash(text)] = text
        return text_hash(text)

    def _put(self, stream: str, data: bytes, device: int | None = None) -> None:
        streams = self.host if device is None else self.devices.setdefault(device, {})
        streams.setdefault(stream, bytearray()).extend(data)

    # -- the host --

    def api(
        self, level: int, kind: int, begin: int, end: int, item: int = 0, thread: int = THREAD, request: int = 0
    ) -> None:
        begin, end = HOST_FIRST + begin, HOST_FIRST + end
        self._put(
            "aging.api_event.data", struct.pack("<HHIIIQQQ", 0x5A5A, level, kind, thread, request, begin, end, item)
        )

    def half(self, level: int, kind: int, at: int, item: int = 0, thread: int = THREAD) -> None:
        at = HOST_FIRST + at
        self._put("aging.api_event.data", struct.pack("<HHIIIQQQ", 0x5A5A, level, kind, thread, 0, at, 2**64 - 1, item))

    def _host(
        self,
        stream: str,
        level: int,
        kind: int,
        at: int,
        data: bytes,
        size: int,
        thread: int = THREAD,
        used: int | None = None,
    ) -> None:
        head = struct.pack("<HHIIIQ", 0x5A5A, level, kind, thread, len(data) if used is None else used, HOST_FIRST + at)
        self._put(stream, head + data.ljust(size - 24, b"\0"))

    def node_basic(
        self,
        at: int,
        op: str,
        op_type: str,
        task_type: int,
        blocks: int,
        *,
        flag: int = 0,
        dynamic: bool = False,
        thread: int = THREAD,
    ) -> None:
        data = struct.pack("<QIQIIB", self.hash(op), task_type, self.hash(op_type), blocks, flag, 0)
        self._host(f"{'aging' if dynamic else 'unaging'}.compact.node_basic_info", NODE, 0, at, data, 64, thread)

    def tensors(self, at: int, op: str, tensors: Iterable[tuple[int, int, int, tuple[int, ...]]]) -> None:
        """Each: 0 input or 1 output, format, type, shape; five in a record."""
        listed = list(tensors)
        for first in range(0, len(listed), 5):
            some = listed[first : first + 5]
            data = struct.pack("<QI", self.hash(op), len(some))
            for kind, form, dtype, shape in some:
                data += struct.pack("<III8I", kind, form, dtype, *(*shape, *[0] * (8 - len(shape))))
            self._host("aging.additional.tensor_info", NODE, 1, at, data, 256)

    def contexts(self, at: int, op: str, ids: tuple[int, ...], level: int = NODE) -> None:
        data = struct.pack("<QI", self.hash(op), len(ids)) + struct.pack(f"<{len(ids)}I", *ids)
        self._host("aging.additional.context_id_info", level, 4, at, data, 256)

    def track(  # noqa: PLR0913 - the fields of a record
        self, at: int, stream: int, task: int, kind: int, *, device: int = 0, kernel: int = 0, used: int = 24,
        thread: int = THREAD, launch: bytes = struct.pack("<HHB", 7, 0, 2),
    ) -> None:  # fmt: skip
        if self.tracks == "task_track":
            data = struct.pack("<HHIQQ", device, stream, task, kind, kernel)
        else:  # of version 2
            data = struct.pack("<HHIIIQ", device, 0, stream, task, kind, kernel)
        self._host(f"aging.compact.{self.tracks}", RUNTIME, 0, at, data + launch, 64, thread, used)

    def expand(self) -> None:
        """IDs of streams have 15 bits."""
        self._host("unaging.compact.expand_stream_spec", RUNTIME, 13, 0, b"\1", 64)

    def memcpy(self, at: int, size: int, direction: int) -> None:
        self._host("aging.compact.memcpy_info", RUNTIME, 0, at, struct.pack("<QQH", size, size, direction), 64)

    def hccl_op(self, at: int, group: str, data_type: int, count: int, alg: str) -> None:
        data = struct.pack("<BBQQQ", 2, data_type, self.hash(alg), count, self.hash(group))
        self._host("aging.compact.hccl_op_info", NODE, 10, at, data, 64)

    def hccl(
        self, at: int, item: str, group: str, plane: int, size: int, ranks: tuple[int, int, int] = (0, 1, 8)
    ) -> None:
        data = struct.pack("<QQQ", self.hash(item), 0, self.hash(group))
        data += struct.pack("<IIIIIIQIIdQQQIIIII", *ranks, 0, plane, NONE, 77, 0, 0, 0.0, 0, 0, size, 0, 3, 1, 0, NONE)
        self._host("aging.additional.hccl_info", HCCL, 9, at, data, 256)

    def mstx(self, start: int, end: int, kind: int, message: str, domain: str = "default", number: int = 1) -> None:
        """A range (kind 1 or 2) or a point (0), whose message has several records if it is long."""
        for segment in range(0, max(1, len(message)), 155):
            data = struct.pack("<HHIHHIIII", 0, segment // 155, 0, 0, 0, PID, THREAD, 7, kind)
            data += struct.pack("<iQQQQQi", 0, 0, HOST_FIRST + start, HOST_FIRST + end, number, self.hash(domain), 0)
            data += message[segment : segment + 155].encode().ljust(156, b"\0")
            self._host("aging.additional.msproftx", 20500, 0, end, data, 256)

    def memory(self, at: int, addr: int, size: int, op: str, total: int) -> None:
        data = struct.pack("<QqQQQII", addr, size, self.hash(op), total, total + 1, 0, 20)
        self._host("aging.additional.task_memory_info", NODE, 6, at, data, 256)

    def launch(
        self, at: int, name: str, stream: int, task: int, *, op_type: str = "Add", kind: int = 0, blocks: int = 20,
        thread: int = THREAD,
    ) -> None:  # fmt: skip
        """An operator: a call of AscendCL with one of a node inside, which launches a task and describes it."""
        self.api(ACL, 0x50001, at, at + 90, thread=thread)
        self.api(NODE, 5, at + 10, at + 80, self.hash(name), thread=thread)
        self.api(RUNTIME, 1000, at + 20, at + 40, thread=thread)
        self.track(at + 30, stream, task, kind, thread=thread)
        self.node_basic(at + 80, name, op_type, 0, blocks, thread=thread)

    # -- torch_npu --

    def _torch(self, file: str, fixed: bytes, texts: dict[int, str]) -> None:
        data = fixed
        for tag, text in texts.items():
            data += struct.pack("<HI", tag, len(text.encode())) + text.encode()
        self.torch.setdefault(f"torch.{file}", bytearray()).extend(struct.pack("<HI", 1, len(data)) + data)

    def op(
        self,
        start: int,
        end: int,
        name: str,
        *,
        thread: int = THREAD,
        sequence: int = -1,
        forward: int = 0,
        texts: dict[int, str] | None = None,
        scope: bytes = b"\0",
    ) -> None:
        """An operator; `texts` by tag: 3 types, 4 shapes, 8 stack."""
        fixed = struct.pack("<3q4QB", HOST_FIRST + start, HOST_FIRST + end, sequence, PID, thread, thread, forward, 0)
        self._torch("op_range", fixed + scope, {2: name, **(texts or {})})

    def queue(self, start: int, end: int, correlation: int, name: str, thread: int, *, dequeue: bool) -> None:
        for at, category in ((start, 2 * dequeue), (end, 2 * dequeue + 1)):
            fixed = struct.pack("<q4Q", HOST_FIRST + at, category, correlation, thread, PID)
            self._torch("op_mark", fixed, {1: name})

    def block(self, at: int, address: int, size: int, total: int, *, kind: int, thread: int = THREAD) -> None:
        fixed = struct.pack(
            "<7q2b3B2Q", address, HOST_FIRST + at, size, total, total + 1, total, 99, 20, 0, 0, kind, 0, thread, PID
        )
        self._torch("memory_usage", fixed, {})

    def function(self, at: int, name: str | None, *, c: bool = False, thread: int = THREAD) -> None:
        """A call, or a return for None."""
        key = 0 if name is None else text_hash(name)
        if name is not None:
            self._torch("python_tracer_hash", struct.pack("<Q", key), {2: name})
        data = struct.pack("<4QB", HOST_FIRST + at, thread, PID, key, 2 * c + (name is None))
        self.torch.setdefault("torch.python_tracer_func", bytearray()).extend(data)

    def collection(self, start: int, end: int) -> None:
        data = struct.pack("<3Q", PID, HOST_FIRST + start, HOST_FIRST + end)
        self.torch.setdefault("torch.gc_record", bytearray()).extend(data)

    # -- devices --

    def task(self, start: int, end: int | None, stream: int, task: int, sqe: int = 0, device: int = 0) -> None:
        for func, at in ((0, start), (1, end)):
            if at is not None:
                self.stars(func, at, stream, task, sqe=sqe, device=device)

    def stars(
        self,
        func: int,
        at: int,
        stream: int,
        task: int,
        *,
        sqe: int = 0,
        sub: int = 0,
        context: int = 0,
        device: int = 0,
    ) -> None:
        data = struct.pack("<HHHHQHH", sqe << 10 | func, 0x6BD3, stream, task, DEVICE_FIRST + at, sub, context)
        self._put("stars_soc.data", data.ljust(64, b"\0"), device)

    def wide(self, func: int, at: int, task: int, sqe: int) -> None:
        data = struct.pack("<HHIQ", sqe << 10 | func, 0x6BD3, task, DEVICE_FIRST + at)
        self._put("stars_soc.data", data.ljust(32, b"\0"), 0)

    def hwts(self, func: int, at: int, stream: int, task: int, kind: int, number: int) -> None:
        data = struct.pack("<BBHHHQI", func | number % 16 << 4, kind, 0x6BD3, 0, task, DEVICE_FIRST + at, stream)
        self._put("hwts.data", data.ljust(64, b"\0"), 0)

    def pmu(  # noqa: PLR0913 - the fields of a record
        self, start: int, end: int, stream: int, task: int, cycles: int, counters: tuple[int, ...], *, ffts: int = 0,
        sub: int = 0, context: int = 0, core: int | None = None,
    ) -> None:  # fmt: skip
        if core is None:
            middle = struct.pack("<HHHHQ", sub, context, ffts << 13, 0, 0)
        else:
            middle = struct.pack("<HHBBHIHH", sub, context, core, ffts << 5, 0, 0, 0, 0)
        data = struct.pack("<HHHHQ", 0b101000 if core is None else 0b101001, 0x6BD3, stream, task, 0) + middle
        data += struct.pack("<QQ8QQQ", cycles, 0, *counters, DEVICE_FIRST + start, DEVICE_FIRST + end)
        assert len(data) == 128
        self._put("ffts_profile.data", data, 0)

    def wide_pmu(
        self, start: int, end: int, task: int, cycles: int, counters: tuple[int, ...], *, core: int, bits: int = 1,
        func: int = 0b101010,
    ) -> None:  # fmt: skip
        """Of chips with 32-bit IDs of tasks. Bits: 1 the core that started first, 2 both kinds of cores."""
        data = struct.pack("<HHIQBBHBBHHHI", func, 0x6BD3, task, cycles, 0, bits, 0, core, 3, 0, 0, 5, 0)
        data += struct.pack("<10QQQ", *counters, DEVICE_FIRST + start, DEVICE_FIRST + end)
        assert len(data) == 128
        self._put("ffts_profile.data", data, 0)

    def aicore(self, stream: int, task: int, cycles: int, counters: tuple[int, ...]) -> None:
        data = struct.pack("<BBHHHIIQQ8QI", 0, 0, 0x6BD3, 0, task, 0, 0, cycles, 0, *counters, stream)
        self._put("aicore.data", data.ljust(128, b"\0"), 0)

    def flip(self, at: int, stream: int, number: int, task: int) -> None:
        self._put(
            "ts_track.data", struct.pack("<BBHIQHHHH16x", 0, 14, 40, 0, DEVICE_FIRST + at, stream, number, 0, task), 0
        )

    def mark(self, at: int, step: int, model: int, tag: int, stream: int = 1) -> None:
        data = struct.pack("<BBHIQQQHHHH", 0, 10, 40, 0, DEVICE_FIRST + at, step, model, stream, 0, tag, 0)
        self._put("ts_track.data", data, 0)

    def frequency(self, *samples: tuple[int, int]) -> None:
        data = struct.pack("<II", len(samples), 0)
        data += b"".join(struct.pack("<QII", DEVICE_FIRST + at, mhz, 0) for at, mhz in samples)
        self._put("lpmFreqConv.data", data.ljust(888, b"\0"), 0)

    # -- files --

    def write(
        self, top: Path, *, slice_bytes: int = 1 << 30, name: str = "PROF_000001_20230818142704324_ABC",
        sample: dict[str, str] | None = None,
    ) -> Path:  # fmt: skip
        folder = top / name
        info = {
            "platform_version": str(self.chip),
            "pid": str(PID),
            "hostname": "atlas",
            "hostUid": "17",
            "rank_id": 3,
            "CPU": [{"Id": 0, "Frequency": self.host_frequency}],
            "drvVersion": 0x072211,
        }
        device_info = {
            "id": 0,
            "hwts_frequency": "50.000000",
            "aic_frequency": "1650",
            "ai_core_num": 20,
            "aiv_num": 40,
        }
        start = f"[Host]\nclock_monotonic_raw: {MONO}\ncntvct: {HOST_FIRST}\ncntvct_diff: 0\n"
        for side in ("host", *(f"device_{device}" for device in self.devices)):
            (folder / side / "data").mkdir(parents=True)
            suffix = side.removeprefix("device_")
            end = f".{suffix}" if side != "host" else ""
            (folder / side / f"info.json{end}").write_text(
                json.dumps({**info, "DeviceInfo": [device_info] if end else []})
            )
            (folder / side / f"host_start.log{end}").write_text(start)
            (folder / side / f"start_info{end}").write_text(
                json.dumps({"collectionTimeBegin": str(WALL_US), "clockMonotonicRaw": str(START)})
            )
            (folder / side / f"end_info{end}").write_text(json.dumps({"collectionTimeEnd": str(WALL_US + 5_000_000)}))
            if end:
                (folder / side / f"dev_start.log{end}").write_text(
                    f"clock_realtime: 5\nclock_monotonic_raw: 123\ncntvct: {DEVICE_FIRST}\n"
                )
                (folder / side / "sample.json").write_text(
                    json.dumps({
                        "ai_core_profiling_events": "0x416,0x417,0x9,0x302,0xc,0x303,0x54,0x55",
                        "ai_core_metrics": "PipeUtilizationExct",
                        "aiv_profiling_events": "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55",
                        "aiv_metrics": "PipeUtilization",
                        **(sample or {}),
                    })
                )  # fmt: skip
        lines = "".join(f"{number}:{text}\n" for number, text in self.texts.items())
        types = "".join(f"{level}_{kind}:{text}\n" for (level, kind), text in TYPES.items())
        self.host["unaging.additional.hash_dic"] = bytearray(lines.encode())
        self.host["unaging.additional.type_info_dic"] = bytearray(types.encode())
        for file, data in self.torch.items():
            (top / "FRAMEWORK").mkdir(exist_ok=True)
            (top / "FRAMEWORK" / file).write_bytes(data)
        for stream, data in self.host.items():
            _write(folder / "host" / "data", stream, bytes(data), slice_bytes)
        for device, streams in self.devices.items():
            for stream, data in streams.items():
                _write(folder / f"device_{device}" / "data", f"{stream}.{device}", bytes(data), slice_bytes)
        return folder


def example() -> Capture:
    """A capture with records of most kinds."""
    capture = Capture()
    capture.launch(100, "aclnnMatmul_MatMulV2", 4, 1, op_type="MatMulV2")
    capture.tensors(150, "aclnnMatmul_MatMulV2", [(0, 2, 1, (16, 32)), (0, 29, 27, (32, 64)), (1, 2, 0, (16, 64))])
    capture.task(1000, 1500, 4, 1)
    capture.pmu(1000, 1499, 4, 1, 825_000, (300_000, 100_000, 165_000, 50, 60, 70, 4, 2))
    capture.frequency((900, 1500), (1900, 1800))
    capture.api(ACL, 0x30002, 500, 560)
    capture.track(530, 4, 2, 5)
    capture.memcpy(531, 4096, 1)
    capture.task(2000, 2100, 4, 2, sqe=11)
    capture.track(700, 5, 3, 3)
    capture.task(2200, 2201, 5, 3, sqe=4)
    capture.half(ACL, 0x50001, 800, 17)
    capture.half(ACL, 0x50001, 860, 17)
    capture.memory(140, 0x1000, 4096, "aclnnMatmul_MatMulV2", 4096)
    capture.memory(540, 0x1000, -4096, "aclnnMatmul_MatMulV2", 0)
    for at, tag in ((900, 60000), (2300, 60001), (3000, 0), (3010, 2), (3100, 3), (3200, 4), (3210, 1)):
        capture.mark(at, 1, 9, tag)
    return capture


def _write(folder: Path, name: str, data: bytes, slice_bytes: int) -> None:
    for number, first in enumerate(range(0, len(data), slice_bytes)):
        path = folder / f"{name}.slice_{number}"
        path.write_bytes(data[first : first + slice_bytes])
        path.with_name(f"{path.name}.done").write_text(f"filesize:{path.stat().st_size}")
