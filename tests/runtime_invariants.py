"""Invariants of every capture of the reference NPU, checked on its records."""

from __future__ import annotations

import numpy as np
from runtime_reader import Capture

from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.schema import record

NONE32 = (1 << 32) - 1


def check(capture: Capture, spec: DeviceSpec | None = None) -> None:
    """All of them, for one device; `spec` is what it is, None for the reference NPU."""
    spec = spec or reference_npu()
    check_calls(capture)
    check_ranges(capture)
    check_inferences(capture)
    check_streams(capture)
    check_order_of_host_and_device(capture, spec)
    check_counters_of_tasks(capture, spec)
    check_bandwidth(capture, spec)
    check_memory(capture)
    check_names(capture)
    check_steps(capture)


def check_calls(capture: Capture) -> None:
    """Calls of a thread nest, by the order of their records and by time; correlation ids are unique and not 0."""
    begins, _ = capture.pairs("api", "correlation_id")
    assert begins["correlation_id"].min() > 0
    rows = capture["api"]
    assert set(rows["thread_id"]) == set(capture["thread"]["thread_id"])
    for thread_id in np.unique(rows["thread_id"]):
        open_calls: list[int] = []
        last_ns = -1
        for row in rows[rows["thread_id"] == thread_id]:
            assert row["host_ns"] >= last_ns
            last_ns = int(row["host_ns"])
            if row["event"] == 0:
                open_calls.append(int(row["correlation_id"]))
            else:
                assert open_calls.pop() == row["correlation_id"]
        assert not open_calls


def check_ranges(capture: Capture) -> None:
    """Parents exist and enclose their children."""
    begins, ends = capture.pairs("range", "span_id")
    span = {int(b["span_id"]): (int(b["host_ns"]), int(e["host_ns"])) for b, e in zip(begins, ends, strict=True)}
    for begin in begins:
        start, end = span[int(begin["span_id"])]
        assert start <= end
        if begin["parent_span_id"]:
            outer = span[int(begin["parent_span_id"])]
            assert outer[0] <= start and end <= outer[1]


def check_inferences(capture: Capture) -> None:
    """Each inference has its executions, and the host's work on its tensors, numbered from 0."""
    begins, ends = capture.pairs("range", "span_id")
    kinds = {name: number for number, name in (record("range").field("kind").values or {}).items()}
    done_ns = {int(row["span_id"]): int(row["host_ns"]) for row in ends}
    tasks, task_ends = capture.pairs("task", "task_id")
    inferences = begins[begins["kind"] == kinds["inference"]]
    assert len(set(inferences["trace_id"].tolist())) == len(inferences)
    assert 0 not in inferences["trace_id"].tolist()
    executions = begins[(begins["kind"] == kinds["execution"]) & (begins["pe_index"] == capture.device_id)]
    assert set(executions["execution_id"].tolist()) == set(tasks["execution_id"].tolist()) - {NONE32}
    for inference in inferences:
        mine = begins[begins["trace_id"] == inference["trace_id"]]
        parts = mine[mine["kind"] == kinds["execution"]]
        assert parts["item_index"].tolist() == list(range(len(parts))) and len(parts)
        assert set(parts["parent_span_id"].tolist()) == {int(inference["span_id"])}
        assert len(set(parts["pe_index"].tolist())) == 1
        work = mine[mine["kind"] == kinds["external_op"]]
        assert sorted(work["item_index"].tolist()) == list(range(len(work)))
        assert all(done_ns[int(row["span_id"])] <= done_ns[int(inference["span_id"])] for row in work)
    others = begins[(begins["kind"] == kinds["annotation"]) | (begins["kind"] == kinds["inference"])]
    assert (others["item_index"] == NONE32).all() and (others["pe_index"] == NONE32).all()
    for execution in executions:
        # On the driver's thread it lasts as long as on the device, but for the rounding of ticks and the drift.
        own = tasks["execution_id"] == execution["execution_id"]
        longest = int(task_ends["ticks"][own].max()) - int(tasks["ticks"][own].min())
        lasted = done_ns[int(execution["span_id"])] - int(execution["host_ns"])
        assert 0 < lasted <= (longest + 1) * 10**9 // int(capture["device"]["clock_hz"][0]) * 1.11


def check_streams(capture: Capture) -> None:
    """Tasks of one stream follow one another; each takes at least a tick; records are in the order of time."""
    begins, ends = capture.pairs("task", "task_id")
    assert (ends["ticks"] > begins["ticks"]).all()
    for stream_id in capture["stream"]["stream_id"]:
        mine = begins["stream_id"] == stream_id
        starts, stops = begins["ticks"][mine], ends["ticks"][mine]
        order = np.argsort(starts)
        assert (starts[order][1:] >= stops[order][:-1]).all()
        rows = capture["task"]
        ticks = rows["ticks"][rows["stream_id"] == stream_id].astype(np.int64)
        assert (np.diff(ticks) >= 0).all()


def host_ns(capture: Capture, ticks: int, spec: DeviceSpec) -> tuple[int, int]:
    """Bounds of the host time of a tick, from the clock readings around it; checks that they are monotone."""
    sync = capture["sync"]
    assert (np.diff(sync["ticks"].astype(np.int64)) > 0).all()
    # An interrupted reading is inexact. The first and the last stay: they enclose the capture.
    width = sync["host_after_ns"] - sync["host_before_ns"]
    kept = width <= 4 * np.median(width)
    kept[[0, -1]] = True
    sync = sync[kept]
    before, after = sync["host_before_ns"].astype(object), sync["host_after_ns"].astype(object)
    readings = sync["ticks"].astype(object)
    assert all(b <= a for b, a in zip(before, after, strict=True))
    assert width.min() < 2_000_000
    assert readings[0] <= ticks <= readings[-1]
    k = min(max(1, int(np.searchsorted(sync["ticks"], ticks))), len(readings) - 1)
    share = (ticks - readings[k - 1], readings[k] - readings[k - 1])
    low = before[k - 1] + (before[k] - before[k - 1]) * share[0] // share[1]
    high = after[k - 1] + (after[k] - after[k - 1]) * share[0] // share[1] + 1
    tick_ns = -(-(10**9) // spec.clock_hz)
    return low - tick_ns, high + tick_ns


def check_order_of_host_and_device(capture: Capture, spec: DeviceSpec) -> None:
    """Launch ≤ start by more than the clocks' error; a synchronise ends after all but what was made ahead."""
    calls, call_ends = capture.pairs("api", "correlation_id")
    call_of = {int(row["correlation_id"]): index for index, row in enumerate(calls)}
    names = capture.text(calls["name"])
    begins, ends = capture.pairs("task", "task_id")
    launched = []
    for begin, end in zip(begins, ends, strict=True):
        index = call_of[int(begin["correlation_id"])]
        assert names[index] in ("LaunchKernel", "MemcpyAsync", "EventRecord", "StreamWaitEvent")
        if not spec.jump_ticks:
            _, latest = host_ns(capture, int(begin["ticks"]), spec)
            assert int(calls[index]["host_ns"]) + spec.launch_latency_ns - 2_000 < latest, (
                "a task starts before its launch"
            )
        done = host_ns(capture, int(end["ticks"]), spec)[0]
        launched.append((int(calls[index]["host_ns"]), done, int(calls[index]["step_id"])))
    assert launched
    channel = own_threads(capture)[0]
    for index, name in enumerate(names):
        if name == "aclrtSynchronizeStream" and calls[index]["thread_id"] == channel and not spec.jump_ticks:
            # The worker may launch while the call waits already: that is waited for too.
            end_ns = int(call_ends[index]["host_ns"])
            step_id = int(calls[index]["step_id"])
            assert all(
                done <= end_ns for submit, done, step in launched if submit <= end_ns and step == step_id != NONE32
            )


def own_threads(capture: Capture) -> list[int]:
    """Channel, worker and driver of the capture's device."""
    ids = capture["thread"]["thread_id"][np.argsort(capture["thread"]["sort_index"])]
    return [int(thread) for thread in ids[3 * capture.device_id : 3 * capture.device_id + 3]]


def check_bandwidth(capture: Capture, spec: DeviceSpec) -> None:
    """All tasks that run side by side together move no more than device memory can, over any stretch of time."""
    begins, ends = capture.pairs("task", "task_id")
    ops = {int(op["op_index"]): op for op in capture["op"]}
    moved = []
    for begin, end in zip(begins, ends, strict=True):
        size = 0
        if begin["op_index"] != NONE32:
            op = ops[int(begin["op_index"])]
            size = sum(int(op[field]) for field in ("input_bytes", "output_bytes", "weight_bytes"))
        elif begin["task_type"] == 5:
            size = int(begin["size_bytes"])
        moved.append((int(begin["ticks"]), int(end["ticks"]), size))
    for start in sorted({start for start, _, _ in moved})[:40]:
        for stop in sorted({end for _, end, _ in moved if end > start})[:40]:
            inside = sum(size for a, b, size in moved if start <= a and b <= stop)
            assert inside * spec.clock_hz <= (stop - start) * spec.hbm_bytes_per_s


def check_counters_of_tasks(capture: Capture, spec: DeviceSpec) -> None:
    """Each pipe works within its core's time, the cores within the task's, no transfer is faster than its memory."""
    begins, ends = capture.pairs("task", "task_id")
    row_of = {int(task_id): k for k, task_id in enumerate(begins["task_id"])}
    kinds = dict(zip(begins["task_id"].tolist(), begins["task_type"].tolist(), strict=True))
    pmu = capture["pmu_pipe_utilization"]
    assert sorted(pmu["task_id"].tolist()) == sorted(key for key, kind in kinds.items() if kind in (0, 1, 3))
    for row in pmu:
        k = row_of[int(row["task_id"])]
        ticks = int(ends[k]["ticks"]) - int(begins[k]["ticks"])
        assert row["ticks"] == ends[k]["ticks"]
        cycles = ticks * spec.core_clock_hz // spec.clock_hz
        for core, blocks in (
            ("aic", "block_count"),
            ("aiv", "block_count" if kinds[int(row["task_id"])] == 1 else "mix_block_count"),
        ):
            total = int(row[f"{core}_total_cycles"])
            assert total <= cycles * int(begins[k][blocks]) or total == 0
            for field in row.dtype.names or ():
                if field.startswith(core) and field.endswith("_cycles"):
                    assert 0 <= int(row[field]) <= total
            assert row[f"{core}_icache_miss_count"] <= row[f"{core}_icache_request_count"]
    ops = {int(op["op_index"]): op for op in capture["op"]}
    for begin, end in zip(begins, ends, strict=True):
        if begin["op_index"] != NONE32:
            op = ops[int(begin["op_index"])]
            moved = sum(int(op[field]) for field in ("input_bytes", "output_bytes", "weight_bytes"))
            ticks = int(end["ticks"]) - int(begin["ticks"])
            assert moved * spec.clock_hz <= ticks * spec.hbm_bytes_per_s
            assert int(op["flops"]) * spec.clock_hz <= ticks * spec.peak_flops


def check_memory(capture: Capture) -> None:
    """Totals are right after each event, blocks lie inside segments and apart, and all is given back."""
    used, reserved = {}, {}
    last_ns = 0
    rows = capture["memory"]
    assert len(set(rows["block_id"][rows["event"] == 0].tolist())) == int((rows["event"] == 0).sum())
    for row in rows[rows["device_id"] == capture.device_id]:
        assert row["used_bytes"] <= row["reserved_bytes"] <= capture["device"]["memory_bytes"][0]
        assert row["host_ns"] >= last_ns
        last_ns = int(row["host_ns"])
        pool = reserved if row["kind"] == 1 else used
        key, start, size = int(row["block_id"]), int(row["address"]), int(row["size_bytes"])
        if row["event"] == 0:
            assert key not in pool
            if row["kind"] == 0:
                assert any(a <= start and start + size <= a + n for a, n in reserved.values())
                assert all(start + size <= a or a + n <= start for a, n in used.values())
            pool[key] = (start, size)
        else:
            assert pool.pop(key) == (start, size)
        assert sum(n for _, n in used.values()) == row["used_bytes"]
        assert sum(n for _, n in reserved.values()) == row["reserved_bytes"]
    assert not used and not reserved
    check_life_of_inputs_and_outputs(capture)


def check_life_of_inputs_and_outputs(capture: Capture) -> None:
    """What is copied from and to the host is there until the host has waited for the copies."""
    calls, ends = capture.pairs("api", "correlation_id")
    names = capture.text(calls["name"])
    waits = [int(end["host_ns"]) for name, end in zip(names, ends, strict=True) if name == "aclrtSynchronizeStream"]
    rows = capture["memory"]
    rows = rows[rows["kind"] == 0]
    frees = {int(row["block_id"]): int(row["host_ns"]) for row in rows if row["event"] == 1}
    copied = [row for row in rows if row["event"] == 0 and row["alloc_by"] in (2, 3)]
    assert copied
    for row in copied:
        assert any(int(row["host_ns"]) < wait <= frees[int(row["block_id"])] for wait in waits)


def check_names(capture: Capture) -> None:
    """Every text is defined; ops have unique names; every op of a task exists."""
    for name in ("api", "task", "op", "fusion", "memory", "range", "counter", "thread", "capture", "device", "model"):
        rows = capture[name]
        for field in rows.dtype.names or ():
            if field in ("name", "op_type", "tensor_name", "pool", "category", "original_name", "value_unit"):
                assert set(rows[field].tolist()) <= set(capture.texts)
    ops = capture["op"]
    assert len(set(ops["name"].tolist())) == len(ops) == int(capture["model"]["op_count"][0])
    used = set(capture["task"]["op_index"].tolist()) - {NONE32}
    assert used == set(ops["op_index"].tolist())
    fused = {int(op["op_index"]) for op in ops if op["fusion_id"] != NONE32}
    assert set(capture["fusion"]["op_index"].tolist()) == fused


def check_steps(capture: Capture) -> None:
    """Marks of a step come in order, and steps after one another."""
    marks = capture["step_mark"]
    last = 0
    for step_id in sorted(set(marks["step_id"].tolist())):
        mine = marks[marks["step_id"] == step_id]
        # Of a training step, what brought its batch to the device may be made ahead.
        loads = [int(mine["ticks"][mine["mark"] == mark][0]) for mark in (4, 5) if mark in mine["mark"]]
        mine = mine[mine["mark"] <= 3]
        assert mine["mark"].tolist() == ([0, 1, 2, 3] if loads else [0, 1, 3])
        if loads:
            assert loads[0] < loads[1] <= mine["ticks"][1]
        assert mine["ticks"][0] >= last, "steps overlap"
        assert (np.diff(mine["ticks"].astype(np.int64)) >= 0).all()
        last = int(mine["ticks"][-1])
        tasks = capture["task"]
        tasks = tasks[(tasks["step_id"] == step_id)]
        assert mine["ticks"][0] >= tasks["ticks"].min()  # copies made ahead lie before their step
        assert mine["ticks"][-1] > tasks["ticks"].max()
