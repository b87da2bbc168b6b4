"""Counters of every metric group fit the op's time, for any shape, mix of instructions and device."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.runtime import counters
from traceconv.runtime.cost import (
    Cost,
    InstructionMix,
    MatrixWork,
    VectorWork,
    cpu_cost,
    matrix_cost,
    mixed_cost,
    split_cost,
    vector_cost,
)
from traceconv.runtime.spec import DeviceSpec, reference_npu

SIZES = st.integers(0, 2_000)
BYTES = st.sampled_from((1, 2, 4, 8))
RATES = st.sampled_from((32, 64, 100, 128, 256, 512))


@st.composite
def specs(draw: st.DrawFn) -> DeviceSpec:
    """Devices with other clocks, numbers of cores, bandwidths and buffers."""
    return dataclasses.replace(
        reference_npu(),
        core_clock_hz=draw(st.integers(500_000_000, 2_500_000_000)),
        hbm_bytes_per_s=draw(st.integers(10**10, 4 * 10**12)),
        hbm_efficiency_percent=draw(st.integers(50, 100)),
        l2_bytes_per_cycle=draw(st.integers(64, 8_192)),
        cube_cores=draw(st.integers(1, 48)),
        l0c_bytes=draw(st.sampled_from((65_536, 131_072, 262_144))),
        mte1_bytes_per_cycle=draw(RATES),
        cube_mte2_bytes_per_cycle=draw(RATES),
        fixpipe_bytes_per_cycle=draw(RATES),
        vector_cores=draw(st.integers(1, 48)),
        register_bytes=draw(st.sampled_from((128, 256, 512))),
        ub_bytes=draw(st.sampled_from((196_608, 524_288))),
        vector_mte2_bytes_per_cycle=draw(RATES),
        mte3_bytes_per_cycle=draw(RATES),
        scatter_factor=draw(st.integers(1, 8)),
    )


@st.composite
def matrix_works(draw: st.DrawFn) -> MatrixWork:
    reuse = draw(st.integers(1, 9))
    return MatrixWork(draw(st.integers(0, 32)), draw(SIZES), draw(SIZES), draw(SIZES), draw(BYTES), reuse)


@st.composite
def vector_works(draw: st.DrawFn) -> VectorWork:
    count, cycles, size = draw(st.integers(0, 1 << 21)), draw(st.integers(0, 30)), draw(BYTES)
    read = draw(st.integers(0, 3)) * count * size
    cached = draw(st.integers(0, read))
    mix = InstructionMix(
        draw(st.sampled_from(("fp32", "fp16", "int32", "misc"))), draw(st.integers(0, 40)), draw(st.integers(0, 40))
    )
    return VectorWork(count, cycles, size, read, count * size, draw(st.booleans()), cached, mix)


def matrix(spec: DeviceSpec, work: MatrixWork, *, whole_input: bool = False) -> Cost:
    written = work.groups * work.m * work.n * work.elem_bytes
    read = work.groups * (work.m * work.k // (1 if whole_input else work.reuse) + work.k * work.n) * work.elem_bytes
    return matrix_cost(spec, work, work.elem_bytes, read + written, written)


def counted(spec: DeviceSpec, cost: Cost, group: str) -> dict[str, int]:
    names, values = counters.names(group), counters.values(spec, cost, group)
    assert all(type(value) is int and 0 <= value < 1 << 64 for value in values)
    return dict(zip(names, values, strict=True))


def check(spec: DeviceSpec, cost: Cost) -> None:
    """All that holds for the counters of any op, by whatever cores."""
    groups = {group: counted(spec, cost, group) for group in counters.RECORDS}
    pipe = groups["PipeUtilization"]
    for core in ("aic", "aiv"):
        total = f"{core}_total_cycles"
        assert {found[total] for found in groups.values()} == {pipe[total]}
        check_cycles(groups, core, pipe[total])
    if pipe["aic_total_cycles"]:
        check_cube(spec, cost, groups)
    if pipe["aiv_total_cycles"]:
        check_vector(spec, cost, groups)
    memory = groups["Memory"]
    moved = sum(value for name, value in memory.items() if "main_mem" in name)
    assert moved * spec.core_clock_hz <= cost.cycles * spec.hbm_bytes_per_s
    check_l2(spec, memory, groups["L2Cache"])


def check_cycles(groups: dict[str, dict[str, int]], core: str, total: int) -> None:
    """Every count of cycles lies within the core's; those of one unit together make that unit's, no more."""
    pipe, arithmetic, conflicts = (
        groups[name] for name in ("PipeUtilization", "ArithmeticUtilization", "ResourceConflictRatio")
    )
    for found in groups.values():
        assert all(value <= total for name, value in found.items() if name.startswith(core) and name.endswith("cycles"))
    unit = "aic_mac" if core == "aic" else "aiv_vec"
    parts = [value for name, value in arithmetic.items() if name.startswith(f"{unit}_")]
    assert sum(parts) == pipe[f"{unit}_cycles"]
    waits = sum(value for name, value in conflicts.items() if "_cflt_" in name and name.startswith(core))
    assert waits <= pipe[f"{unit}_cycles"]


def check_cube(spec: DeviceSpec, cost: Cost, groups: dict[str, dict[str, int]]) -> None:
    assert cost.cube is not None
    pipe, memory, l0 = groups["PipeUtilization"], groups["Memory"], groups["MemoryL0"]
    work = cost.cube.work
    flops, mac = groups["ArithmeticUtilization"]["aic_cube_flops"], pipe["aic_mac_cycles"]
    assert flops >= 2 * work.groups * work.m * work.n * work.k
    per_cycle = {1: 16_384, 2: 8_192, 4: 2_048, 8: 256}[work.elem_bytes]
    assert flops == mac * per_cycle
    # No unit moves more bytes than it has cycles for.
    assert memory["aic_l1_read_bytes"] <= pipe["aic_mte1_cycles"] * spec.mte1_bytes_per_cycle
    assert memory["aic_l1_read_bytes"] == l0["aic_l0a_write_bytes"] + l0["aic_l0b_write_bytes"]
    rate = min(spec.cube_mte2_bytes_per_cycle, spec.l2_bytes_per_cycle // cost.block_count)
    assert memory["aic_l2_read_bytes"] <= pipe["aic_mte2_cycles"] * rate
    assert memory["aic_l1_write_bytes"] == memory["aic_l2_read_bytes"]
    assert memory["aic_l2_write_bytes"] <= pipe["aic_fixpipe_cycles"] * spec.fixpipe_bytes_per_cycle
    assert max(l0["aic_l0a_read_bytes"], l0["aic_l0b_read_bytes"]) <= mac * 512
    assert l0["aic_l0c_read_cube_bytes"] <= l0["aic_l0c_write_cube_bytes"] <= mac * 1_024


def check_vector(spec: DeviceSpec, cost: Cost, groups: dict[str, dict[str, int]]) -> None:
    pipe, memory, buffer = groups["PipeUtilization"], groups["Memory"], groups["MemoryUB"]
    blocks = cost.mix_block_count or cost.block_count
    share = spec.l2_bytes_per_cycle // blocks
    assert memory["aiv_l2_read_bytes"] <= pipe["aiv_mte2_cycles"] * min(spec.vector_mte2_bytes_per_cycle, share)
    assert memory["aiv_ub_write_bytes"] <= memory["aiv_l2_read_bytes"]
    assert memory["aiv_ub_read_bytes"] <= pipe["aiv_mte3_cycles"] * min(spec.mte3_bytes_per_cycle, share)
    written, read = (buffer[f"aiv_ub_{way}_vector_bytes"] for way in ("write", "read"))
    assert written == pipe["aiv_vec_cycles"] * spec.register_bytes
    assert written <= read <= 2 * written
    flops = groups["ArithmeticUtilization"]["aiv_vector_flops"]
    assert flops <= pipe["aiv_vec_cycles"] * spec.register_bytes // 2


def check_l2(spec: DeviceSpec, memory: dict[str, int], cache: dict[str, int]) -> None:
    """A line for each 128 bytes; a miss is a line from or to device memory; both channels are used alike."""
    line = 128
    for core in ("aic", "aiv"):
        reads, misses = (
            [cache[f"{core}_r{channel}_read_cache_{part}_count"] for channel in (0, 1)] for part in ("hit", "miss")
        )
        assert 0 <= reads[0] - reads[1] <= 1 and 0 <= misses[0] - misses[1] <= 1
        assert sum(reads) + sum(misses) == -(-memory[f"{core}_l2_read_bytes"] // line)
        assert sum(misses) == -(-memory[f"{core}_main_mem_read_bytes"] // line)
        assert cache[f"{core}_write_cache_miss_count"] == -(-memory[f"{core}_main_mem_write_bytes"] // line)
        writes = cache[f"{core}_write_cache_hit_count"] + cache[f"{core}_write_cache_miss_count"]
        assert writes * line >= memory[f"{core}_l2_write_bytes"]
        for way in ("read", "write"):
            assert memory[f"{core}_main_mem_{way}_bytes"] <= memory[f"{core}_l2_{way}_bytes"]


@given(specs(), matrix_works(), st.booleans())
def test_counters_of_a_matrix_op(spec: DeviceSpec, work: MatrixWork, whole_input: bool) -> None:
    check(spec, matrix(spec, work, whole_input=whole_input))


@given(specs(), matrix_works(), st.integers(0, 1 << 16), st.integers(0, 30))
def test_counters_of_a_split_product(spec: DeviceSpec, work: MatrixWork, k: int, cycles: int) -> None:
    work = dataclasses.replace(work, k=k, reuse=1)
    unsplit = matrix(spec, work)
    found = split_cost(spec, unsplit, work.groups * work.m * work.n * work.elem_bytes, cycles)
    assert found.cycles <= unsplit.cycles
    check(spec, found)


@given(specs(), vector_works())
def test_counters_of_a_vector_op(spec: DeviceSpec, work: VectorWork) -> None:
    check(spec, vector_cost(spec, work))


@given(specs(), matrix_works(), st.integers(1, 30), st.booleans())
def test_counters_of_a_mixed_op(spec: DeviceSpec, work: MatrixWork, cycles: int, residual: bool) -> None:
    made = work.groups * work.m * work.n
    size, own = made * work.elem_bytes, made * work.elem_bytes if residual else 0
    read = work.groups * (work.m * work.k + work.k * work.n) * work.elem_bytes
    cube = matrix_cost(spec, work, work.elem_bytes, read + own + size, size)
    mix = InstructionMix(pair_cycles=1)
    vector = vector_cost(spec, VectorWork(made, cycles, work.elem_bytes, size + own, size, False, size, mix))
    cost = mixed_cost(cube, vector)
    check(spec, cost)
    memory = counted(spec, cost, "Memory")
    # What the cube makes goes no further than L2; the second operand of the sum is the vector cores' to read.
    assert memory["aic_main_mem_write_bytes"] == 0
    assert memory["aiv_main_mem_read_bytes"] <= own


def test_the_ai_cpu_counts_nothing() -> None:
    spec = reference_npu()
    for group in counters.RECORDS:
        assert not any(counters.values(spec, cpu_cost(spec, 1_000, 8_000), group))


@given(matrix_works(), st.sampled_from(("groups", "m", "n", "k")), st.integers(1, 500))
def test_more_work_is_counted_as_more(work: MatrixWork, side: str, more: int) -> None:
    """On one tiling, no counter of arithmetic or of L0 falls when a product grows."""
    from traceconv.runtime.cost import _tiled_matrix

    spec = reference_npu()
    larger = dataclasses.replace(work, **{side: getattr(work, side) + more})
    for group in ("ArithmeticUtilization", "MemoryL0"):
        small, large = (
            counters.values(spec, _tiled_matrix(spec, each, 64, 64, each.elem_bytes, 0), group)
            for each in (work, larger)
        )
        # The first value is the cores' time, which also depends on how evenly the tiles are spread.
        assert all(a <= b for a, b in zip(small[1:], large[1:], strict=True))


@given(vector_works(), st.integers(0, 1 << 16))
def test_more_elements_are_counted_as_more(work: VectorWork, more: int) -> None:
    from traceconv.runtime.cost import _tiled_vector

    spec = reference_npu()
    count = work.count + more
    larger = dataclasses.replace(work, count=count, out_bytes=count * work.elem_bytes)
    for group in ("ArithmeticUtilization", "MemoryUB"):
        small, large = (counted(spec, _tiled_vector(spec, each, 1_024), group) for each in (work, larger))
        assert all(small[name] <= large[name] for name in small if name != "aiv_total_cycles")


def test_faster_memory_shows_in_the_counters() -> None:
    """Twice the bandwidth halves the time of an op that memory bounds, and doubles what its cores read a cycle."""
    spec = reference_npu()
    faster = dataclasses.replace(spec, hbm_bytes_per_s=2 * spec.hbm_bytes_per_s)
    work = VectorWork(1 << 24, 1, 4, 8 << 24, 4 << 24)
    slow, fast = (vector_cost(device, work) for device in (spec, faster))
    assert fast.cycles * 2 == pytest.approx(slow.cycles, abs=4)
    first, second = (counted(device, cost, "Memory") for device, cost in ((spec, slow), (faster, fast)))
    assert {name: value for name, value in first.items() if name != "aiv_total_cycles"} == {
        name: value for name, value in second.items() if name != "aiv_total_cycles"
    }
    assert second["aiv_total_cycles"] * 2 == pytest.approx(first["aiv_total_cycles"], rel=0.01)


def test_a_product_counted_by_hand() -> None:
    """128 × 128 × 128 in fp16, tiles of 64 × 64: the equations of docs/explanation/cost-model.md, done on paper."""
    from traceconv.runtime.cost import _tiled_matrix

    spec = reference_npu()
    side = 128 * 128 * 2
    cost = _tiled_matrix(spec, MatrixWork(1, 128, 128, 128, 2), 64, 64, 2, 3 * side, side)
    # 4 tiles of 4 × 4 fractals; K is 8 fractals of 32 bytes, 256 bytes in all.
    memory = counted(spec, cost, "Memory")
    assert memory["aic_l1_read_bytes"] == memory["aic_l2_read_bytes"] == 4 * (64 + 64) * 256
    assert memory["aic_l2_write_bytes"] == memory["aic_main_mem_write_bytes"] == side
    assert memory["aic_main_mem_read_bytes"] == 2 * side
    l0 = counted(spec, cost, "MemoryL0")
    assert l0["aic_l0a_write_bytes"] == l0["aic_l0b_write_bytes"] == 4 * 64 * 256
    assert l0["aic_l0a_read_bytes"] == l0["aic_l0b_read_bytes"] == 4 * 16 * 8 * 512
    assert l0["aic_l0c_write_cube_bytes"] == 4 * 16 * 8 * 1_024
    assert l0["aic_l0c_read_cube_bytes"] == 4 * 16 * 7 * 1_024
    arithmetic = counted(spec, cost, "ArithmeticUtilization")
    assert arithmetic["aic_cube_flops"] == 2 * 128**3
    assert arithmetic["aic_mac_fp16_cycles"] == 4 * 16 * 8
    cache = counted(spec, cost, "L2Cache")
    # A row of a tile is one line of 128 bytes; half of what is read is read twice.
    assert cache["aic_write_cache_miss_count"] == 256 and cache["aic_write_cache_hit_count"] == 0
    assert cache["aic_r0_read_cache_miss_count"] == cache["aic_r0_read_cache_hit_count"] == 256


def test_a_sum_counted_by_hand() -> None:
    """Two tensors of 65,536 floats: 16 cores, a tile of 4,096 elements each, 64 registers a tile."""
    spec = reference_npu()
    size = 65_536 * 4
    cost = vector_cost(spec, VectorWork(65_536, 1, 4, 2 * size, size, mix=InstructionMix(pair_cycles=1)))
    assert cost.vector is not None and cost.vector.tiles * cost.vector.tile == 65_536
    vec = 65_536 // 64
    buffer = counted(spec, cost, "MemoryUB")
    assert (buffer["aiv_ub_read_vector_bytes"], buffer["aiv_ub_write_vector_bytes"]) == (2 * size, size)
    assert counted(spec, cost, "ArithmeticUtilization")["aiv_vector_flops"] == 65_536
    conflicts = counted(spec, cost, "ResourceConflictRatio")
    assert conflicts["aiv_vec_bankgroup_cflt_cycles"] == vec // 8
    assert conflicts["aiv_vec_bank_cflt_cycles"] == vec // 64
    cache = counted(spec, cost, "L2Cache")
    assert cache["aiv_r0_read_cache_miss_count"] == cache["aiv_r1_read_cache_miss_count"] == size // 128
    assert cache["aiv_r0_read_cache_hit_count"] == 0
