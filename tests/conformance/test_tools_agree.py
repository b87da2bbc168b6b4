"""A store of real PyTorch traces gives the numbers of HTA and torch-tb-profiler.

The numbers are those of HolisticTraceAnalysis 0.5.0 (HTA_DISABLE_NS_ROUNDING=1, include_last_profiler_step=True) and
torch-tb-profiler 0.4.3 on these files, in µs. HTA computes in doubles, so sums are compared to 0.01 µs; stores have
integer nanoseconds. docs/how-to/compare-with-other-tools.md explains the differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount.idle import idle_gaps
from shared_data import shared

from traceconv.pipeline.ingest import ingest

TORCH = shared("real") / "torch"


@dataclass(frozen=True)
class Found:
    """Results of the tools for a file.

    temporal     get_temporal_breakdown: idle, compute, non-compute, kernel time; None where HTA counts waits as kernels
    kinds        get_gpu_kernel_breakdown: kernel names and their time, by kind
    kernels      the three longest kernels: start of the name, sum, min, max, mean, standard deviation
    launches     get_cuda_kernel_launch_stats: rows; sums of cpu_duration, gpu_duration, launch_delay
    idle         get_idle_time_breakdown: host_wait, kernel_wait, other, by stream
    short        launches whose gpu_duration is below their cpu_duration
    queues       get_queue_length_summary: count, mean, std, min, 25, 50 and 75 %, max, by stream
    overlap      get_comm_comp_overlap, percent
    steps        kernels and their time, by iteration of their launch
    annotations  get_gpu_user_annotation_breakdown: time by name
    ops          torch-tb-profiler's operator view: name, calls, host total, host self, device self
    """

    kinds: dict[str, tuple[int, float]]
    kernels: list[tuple[str, float, float, float, float, float]]
    idle: dict[int, tuple[float, float, float]]
    temporal: tuple[float, float, float, float] | None = None
    launches: tuple[int, float, float, float] | None = None
    short: int | None = None
    queues: dict[int, tuple[float, ...]] = field(default_factory=dict)
    overlap: float | None = None
    steps: dict[int, tuple[int, float]] = field(default_factory=dict)
    annotations: dict[str, float] = field(default_factory=dict)
    ops: list[tuple[str, int, int, int, int]] = field(default_factory=list)


FOUND = {
    "kineto_gpu_metrics_input.json": Found(
        temporal=(11896.0, 48.0, 2.0, 11946.0),
        kinds={"compute": (13, 48.0), "copy": (1, 2.0)},
        kernels=[
            ("void at::native::vectorized_elementwise_kernel<4", 8.0, 1.0, 1.0, 1.0, 0.0),
            ("void at::native::vectorized_elementwise_kernel<4", 7.0, 1.0, 1.0, 1.0, 0.0),
            ("volta_sgemm_128x32_nt", 6.0, 3.0, 3.0, 3.0, 0.0),
        ],
        launches=(32, 592.0, 50.0, 45.0),
        short=32,
        queues={7: (64, 0.5, 0.503953, 0, 0, 0.5, 1, 1)},
        idle={7: (11896.0, 0.0, 0.0)},
        steps={2: (32, 50.0)},
        ops=[
            ("aten::mm", 5, 1003, 613, 13),
            ("aten::add_", 10, 883, 703, 12),
            ("aten::sum", 3, 637, 408, 9),
            ("aten::fill_", 7, 386, 266, 7),
            ("aten::copy_", 2, 145, 98, 2),
        ],
    ),
    "kineto_resnet50_worker0.pt.trace.json.gz": Found(
        temporal=(273921.0, 591209.0, 10936.0, 876066.0),
        kinds={"compute": (67, 591209.0), "copy": (2, 10936.0)},
        kernels=[
            ("void cudnn::detail::dgrad_engine<float, 512, 6, ", 80683.0, 324.0, 1016.0, 498.0432, 201.2616),
            ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6", 66530.0, 346.0, 747.0, 426.4744, 120.7823),
            ("void cudnn::bn_bw_1C11_kernel_new<float, float, ", 59568.0, 46.0, 914.0, 225.6364, 205.9511),
        ],
        launches=(9096, 108129.0, 602145.0, 101471310.0),
        short=5769,
        idle={7: (263800.0, 10121.0, 0.0)},
        steps={
            16: (1516, 100162.0),
            17: (1516, 100214.0),
            18: (1516, 100400.0),
            19: (1516, 100479.0),
            20: (1516, 100548.0),
            21: (1516, 100342.0),
        },
        ops=[
            ("aten::cudnn_convolution_backward_weight", 318, 39432, 22141, 142531),
            ("aten::cudnn_convolution_backward_input", 312, 40647, 28531, 130769),
            ("aten::cudnn_convolution", 318, 57256, 33137, 126500),
            ("aten::cudnn_batch_norm_backward", 318, 28180, 11660, 61857),
            ("aten::cudnn_batch_norm", 318, 72004, 19780, 34296),
        ],
    ),
    "mi250_rocm6.2_minitoy.json.gz": Found(
        temporal=(8762.845, 110.881, 38.161, 8911.887),
        kinds={"compute": (12, 110.881), "copy": (1, 38.161)},
        kernels=[
            ("Memcpy HtoD (Host -> Device)", 38.161, 15.72, 22.441, 19.0805, 4.7525),
            ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x3", 17.6, 17.6, 17.6, 17.6, 0.0),
            ("void at::native::reduce_kernel<128, 4, at::nativ", 13.6, 13.6, 13.6, 13.6, 0.0),
        ],
        idle={0: (8762.84, 0.0, 0.0)},
        queues={0: (32, 0.5, 0.508001, 0, 0, 0.5, 1, 1)},
        annotations={"Optimizer.step#SGD.step": 8.483, "ProfilerStep#1": 1031.368},
    ),
    "nccl_metadata.json.gz": Found(
        temporal=(503050.991, 115655.847, 41844.167, 660551.006),
        kinds={"collective": (2, 46876.493), "compute": (68, 115655.847), "copy": (2, 2653.498)},
        kernels=[
            ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevCo", 46762.159, 1689.577, 5993.392, 3117.4773, 1498.4536),
            ("void cudnn::ops::nchwToNhwcKernel<float, float, ", 12616.974, 3.776, 153.439, 26.6181, 29.9732),
            ("void cudnn::bn_bw_1C11_kernel_new<float, float, ", 9592.287, 205.533, 427.642, 290.6754, 101.8801),
        ],
        launches=(3774, 35864.776, 165185.838, 103192.246),
        short=2077,
        queues={7: (7506, 0.814149, 1.058057, 0, 0, 1, 1, 10), 40: (42, 0.5, 0.506061, 0, 0, 0.5, 1, 1)},
        idle={7: (540091.32, 2150.34, 0.0), 40: (583924.26, 0.0, 0.0)},
        overlap=15.61,
        steps={4: (1258, 51381.015), 5: (1258, 51596.866), 6: (1258, 62207.957)},
        annotations={
            "## backward ##": 1911.193,
            "DistributedDataParallel.forward": 292764.153,
            "Optimizer.step#SGD.step": 28206.874,
            "nccl:all_reduce": 46784.659,
            "nccl:broadcast": 123.334,
        },
    ),
    "cuda_event_sync_multi_stream.json.gz": Found(
        kinds={"compute": (1, 369.0), "copy": (1, 3.0)},
        kernels=[
            ("ampere_sgemm_128x64_nn", 369.0, 123.0, 123.0, 123.0, 0.0),
            ("Memset (Device)", 3.0, 1.0, 1.0, 1.0, 0.0),
        ],
        launches=(6, 97.0, 372.0, 18.0),
        short=3,
        queues={
            20: (4, 0.5, 0.577350, 0, 0, 0.5, 1, 1),
            24: (4, 0.5, 0.577350, 0, 0, 0.5, 1, 1),
            28: (4, 1.0, 0.816497, 0, 0.75, 1, 1.25, 2),
        },
        idle={20: (32.0, 0.0, 0.0), 24: (0.0, 15.0, 0.0), 28: (0.0, 15.0, 0.0)},
    ),
    "alexnet_critical_path.json.gz": Found(
        kinds={"compute": (16, 10692.0), "copy": (2, 55511.0)},
        kernels=[
            ("Memcpy HtoD (Pageable -> Device)", 55503.0, 1.0, 34780.0, 3468.9375, 9207.0612),
            ("ampere_sgemm_32x32_sliced1x4_tn", 2621.0, 97.0, 822.0, 436.8333, 323.3422),
            ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v", 2069.0, 1034.0, 1035.0, 1034.5, 0.7071),
        ],
        launches=(98, 3113616.0, 66203.0, 39283.0),
        short=32,
        queues={7: (182, 3.346154, 4.699355, 0, 0, 1, 4, 18), 20: (14, 0.642857, 0.633324, 0, 0, 1, 1, 2)},
        idle={7: (12855007.0, 104.0, 0.0), 20: (12011718.0, 3.0, 0.0)},
    ),
}


#: Files that take seconds to read.
LONG = {"kineto_resnet50_worker0.pt.trace.json.gz"}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in FOUND]
)
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Found]]:
    """A store with one of the files, and the results of the tools."""
    path: Path = tmp_path_factory.mktemp("tools") / "trace.duckdb"
    ingest([TORCH / request.param], path)
    with duckdb.connect(str(path), read_only=True) as store:
        yield store, FOUND[request.param]


def near(*wanted: float) -> Any:
    """Equal up to the precision of doubles."""
    return pytest.approx(wanted, abs=0.01)


Traced = tuple[duckdb.DuckDBPyConnection, Found]


def test_kernel_time_by_kind_and_name(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        "SELECT kind, count(DISTINCT name), sum(dur_ns) / 1000 FROM task WHERE kind <> 'sync' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert [(kind, names) for kind, names, _ in rows] == [(kind, names) for kind, (names, _) in found.kinds.items()]
    assert [time for *_, time in rows] == near(*(time for _, time in found.kinds.values()))
    rows = store.execute(
        "SELECT kernel, total_ns / 1000, min_ns / 1000, max_ns / 1000, avg_ns / 1000 FROM kernels "
        "ORDER BY total_ns DESC LIMIT 3"
    ).fetchall()
    for (name, *times), (start, *wanted, _) in zip(rows, found.kernels, strict=True):
        assert name.startswith(start)
        assert list(map(float, times)) == near(*wanted)


def test_op_statistic_has_every_kernel_and_no_copy(traced: Traced) -> None:
    store, found = traced
    rows = store.execute("SELECT count(DISTINCT op_type), sum(total_ns) / 1000 FROM op_statistic").fetchall()
    kernels = [of for kind, of in found.kinds.items() if kind != "copy"]
    assert rows[0] == near(sum(names for names, _ in kernels), sum(time for _, time in kernels))


def test_busy_and_idle_time(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        "SELECT idle_ns / 1000, compute_ns / 1000, (busy_ns - compute_ns) / 1000, window_ns / 1000, "
        "100 * (collective_ns - exposed_collective_ns) / nullif(collective_ns, 0) FROM breakdown"
    ).fetchall()
    assert len(rows) == 1
    if found.temporal is not None:
        assert rows[0][:4] == near(*found.temporal)
    assert rows[0][4] == (None if found.overlap is None else pytest.approx(found.overlap, abs=0.005))


def test_waits_of_streams(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        "SELECT stream_id, host_wait_ns / 1000, start_wait_ns / 1000, other_wait_ns / 1000 FROM stream_utilisation"
    ).fetchall()
    assert [row[0] for row in rows] == list(found.idle)
    for row, wanted in zip(rows, found.idle.values(), strict=True):
        assert row[1:] == near(*wanted)


def test_gaps_and_their_causes_equal_a_recount(traced: Traced) -> None:
    store, _ = traced
    columns = "run_id, device_id, start_ns, end_ns, cause, host_wait_ns, launch_delay_ns, host_id, task_id"
    rows = store.execute(f"SELECT {columns} FROM idle_gaps").fetchall()
    assert rows == sorted(idle_gaps(store), key=lambda row: row[1:3])
    sums = store.execute("SELECT sum(gap_count), sum(idle_ns), sum(host_wait_ns) FROM idle_causes").fetchall()
    assert sums == [(len(rows), sum(row[3] - row[2] for row in rows), sum(row[5] for row in rows))]


def test_launches(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        # HTA counts from the end of the call, or 0 if the kernel started before it.
        "SELECT count(*), sum(call_ns) / 1000, sum(dur_ns) / 1000, sum(greatest(0, after_call_ns)) / 1000, "
        "count(*) FILTER (is_short) FROM launch"
    ).fetchall()
    sums = store.execute("SELECT sum(count), sum(total_call_ns), sum(total_ns), sum(short_count) FROM launch_statistic")
    assert sums.fetchall() == [(rows[0][0], rows[0][1] * 1000, rows[0][2] * 1000, rows[0][4])]
    if found.launches is None:  # HTA 0.5.0 doesn't match hipLaunchKernel by correlation ID
        assert rows[0][0] == store.execute("SELECT count(*) FROM task").fetchall()[0][0]
    else:
        assert rows[0][:4] == near(*found.launches)
        assert rows[0][4] == found.short


def test_queues_of_launched_tasks(traced: Traced) -> None:
    """In whole microseconds, HTA counts launches and starts at equal times in any order, so that means differ."""
    store, found = traced
    lengths = "avg_length, std_length, min_length, p25_length, p50_length, p75_length, max_length"
    rows = store.execute(f"SELECT stream_id, 2 * task_count, {lengths} FROM launch_queue").fetchall()
    for stream, *row in rows if found.queues else ():
        assert row == pytest.approx(found.queues[stream], abs=0.000001)
    peaks = dict(store.execute("SELECT stream_id, max(queue_length) FROM launch GROUP BY 1").fetchall())
    assert peaks == {stream: row[-1] for stream, *row in rows}


def test_kernels_of_steps(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        "SELECT s.iteration, count(*), sum(t.dur_ns) / 1000 FROM task AS t "
        "JOIN step AS s USING (run_id, step_id, device_id) WHERE t.kind <> 'sync' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    for row, (step, (count, time)) in zip(rows, found.steps.items(), strict=bool(found.steps)):
        assert row == (step, count, pytest.approx(time, abs=0.01))


def test_device_annotations_are_not_kernels(traced: Traced) -> None:
    store, found = traced
    rows = store.execute(
        "SELECT name, total_ns / 1000 FROM range_statistic WHERE category = 'gpu_user_annotation' ORDER BY 1"
    ).fetchall()
    assert dict(rows) == pytest.approx(found.annotations, abs=0.01)


def test_operators(traced: Traced) -> None:
    store, found = traced
    for name, calls, total, own, device in found.ops:
        rows = store.execute(
            "SELECT count, total_ns / 1000, self_ns / 1000 FROM range_statistic WHERE name = ? AND kind = 'host_op'",
            [name],
        ).fetchall()
        assert rows == [(calls, total, own)]
        rows = store.execute("SELECT sum(dur_ns) / 1000 FROM launching_range WHERE range_name = ?", [name]).fetchall()
        assert rows == [(device,)]
