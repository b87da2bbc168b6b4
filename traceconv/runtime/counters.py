"""The hardware counters of an op by metric group, as integers from the tiles of the cost model.

Each group is one record type. Its counters follow from the same tiles, cycles and bytes as the op's duration: no memory
is read faster than its pipe moves bytes, and no unit works longer than it is busy.
`docs/explanation/cost-model.md` explains the equations, with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from traceconv.runtime.cost import Cost, CubePart, Pmu, VectorPart, ceil_div
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record

#: The group that is recorded by default.
DEFAULT_GROUP = "PipeUtilization"

#: Metric group → the record type of its counters.
RECORDS = {
    "PipeUtilization": "pmu_pipe_utilization",
    "ArithmeticUtilization": "pmu_arithmetic_utilization",
    "Memory": "pmu_memory",
    "MemoryL0": "pmu_memory_l0",
    "MemoryUB": "pmu_memory_ub",
    "ResourceConflictRatio": "pmu_resource_conflict_ratio",
    "L2Cache": "pmu_l2_cache",
}

#: Bytes of K in a fractal, and of an element of L0C.
_FRACTAL_K_BYTES = 32
_L0C_ELEM_BYTES = 4
#: Bytes per line of L2, whose two read channels alternate.
_L2_LINE_BYTES = 128
#: Bytes that the scalar unit reads from and writes to the unified buffer per tile: a description, and a flag.
_SCALAR_UB_BYTES = (16, 8)
#: The unified buffer's groups of banks, and its banks.
_BANK_GROUPS = 8
_BANKS = 64
#: Bytes per element → the counter of a matrix op's cycles.
_MAC_COUNTERS = {1: "int8", 2: "fp16", 4: "fp32", 8: "fp32"}
#: Bytes of a register that one operation uses.
_LANE_BYTES = {"fp32": 4, "fp16": 2, "int32": 4, "misc": 8}

Counts = dict[str, int]


def names(group: str) -> tuple[str, ...]:
    """Return the counters of a group, in the order of its record's fields."""
    return tuple(field.name for field in record(RECORDS[group]).fields[3:])


def values(spec: DeviceSpec, cost: Cost, group: str) -> tuple[int, ...]:
    """Return the counters of an op, in the order of the group's record fields; 0 for cores that it does not use."""
    counts: Counts = asdict(cost.pmu or Pmu())
    of_cube, of_vector = _GROUPS.get(group, (None, None))
    if of_cube is not None and cost.cube is not None:
        counts |= of_cube(spec, cost.cube)
    if of_vector is not None and cost.vector is not None:
        counts |= of_vector(spec, cost.vector)
    found = ((name, counts.get(name, 0)) for name in names(group))
    if cost.speed_percent == 100:
        return tuple(count for _, count in found)
    return tuple(count * 100 // cost.speed_percent if name.endswith("_cycles") else count for name, count in found)


# The cube


def _fractals(spec: DeviceSpec, part: CubePart) -> tuple[int, int]:
    """Return the fractals of all output tiles, and the steps of the multiply-accumulate unit on them."""
    edge = spec.mac_fractal
    outputs = part.tiles * (part.m0 // edge) * (part.n0 // edge)
    return outputs, outputs * part.k_fractals


def _cube_arithmetic(spec: DeviceSpec, part: CubePart) -> Counts:
    _, steps = _fractals(spec, part)
    size = part.work.elem_bytes
    macs = spec.mac_fractal**2 * (_FRACTAL_K_BYTES // size)
    return {
        f"aic_mac_{_MAC_COUNTERS[size]}_cycles": part.tiles * part.mac_cycles,
        "aic_cube_flops": 2 * steps * macs,
    }


def _cube_traffic(part: CubePart) -> tuple[int, int, int, int]:
    """Return the bytes that the cubes read from and write to L2, and those from and to device memory."""
    read = part.l2_read_bytes
    written = part.tiles * part.m0 * part.n0 * part.out_elem_bytes
    return read, written, min(read, part.read_bytes), min(written, part.written_bytes)


def _cube_memory(spec: DeviceSpec, part: CubePart) -> Counts:
    read, written, main_read, main_written = _cube_traffic(part)
    return {
        "aic_l1_read_bytes": part.tiles * (part.m0 + part.n0) * part.k_fractals * _FRACTAL_K_BYTES,
        "aic_l1_write_bytes": read,
        "aic_main_mem_read_bytes": main_read,
        "aic_main_mem_write_bytes": main_written,
        "aic_l2_read_bytes": read,
        "aic_l2_write_bytes": written,
    }


def _cube_l0(spec: DeviceSpec, part: CubePart) -> Counts:
    outputs, steps = _fractals(spec, part)
    operand_bytes = spec.mac_fractal * _FRACTAL_K_BYTES
    sum_bytes = spec.mac_fractal**2 * _L0C_ELEM_BYTES
    tile_k_bytes = part.tiles * part.k_fractals * _FRACTAL_K_BYTES
    return {
        "aic_l0a_read_bytes": steps * operand_bytes,
        "aic_l0a_write_bytes": part.m0 * tile_k_bytes,
        "aic_l0b_read_bytes": steps * operand_bytes,
        "aic_l0b_write_bytes": part.n0 * tile_k_bytes,
        # The first step of K does not read a sum.
        "aic_l0c_read_cube_bytes": max(0, steps - outputs) * sum_bytes,
        "aic_l0c_write_cube_bytes": steps * sum_bytes,
    }


def _cube_l2(spec: DeviceSpec, part: CubePart) -> Counts:
    read, _, main_read, main_written = _cube_traffic(part)
    # A tile is written row by row, even if a row is shorter than a line.
    writes = part.tiles * part.m0 * ceil_div(part.n0 * part.out_elem_bytes, _L2_LINE_BYTES)
    return _l2_counts("aic", ceil_div(read, _L2_LINE_BYTES), main_read, writes, main_written)


# The vector unit


def _vector_arithmetic(spec: DeviceSpec, part: VectorPart) -> Counts:
    mix = part.work.mix
    misc = part.tiles * _registers(spec, part) * min(mix.misc_cycles, part.work.cycles)
    counts = {f"aiv_vec_{kind}_cycles": 0 for kind in _LANE_BYTES}
    counts[f"aiv_vec_{mix.lanes}_cycles"] = part.tiles * part.vec_cycles - misc
    counts["aiv_vec_misc_cycles"] += misc
    flops = (counts[f"aiv_vec_{kind}_cycles"] * (spec.register_bytes // size) for kind, size in _LANE_BYTES.items())
    counts["aiv_vector_flops"] = sum(flops)
    return counts


def _registers(spec: DeviceSpec, part: VectorPart) -> int:
    """Return the number of registers that a tile fills."""
    return ceil_div(part.tile * part.work.elem_bytes, spec.register_bytes)


def _pair_cycles(spec: DeviceSpec, part: VectorPart) -> int:
    """Return the cycles per tile in which two operands are read."""
    return _registers(spec, part) * min(part.work.mix.pair_cycles, part.work.cycles)


def _vector_traffic(part: VectorPart) -> tuple[int, int, int, int]:
    """Return the bytes transferred into and out of the unified buffers, and those from and to device memory."""
    work, count = part.work, max(1, part.work.count)
    read = part.tiles * ceil_div(part.tile * work.in_bytes, count)
    written = part.tiles * ceil_div(part.tile * work.out_bytes, count)
    return read, written, min(read, work.in_bytes - work.cached_bytes), min(written, work.out_bytes)


def _l2_reads(spec: DeviceSpec, part: VectorPart) -> int:
    """Return the bytes read from L2: scattered data is read in complete pieces."""
    return _vector_traffic(part)[0] * (spec.scatter_factor if part.work.scattered else 1)


def _vector_memory(spec: DeviceSpec, part: VectorPart) -> Counts:
    read, written, main_read, main_written = _vector_traffic(part)
    return {
        "aiv_ub_read_bytes": written,
        "aiv_ub_write_bytes": read,
        "aiv_main_mem_read_bytes": main_read,
        "aiv_main_mem_write_bytes": main_written,
        "aiv_l2_read_bytes": _l2_reads(spec, part),
        "aiv_l2_write_bytes": written,
    }


def _vector_ub(spec: DeviceSpec, part: VectorPart) -> Counts:
    scalar_read, scalar_write = _SCALAR_UB_BYTES
    return {
        "aiv_ub_read_vector_bytes": part.tiles * (part.vec_cycles + _pair_cycles(spec, part)) * spec.register_bytes,
        "aiv_ub_write_vector_bytes": part.tiles * part.vec_cycles * spec.register_bytes,
        "aiv_ub_read_scalar_bytes": part.tiles * scalar_read,
        "aiv_ub_write_scalar_bytes": part.tiles * scalar_write,
    }


def _vector_conflicts(spec: DeviceSpec, part: VectorPart) -> Counts:
    vec = part.tiles * part.vec_cycles
    read, written, _, _ = _vector_traffic(part)
    # A transfer uses the buffer for one cycle per register width; the vector unit works in vec of step cycles.
    transfer_cycles = (read + written) * part.vec_cycles // (spec.register_bytes * part.step_cycles)
    return {
        "aiv_vec_bankgroup_cflt_cycles": part.tiles * _pair_cycles(spec, part) // _BANK_GROUPS,
        "aiv_vec_bank_cflt_cycles": vec // _BANKS,
        "aiv_vec_resc_cflt_cycles": min(transfer_cycles, vec // 2),
    }


def _vector_l2(spec: DeviceSpec, part: VectorPart) -> Counts:
    _, written, main_read, main_written = _vector_traffic(part)
    reads = ceil_div(_l2_reads(spec, part), _L2_LINE_BYTES)
    return _l2_counts("aiv", reads, main_read, ceil_div(written, _L2_LINE_BYTES), main_written)


def _l2_counts(core: str, reads: int, main_read: int, writes: int, main_written: int) -> Counts:
    """Return hits and misses of reads and writes, with a miss per line from or to device memory."""
    read_misses = ceil_div(main_read, _L2_LINE_BYTES)
    write_misses = ceil_div(main_written, _L2_LINE_BYTES)
    counts = {
        f"{core}_write_cache_hit_count": writes - write_misses,
        f"{core}_write_cache_miss_count": write_misses,
    }
    for channel in (0, 1):
        counts[f"{core}_r{channel}_read_cache_hit_count"] = (reads - read_misses + 1 - channel) // 2
        counts[f"{core}_r{channel}_read_cache_miss_count"] = (read_misses + 1 - channel) // 2
    return counts


_CubeCounter = Callable[[DeviceSpec, CubePart], Counts]
_VectorCounter = Callable[[DeviceSpec, VectorPart], Counts]

_GROUPS: Mapping[str, tuple[_CubeCounter | None, _VectorCounter | None]] = {
    "ArithmeticUtilization": (_cube_arithmetic, _vector_arithmetic),
    "Memory": (_cube_memory, _vector_memory),
    "MemoryL0": (_cube_l0, None),
    "MemoryUB": (None, _vector_ub),
    "ResourceConflictRatio": (None, _vector_conflicts),
    "L2Cache": (_cube_l2, _vector_l2),
}
