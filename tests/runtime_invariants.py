"""What must hold in every capture that the reference NPU writes, checked on the records alone."""

from __future__ import annotations

import numpy as np
from runtime_reader import Capture

from traceconv.runtime.spec import reference_npu

NONE32 = (1 << 32) - 1


def check(capture: Capture) -> None:
    """All of them."""
    check_calls(capture)
    check_ranges(capture)
    check_streams(capture)
    check_order_of_host_and_device(capture)
    check_counters_of_tasks(capture)
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
        assert start < end
        if begin["parent_span_id"]:
            outer = span[int(begin["parent_span_id"])]
            assert outer[0] <= start and end <= outer[1]


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


def host_ns(capture: Capture, ticks: int) -> tuple[int, int]:
    """Bounds of the host time of a tick, from the clock readings around it; checks that they are monotone."""
    sync = capture["sync"]
    before, after = sync["host_before_ns"].astype(object), sync["host_after_ns"].astype(object)
    readings = sync["ticks"].astype(object)
    assert (np.diff(sync["ticks"].astype(np.int64)) > 0).all()
    assert all(b <= a for b, a in zip(before, after, strict=True))
    assert readings[0] <= ticks <= readings[-1]
    k = min(max(1, int(np.searchsorted(sync["ticks"], ticks))), len(readings) - 1)
    share = (ticks - readings[k - 1], readings[k] - readings[k - 1])
    low = before[k - 1] + (before[k] - before[k - 1]) * share[0] // share[1]
    high = after[k - 1] + (after[k] - after[k - 1]) * share[0] // share[1] + 1
    tick_ns = 10**9 // reference_npu().clock_hz
    return low - tick_ns, high + tick_ns


def check_order_of_host_and_device(capture: Capture) -> None:
    """Launch ≤ start by more than the clocks' error; a synchronise ends after, and covers the end of, its tasks."""
    calls, call_ends = capture.pairs("api", "correlation_id")
    call_of = {int(row["correlation_id"]): index for index, row in enumerate(calls)}
    names = capture.text(calls["name"])
    begins, ends = capture.pairs("task", "task_id")
    launched = []
    for begin, end in zip(begins, ends, strict=True):
        index = call_of[int(begin["correlation_id"])]
        assert names[index] in ("LaunchKernel", "MemcpyAsync", "EventRecord", "StreamWaitEvent")
        low, high = host_ns(capture, int(begin["ticks"]))
        assert int(calls[index]["host_ns"]) + 1_000 < low, "a task starts before its launch"
        launched.append((int(calls[index]["host_ns"]), host_ns(capture, int(end["ticks"]))[1]))
        assert high - low < 2_000_000
    assert launched
    for index, name in enumerate(names):
        if name == "aclrtSynchronizeStream":
            # The worker may launch while the call waits already: that is waited for too.
            end_ns = int(call_ends[index]["host_ns"])
            waited = [done for submit, done in launched if submit <= end_ns]
            assert all(done <= end_ns for done in waited)


def check_counters_of_tasks(capture: Capture) -> None:
    """Each pipe works within its core's time, the cores within the task's, no transfer is faster than its memory."""
    spec = reference_npu()
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
    for row in capture["memory"]:
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
        assert mine["mark"].tolist() == [0, 1, 3]
        assert mine["ticks"][0] >= last
        assert (np.diff(mine["ticks"].astype(np.int64)) >= 0).all()
        last = int(mine["ticks"][-1])
        tasks = capture["task"]
        tasks = tasks[(tasks["step_id"] == step_id)]
        assert mine["ticks"][0] == tasks["ticks"].min()
