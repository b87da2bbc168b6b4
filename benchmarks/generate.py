"""Generate a capture of any size with the codec of real captures.

    python -m benchmarks.generate --records 10000000 -o DIR

The capture is a training job. In each step, four host threads launch 496 tasks on four streams, in groups of eight:
acl → model → node → eight runtime launches, so calls nest four deep, with 2.75 records per task. At the end of a step
the host waits for the device, so steps share nothing but the clocks and are generated in batches. A task starts after
its launch and after the previous task of its stream. Two thirds of the tasks have an alloc and a free; tasks on cores
have counters. The device clock drifts against the host clock and is read about every millisecond. The same seed gives
the same bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traceconv.schema.dtypes import RecordArray
from traceconv.wire.log_writer import MANIFEST, CaptureWriter, new_records

Ints = NDArray[np.int64]

GROUPS = 62
LAUNCHES = 8
TASKS = GROUPS * LAUNCHES
THREADS = 4
CLOCK_HZ = 100_000_000
#: Ticks per nanosecond: nominally 1 in 10, here 37 parts per million fast.
TICKS_PER_NS = (1_000_037, 10_000_000)
CORE_CYCLES_PER_US = 1800
HOST_START_NS = 5_000_000_000_000
EPOCH_START_NS = 1_750_000_000_000_000_000
FIRST_TICK = 987_654_321
SYNC_EVERY_NS = 1_000_000
COPY_STREAM, COLLECTIVE_STREAM = 2, 3

_STEPS_AT_ONCE = 48
_AI_CORE, _AI_VECTOR_CORE, _MIX_AIC, _SDMA, _HCCL = 0, 1, 3, 5, 6
_ACL, _MODEL, _NODE, _RUNTIME = 0, 1, 2, 3
_SYNC_ROOM_NS = 2_000


@dataclass(frozen=True)
class Plan:
    """Properties that are the same in every step, one element per task: type, stream, op and usual duration."""

    task_type: Ints
    stream_id: Ints
    op_index: Ints  # -1 for copies and collectives
    dur_ns: Ints
    size_bytes: Ints
    allocated: Ints  # indices of the tasks that allocate memory


@dataclass(frozen=True)
class Steps:
    """A batch of steps: host times in ns, with shapes (steps,) and (steps, TASKS)."""

    first_step: int
    start_ns: Ints
    end_ns: Ints
    launch_ns: Ints
    launch_end_ns: Ints
    group_ns: Ints  # (steps, GROUPS): begin of the outermost call
    task_ns: Ints
    task_end_ns: Ints
    wait_ns: Ints  # begin of the wait at the end of a step


def make_plan(generator: np.random.Generator) -> Plan:
    """Plan the network: two alternating compute streams, with copies and collectives in between."""
    place = np.arange(TASKS)
    task_type = generator.choice(
        [_AI_CORE, _AI_VECTOR_CORE, _MIX_AIC, _SDMA, _HCCL], TASKS, p=[0.55, 0.30, 0.05, 0.06, 0.04]
    ).astype(np.int64)
    compute = task_type < _SDMA
    stream_id = np.where(compute, place // LAUNCHES % 2, np.where(task_type == _SDMA, COPY_STREAM, COLLECTIVE_STREAM))
    op_index = np.where(compute, np.cumsum(compute) - 1, -1)
    dur_ns = generator.integers(2_000, 12_000, TASKS)
    size_bytes = generator.integers(1, 1 << 14, TASKS) * 512
    allocated = np.flatnonzero(generator.random(TASKS) < 0.66)
    return Plan(task_type, stream_id, op_index, dur_ns, size_bytes, allocated)


def make_steps(plan: Plan, generator: np.random.Generator, first_step: int, count: int, start_ns: int) -> Steps:
    """Generate `count` steps from `start_ns`. Times increase strictly on each thread and each stream."""
    group = 2_000 + np.arange(GROUPS) * 30_000 + generator.integers(0, 300, (count, GROUPS))
    begin = 800 + np.arange(LAUNCHES) * 3_800 + generator.integers(0, 800, (count, GROUPS, LAUNCHES))
    launch = (group[:, :, None] + begin).reshape(count, TASKS)
    launch_end = launch + generator.integers(2_000, 2_900, (count, TASKS))
    dur = plan.dur_ns * generator.integers(900, 1_100, (count, TASKS)) // 1_000
    task = np.empty_like(launch)
    for stream_id in np.unique(plan.stream_id):
        on_stream = np.flatnonzero(plan.stream_id == stream_id)
        # start[i] = max(ready[i], end[i-1] + gap), solved for all i at once: the running maximum of
        # ready minus the time that the previous tasks take.
        taken = np.cumsum(dur[:, on_stream] + 50, axis=1) - (dur[:, on_stream] + 50)
        ready = launch[:, on_stream] + 3_500
        task[:, on_stream] = np.maximum.accumulate(ready - taken, axis=1) + taken
    task_end = task + dur
    wait = group[:, -1] + 36_000
    wait_end = np.maximum(wait, task_end.max(axis=1)) + _SYNC_ROOM_NS + generator.integers(0, 500, count)
    length = wait_end + 3_000
    start = start_ns + np.cumsum(length) - length
    shift = start[:, None]
    return Steps(
        first_step,
        start,
        start + wait_end,
        launch + shift,
        launch_end + shift,
        group + shift,
        task + shift,
        task_end + shift,
        start + wait,
    )


def ticks(host_ns: Ints) -> NDArray[np.uint64]:
    """Device clock at host times."""
    since = host_ns - HOST_START_NS
    numerator, denominator = TICKS_PER_NS
    return (FIRST_TICK + since * numerator // denominator).astype(np.uint64)


def take(records: RecordArray, order: Ints) -> RecordArray:
    """Reorder records, through a view without fields, which is twice as fast."""
    plain = records.view(f"V{records.dtype.itemsize}")
    return plain[order].view(records.dtype)


@dataclass(frozen=True)
class Names:
    """Hashes of the texts in events."""

    acl: int
    model: int
    node: int
    launch: int
    wait: int
    copy: int
    collective: int
    pool: int
    step: int
    category: int
    counters: tuple[tuple[int, int], ...]
    tensors: NDArray[np.uint64]


class Generator:
    """Writes a capture; `steps` appends steps to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.plan = make_plan(self._random)
        self.writer = CaptureWriter(folder, writer_id=0xBE7C4 << 20 | seed, device_clock_hz={0: CLOCK_HZ})
        self._next_ns = HOST_START_NS + 1_000_000
        self._next_step = 1
        self._next_call = 1
        self._next_task = 1
        self._next_block = 1
        self._next_sync_ns = HOST_START_NS
        self.record_count = 0
        self._names = self._describe()

    def append(self, record_name: str, records: RecordArray, device_id: int | None = None) -> None:
        """Append records to the capture and count them."""
        self.writer.append(record_name, records, device_id)
        self.record_count += len(records)

    def steps(self, count: int) -> None:
        """Append the next `count` steps."""
        steps = make_steps(self.plan, self._random, self._next_step, count, self._next_ns)
        self._syncs(int(steps.end_ns[-1]) + 2_000)
        correlation = self._calls(steps)
        self._tasks(steps, correlation)
        self._memory(steps)
        self._marks(steps)
        self._counters(steps)
        self._next_step += count
        self._next_ns = int(steps.end_ns[-1]) + 3_000

    def close(self) -> None:
        """Write the last clock reading and the manifest."""
        self._syncs(self._next_ns + SYNC_EVERY_NS)
        self.writer.close({"writer": "benchmarks.generate"})

    def _describe(self) -> Names:
        """Write everything but the events: the capture, threads, device, streams, model, ops and fusions."""
        text, plan = self.writer.text, self.plan
        capture = new_records("capture", 1)
        capture["host_ns"], capture["epoch_ns"], capture["process_id"] = HOST_START_NS, EPOCH_START_NS, 4242
        capture["host_name"], capture["model_name"] = text("bench-host"), text("bench_net")
        capture["writer"] = text("benchmarks.generate")
        self.append("capture", capture)
        threads = new_records("thread", THREADS)
        threads["process_id"], threads["process_name"] = 4242, text("python")
        threads["thread_id"] = np.arange(THREADS) + 100
        threads["thread_name"] = [text("main" if i == 0 else f"worker-{i}") for i in range(THREADS)]
        threads["sort_index"] = np.arange(THREADS)
        self.append("thread", threads)
        device = new_records("device", 1)
        device["kind"], device["name"] = text("NPU"), text("Bench NPU")
        device["peak_flops"], device["peak_bytes_per_s"], device["memory_bytes"] = 3 * 10**14, 10**12, 32 << 30
        device["clock_hz"], device["core_clock_hz"] = CLOCK_HZ, CORE_CYCLES_PER_US * 10**6
        device["ai_core_count"], device["ai_vector_core_count"], device["ai_cpu_count"] = 24, 48, 8
        self.append("device", device, 0)
        streams = new_records("stream", 4)
        streams["stream_id"] = np.arange(4)
        self.append("stream", streams, 0)
        op_count = int(plan.op_index.max()) + 1
        model = new_records("model", 1)
        model["name"], model["graph_name"], model["op_count"] = text("bench_net"), text("main"), op_count
        self.append("model", model)
        self._ops(op_count)
        tensors = [text(f"activation_{i}") for i in range(TASKS)]
        return Names(
            acl=text("aclmdlExecuteAsync"),
            model=text("ModelExecute"),
            node=text("NodeLaunch"),
            launch=text("LaunchKernel"),
            wait=text("aclrtSynchronizeStream"),
            copy=text("MemcpyAsync"),
            collective=text("AllReduce"),
            pool=text("device"),
            step=text("train_step"),
            category=text("step"),
            counters=tuple((text(name), text(unit)) for name, unit in (("AI Core Freq", "MHz"), ("HBM", "MB/s"))),
            tensors=np.array(tensors, np.uint64),
        )

    def _ops(self, op_count: int) -> None:
        text = self.writer.text
        cube, vector = ("Conv2D", "MatMul", "BatchMatMul"), ("Relu", "Add", "LayerNorm", "Softmax", "Cast", "Mul")
        ops, fusions = new_records("op", op_count), new_records("fusion", 0)
        compute_type = self.plan.task_type[self.plan.op_index >= 0]
        for index in range(op_count):
            on_cube = compute_type[index] != _AI_VECTOR_CORE
            op_type = cube[index % 3] if on_cube else vector[index % 6]
            shape = f"8,{64 << index % 4},{112 >> index % 4},{112 >> index % 4}"
            op = ops[index : index + 1]
            op["name"], op["op_type"] = text(f"layer{index // 40}/block{index // 8}/{op_type}_{index}"), text(op_type)
            op["scope_path"] = text(f"layer{index // 40}/block{index // 8}")
            op["input_shapes"] = op["output_shapes"] = text(shape)
            op["input_dtypes"] = op["output_dtypes"] = text("FLOAT16")
            op["input_formats"] = op["output_formats"] = text("NCHW")
            op["flops"] = (index + 1) * 10**6
            op["input_bytes"] = op["output_bytes"] = (index + 1) * 4096
            op["weight_bytes"], op["workspace_bytes"] = (index % 7) * 8192, 0
            op["op_index"] = index
            op["phase"] = 0 if index < op_count // 2 else 1
            if on_cube and index % 2:
                op["fusion_id"] = index
                parts = new_records("fusion", 3)
                parts["original_name"] = [text(f"{part}_{index}") for part in ("conv", "bn", "relu")]
                parts["original_type"] = [text(part) for part in ("Conv", "BatchNormalization", "Relu")]
                parts["fusion_id"] = parts["op_index"] = index
                parts["original_index"] = np.arange(3)
                fusions = np.concatenate([fusions, parts])
        self.append("op", ops)
        self.append("fusion", fusions)

    def _calls(self, steps: Steps) -> Ints:
        """Write API calls by time; return the correlation ID of each task's launch."""
        count = len(steps.start_ns)
        names = self._names
        per_step = 3 * GROUPS + TASKS + 1
        ids = self._next_call + np.arange(count * per_step).reshape(count, per_step)
        self._next_call += count * per_step
        begin = np.empty((count, per_step), np.int64)
        end = np.empty_like(begin)
        outer = begin[:, : 3 * GROUPS].reshape(count, 3, GROUPS), end[:, : 3 * GROUPS].reshape(count, 3, GROUPS)
        last_launch = steps.launch_end_ns[:, LAUNCHES - 1 :: LAUNCHES]
        for depth in range(3):
            outer[0][:, depth] = steps.group_ns + 250 * depth
            outer[1][:, depth] = last_launch + 1_000 - 250 * depth
        begin[:, 3 * GROUPS : -1], end[:, 3 * GROUPS : -1] = steps.launch_ns, steps.launch_end_ns
        begin[:, -1], end[:, -1] = steps.wait_ns, steps.end_ns
        group_thread = np.arange(GROUPS) % THREADS + 100
        thread = np.concatenate([np.tile(group_thread, 3), np.repeat(group_thread, LAUNCHES), [100]])
        level = np.concatenate([np.repeat([_ACL, _MODEL, _NODE], GROUPS), np.full(TASKS, _RUNTIME), [_ACL]])
        name = np.array(
            [names.acl] * GROUPS
            + [names.model] * GROUPS
            + [names.node] * GROUPS
            + [names.launch] * TASKS
            + [names.wait],
            np.uint64,
        )
        op = np.full(per_step, 0xFFFFFFFF, np.int64)
        op[3 * GROUPS : -1] = np.where(self.plan.op_index < 0, 0xFFFFFFFF, self.plan.op_index)
        records = new_records("api", 2 * begin.size).reshape(2, count, per_step)
        records["host_ns"] = np.stack([begin, end])
        records["correlation_id"] = ids
        records["thread_id"], records["level"] = thread, level
        records["event"][1] = 1
        first = records[0]
        first["name"], first["op_index"] = name, op
        first["step_id"] = (steps.first_step + np.arange(count))[:, None]
        flat = records.reshape(-1)
        self.append("api", take(flat, np.argsort(flat["host_ns"], kind="stable")))
        return ids[:, 3 * GROUPS : -1]

    def _tasks(self, steps: Steps, correlation: Ints) -> None:
        """Write task starts and ends, and the counters of tasks on cores, by device time."""
        plan = self.plan
        count = len(steps.start_ns)
        shape = (count, TASKS)
        task_id = (self._next_task + np.arange(count * TASKS)).reshape(shape)
        self._next_task += count * TASKS
        step_id = np.broadcast_to((steps.first_step + np.arange(count))[:, None], shape)
        on_core = plan.op_index >= 0
        records = new_records("task", 2 * count * TASKS).reshape(2, *shape)
        records["ticks"][0], records["ticks"][1] = ticks(steps.task_ns), ticks(steps.task_end_ns)
        records["task_id"], records["stream_id"], records["task_type"] = task_id, plan.stream_id, plan.task_type
        records["event"][1] = 1
        first = records[0]
        first["correlation_id"], first["step_id"], first["execution_id"] = correlation, step_id, step_id
        first["op_index"] = np.where(on_core, plan.op_index, 0xFFFFFFFF)
        for task_type, name in ((_SDMA, self._names.copy), (_HCCL, self._names.collective)):
            first["name"][:, plan.task_type == task_type] = name
        first["size_bytes"] = np.where(on_core, np.uint64(0xFFFFFFFFFFFFFFFF), plan.size_bytes.astype(np.uint64))
        first["block_count"] = np.where(on_core, 24, 0)
        first["mix_block_count"] = np.where(plan.task_type == _MIX_AIC, 48, 0)
        flat = records.reshape(-1)
        self.append("task", take(flat, np.argsort(flat["ticks"], kind="stable")), 0)
        self._pmu(records[:, :, on_core], plan.task_type[on_core], (steps.task_end_ns - steps.task_ns)[:, on_core])

    def _pmu(self, tasks: RecordArray, task_type: Ints, dur_ns: Ints) -> None:
        records = new_records("pmu_pipe_utilization", dur_ns.size).reshape(dur_ns.shape)
        for name in ("ticks", "task_id", "stream_id"):
            records[name] = tasks[1][name]
        cycles = dur_ns * CORE_CYCLES_PER_US // 1_000 * 24
        cube, vector = task_type != _AI_VECTOR_CORE, task_type != _AI_CORE
        parts = {"mac": 11, "scalar": 2, "mte1": 6, "mte2": 9, "fixpipe": 3}
        records["aic_total_cycles"] = cycles * cube
        for name, sixteenths in parts.items():
            records[f"aic_{name}_cycles"] = cycles * sixteenths // 16 * cube
        records["aiv_total_cycles"] = cycles * 2 * vector
        for name, sixteenths in {"vec": 8, "scalar": 1, "mte2": 10, "mte3": 5}.items():
            records[f"aiv_{name}_cycles"] = cycles * 2 * sixteenths // 16 * vector
        for core, used in (("aic", cube), ("aiv", vector)):
            records[f"{core}_icache_request_count"] = cycles // 8 * used
            records[f"{core}_icache_miss_count"] = cycles // 800 * used
        flat = records.reshape(-1)
        self.append("pmu_pipe_utilization", take(flat, np.argsort(flat["ticks"], kind="stable")), 0)

    def _memory(self, steps: Steps) -> None:
        """Write an alloc before the launch and a free after the task."""
        plan, places = self.plan, self.plan.allocated
        alloc = steps.launch_ns[:, places] + 150
        free = np.maximum(alloc + 200_000, steps.task_end_ns[:, places] + 500)
        free = np.minimum(free, steps.end_ns[:, None] - 1)
        records = new_records("memory", 2 * alloc.size).reshape(2, *alloc.shape)
        records["host_ns"] = np.stack([alloc, free])
        records["block_id"] = self._next_block + np.arange(alloc.size).reshape(alloc.shape)
        self._next_block += alloc.size
        records["event"][1] = 1
        first = records[0]
        first["address"] = (1 << 36) + (np.cumsum(plan.size_bytes) - plan.size_bytes)[places]
        first["size_bytes"] = plan.size_bytes[places]
        first["pool"], first["tensor_name"] = self._names.pool, self._names.tensors[places]
        first["op_index"] = np.where(plan.op_index < 0, 0xFFFFFFFF, plan.op_index)[places]
        first["alloc_by"] = 4
        flat = records.reshape(-1)
        order = np.argsort(flat["host_ns"], kind="stable")
        change = np.stack([np.broadcast_to(plan.size_bytes[places], alloc.shape)] * 2)
        change[1] *= -1
        flat = take(flat, order)
        flat["used_bytes"] = np.cumsum(change.reshape(-1)[order])  # 0 again at the end of each step
        flat["reserved_bytes"] = 8 << 30
        self.append("memory", flat)

    def _marks(self, steps: Steps) -> None:
        count = len(steps.start_ns)
        step_id = steps.first_step + np.arange(count)
        points = [steps.start_ns, steps.task_ns[:, 0], steps.task_end_ns.max(axis=1), steps.end_ns - 100]
        marks = new_records("step_mark", 4 * count).reshape(count, 4)
        marks["ticks"] = np.stack([ticks(point) for point in points], axis=1)
        marks["step_id"] = marks["iteration"] = step_id[:, None]
        marks["mark"] = np.arange(4)
        self.append("step_mark", marks.reshape(-1), 0)
        ranges = new_records("range", 2 * count).reshape(count, 2)
        ranges["host_ns"] = np.stack([steps.start_ns, steps.end_ns + 1_000], axis=1)
        ranges["span_id"] = step_id[:, None]
        ranges["thread_id"], ranges["event"][:, 1], ranges["kind"] = 100, 1, 0
        begin = ranges[:, 0]
        begin["name"], begin["category"], begin["step_id"] = self._names.step, self._names.category, step_id
        self.append("range", ranges.reshape(-1))

    def _counters(self, steps: Steps) -> None:
        count = len(steps.start_ns)
        for (name, unit), low, high in zip(self._names.counters, (1_700, 200_000), (1_800, 900_000), strict=True):
            records = new_records("counter", count)
            records["ticks"], records["name"], records["value_unit"] = ticks(steps.start_ns + 1_500), name, unit
            records["value"] = self._random.integers(low, high, count)
            self.append("counter", records, 0)

    def _syncs(self, until_ns: int) -> None:
        """Write clock readings up to a time: 200 to 1200 ns wide, with the device clock read in between."""
        at = np.arange(self._next_sync_ns, until_ns, SYNC_EVERY_NS)
        if not len(at):
            return
        self._next_sync_ns = int(at[-1]) + SYNC_EVERY_NS
        before = at + self._random.integers(0, 20_000, len(at))
        width = self._random.integers(200, 1_200, len(at))
        records = new_records("sync", len(at))
        records["host_before_ns"], records["host_after_ns"] = before, before + width
        records["ticks"] = ticks(before + width * self._random.integers(0, 1_000, len(at)) // 1_000)
        self.append("sync", records, 0)


def generate(output: Path, record_count: int, seed: int = 0) -> tuple[Path, int]:
    """Write a capture of at least `record_count` records under `output`; return its folder and number of records."""
    folder = output / f"PROF_000001_20250615150640_{seed:08X}"
    generator = Generator(folder, seed)
    generator.steps(1)
    per_step = generator.record_count  # including the records before the first step: slightly too many
    while generator.record_count < record_count:
        left = -(-(record_count - generator.record_count) // per_step)
        generator.steps(min(_STEPS_AT_ONCE, max(1, left)))
    generator.close()
    files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    return folder, sum(file["record_count"] for file in files)  # including dictionary records


def main() -> None:
    """Parse the command line and generate."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--records", type=int, default=10_000_000, help="minimum number of records (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of times and ops")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the capture")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    folder, count = generate(arguments.output, arguments.records, arguments.seed)
    seconds = time.perf_counter() - begin
    size = sum(path.stat().st_size for path in folder.rglob("*.bin"))
    print(f"{folder}: {count:,} records, {size / 1e6:,.0f} MB ({size / count:.1f} bytes per record) in {seconds:.1f} s")


if __name__ == "__main__":
    main()
