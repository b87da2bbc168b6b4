"""Raw data of Ascend NPUs, written by the layouts that CANN's headers define: intact, cut, damaged and hostile.

What must come out is known from the writing. Times, pairs and joins are recounted here with integers only.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ascend_raw_builder import (
    ACL,
    HCCL,
    NODE,
    NONE,
    THREAD,
    Capture,
    example,
    ns_of_device,
    ns_of_host,
)
from ingest_checks import taken_from

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.pipeline.discover import find_sources
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.find import why
from traceconv.store.database import open_store

KERNEL, AI_CPU, EVENT, COPY, VECTOR, FFTS_PLUS, MIX, SIMT = 0, 1, 3, 5, 66, 67, 68, 69
TASKS = (
    "SELECT t.name, t.start_ns, t.dur_ns, t.stream_id, t.source_task_id, a.name, a.start_ns "
    "FROM task t LEFT JOIN api a ON a.id = t.api_id ORDER BY t.start_ns, t.stream_id"
)


def stored(capture: Capture, folder: Path, sql: str, **written: Any) -> list[tuple[Any, ...]]:
    run, store = taken_from(capture.write(folder, **written), folder)
    assert not run.lossy, list(run.log)
    return store.execute(sql).fetchall()


def test_every_record_is_in_its_table(tmp_path: Path) -> None:
    run, store = taken_from(example().write(tmp_path), tmp_path)
    assert not run.lossy, list(run.log)
    assert store.execute("SELECT writer, source_format, rank, host, start_ns, epoch_known FROM run").fetchone() == (
        "Ascend (torch_npu, msprof)", "ascend_raw", 3, "atlas", ns_of_host(100), True)  # fmt: skip
    assert store.execute(TASKS).fetchall() == [
        ("aclnnMatmul_MatMulV2", ns_of_device(1000), 10_000, 4, 1, "launch", ns_of_host(110)),
        ("MEMCPY_ASYNC", ns_of_device(2000), 2_000, 4, 2, "aclrtMemcpyAsync", ns_of_host(500)),
        ("EVENT_RECORD", ns_of_device(2200), 20, 5, 3, None, None),
    ]
    assert store.execute(
        "SELECT op_type, input_shapes, input_dtypes, input_formats, output_shapes, output_dtypes, output_formats, "
        "task_type, block_count, state FROM task JOIN op USING (op_id) WHERE kind = 'compute'"
    ).fetchall() == [
        ("MatMulV2", "16,32;32,64", "FLOAT16;DT_BF16", "ND;FRACTAL_NZ", "16,64", "FLOAT", "ND", "AI_CORE", 20, "static")
    ]
    # 550 µs of cycles at the frequency of that time, on one block of each core.
    (values,) = store.execute("SELECT vendor_values::JSON FROM task_pmu").fetchall()[0]
    assert '"aicore_time_ns":27500' in values and '"aic_mac_time_ns":13333' in values
    assert '"aic_scalar_ratio":0.2,' in values and '"aic_icache_miss_rate":0.5' in values
    assert store.execute("SELECT kind, size_bytes FROM task WHERE kind = 'copy'").fetchall() == [("copy", 4096)]
    assert store.execute("SELECT level, name, start_ns, dur_ns, depth FROM api ORDER BY start_ns").fetchall() == [
        ("acl", "aclnnMatmul", ns_of_host(100), 900, 0),
        ("node", "launch", ns_of_host(110), 700, 1),
        ("runtime", "KernelLaunch", ns_of_host(120), 200, 2),
        ("acl", "aclrtMemcpyAsync", ns_of_host(500), 600, 0),
        ("acl", "aclnnMatmul", ns_of_host(800), 600, 0),
    ]
    assert store.execute("SELECT size_bytes, alloc_ns, free_ns FROM memory WHERE kind = 'block'").fetchall() == [
        (4096, ns_of_host(140), ns_of_host(540))
    ]
    assert store.execute("SELECT ts_ns, value_int FROM counter ORDER BY ts_ns").fetchall() == [
        (ns_of_device(900), 1500), (ns_of_device(1900), 1800)]  # fmt: skip
    assert store.execute(
        "SELECT model_id, start_ns, fp_start_ns, bp_end_ns, end_ns FROM step ORDER BY 2"
    ).fetchall() == [
        (None, ns_of_device(900), None, None, ns_of_device(2300)),
        (9, ns_of_device(3000), ns_of_device(3010), ns_of_device(3100), ns_of_device(3200)),
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slice_bytes", [37, 4096])
def test_launches_find_their_tasks(seed: int, slice_bytes: int, tmp_path: Path) -> None:
    """Random launches of several threads and streams, whose IDs of tasks begin again, with executions of graphs."""
    chance = random.Random(seed)
    capture, expected = Capture(), []
    at, now, ids = 100, 1000, dict.fromkeys(range(3), 65_530)
    for number in range(60):
        stream, thread = chance.randrange(3), THREAD + chance.randrange(3)
        at += chance.randrange(100, 300)
        if ids[stream] > 65_535:
            ids[stream] = 0
            capture.track(at - 2, stream, 0, 98)
            capture.flip(now - 1, stream, 1, 0)
        name = f"op{number}" if number % 7 else "Same"
        capture.launch(at, name, stream, ids[stream], thread=thread)
        # A task of a graph is launched once, and executed several times.
        for _ in range(3 if number % 5 == 4 else 1):
            now += chance.randrange(1, 500)
            took = chance.randrange(1, 90)
            capture.task(now, now + took, stream, ids[stream])
            expected.append((name, ns_of_device(now), took * 20, stream, ids[stream], "launch", ns_of_host(at + 10)))
            now += took
        ids[stream] += 1
    assert stored(capture, tmp_path, TASKS, slice_bytes=slice_bytes) == expected


def test_old_drivers_count_without_flips(tmp_path: Path) -> None:
    """The host has the number of the round, the device only IDs."""
    capture = Capture()
    for number, task in enumerate((65_534, 65_535, 0, 1, 65_535, 0)):
        capture.launch(100 + number * 100, f"op{number}", 1, task | (0, 0, 1, 1, 1, 2)[number] << 16)
        capture.task(1000 + number * 10, 1005 + number * 10, 1, task)
    names = stored(capture, tmp_path, "SELECT name FROM task ORDER BY start_ns")
    assert [name for (name,) in names] == [f"op{number}" for number in range(6)]


def test_threads_that_use_new_ids_before_the_flip(tmp_path: Path) -> None:
    """Task 1 of the second round was launched before the record of the flip, whose own task is 2."""
    capture = Capture()
    times = ((100, 65_534), (200, 65_535), (300, 0), (400, 1), (500, 3))
    for number, (at, task) in enumerate(times):
        capture.launch(at, f"op{number}", 1, task)
        capture.task(1000 + at * 10, 1000 + at * 10 + 5, 1, task)
    for number in range(2):  # the same IDs, a round earlier
        capture.launch(number * 100 - 200, f"old{number}", 1, number)
        capture.task(500 + number * 50, 505 + number * 50, 1, number)
    capture.track(450, 1, 2, 98)
    capture.flip(1000 + 4500, 1, 1, 2)
    names = stored(capture, tmp_path, "SELECT name FROM task ORDER BY start_ns")
    assert [name for (name,) in names] == ["old0", "old1", "op0", "op1", "op2", "op3", "op4"]


@pytest.mark.parametrize("tracks", ["task_track", "task_track_v2"])
def test_streams_with_15_bits(tracks: str, tmp_path: Path) -> None:
    """Their numbers are in the records of the host, of the scheduler, swapped with the task's, and of flips."""
    capture = Capture(tracks=tracks)
    capture.expand()
    # The highest bit of a stream's number says that it and the task's changed places.
    for number, (task, stream, low) in enumerate(((65_535, 0xFFFF, 0x8000 | 5000), (0, 0x8000, 5000), (1, 5000, 1))):
        capture.launch(100 + number * 100, f"op{number}", 5000, task)
        capture.task(1000 + number * 100, 1050 + number * 100, stream, low)
    capture.track(160, 5000, 0, 98)
    capture.flip(1060, 5000, 1, 0)
    # The first round of the same IDs, whose launches were before the recording.
    capture.task(500, 550, 5000, 1)
    assert stored(capture, tmp_path, "SELECT name, stream_id, source_task_id, dur_ns FROM task ORDER BY start_ns") == [
        ("AI_CORE", 5000, 1, 1000), ("op0", 5000, 65_535, 1000), ("op1", 5000, 0, 1000), ("op2", 5000, 1, 1000),
    ]  # fmt: skip


def test_the_first_version_of_tasks_is_read_if_there_are_two(tmp_path: Path) -> None:
    capture = Capture()
    for tracks in ("task_track", "task_track_v2"):
        capture.tracks = tracks
        capture.track(150, 1, 7, KERNEL, kernel=capture.hash("Add_1"), used=40)
    capture.task(1000, 1050, 1, 7)
    columns = "task.name, op_type, task_type, block_count"
    found = stored(capture, tmp_path, f"SELECT {columns} FROM task JOIN op USING (op_id)")
    assert found == [("Add_1", "Add_1", "AI_CORE", 7)]


@pytest.mark.parametrize("in_node", [True, False])
def test_simt_kernels_have_a_grid(in_node: bool, tmp_path: Path) -> None:
    """Where others have their blocks; those are in the record of the node."""
    capture = Capture(chip=15)
    if in_node:
        capture.api(NODE, 5, 100, 200, capture.hash("Scatter"))
        capture.node_basic(180, "Scatter", "Scatter", 2, 20)
    grid = struct.pack("<6H", 32, 4, 3, 256, 2, 1)
    capture.track(150, 3, 70_000, SIMT, kernel=capture.hash("Scatter"), used=40, launch=grid)
    capture.wide(0, 1000, 70_000, 1)
    capture.wide(1, 1050, 70_000, 1)
    columns = "task.name, op_type, core_type, block_count, args->>'Grid Dim', args->>'Block Dim'"
    assert stored(capture, tmp_path, f"SELECT {columns} FROM task JOIN op USING (op_id)") == [
        ("Scatter", "Scatter", "AI_VECTOR_CORE", 20 if in_node else None, "32,4,3", "256,2,1")
    ]


def test_many_calls_inside_the_one_that_launches(tmp_path: Path) -> None:
    capture = Capture()
    capture.api(NODE, 5, 100, 1000, capture.hash("outer"))
    for at in range(110, 310, 5):
        capture.api(NODE, 5, at, at + 4, capture.hash("inner"))
    capture.track(400, 1, 7, KERNEL)
    capture.node_basic(1000, "outer", "Add", 0, 20)
    capture.task(1000, 1010, 1, 7)
    assert stored(capture, tmp_path, TASKS) == [("outer", ns_of_device(1000), 200, 1, 7, "launch", ns_of_host(100))]


def test_parts_of_a_task_have_their_operators(tmp_path: Path) -> None:
    """An FFTS+ task: its parts have contexts, and the operators that name these."""
    capture = Capture()
    capture.api(NODE, 5, 100, 200, capture.hash("graph"))
    capture.track(150, 2, 9, FFTS_PLUS)
    capture.node_basic(160, "graph", "Graph", 6, 0)
    for op, context in (("Mul", 0), ("Cast", 1)):
        capture.node_basic(170, op, op, 1 if context else 0, 4)
        capture.contexts(171, op, (context,))
    capture.task(1000, 1900, 2, 9, sqe=0)
    for context in (0, 1):
        capture.stars(0b100010, 1100 + context * 300, 2, 9, sub=context, context=context)
        capture.stars(0b100011, 1300 + context * 300, 2, 9, sub=context, context=context)
    assert stored(
        capture, tmp_path, "SELECT name, start_ns, dur_ns, context_id, task_type FROM task ORDER BY start_ns"
    ) == [
        ("Mul", ns_of_device(1100), 4000, 0, "AI_CORE"),
        ("Cast", ns_of_device(1400), 4000, 1, "AI_CPU"),
    ]


def test_parts_of_a_collective_are_those_from_the_first_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records with as many parts as no task has must not fill the memory."""
    monkeypatch.setattr("traceconv.formats.ascend_raw.host_records._CONTEXTS", 2)
    monkeypatch.setattr("traceconv.formats.ascend_raw.host_records._MOST_IN_ALL", 8)
    capture = Capture()
    capture.api(NODE, 5, 100, 900, capture.hash("hcom_allReduce_"))
    capture.api(HCCL, 0x10001, 150, 800, capture.hash("Memcpy"))
    capture.track(200, 2, 9, FFTS_PLUS)
    for ids in ((3, 4), (5, 7), (0, 2**32 - 1), (2**32 - 1, 0)):
        capture.contexts(210, "Memcpy", ids, level=HCCL)
    for context in range(9):
        capture.stars(0b100010, 1000 + context * 100, 2, 9, sub=11, context=context)
        capture.stars(0b100011, 1050 + context * 100, 2, 9, sub=11, context=context)
    run, store = taken_from(capture.write(tmp_path), tmp_path)
    assert store.execute(
        "SELECT context_id, api_id IS NOT NULL FROM task WHERE context_id IS NOT NULL ORDER BY 1"
    ).fetchall() == [(context, 3 <= context <= 7) for context in range(9)]
    assert [entry.event_count for entry in run.log if "lists of contexts" in entry.message] == [1]


def test_counters_of_mixed_cores_are_those_of_both(tmp_path: Path) -> None:
    capture = Capture()
    capture.launch(100, "Flash", 1, 7, kind=MIX, blocks=20 | 2 << 16)
    capture.contexts(181, "Flash", (0,))
    capture.stars(0b100010, 1000, 1, 7, sub=6, context=0)
    capture.stars(0b100011, 2000, 1, 7, sub=6, context=0)
    capture.pmu(1000, 1990, 1, 7, 1000, (100, 100, 0, 0, 0, 0, 0, 0), ffts=4, sub=6)
    for number in range(3):
        capture.pmu(1000, 1900 + number, 1, 7, 500, (50, 0, 100, 0, 0, 0, 0, 0), ffts=4, sub=6, core=1 | number << 1)
    ((values,),) = stored(capture, tmp_path, "SELECT vendor_values FROM task_pmu")
    assert '"aic_mac_ratio":0.2' in values
    assert '"aiv_vec_ratio":0.1}' in values and '"aiv_scalar_ratio":0.2' in values


def test_counters_of_chips_with_32_bit_ids(tmp_path: Path) -> None:
    """They have a time: from the start to the end of the cores of a kind. Blocks repeat what the task counted."""
    capture = Capture(chip=15)
    for number, name in enumerate(("Matmul", "Flash")):
        capture.launch(100 + number * 100, name, 3, number)
        capture.wide(0, 1000 + number * 1000, number, 0)
        capture.wide(1, 1900 + number * 1000, number, 0)
    counters = (0, 0, 165_000, 0, 0, 0, 0, 0, 0, 0)  # scalar
    capture.wide_pmu(1010, 1510, 0, 825_000, counters, core=0)
    capture.wide_pmu(1020, 1400, 0, 5, counters, core=0, func=0b101001)
    capture.wide_pmu(2010, 2710, 1, 330_000, counters, core=0, bits=3)
    capture.wide_pmu(2050, 2650, 1, 660_000, counters, core=1, bits=2)
    events = {"ai_core_profiling_events": "0x301,0x501,0x1", "aiv_profiling_events": "0x301,0x501,0x1"}
    found = stored(capture, tmp_path, "SELECT aic_total_cycles, vendor_values FROM task_pmu ORDER BY 1", sample=events)
    assert [cycles for cycles, _ in found] == [330_000, 825_000]
    flash, matmul = (json.loads(values) for _, values in found)
    assert (matmul["aicore_time_ns"], matmul["aic_scalar_ratio"]) == (10_000, 0.2)
    assert matmul["aic_scalar_time_ns"] == 2_000 and not any(name.startswith("aiv") for name in matmul)
    assert (flash["aicore_time_ns"], flash["aiv_time_ns"]) == (14_000, 12_000)
    assert (flash["aic_scalar_ratio"], flash["aiv_scalar_ratio"], flash["aiv_scalar_time_ns"]) == (0.5, 0.25, 3_000)
    capture.wide_pmu(2050, 2650, 1, 1, counters, core=1, func=0b101000)
    run, _ = taken_from(capture.write(tmp_path / "unknown"), tmp_path / "unknown")
    (entry,) = (one for one in run.log if one.code is Code.UNKNOWN_RECORD)
    assert (entry.message, entry.event_count) == ("ffts_profile.data: counters of an unknown kind", 1)


def test_counters_without_times_are_in_the_order_of_their_tasks(tmp_path: Path) -> None:
    """Only tasks on AI cores have some. Where one of them is missing, which is whose is unknown."""
    capture = Capture(chip=1)
    ran = [(0, AI_CPU), (0, 0), (1, 0), (0, 0), (1, 0)]  # task, kind
    for number, (task, kind) in enumerate(ran):
        capture.hwts(0, 1000 + number * 100, 3, task, kind, number * 2)
        capture.hwts(1, 1050 + number * 100, 3, task, kind, number * 2 + 1)
    for task, cycles in ((0, 100), (1, 555), (0, 200)):
        capture.aicore(3, task, cycles, (0,) * 8)
    run, store = taken_from(capture.write(tmp_path), tmp_path)
    assert store.execute(
        "SELECT start_ns, aic_total_cycles FROM task_pmu JOIN task USING (id) ORDER BY 1"
    ).fetchall() == [(ns_of_device(1100), 100), (ns_of_device(1300), 200)]
    assert [entry.event_count for entry in run.log if "counters whose" in entry.message] == [1]


def test_collectives_have_the_time_of_their_main_streams(tmp_path: Path) -> None:
    capture = Capture()
    for turn in range(2):
        at = 1000 + turn * 1000
        capture.api(NODE, 5, at, at + 900, capture.hash("hcom_allReduce_"))
        capture.hccl_op(at + 850, "10.0.0.1%eth0_60000_721", 3, 1024, "MESH-RING")
        parts = ((0x10001, "Notify_Wait", 5), (0x10001, "Memcpy", 5), (0x10002, "Memcpy", 6))
        for plane, (kind, name, stream) in enumerate(parts):
            begin, task = at + 100 + plane * 100, turn * 3 + plane
            capture.api(HCCL, kind, begin, begin + 50, capture.hash(name))
            capture.hccl(begin + 10, name, "10.0.0.1%eth0_60000_721", plane, 512)
            capture.track(begin + 20, stream, task, COPY)
            capture.task(at * 4 + plane * 200, at * 4 + plane * 200 + 150, stream, task, sqe=11)
    assert stored(
        capture, tmp_path, "SELECT name, c.start_ns, c.dur_ns, message_bytes, c.comm_group, dtype, group_size "
        "FROM task JOIN collective c USING (run_id, id) ORDER BY c.start_ns",
    ) == [
        ("hcom_allReduce__721_0_1", ns_of_device(4000), 7000, 2048, "Group 10.0.0.1%eth0_60000_721", "FP16", 8),
        ("hcom_allReduce__721_1_1", ns_of_device(8000), 7000, 2048, "Group 10.0.0.1%eth0_60000_721", "FP16", 8),
    ]  # fmt: skip


def test_kernels_of_collectives_are_no_operators_of_their_type(tmp_path: Path) -> None:
    """As in msprof's op_statistic.csv, which has kernels outside of operators by their name and core."""
    capture = Capture()
    capture.launch(100, "Add_1", 1, 1)
    capture.task(1000, 1100, 1, 1)
    kernels = {"x_AivKernel": VECTOR, "x_AicpuKernel": AI_CPU, "Reduce_TBE": KERNEL}
    for number, (name, kind) in enumerate(kernels.items()):
        at = 1000 + number * 1000
        capture.api(NODE, 5, at, at + 900, capture.hash("hcom_allReduce_"))
        capture.node_basic(at + 890, "hcom_allReduce_", "hcom_allReduce_", 9, 8)
        capture.api(HCCL, 0x10001, at + 100, at + 200, capture.hash(name))
        capture.track(at + 120, 5, number, kind)
        capture.task(at * 5, at * 5 + 150, 5, number)
    capture.track(9000, 1, 9, VECTOR, kernel=capture.hash("Loose"))
    capture.task(21_000, 21_300, 1, 9)
    run, store = taken_from(capture.write(tmp_path), tmp_path)
    assert not run.lossy, list(run.log)
    assert store.execute(
        "SELECT task.name, op_type, core_type FROM task JOIN op USING (op_id) ORDER BY start_ns"
    ).fetchall() == [
        ("Add_1", "Add", "AI_CORE"),
        ("x_AivKernel", "hcom_allReduce_", "COMMUNICATION"),
        ("x_AicpuKernel", "hcom_allReduce_", "HCCL_AI_CPU"),
        ("Reduce_TBE", "hcom_allReduce_", "COMMUNICATION"),
        ("Loose", "Loose", "AI_VECTOR_CORE"),
    ]
    assert store.execute("SELECT op_type, core_type, total_ns, ratio_percent FROM op_statistic()").fetchall() == [
        ("Loose", "AI_VECTOR_CORE", 6000, 75.0), ("Add", "AI_CORE", 2000, 25.0)
    ]  # fmt: skip


@pytest.mark.parametrize("scope", [b"\0", b""])
def test_operators_of_the_framework_launch_tasks(scope: bytes, tmp_path: Path) -> None:
    """By the queue of torch_npu, from another thread, and directly; the innermost operator counts."""
    capture = Capture()
    other = THREAD + 1
    capture.op(50, 1000, "ProfilerStep#3", scope=scope)
    capture.op(
        60,
        500,
        "aten::linear",
        sequence=7,
        texts={3: "float;float", 4: "2,3;3,4", 8: "a.py(1): f;b.py(2): g"},
        scope=scope,
    )
    capture.op(70, 90, "aten::empty", scope=scope)
    capture.block(80, 0x5000, 512, 512, kind=0)
    capture.op(100, 200, "aten::addmm", scope=scope)
    capture.queue(110, 120, 5, "aclnnAddmm", THREAD, dequeue=False)
    capture.queue(900, 1100, 5, "aclnnAddmm", other, dequeue=True)
    capture.launch(950, "Addmm", 1, 1, thread=other)
    capture.launch(600, "Direct", 1, 2)
    capture.op(590, 700, "AddmmBackward0", sequence=7, forward=1, scope=scope)
    capture.block(800, 0x5000, -512, 0, kind=1)
    capture.task(3000, 3100, 1, 1)
    capture.task(3200, 3300, 1, 2)
    run, store = taken_from(capture.write(tmp_path), tmp_path)
    assert not run.lossy, list(run.log)
    assert store.execute(
        "SELECT t.name, l.range_name, t.start_ns FROM task t LEFT JOIN launching_range l ON l.id = t.id ORDER BY 3"
    ).fetchall() == [("Addmm", "aten::addmm", ns_of_device(3000)), ("Direct", "AddmmBackward0", ns_of_device(3200))]
    assert store.execute(
        "SELECT name, start_ns, dur_ns, depth, args->>'Input Dims' FROM range WHERE kind = 'host_op' ORDER BY start_ns"
    ).fetchall() == [
        ("aten::linear", ns_of_host(60), 4400, 1, "2,3;3,4"),
        ("aten::empty", ns_of_host(70), 200, 2, None),
        ("aten::addmm", ns_of_host(100), 1000, 2, None),
        ("AddmmBackward0", ns_of_host(590), 1100, 1, None),
    ]
    assert store.execute("SELECT step_id, count(*) FROM task GROUP BY 1").fetchall() == [(3, 2)]
    assert store.execute(
        "SELECT size_bytes, alloc_ns, free_ns, pool, name FROM memory LEFT JOIN op USING (op_id) WHERE kind = 'block'"
    ).fetchall() == [(512, ns_of_host(80), ns_of_host(800), "PTA", "aten::empty")]


def test_marks_of_the_program(tmp_path: Path) -> None:
    """Ranges and points of mstx; a long message is in two records."""
    capture = Capture()
    capture.mstx(100, 200, 1, "forward " * 30)
    capture.mstx(150, 150, 0, "point", number=2)
    assert stored(capture, tmp_path, "SELECT name, start_ns, dur_ns FROM range") == [
        ("forward " * 30, ns_of_host(100), 1000)
    ]
    ((name, at),) = stored(capture, tmp_path / "again", "SELECT name, ts_ns FROM marker")
    assert (name, at) == ("point", ns_of_host(150))


def test_functions_of_the_program(tmp_path: Path) -> None:
    """The first return is of a function that was called before; the first and the last call have not returned."""
    capture = Capture()
    capture.function(10, None)
    calls: tuple[tuple[int, str | None], ...] = (
        (20, "train.py(1): main"), (30, "Linear######140001"), (40, "linear"), (45, None), (50, None),
        (60, "Linear######140002"), (65, None), (70, "Linear######140001"), (80, None), (90, "last.py(2): g"),
    )  # fmt: skip
    for at, name in calls:
        capture.function(at, name, c=name == "linear")
    capture.collection(31, 36)
    capture.api(ACL, 0x50001, 42, 44)
    run, store = taken_from(capture.write(tmp_path), tmp_path)
    assert not run.lossy, list(run.log)
    assert store.execute(
        "SELECT name, kind, start_ns, dur_ns, depth FROM range WHERE kind IN ('frame', 'module') ORDER BY start_ns"
    ).fetchall() == [
        ("train.py(1): main", "frame", ns_of_host(20), 700, 0),
        ("nn.Module: Linear_0", "module", ns_of_host(30), 200, 1),
        ("linear", "frame", ns_of_host(40), 50, 2),
        ("nn.Module: Linear_1", "module", ns_of_host(60), 50, 1),
        ("nn.Module: Linear_0", "module", ns_of_host(70), 100, 1),
        ("last.py(2): g", "frame", ns_of_host(90), 0, 0),
    ]
    assert store.execute("SELECT start_ns, dur_ns FROM range WHERE name = 'GC'").fetchall() == [(ns_of_host(31), 50)]


@pytest.mark.parametrize(
    ("chip", "record", "names"),
    [
        (1, lambda one: [one.hwts(n % 2, 1000 + n * 10, 3, n // 2, 0, n) for n in range(4)], ["first", "second"]),
        (15, lambda one: [one.wide(n % 2, 1000 + n * 10, n // 2, 0) for n in range(4)], ["first", "second"]),
    ],
)
def test_other_chips(chip: int, record: Callable[[Capture], object], names: list[str], tmp_path: Path) -> None:
    """HWTS, and 32-bit IDs of tasks, whose streams are those of the host's records."""
    capture = Capture(chip=chip)
    for number, name in enumerate(names):
        capture.launch(100 + number * 100, name, 3, number)
    record(capture)
    assert stored(capture, tmp_path, "SELECT name, start_ns, dur_ns, stream_id FROM task ORDER BY start_ns") == [
        (name, ns_of_device(1000 + number * 20), 200, 3) for number, name in enumerate(names)
    ]


def test_a_host_that_counts_nanoseconds(tmp_path: Path) -> None:
    capture = Capture(host_frequency="")
    capture.api(ACL, 0x50001, 100, 250)
    ((start, dur),) = stored(capture, tmp_path, "SELECT start_ns, dur_ns FROM api")
    assert (start - ns_of_host(0), dur) == (5_657_993_206 - 56_579_931_060_630, 150)


def damaged(folder: Path, how: str) -> None:
    stars = sorted(
        (folder / "device_0" / "data").glob("stars_soc*.slice_*[0-9]"),
        key=lambda file: int(file.name.rpartition("_")[2]),
    )
    if how == "flipped":
        data = bytearray(stars[0].read_bytes())
        data[64 * 3 + 2] ^= 0xFF
        stars[0].write_bytes(data)
    elif how == "shifted":
        data = bytearray(stars[0].read_bytes())
        del data[64 * 3 + 5 : 64 * 3 + 10]
        stars[0].write_bytes(data)
    elif how == "cut":
        stars[0].write_bytes(stars[0].read_bytes()[:-7])
    elif how == "missing":
        stars[1].unlink()
    elif how == "clock":
        (folder / "device_0" / "dev_start.log.0").write_text("clock_realtime: 5\n")
    elif how == "types":
        (folder / "host" / "data" / "unaging.additional.type_info_dic.slice_0").unlink()
    else:
        (folder / "host" / "data" / "unaging.additional.hash_dic.slice_0").unlink()


@pytest.mark.parametrize(
    ("how", "slice_bytes", "left", "message"),
    [
        ("flipped", 1 << 20, 10, "stars_soc.data: records without the number that all have"),
        ("shifted", 1 << 20, 10, "stars_soc.data: records without the number that all have"),
        ("cut", 1 << 20, 10, "stars_soc.data: the last record is truncated"),
        ("missing", 64 * 5, None, "stars_soc.data: slices 1 to 1 are missing"),
        ("clock", 1 << 20, 0, "stars_soc.data: the start of the clock is not recorded"),
        ("types", 1 << 20, 10, "types of tasks or calls that additional.type_info_dic doesn't name"),
        ("names", 1 << 20, 10, "names that additional.hash_dic lacks: their numbers are shown"),
    ],
)
def test_what_is_left_of_damaged_data(
    how: str, slice_bytes: int, left: int | None, message: str, tmp_path: Path
) -> None:
    """Each loss is counted, and what is intact is stored."""
    capture = Capture()
    for number in range(10):
        capture.launch(100 + number * 100, f"op{number}", 1, number)
        capture.task(1000 + number * 10, 1005 + number * 10, 1, number)
    folder = capture.write(tmp_path, slice_bytes=slice_bytes)
    damaged(folder, how)
    run, store = taken_from(folder, tmp_path)
    assert run.lossy
    assert any(entry.message.startswith(message) for entry in run.log), list(run.log)
    ((count,),) = store.execute("SELECT count(*) FROM task").fetchall()
    assert count == left or (left is None and 0 < count < 10)
    assert store.execute("SELECT count(*) FROM task WHERE dur_ns <> 100").fetchall() == [(0,)]


def test_the_oldest_slices_may_be_gone(tmp_path: Path) -> None:
    """The first one that is left begins inside a record."""
    capture = Capture()
    for number in range(10):
        capture.api(ACL, 0x50001, 100 + number * 100, 150 + number * 100)
    folder = capture.write(tmp_path, slice_bytes=90)
    (folder / "host" / "data" / "aging.api_event.data.slice_0").unlink()
    run, store = taken_from(folder, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT min(start_ns), count(*) FROM api").fetchall() == [(ns_of_host(400), 7)]


def test_text_is_never_part_of_a_statement(tmp_path: Path) -> None:
    capture = Capture()
    name = "x'); DROP TABLE TASK; --\x1b[31m"
    capture.launch(100, name, 1, 1)
    capture.task(1000, 1010, 1, 1)
    assert stored(capture, tmp_path, "SELECT name FROM task") == [(name,)]


def test_which_folders_are_recordings(tmp_path: Path) -> None:
    """An export in the same folder is read instead, and so is that of torch_npu around it."""
    capture = Capture()
    capture.launch(100, "op", 1, 1)
    capture.task(1000, 1010, 1, 1)
    capture.op(50, 300, "aten::add")
    raw = capture.write(tmp_path / "host_1_ascend_pt")
    os.mkfifo(raw / "host" / "data" / "aging.compact.pipe.slice_0")
    assert not find_sources([tmp_path], None).others
    assert [(one.path, one.reader) for one in find_sources([tmp_path], None).traces] == [(raw, "ascend_raw")]
    assert [one.path for one in find_sources([raw], None).traces] == [raw]
    with pytest.raises(InputError, match=r"task_track\.slice_0 is a part of the raw data of an Ascend NPU"):
        ingest([raw / "host" / "data" / "aging.compact.task_track.slice_0"], tmp_path / "none.duckdb")
    with pytest.raises(InputError, match="is not a folder PROF_"):
        ingest([raw / "host" / "info.json"], tmp_path / "none.duckdb", reader="ascend_raw")
    output = tmp_path / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir()
    (output / "trace_view.json").write_text("[]")
    found = find_sources([tmp_path], None)
    assert not found.traces and [folder.path for folder, _ in found.folders] == [output.parent]


def test_the_source_of_a_row_is_its_record_as_a_row(tmp_path: Path) -> None:
    """Also of recordings with the same name, whose runs are named by their folders."""
    for name in ("a", "b"):
        capture = Capture()
        capture.launch(100, "op", 1, 1)
        capture.task(1000, 1010, 1, 1)
        capture.task(2000, 2010, 1, ord(name))
        capture.write(tmp_path / name)
    ingest([tmp_path / "a", tmp_path / "b"], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as connection:
        for run in ("1", "2"):
            evidence = why(connection, tmp_path / "trace.duckdb", "task", str(1 << 40), run=run).evidence[0]
            assert evidence.where == "table TASK, rowid 1"
            assert evidence.fields["startNs"] == ns_of_device(1000) and evidence.fields["contextId"] == NONE


def test_no_space_for_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("traceconv.formats.ascend_raw.reader.write_database", full)
    with pytest.raises(InputError, match=r"in a temporary folder \(TMPDIR selects another\): database or disk is full"):
        ingest([example().write(tmp_path)], tmp_path / "trace.duckdb")
    assert not (tmp_path / "trace.duckdb").exists()
