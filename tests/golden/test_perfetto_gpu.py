"""Perfetto's packets of GPU producers: kernels and stages, counters, submissions; as its trace processor reads them.

The traces follow its tests (test/trace_processor/diff_tests/parser/graphics), and so do the expected values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest
from ingest_checks import taken_from
from perfetto_builder import (
    COMPUTE,
    GRAPHICS,
    OTHER,
    begin,
    end,
    gpu_trace,
    interned,
    message,
    packet,
    process,
    specification,
    stage,
    thread,
)

from traceconv.pipeline.result import IngestedRun


def taken(parts: Iterable[bytes], tmp_path: Path) -> tuple[IngestedRun, duckdb.DuckDBPyConnection]:
    path = tmp_path / "gpu.pftrace"
    path.write_bytes(b"".join(parts))
    return taken_from(path, tmp_path)


def test_kernels_are_tasks_launched_by_their_calls(tmp_path: Path) -> None:
    run, store = taken([gpu_trace()], tmp_path)
    assert not run.lossy
    rows = store.execute(
        "SELECT name, kind, device_id, stream_id, start_ns, dur_ns, submit_ns, size_bytes, op_id FROM task "
        "ORDER BY start_ns"
    ).fetchall()
    kernel = "vectorAdd(float*, float*, float*, int)"
    assert rows == [
        (kernel, "compute", 1, 1, 100, 50, 20, None, 1),
        ("MemoryTransfer", "copy", 1, 1, 160, 10, 20, 4096, None),
    ]
    [(args, size)] = store.execute("SELECT args, launch_size(args, 'grid') FROM task WHERE kind = 'compute'").fetchall()
    assert size == "256,1,1"
    assert json.loads(args) == {
        "event_id": 5, "context_id": 7, "pid": 100, "gpu_api": "CUDA", "hw_queue_id": 1, "render_stage": "Kernel",
        "kernel_name": "_Z9vectorAddPfS_S_i", "kernel_demangled_name": kernel, "arch": "sm_80",
        "registers_per_thread": 32, "shared_mem": 4096,
        "launch": {"grid_size": {"x": 256, "y": 1, "z": 1}, "workgroup_size": {"x": 128, "y": 1, "z": 1}},
    }  # fmt: skip
    assert store.execute("SELECT name, dur_ns FROM api ORDER BY id").fetchall() == [
        ("cuLaunchKernel", 5),
        ("cuEventSynchronize", 10),
    ]
    assert store.execute("SELECT name, dur_ns FROM range").fetchall() == [("step 1", 100)]
    flows = (
        "SELECT s.name, d.name, f.kind FROM flow AS f JOIN slice AS s ON s.id = f.src_id "
        "JOIN slice AS d ON d.id = f.dst_id"
    )
    assert sorted(store.execute(flows).fetchall()) == [
        ("MemoryTransfer", "cuEventSynchronize", "other"),
        ("cuLaunchKernel", "MemoryTransfer", "launch"),
        ("cuLaunchKernel", kernel, "launch"),
        (kernel, "MemoryTransfer", "other"),
    ]
    assert store.execute("SELECT device_id, name, kind FROM device").fetchall() == [(1, "NVIDIA A100-SXM4-80GB", "GPU")]
    assert store.execute("SELECT name FROM track WHERE kind = 'stream'").fetchall() == [("Channel #1",)]


@pytest.mark.parametrize(
    ("queue", "own", "stream"),
    [("Queue #1", 7, 9), ("[07] default", 7, 7), ("stream 0007", None, 7), ("[60] lane of a graph", 13, 13)],
)
def test_calls_with_the_categories_of_kineto_launch_kernels_and_copies(
    queue: str, own: int | None, stream: int, tmp_path: Path
) -> None:
    """As producers that are injected into a program write them, and versions of PyTorch's CUPTI monitor."""
    extra = [] if own is None else [(6, message((1, "stream id"), (2, str(own))))]
    specifications = [
        (24, message((1, 9), (2, queue))), specification(1, "Kernel", COMPUTE), specification(2, "Memcpy", OTHER),
        (1000, message((1, 21), (2, "_Z3addv"), (3, "add()"))),
    ]  # fmt: skip
    calls = [(10, "hip_runtime", "hipLaunchKernel", 5), (30, "cuda_driver", "cuMemcpyAsync", 6),
             (50, "hip_runtime.debug", "hipGetDevice", 7), (60, "cuda_driver.debug", "cuCtxGetCurrent", 8)]  # fmt: skip
    parts = [interned(*specifications), process(1, 100, "python"), thread(2, 100, 101, "main")]
    for ts, category, name, number in calls:
        parts += [begin(ts, 2, name, (22, category), (3000, message((1, number))), (3001, 5)), end(ts + 5, 2)]
    parts += [
        stage(100, (1, 5), (2, 20), (11, 2), (13, 9), (14, 1), (19, 21), *extra),
        stage(130, (1, 6), (2, 20), (11, 2), (13, 9), (14, 2), (17, "Memcpy"),
              (6, message((1, "size_bytes"), (2, "4096"))), *extra),
    ]  # fmt: skip
    _, store = taken(parts, tmp_path)
    tasks = (
        "SELECT name, kind, device_id, stream_id, start_ns, dur_ns, submit_ns, size_bytes FROM task ORDER BY start_ns"
    )
    assert store.execute(tasks).fetchall() == [
        ("add()", "compute", 2, stream, 100, 20, 10, None),
        ("Memcpy", "copy", 2, stream, 130, 20, 30, 4096),
    ]
    names = store.execute("SELECT name FROM api ORDER BY start_ns").fetchall()
    assert names == [(name,) for _, _, name, _ in calls]


def counter_spec(
    number: int, name: str, units: Iterable[int], per: Iterable[int] = (), gpu: int = 0, direction: int = 0
) -> bytes:
    spec = [(1, number), (2, name), (3, f"the {name}"), *((7, one) for one in units), *((8, one) for one in per)]
    return message((1, message((1, message(*spec, (11, direction))))), (3, gpu))


def sample(number: int, value: float, *, gpu: int = 0) -> bytes:
    return message((2, message((1, number), (2 if isinstance(value, int) else 3, value))), (3, gpu))


def counters(ts: int | None, payload: bytes, seq: int = 1, flags: int = 0) -> bytes:
    return packet(*([] if ts is None else [(8, ts)]), (10, seq), (13, flags), (52, payload))


def test_samples_of_counters_are_of_the_time_before_them(tmp_path: Path) -> None:
    parts = [
        counters(1, counter_spec(31, "Vertex / Second", [25], [22])),
        counters(3, counter_spec(34, "Triangle Acceleration", [27], [21, 21], gpu=1)),
        counters(None, counter_spec(35, "forwards", [13], direction=2)),
        interned((47, message((1, 1), (3, 2), (2, message((1, message((1, 1), (2, "Power"), (7, 29))))))), seq=2),
    ]
    for at, (vertices, acceleration, forwards) in enumerate([(5, 0, 100), (10, 9, 0), (15.5, 7, 0)]):
        parts += [
            counters(11 + 10 * at, sample(31, vertices)),
            counters(14 + 10 * at, sample(34, acceleration, gpu=1)),
            counters(15 + 10 * at, sample(35, forwards)),
            counters(16 + 10 * at, message((4, 1), (2, message((1, 1), (2, at)))), seq=2, flags=2),
        ]
    parts += [
        counters(12, sample(33, 8)),
        counters(None, sample(31, 1)),
        packet((8, 50), (129, message((1, 1), (2, 1500000)))),
    ]
    parts += [
        packet((8, 60), (71, message((1, 0), (2, 0), (3, 4096)))),
        packet((8, 61), (71, message((1, 0), (2, 9), (3, 64)))),
    ]
    run, store = taken(parts, tmp_path)
    rows = store.execute(
        "SELECT p.name, t.name, t.unit, c.ts_ns, c.value FROM counter AS c JOIN track AS t USING (run_id, track_id) "
        "LEFT JOIN process AS p USING (run_id, process_id) ORDER BY p.name, t.name, c.ts_ns"
    ).fetchall()
    assert rows == [
        ("GPU 0", "GPU memory", "bytes", 60, 4096),
        ("GPU 0", "Vertex / Second", "Vertex/s", 11, 10),
        ("GPU 0", "Vertex / Second", "Vertex/s", 21, 15.5),
        ("GPU 0", "forwards", "Hz", 15, 100),
        ("GPU 0", "forwards", "Hz", 25, 0),
        ("GPU 0", "forwards", "Hz", 35, 0),
        ("GPU 1", "Triangle Acceleration", "Triangle/ms:ms", 14, 9),
        ("GPU 1", "Triangle Acceleration", "Triangle/ms:ms", 24, 7),
        ("GPU 1", "gpufreq", "kHz", 50, 1500000),
        ("GPU 2", "Power", "W", 16, 1),
        ("GPU 2", "Power", "W", 26, 2),
        (None, "GPU 0 memory", "bytes", 61, 64),
    ]
    counts = {entry.code.text: entry.event_count for entry in run.log}
    assert counts["no_time"] == 1 and counts["missing_text"] == 1 and counts["not_read"] == 3


def test_counters_of_two_gpus_may_have_the_same_numbers(tmp_path: Path) -> None:
    """Each data source describes its own: drivers of two GPUs on sequences of their own, or one of both GPUs."""
    parts = [counters(1, counter_spec(1, "EU active", [37]), seq=1), counters(1, counter_spec(1, "Tiler", [37]), seq=2)]
    parts += [counters(1, counter_spec(1, f"Power {gpu}", [29], gpu=gpu), seq=3) for gpu in (0, 1)]
    for ts in (10, 20):
        parts += [counters(ts, sample(1, ts + seq), seq=seq) for seq in (1, 2)]
        parts += [counters(ts, sample(1, ts + 3 + gpu, gpu=gpu), seq=3) for gpu in (0, 1)]
    parts += [counters(30, sample(1, 99), seq=4)]
    _, store = taken(parts, tmp_path)
    rows = store.execute(
        "SELECT t.name, c.ts_ns, c.value FROM counter AS c JOIN track AS t USING (run_id, track_id) ORDER BY ALL"
    ).fetchall()
    # A sequence without a description has the first one's.
    assert rows == [("EU active", 10, 21), ("EU active", 20, 99), ("Power 0", 10, 23), ("Power 1", 10, 24),
                    ("Tiler", 10, 22)]  # fmt: skip


def test_stages_of_graphics_and_what_isnt_described(tmp_path: Path) -> None:
    old = message(
        (
            7,
            message(
                (2, message((1, "queue 0"))),
                (3, message((1, "stage 0"))),
                (3, message((1, "stage 1"), (2, "of pixels"))),
            ),
        )
    )
    parts = [
        stage(0, (1, 1), (2, 5), (3, 1), (4, 1), seq=9),
        packet((8, 0), (10, 9), (53, old)),
        packet((8, 10), (10, 9), (53, message((1, 2), (2, 5), (3, 0), (4, 1), (15, 1 << 63), (15, 1), (10, 42)))),
        packet((8, 20), (10, 9), (53, message((1, 3), (2, 5), (3, -1), (4, -1)))),
        interned(specification(1, "vertex", GRAPHICS), specification(3, "binning", GRAPHICS, "of tiles")),
        stage(100, (1, 4), (2, 10), (13, 1), (14, 3)),
        interned(specification(1, "other", GRAPHICS), specification(2, "render", GRAPHICS), seq=2),
        stage(300, (1, 5), (2, 10), (13, 1), (14, 2), seq=2),
        stage(310, (1, 6), (2, 10), (13, 8), (14, 9), seq=2),
        packet((8, 5), (10, 9), (65, message((2, message((1, 2), (2, 42), (3, 43), (5, 100), (5, 200), (6, 42)))))),
        packet((8, 6), (10, 9), (63, message((1, 5), (2, "hang"), (3, "GPU hung")))),
        packet((8, 7), (10, 9), (53, b"\x0a\xff")),
    ]
    run, store = taken(parts, tmp_path)
    rows = store.execute(
        "SELECT s.name, t.name, s.start_ns, s.dur_ns, s.table_name FROM slice AS s JOIN track AS t USING (track_id) "
        "WHERE s.table_name <> 'api'"
    ).fetchall()
    assert sorted(rows, key=lambda row: row[2:]) == [
        ("stage 1", "queue 0", 10, 5, "range"),
        ("render stage(18446744073709551615)", "Unknown GPU Queue 4294967295", 20, 5, "range"),
        ("binning", "vertex", 100, 10, "task"),
        ("render", "other", 300, 10, "task"),
        ("render stage(9)", "GPU queue 8", 310, 10, "range"),
    ]
    [(args,)] = store.execute("SELECT args FROM range WHERE start_ns = 10").fetchall()
    assert json.loads(args)["render_subpasses"] == "63,64"
    assert store.execute("SELECT name, start_ns, dur_ns, args->>'command_buffers' FROM api").fetchall() == [
        ("vkQueueSubmit", 5, 2, "[100,200]")
    ]
    assert store.execute("SELECT kind FROM flow WHERE src_id = (SELECT id FROM api)").fetchall() == [("launch",)]
    assert store.execute("SELECT name, args->>'message' FROM marker").fetchall() == [("ERROR", "GPU hung")]
    counts = {entry.code.text: entry.event_count for entry in run.log}
    assert counts["damaged_event"] == 1 and counts["missing_records"] == 1 and counts["missing_text"] == 2
