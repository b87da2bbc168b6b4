"""Another device from a TOML file: its values are used, and impossible ones are rejected in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from commands import Command
from runtime_invariants import check
from runtime_reader import Capture

from traceconv.base.errors import InputError
from traceconv.runtime.compiled import compile_model
from traceconv.runtime.cost import task_ticks
from traceconv.runtime.counters import values
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.spec import load_spec, reference_npu

EDGE = """
[device]
name = "Edge NPU"
memory_bytes = 1_073_741_824
clock_hz = 19_200_000
core_clock_hz = 800_000_000
compute_stream_count = 2

[memory]
hbm_bytes_per_s = 34_000_000_000

[cube]
core_count = 1

[vector]
core_count = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "edge.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_missing_values_are_those_of_the_reference(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, EDGE))
    changed = {
        "name": "Edge NPU",
        "memory_bytes": 1 << 30,
        "clock_hz": 19_200_000,
        "core_clock_hz": 800_000_000,
        "compute_stream_count": 2,
        "hbm_bytes_per_s": 34_000_000_000,
        "cube_cores": 1,
        "vector_cores": 2,
    }
    assert spec == dataclasses.replace(reference_npu(), **changed)
    assert load_spec(written(tmp_path, "")) == dataclasses.replace(reference_npu(), name="edge")


def test_the_log_is_that_of_the_device(tmp_path: Path) -> None:
    path = written(tmp_path, EDGE)
    options = RecordOptions("mini_resnet", tmp_path / "raw", iterations=3, deterministic=True, device_spec=path)
    capture = Capture(record(options).folder)
    check(capture, load_spec(path))
    (row,) = capture["device"]
    assert capture.texts[int(row["name"])] == "Edge NPU"
    assert (row["clock_hz"], row["ai_core_count"], row["ai_vector_core_count"]) == (19_200_000, 1, 2)
    assert str(tmp_path).encode() not in b"".join(capture.files.values())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[memory]\nhbm_gb_per_s = 400", "[memory] has no key 'hbm_gb_per_s'. Did you mean 'hbm_bytes_per_s'?"),
        ("[memry]\nhbm_bytes_per_s = 400", "unknown section [memry]. Did you mean 'memory'?"),
        ("[cube]\ncore = 4", "Did you mean 'core_count'?"),
        ("[sdma]\nzzz = 4", "Keys: latency_ns, host_bytes_per_s."),
        ("clock_hz = 4", "unknown section [clock_hz]"),
        ("device = 4", "device must be a section"),
        ("[device]\nclock_hz = 0", "[device] clock_hz = 0: must be an integer from 1000"),
        ("[device]\nclock_hz = 1.5e6", "1500000.0: must be an integer"),
        ("[device]\nclock_hz = true", "True: must be an integer"),
        ("[device]\nclock_hz = '50 MHz'", "must be an integer"),
        ("[device]\nthrottled_clock_percent = 0", "must be an integer from 1 to 100"),
        ("[device]\nname = 7", "[device] name: must be a string"),
        ("[cube]\nmac_fractal = 12", "must be one of 1, 2, 4, 8, 16"),
        ("[memory]\nl2_bytes_per_cycle = 3", "at least 1 for each of 16 cores"),
        ("[memory", "is not a TOML file"),
        ("[op_speed_percent]\nConv2D = 0", "[op_speed_percent] Conv2D = 0: must be an integer from 1 to 10000"),
        ("[op_speed_percent]\nConv2D = 1.5", "[op_speed_percent] Conv2D = 1.5: must be an integer"),
        ("op_speed_percent = 3", "op_speed_percent must be a section"),
        ("[op_sped_percent]\nConv2D = 200", "Did you mean 'op_speed_percent'?"),
    ],
)
def test_an_impossible_device_is_a_one_line_error(text: str, words: str, tmp_path: Path, command: Command) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        load_spec(path)
    assert words in str(refused.value)
    output = command("record", "mini_resnet", "-o", tmp_path / "raw", "--device-spec", path, code=1)
    assert words in output.err and output.err.count("\n") == 1 and output.out == ""
    assert not (tmp_path / "raw").exists()


def test_ops_of_a_type_take_the_share_of_their_time_that_its_speed_says(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, "[op_speed_percent]\nConv2D = 250\nMaxPoolV3 = 50"))
    base, changed = (compile_model("mini_resnet", spec=one).program.ops for one in (reference_npu(), spec))
    percent = {"Conv2D": 250, "MaxPoolV3": 50}
    assert percent.keys() < {op.op_type for op in base}
    for before, after in zip(base, changed, strict=True):
        speed = percent.get(before.op_type, 100)
        cycles = (before.cost.cycles + spec.task_overhead_cycles) * spec.clock_hz
        assert task_ticks(spec, after.cost) == -(-cycles * 100 // (spec.core_clock_hz * speed))
        for was, now in zip(*(values(spec, op.cost, "PipeUtilization") for op in (before, after)), strict=True):
            assert now in (was, was * 100 // speed)


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        load_spec(tmp_path / "absent.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_spec(tmp_path / "b.toml")


def test_a_spec_changes_the_times_of_the_ops_that_it_limits() -> None:
    """Twice the bandwidth: what memory bounds takes half as long. Twice the clock: what the cores bound does."""
    base = reference_npu()
    wider = dataclasses.replace(base, hbm_bytes_per_s=2 * base.hbm_bytes_per_s)
    faster = dataclasses.replace(base, core_clock_hz=2 * base.core_clock_hz, hbm_bytes_per_s=2 * base.hbm_bytes_per_s)
    models = [compile_model("vgg19", spec=spec).program.ops for spec in (base, wider, faster)]
    bound_by_memory = bound_by_cores = 0
    for op, with_bandwidth, with_clock in zip(*models, strict=True):
        size = sum(tensor.size_bytes for tensor in (*op.operands, *op.writes))
        per_s = base.hbm_bytes_per_s * base.hbm_efficiency_percent
        least = -(-size * base.core_clock_hz * 100 // per_s)
        if op.cost.cycles == least:
            bound_by_memory += 1
            assert with_bandwidth.cost.cycles < op.cost.cycles
            assert with_bandwidth.cost.cycles >= op.cost.cycles // 2
        else:
            bound_by_cores += 1
            assert with_bandwidth.cost.cycles == op.cost.cycles
        # Cycles stay as they are when memory keeps up with the cores: time is half.
        assert with_clock.cost.cycles == op.cost.cycles
        assert abs(2 * task_ticks(faster, with_clock.cost) - task_ticks(base, op.cost)) <= 2
        # At half of its clock, the device takes as long as one that is made for that clock.
        slower = dataclasses.replace(base, core_clock_hz=base.core_clock_hz // 2)
        cycles = max(op.cost.core_cycles, -(-least // 2)) + base.task_overhead_cycles
        exact = -(-cycles * slower.clock_hz // slower.core_clock_hz)
        assert 0 <= exact - task_ticks(base, op.cost, 50) <= 1
    assert bound_by_memory >= 2 and bound_by_cores >= 10
