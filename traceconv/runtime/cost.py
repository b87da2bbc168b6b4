"""The cost of an op on the device: integer cycles of every pipe, from shapes, by one set of equations.

`docs/explanation/cost-model.md` explains the equations, with the same names. All divisions round up, and each pipe's
cycles are part of the core's. So ratios stay within 0..1, no pipe works longer than the op, and no transfer is faster
than its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import product
from operator import attrgetter

from traceconv.runtime.spec import DeviceSpec

#: Candidate sizes of an output tile, for rows and for columns.
_CUBE_TILES = (16, 32, 64, 128, 256)
#: Candidate sizes of a vector tile, in elements.
VECTOR_TILES = (1_024, 2_048, 4_096, 8_192, 16_384)
#: Bytes per element → cycles of one 16 × 16 fractal with 32 bytes of K: fp32 takes four times fp16 in total.
_FRACTAL_CYCLES = {1: 1, 2: 1, 4: 2, 8: 8}
#: Elements of K per round of instructions that the cube's scalar unit issues.
_K_ROUND = 64
_CUBE_SCALAR_CYCLES = (24, 6)  # per tile, per round of K
_VECTOR_SCALAR_CYCLES = 20  # per tile
_FETCHES = (64, 16, 4)  # instruction fetches: per block, per tile, per round of K
_COLD_MISSES = 24  # instruction cache misses per block
_HANDOVER_CYCLES = 200  # between cube and vector cores in a mixed op
_SUM_BYTES = 4  # of a sum in L0C, and of a partial sum: fp32 or int32


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """`groups` products of (m × k)·(k × n). `reuse`: how many neighbouring windows of a convolution share a value of
    the left side, which is read that much less often.
    """

    groups: int
    m: int
    n: int
    k: int
    elem_bytes: int
    reuse: int = 1

    @property
    def flops(self) -> int:
        """2 per multiply-accumulate."""
        return 2 * self.groups * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class InstructionMix:
    """How the cycles per register are spent: on elements of the kind `lanes` (fp32, fp16, int32 or misc), except for
    `misc_cycles`, such as casts. In `pair_cycles` of them a second operand is read.
    """

    lanes: str = "fp32"
    misc_cycles: int = 0
    pair_cycles: int = 0


FP32_ONLY = InstructionMix()


@dataclass(frozen=True, slots=True)
class VectorWork:
    """Work on `count` elements, for `cycles` cycles per register, with total bytes in and out.

    `cached_bytes` of the input are already in L2. `mix` only matters to the counters.
    """

    count: int
    cycles: int
    elem_bytes: int
    in_bytes: int
    out_bytes: int
    scattered: bool = False
    cached_bytes: int = 0
    mix: InstructionMix = FP32_ONLY


@dataclass(frozen=True, slots=True)
class Pmu:
    """Counters of PipeUtilization, summed over blocks; 0 for kinds of cores that the op does not use."""

    aic_total_cycles: int = 0
    aic_mac_cycles: int = 0
    aic_scalar_cycles: int = 0
    aic_mte1_cycles: int = 0
    aic_mte2_cycles: int = 0
    aic_fixpipe_cycles: int = 0
    aic_icache_miss_count: int = 0
    aic_icache_request_count: int = 0
    aiv_total_cycles: int = 0
    aiv_vec_cycles: int = 0
    aiv_scalar_cycles: int = 0
    aiv_mte2_cycles: int = 0
    aiv_mte3_cycles: int = 0
    aiv_icache_miss_count: int = 0
    aiv_icache_request_count: int = 0

    def values(self) -> tuple[int, ...]:
        """Return the counters, in the order of the record's fields."""
        return astuple(self)

    def merged(self, other: Pmu) -> Pmu:
        """Return the sum of the cube's and the vector's part of a mixed op."""
        return Pmu(*map(sum, zip(self.values(), other.values(), strict=True)))


@dataclass(frozen=True, slots=True)
class CubePart:
    """The tiling of a matrix op: `tiles` of m₀ × n₀, each `mac_cycles` long on the cube, and the bytes that are read
    from and written to device memory. `work` and `tiles` of a product split along K are those of all parts.
    """

    work: MatrixWork
    m0: int
    n0: int
    k_fractals: int
    tiles: int
    mac_cycles: int
    out_elem_bytes: int
    read_bytes: int
    written_bytes: int

    @property
    def l2_read_bytes(self) -> int:
        """Bytes that all tiles read from L2."""
        k_bytes = self.k_fractals * 32
        return self.tiles * (ceil_div(self.m0 * k_bytes, self.work.reuse) + self.n0 * k_bytes)


@dataclass(frozen=True, slots=True)
class VectorPart:
    """The tiling of a vector op: `tiles` of `tile` elements, each `step_cycles` long, of which `vec_cycles` are in the
    vector unit.
    """

    work: VectorWork
    tile: int
    tiles: int
    vec_cycles: int
    step_cycles: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles from the first block's start to the last one's end, cores used, counters, scratch memory.

    `counters.py` computes more counters from the tilings `cube` and `vector`, if these cores are used. `speed_percent`
    scales durations and counted cycles; it is 100 unless the device has another for the op's type. `core_cycles` are
    those of the cores alone, which don't wait for device memory.
    """

    cycles: int
    block_count: int
    mix_block_count: int
    workspace_bytes: int
    pmu: Pmu | None
    cube: CubePart | None = None
    vector: VectorPart | None = None
    speed_percent: int = 100
    core_cycles: int = 0


def ceil_div(value: int, by: int) -> int:
    """Return `value / by`, rounded up exactly."""
    return -(-value // by)


def memory_cycles(spec: DeviceSpec, size_bytes: int) -> int:
    """Return the fewest cycles in which device memory can move `size_bytes`."""
    per_s = spec.hbm_bytes_per_s * spec.hbm_efficiency_percent
    return ceil_div(size_bytes * spec.core_clock_hz * 100, per_s)


def matrix_cost(
    spec: DeviceSpec, work: MatrixWork, out_elem_bytes: int, unique_bytes: int, written_bytes: int = 0
) -> Cost:
    """Return the cost on the cube cores, with the fastest tiling.

    `unique_bytes`: everything read or written, counted once; `written_bytes`: the part that is written.
    """
    return min(_tilings(spec, work, out_elem_bytes, unique_bytes, written_bytes), key=attrgetter("cycles"))


def split_cost(
    spec: DeviceSpec,
    unsplit: Cost,
    written_bytes: int,
    cycles: int = 0,
    own_bytes: int = 0,
    mix: InstructionMix = FP32_ONLY,
) -> Cost:
    """Return the cost of a matrix product with K split over idle cores, or `unsplit` if that is no faster.

    Each cube core computes partial sums over a part of K. Then the vector cores add these and do what follows the
    product: `cycles` per register with `mix`, reading `own_bytes` of other operands, writing `written_bytes`.
    """
    assert unsplit.cube is not None
    work, read_bytes = unsplit.cube.work, unsplit.cube.read_bytes
    start_cycles = _HANDOVER_CYCLES + spec.task_overhead_cycles
    if work.elem_bytes > _SUM_BYTES or unsplit.cycles <= start_cycles + memory_cycles(spec, read_bytes):
        return unsplit
    best, splits = unsplit, 2
    while splits <= spec.cube_cores:
        count = work.groups * work.m * work.n
        sums_bytes = splits * count * _SUM_BYTES
        sum_mix = replace(mix, lanes="int32" if work.elem_bytes == 1 else "fp32", pair_cycles=mix.pair_cycles + splits)
        sum_work = VectorWork(
            count,
            cycles + splits,
            _SUM_BYTES,
            sums_bytes + own_bytes,
            written_bytes,
            cached_bytes=sums_bytes,
            mix=sum_mix,
        )
        summed = vector_cost(spec, sum_work)
        part_work = replace(work, groups=work.groups * splits, k=ceil_div(work.k, splits))
        for parts in _tilings(spec, part_work, _SUM_BYTES, read_bytes, most_tiles=spec.cube_cores):
            total_cycles = parts.cycles + start_cycles + summed.cycles
            if total_cycles < best.cycles:
                core_cycles = parts.core_cycles + start_cycles + summed.core_cycles
                best = _joined(parts, summed, total_cycles, core_cycles, sums_bytes)
        splits *= 2
    return best


def _tilings(
    spec: DeviceSpec,
    work: MatrixWork,
    out_elem_bytes: int,
    unique_bytes: int,
    written_bytes: int = 0,
    most_tiles: int | None = None,
) -> Iterator[Cost]:
    """Yield the cost of each tiling, the largest tiles first."""
    for m0, n0 in product(reversed(_CUBE_TILES), repeat=2):
        fits = m0 * n0 * _SUM_BYTES <= spec.l0c_bytes
        if fits and (most_tiles is None or _tile_count(work, m0, n0) <= most_tiles):
            yield _tiled_matrix(spec, work, m0, n0, out_elem_bytes, unique_bytes, written_bytes)


def _tile_count(work: MatrixWork, m0: int, n0: int) -> int:
    return max(1, work.groups * ceil_div(work.m, m0) * ceil_div(work.n, n0))


def _tiled_matrix(
    spec: DeviceSpec,
    work: MatrixWork,
    m0: int,
    n0: int,
    out_elem_bytes: int,
    unique_bytes: int,
    written_bytes: int = 0,
) -> Cost:
    tiles = _tile_count(work, m0, n0)
    blocks = min(spec.cube_cores, tiles)
    k_fractals = ceil_div(work.k * work.elem_bytes, 32)
    k_bytes = k_fractals * 32
    rounds = max(1, ceil_div(work.k, _K_ROUND))
    rate = min(spec.cube_mte2_bytes_per_cycle, spec.l2_bytes_per_cycle // blocks)

    edge = spec.mac_fractal
    mac = (m0 // edge) * (n0 // edge) * k_fractals * _FRACTAL_CYCLES[work.elem_bytes]
    mte1 = ceil_div((m0 + n0) * k_bytes, spec.mte1_bytes_per_cycle)
    mte2 = ceil_div(ceil_div(m0 * k_bytes, work.reuse) + n0 * k_bytes, rate)
    fixpipe = ceil_div(m0 * n0 * out_elem_bytes, spec.fixpipe_bytes_per_cycle)
    scalar = _CUBE_SCALAR_CYCLES[0] + _CUBE_SCALAR_CYCLES[1] * rounds
    step = max(mac, mte1, mte2, fixpipe, scalar)
    # Pipes overlap except for loading the first round of K and storing the last tile.
    first_bytes = min(k_bytes, _K_ROUND * work.elem_bytes)
    fill = (
        ceil_div((m0 + n0) * first_bytes, spec.mte1_bytes_per_cycle)
        + ceil_div(ceil_div(m0 * first_bytes, work.reuse) + n0 * first_bytes, rate)
        + fixpipe
    )

    cycles, total_cycles, core_cycles = _run_tiles(tiles, blocks, step, fill, memory_cycles(spec, unique_bytes))
    pmu = Pmu(
        aic_total_cycles=total_cycles,
        aic_mac_cycles=tiles * mac,
        aic_scalar_cycles=tiles * scalar,
        aic_mte1_cycles=tiles * mte1,
        aic_mte2_cycles=tiles * mte2,
        aic_fixpipe_cycles=tiles * fixpipe,
        aic_icache_miss_count=blocks * _COLD_MISSES,
        aic_icache_request_count=blocks * _FETCHES[0] + tiles * (_FETCHES[1] + _FETCHES[2] * rounds),
    )
    part = CubePart(work, m0, n0, k_fractals, tiles, mac, out_elem_bytes, unique_bytes - written_bytes, written_bytes)
    return Cost(cycles, blocks, 0, 0, pmu, cube=part, core_cycles=core_cycles)


def vector_cost(spec: DeviceSpec, work: VectorWork) -> Cost:
    """Return the cost on the vector cores, with the fastest tiling."""
    tiles = (tile for tile in reversed(VECTOR_TILES) if tile * work.elem_bytes * 3 <= spec.ub_bytes)
    return min((_tiled_vector(spec, work, tile) for tile in tiles), key=attrgetter("cycles"))


def _run_tiles(tiles: int, blocks: int, step: int, fill: int, least: int) -> tuple[int, int, int]:
    """Return the cycles of the busiest core, no fewer than `least`, those of all cores, and the former without that
    limit, when `blocks` cores share `tiles` that take `step` cycles each, and `fill` once.
    """
    busiest, rest = ceil_div(tiles, blocks) * step + fill, (tiles // blocks) * step + fill
    full = tiles % blocks or blocks
    cycles = max(busiest, least)
    return cycles, full * busiest + (blocks - full) * rest + blocks * (cycles - busiest), busiest


def _tiled_vector(spec: DeviceSpec, work: VectorWork, tile: int) -> Cost:
    count = max(1, work.count)
    tiles = ceil_div(count, tile)
    blocks = min(spec.vector_cores, tiles)
    share = spec.l2_bytes_per_cycle // blocks
    slow = spec.scatter_factor if work.scattered else 1

    vec = ceil_div(tile * work.elem_bytes, spec.register_bytes) * work.cycles
    mte2 = ceil_div(ceil_div(tile * work.in_bytes, count) * slow, min(spec.vector_mte2_bytes_per_cycle, share))
    mte3 = ceil_div(ceil_div(tile * work.out_bytes, count), min(spec.mte3_bytes_per_cycle, share))
    step = max(vec, mte2, mte3, _VECTOR_SCALAR_CYCLES)
    # A quarter of a tile is loaded before the vector unit starts, and stored after it ends.
    fill = ceil_div(mte2 + mte3, 4)

    moved_bytes = work.in_bytes - work.cached_bytes + work.out_bytes
    cycles, total_cycles, core_cycles = _run_tiles(tiles, blocks, step, fill, memory_cycles(spec, moved_bytes))
    pmu = Pmu(
        aiv_total_cycles=total_cycles,
        aiv_vec_cycles=tiles * vec,
        aiv_scalar_cycles=tiles * _VECTOR_SCALAR_CYCLES,
        aiv_mte2_cycles=tiles * mte2,
        aiv_mte3_cycles=tiles * mte3,
        aiv_icache_miss_count=blocks * _COLD_MISSES,
        aiv_icache_request_count=blocks * _FETCHES[0] + tiles * _FETCHES[1],
    )
    part = VectorPart(work, tile, tiles, vec, step)
    return Cost(cycles, blocks, 0, 0, pmu, vector=part, core_cycles=core_cycles)


def mixed_cost(cube: Cost, vector: Cost) -> Cost:
    """Return the cost of cube and vector cores working in parallel, tile by tile: the slower one's, and a handover.

    The cube's results stay in L2: it writes nothing to device memory, and does not read the vector part's operands.
    """
    assert cube.cube is not None and vector.vector is not None
    own_bytes = vector.vector.work.in_bytes - vector.vector.work.cached_bytes
    part = replace(cube.cube, read_bytes=max(0, cube.cube.read_bytes - own_bytes), written_bytes=0)
    tiles_bytes = cube.block_count * part.m0 * part.n0 * _SUM_BYTES
    cycles = max(cube.cycles, vector.cycles) + _HANDOVER_CYCLES
    core_cycles = max(cube.core_cycles, vector.core_cycles) + _HANDOVER_CYCLES
    return _joined(replace(cube, cube=part), vector, cycles, core_cycles, tiles_bytes)


def _joined(cube: Cost, vector: Cost, cycles: int, core_cycles: int, workspace_bytes: int) -> Cost:
    """Return the cost of an op on both kinds of cores that takes `cycles`."""
    assert cube.pmu is not None and vector.pmu is not None
    pmu, blocks = cube.pmu.merged(vector.pmu), vector.block_count
    parts = cube.cube, vector.vector
    return Cost(cycles, cube.block_count, blocks, workspace_bytes, pmu, *parts, core_cycles=core_cycles)


def cpu_cost(spec: DeviceSpec, element_count: int, unique_bytes: int) -> Cost:
    """Return the cost on the AI CPU, which has no counters."""
    blocks = min(spec.cpu_cores, max(1, ceil_div(element_count, 4_096)))
    work = spec.cpu_start_cycles + ceil_div(element_count, blocks) * spec.cpu_cycles_per_element
    return Cost(max(work, memory_cycles(spec, unique_bytes)), blocks, 0, 0, None, core_cycles=work)


def at_speed(spec: DeviceSpec, op_type: str, cost: Cost) -> Cost:
    """Return the cost of an op whose type has a speed in the device's `op_speed_percent`."""
    percent = dict(spec.op_speed_percent).get(op_type)
    return cost if percent is None else replace(cost, speed_percent=percent)


def task_ticks(spec: DeviceSpec, cost: Cost, clock_percent: int = 100) -> int:
    """Return a task's duration in ticks of the device's counter: the op's cycles and the overhead of starting it, at
    the op's speed. At another clock of the cores, device memory keeps its speed.
    """
    hundredths = max(cost.cycles * clock_percent, cost.core_cycles * 100) + spec.task_overhead_cycles * 100
    return ceil_div(hundredths * spec.clock_hz * 100, spec.core_clock_hz * clock_percent * cost.speed_percent)


def copy_ticks(spec: DeviceSpec, size_bytes: int) -> int:
    """Return the duration of a copy between host and device, in ticks."""
    ns = spec.sdma_latency_ns + ceil_div(size_bytes * 1_000_000_000, spec.host_bytes_per_s)
    return ceil_div(ns * spec.clock_hz, 1_000_000_000)
