"""The cost model: integers, parts at most the total, more work is never cheaper, bandwidth is never exceeded."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.runtime import cost
from traceconv.runtime.cost import Cost, MatrixWork, VectorWork
from traceconv.runtime.spec import reference_npu

SPEC = reference_npu()
SIZES = st.integers(1, 3_000)
BYTES = st.sampled_from((1, 2, 4, 8))


def matrix(work: MatrixWork) -> Cost:
    read = work.groups * (work.m * work.k // work.reuse + work.k * work.n) * work.elem_bytes
    written = result_bytes(work)
    return cost.matrix_cost(SPEC, work, work.elem_bytes, read + written, written)


def result_bytes(work: MatrixWork) -> int:
    return work.groups * work.m * work.n * work.elem_bytes


def check_parts(found: Cost) -> None:
    pmu = found.pmu
    assert pmu is not None
    assert all(isinstance(value, int) and value >= 0 for value in pmu.values())
    for core, blocks in (("aic", found.block_count), ("aiv", found.mix_block_count or found.block_count)):
        total = getattr(pmu, f"{core}_total_cycles")
        assert total <= found.cycles * blocks
        for field in dataclasses.fields(pmu):
            if field.name.startswith(core) and field.name.endswith("_cycles"):
                assert getattr(pmu, field.name) <= total
        assert getattr(pmu, f"{core}_icache_miss_count") <= getattr(pmu, f"{core}_icache_request_count")


@given(st.builds(MatrixWork, st.integers(1, 64), SIZES, SIZES, SIZES, BYTES, st.integers(1, 9)))
def test_matrix_parts_are_at_most_the_total(work: MatrixWork) -> None:
    found = matrix(work)
    check_parts(found)
    assert 1 <= found.block_count <= SPEC.cube_cores
    macs = work.groups * work.m * work.n * work.k
    # No faster than the multiply-accumulate units of all cores together.
    per_cycle = {1: 8192, 2: 4096, 4: 1024, 8: 128}[work.elem_bytes] * SPEC.cube_cores
    assert found.cycles * per_cycle >= macs


@given(
    st.builds(MatrixWork, st.integers(1, 8), SIZES, SIZES, SIZES, BYTES), st.sampled_from("mnk"), st.integers(1, 500)
)
def test_a_larger_product_is_never_cheaper(work: MatrixWork, side: str, more: int) -> None:
    larger = dataclasses.replace(work, **{side: getattr(work, side) + more})
    assert matrix(work).cycles <= matrix(larger).cycles


def with_split(work: MatrixWork) -> tuple[Cost, int]:
    """Return the cost of a product that may be split, and the number of splits."""
    found = cost.split_cost(SPEC, matrix(work), result_bytes(work))
    assert found.cube is not None
    return found, found.cube.work.groups // work.groups


LONG = st.builds(
    MatrixWork, st.integers(1, 3), st.integers(1, 200), st.integers(1, 200), st.integers(1, 1 << 17), BYTES
)


@given(LONG)
def test_a_split_product_is_faster_and_keeps_its_partial_sums(work: MatrixWork) -> None:
    unsplit = matrix(work)
    found, splits = with_split(work)
    if splits == 1:
        assert found == unsplit and found.workspace_bytes == 0
        return
    assert found.cycles < unsplit.cycles
    assert splits in (2, 4, 8) and work.elem_bytes <= 4
    assert found.workspace_bytes == splits * work.groups * work.m * work.n * 4
    assert found.cube is not None and splits <= found.cube.tiles == found.block_count
    check_parts(found)


@given(LONG, st.sampled_from("mnk"), st.integers(1, 5_000))
def test_a_larger_product_is_never_cheaper_by_a_split(work: MatrixWork, side: str, more: int) -> None:
    larger = dataclasses.replace(work, **{side: getattr(work, side) + more})
    assert with_split(work)[0].cycles <= with_split(larger)[0].cycles


def test_a_split_product_worked_out_by_hand() -> None:
    """16×4096×16 in fp32: the equations of docs/explanation/cost-model.md, done on paper."""
    work = MatrixWork(1, 16, 16, 4_096, 4)
    # Unsplit, a single core loads 32 rows of 16,384 bytes; then a first round of K, and one fixpipe.
    fill = 32 + 64 + 8
    assert matrix(work).cycles == 32 * 16_384 // 128 + fill == 4_200
    found, splits = with_split(work)
    # Four cores need 1,024 + 104 cycles, but device memory 524,288 bytes / 345.6.
    parts, start = 1_518, 200 + 480
    # The sum is one vector tile: 1,024 elements of 4 · 4 bytes at 64 bytes per cycle, then a quarter of in and out.
    added = 1_024 * 16 // 64 + (256 + 64) // 4
    assert (splits, found.block_count, found.mix_block_count) == (4, 4, 1)
    assert found.cycles == parts + start + added == 2_534
    assert found.workspace_bytes == 4 * 16 * 16 * 4
    assert found.pmu is not None and found.pmu.aiv_vec_cycles == 16 * 4


def vector_work(count: int, cycles: int, elem_bytes: int, reads: int, scattered: bool) -> VectorWork:
    return VectorWork(count, cycles, elem_bytes, reads * count * elem_bytes, count * elem_bytes, scattered)


VECTORS = st.builds(vector_work, st.integers(1, 1 << 22), st.integers(0, 30), BYTES, st.integers(1, 3), st.booleans())


@given(VECTORS)
def test_vector_parts_are_at_most_the_total(work: VectorWork) -> None:
    found = cost.vector_cost(SPEC, work)
    check_parts(found)
    assert 1 <= found.block_count <= SPEC.vector_cores
    seconds_times_rate = found.cycles * SPEC.hbm_bytes_per_s
    assert (work.in_bytes + work.out_bytes) * SPEC.core_clock_hz <= seconds_times_rate


@given(VECTORS, st.integers(1, 1 << 16))
def test_more_elements_are_never_cheaper(work: VectorWork, more: int) -> None:
    reads = work.in_bytes // (work.count * work.elem_bytes)
    larger = vector_work(work.count + more, work.cycles, work.elem_bytes, reads, work.scattered)
    assert cost.vector_cost(SPEC, work).cycles <= cost.vector_cost(SPEC, larger).cycles


@given(VECTORS, st.builds(MatrixWork, st.just(1), SIZES, SIZES, SIZES, BYTES))
def test_a_mixed_op_takes_as_long_as_the_slower_part(vector: VectorWork, work: MatrixWork) -> None:
    parts = (matrix(work), cost.vector_cost(SPEC, vector))
    found = cost.mixed_cost(*parts)
    check_parts(found)
    assert found.cycles >= max(part.cycles for part in parts)
    assert (found.block_count, found.mix_block_count) == (parts[0].block_count, parts[1].block_count)


def test_a_product_worked_out_by_hand() -> None:
    """128×128×128 in fp16: the equations of docs/explanation/cost-model.md, done on paper."""
    work = MatrixWork(1, 128, 128, 128, 2)
    found = cost._tiled_matrix(SPEC, work, 64, 64, 2, 0)
    # 4 tiles on 4 cores; a tile is 4 × 4 fractals, K is 8 fractals of 32 bytes.
    assert found.block_count == 4
    mac, mte1, mte2, fixpipe = 4 * 4 * 8, 128 * 256 // 256, 128 * 256 // 128, 64 * 64 * 2 // 128
    scalar = 24 + 6 * 2
    fill = (mte1 + mte2) // 2 + fixpipe  # a round is 64 of 128 elements of K
    assert found.cycles == max(mac, mte1, mte2, fixpipe, scalar) + fill
    assert found.pmu is not None
    assert found.pmu.aic_mac_cycles == 4 * mac
    assert found.pmu.aic_total_cycles == 4 * found.cycles


@pytest.mark.parametrize("elements", [0, 1, 4_096, 1 << 20])
def test_the_ai_cpu_has_no_counters(elements: int) -> None:
    found = cost.cpu_cost(SPEC, elements, elements * 8)
    assert found.pmu is None and 1 <= found.block_count <= SPEC.cpu_cores
    assert cost.task_ticks(SPEC, found) * SPEC.core_clock_hz >= found.cycles * SPEC.clock_hz


def test_copies_take_latency_and_bandwidth() -> None:
    assert cost.copy_ticks(SPEC, 0) == 60  # 1.2 µs in ticks of 20 ns
    assert cost.copy_ticks(SPEC, 24_000_000) == 60 + 50_000  # and 1 ms at 24 GB/s


def test_peak_is_that_of_the_cubes() -> None:
    assert SPEC.peak_flops == 2 * 16**3 * 8 * 1_200_000_000
