"""Each metric group from `record --aic-metrics` to msprof's columns: recorded, ingested and reported exactly."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder
from runtime_reader import Capture

import traceconv
from traceconv.cli.app import run as run_command
from traceconv.runtime import counters
from traceconv.runtime.spec import reference_npu
from traceconv.schema import record, table

COMMON = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID"
)
#: The columns of each group as msprof prints them for a device with cube and vector cores.
GROUPS = {
    "PipeUtilization": (
        "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_scalar_time(us),aic_scalar_ratio,"
        "aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,aic_fixpipe_time(us),aic_fixpipe_ratio,"
        "aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),"
        "aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,"
        "cube_utilization(%)"
    ),
    "ArithmeticUtilization": (
        "aicore_time(us),aic_total_cycles,aic_mac_fp16_ratio,aic_mac_int8_ratio,aic_cube_fops,aiv_time(us),"
        "aiv_total_cycles,aiv_vec_fp32_ratio,aiv_vec_fp16_ratio,aiv_vec_int32_ratio,aiv_vec_misc_ratio,aiv_vector_fops"
    ),
    "Memory": (
        "aicore_time(us),aic_total_cycles,aic_l1_read_bw(GB/s),aic_l1_write_bw(GB/s),aic_main_mem_read_bw(GB/s),"
        "aic_main_mem_write_bw(GB/s),aic_l2_read_bw(GB/s),aic_l2_write_bw(GB/s),aiv_time(us),aiv_total_cycles,"
        "aiv_ub_read_bw(GB/s),aiv_ub_write_bw(GB/s),aiv_main_mem_read_bw(GB/s),aiv_main_mem_write_bw(GB/s),"
        "aiv_l2_read_bw(GB/s),aiv_l2_write_bw(GB/s)"
    ),
    "MemoryL0": (
        "aicore_time(us),aic_total_cycles,aic_l0a_read_bw(GB/s),aic_l0a_write_bw(GB/s),aic_l0b_read_bw(GB/s),"
        "aic_l0b_write_bw(GB/s),aic_l0c_read_bw_cube(GB/s),aic_l0c_write_bw_cube(GB/s),aiv_time(us),aiv_total_cycles,"
        "aiv_l0c_read_bw(GB/s),aiv_l0c_write_bw(GB/s)"
    ),
    "MemoryUB": (
        "aicore_time(us),aic_total_cycles,aic_ub_read_bw_scalar(GB/s),aic_ub_write_bw_scalar(GB/s),aiv_time(us),"
        "aiv_total_cycles,aiv_ub_read_bw_vector(GB/s),aiv_ub_write_bw_vector(GB/s),aiv_ub_read_bw_scalar(GB/s),"
        "aiv_ub_write_bw_scalar(GB/s)"
    ),
    "ResourceConflictRatio": (
        "aicore_time(us),aic_total_cycles,aiv_time(us),aiv_total_cycles,aiv_vec_bankgroup_cflt_ratio,"
        "aiv_vec_bank_cflt_ratio,aiv_vec_resc_cflt_ratio"
    ),
    "L2Cache": (
        "aicore_time(us),aic_total_cycles,aic_write_cache_hit,aic_write_cache_miss_allocate,aic_r0_read_cache_hit,"
        "aic_r0_read_cache_miss_allocate,aic_r1_read_cache_hit,aic_r1_read_cache_miss_allocate,aiv_time(us),"
        "aiv_total_cycles,aiv_write_cache_hit,aiv_write_cache_miss_allocate,aiv_r0_read_cache_hit,"
        "aiv_r0_read_cache_miss_allocate,aiv_r1_read_cache_hit,aiv_r1_read_cache_miss_allocate"
    ),
}


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A capture of the same runs for each group."""
    raw = tmp_path_factory.mktemp("raw")
    return {
        group: traceconv.record(
            "mini_transformer", raw / group, iterations=1, seed=3, deterministic=True, aic_metrics=group
        )
        for group in counters.RECORDS
    }


@pytest.fixture(scope="module")
def store(captures: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All captures in one store: run 1 is the first group's, and so on."""
    path = tmp_path_factory.mktemp("store") / "groups.duckdb"
    traceconv.ingest(*captures.values(), db=path)
    return path


def run_of(group: str) -> int:
    return list(counters.RECORDS).index(group) + 1


Report = Callable[..., list[list[str]]]


@pytest.fixture
def msprof_csv(capfd: pytest.CaptureFixture[str]) -> Report:
    """The lines of `report op-summary --format msprof-csv`, split into cells."""

    def report(db: Path, *arguments: object) -> list[list[str]]:
        assert (
            run_command(["report", "op-summary", "--db", str(db), "--format", "msprof-csv", *map(str, arguments)]) == 0
        )
        return list(csv.reader(io.StringIO(capfd.readouterr().out)))

    return report


@cache
def summary(store: Path, group: str) -> list[dict[str, Any]]:
    with traceconv.open_store(store) as opened:
        return [dict(row) for row in opened.report("op-summary", run=run_of(group))]


def test_every_group_is_one_record_type() -> None:
    assert list(counters.RECORDS) == list(GROUPS)
    for name in counters.RECORDS.values():
        columns = {column.name for column in table("task_pmu").columns}
        assert [field.name for field in record(name).fields[:3]] == ["ticks", "task_id", "stream_id"]
        assert {field.name for field in record(name).fields[3:]} <= columns


@pytest.mark.parametrize("group", GROUPS)
def test_the_log_and_the_table_contain_only_that_group(group: str, captures: dict[str, Path], store: Path) -> None:
    names = [path.name.split(".")[0] for path in (captures[group] / "device_0" / "data").iterdir()]
    assert [name for name in names if name.startswith("pmu_")] == [counters.RECORDS[group]]
    manifest = json.loads((captures[group] / "manifest.json").read_text())
    assert manifest["options"]["metric_group"] == group
    raw = Capture(captures[group])
    recorded = raw[counters.RECORDS[group]]
    begins, _ = raw.pairs("task", "task_id")
    with_counters = begins[begins["task_type"] <= 4]  # all kinds of cores that compute
    assert sorted(recorded["task_id"].tolist()) == with_counters["task_id"].tolist() != []
    with traceconv.open_store(store) as opened:
        sql = f"FROM task_pmu JOIN task USING (run_id, id) WHERE run_id = {run_of(group)} ORDER BY source_task_id"
        found = opened.query(f"SELECT source_task_id, task_pmu.* {sql}").to_arrow_table().to_pylist()
    assert {row["metric_group"] for row in found} == {group}
    own = counters.names(group)
    assert [tuple(row[name] for name in ("source_task_id", *own)) for row in found] == sorted(
        tuple(row[name] for name in ("task_id", *own)) for row in recorded
    )
    others = {column.name for column in table("task_pmu").columns} - {*own, "run_id", "id", "metric_group"}
    assert others and all(row[name] is None for row in found for name in others)


def test_the_group_changes_nothing_else(captures: dict[str, Path], store: Path) -> None:
    with traceconv.open_store(store) as opened:
        for name in ("task", "api", "op"):
            one = opened.query(f"SELECT * EXCLUDE (run_id) FROM {name} WHERE run_id = 1 ORDER BY ALL").fetchall()
            for run_id in range(2, 8):
                sql = f"SELECT * EXCLUDE (run_id) FROM {name} WHERE run_id = {run_id} ORDER BY ALL"
                assert opened.query(sql).fetchall() == one
        assert opened.query("SELECT DISTINCT severity FROM import_log").fetchall() in ([], [("info",)])


@pytest.mark.parametrize("group", GROUPS)
def test_msprof_csv_has_exactly_the_columns_of_the_group(group: str, store: Path, msprof_csv: Report) -> None:
    header, *found = msprof_csv(store, "--run", run_of(group))
    assert ",".join(header) == f"{COMMON},{GROUPS[group]}"
    assert len(found) == len(summary(store, group))
    counted = [row for row in found if row[7] in ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC")]
    assert counted and all("N/A" not in row[21:] for row in counted)


def test_runs_together_and_runs_without_counters(store: Path, msprof_csv: Report, tmp_path: Path) -> None:
    (header, *_) = msprof_csv(store, "--run", "all", "--top", 1)
    every = {label for labels in GROUPS.values() for label in labels.split(",")}
    assert header[:21] == COMMON.split(",")
    assert len(header) == len(set(header)) and set(header[21:]) == every
    bare = CaptureBuilder(tmp_path / "bare").add("op", name="conv", op_type="Conv2D", op_index=0)
    bare.sync(0, 0).sync(100, 1_000).task(1, 10, 20, op_index=0).close()
    traceconv.ingest(tmp_path / "bare", db=tmp_path / "bare.duckdb")
    assert ",".join(msprof_csv(tmp_path / "bare.duckdb")[0]) == COMMON


@pytest.mark.parametrize("group", GROUPS)
def test_ratios_and_bandwidths_are_those_of_the_raw_counters(
    group: str, captures: dict[str, Path], store: Path
) -> None:
    """Made again from the records: no column is another's, and none exceeds what the device can do."""
    spec = reference_npu()
    with traceconv.open_store(store) as opened:
        sql = "SELECT op_id, input_bytes + output_bytes + weight_bytes FROM op WHERE run_id = 1"
        tensor_bytes = dict(opened.query(sql).fetchall())
    raw = {int(row["task_id"]): row for row in Capture(captures[group])[counters.RECORDS[group]]}
    checked = 0
    for row in summary(store, group):
        own = raw.get(row["source_task_id"])
        if own is None:
            assert row["task_type"] == "AI_CPU" and row["metric_group"] is None
            continue
        assert row["metric_group"] == group
        for name in counters.names(group):
            core, stem = name.split("_", 1)
            count, total = int(own[name]), int(own[f"{core}_total_cycles"])
            if stem.endswith("_bytes"):
                rate = row[f"{core}_{stem.removesuffix('_bytes')}_gib_per_s"]
                assert rate == (pytest.approx(count / (total / spec.core_clock_hz) / 2**30) if total else 0)
                assert rate * 2**30 <= 1_024 * spec.core_clock_hz
                checked += rate > 0
            elif stem.endswith("_cycles") and stem != "total_cycles":
                ratio = row[f"{core}_{stem.removesuffix('_cycles')}_ratio"]
                assert ratio == (pytest.approx(count / total) if total else 0) and 0 <= ratio <= 1
                checked += ratio > 0
            elif stem.endswith("_flops"):
                assert row[name.replace("flops", "fops")] == count
                assert count * spec.core_clock_hz <= total * spec.peak_flops
                checked += count > 0
            elif "_cache_" in stem:
                column = name.removesuffix("_count")
                assert row[column if column.endswith("hit") else f"{column}_allocate"] == count
                checked += count > 0
        if group == "L2Cache":
            check_hit_rates(row)
        if group == "Memory":
            moved = sum(int(own[name]) for name in counters.names(group) if "main_mem" in name)
            assert row["main_mem_gib_per_s"] == pytest.approx(moved / (row["dur_ns"] / 1e9) / 2**30)
            assert row["main_mem_gib_per_s"] * 2**30 <= spec.hbm_bytes_per_s
            # Of an op, each byte of its tensors goes over once, at most.
            assert moved <= tensor_bytes[row["op_id"]]
    assert checked > 20


def check_hit_rates(row: dict[str, Any]) -> None:
    for core in ("aic", "aiv"):
        hits = row[f"{core}_r0_read_cache_hit"] + row[f"{core}_r1_read_cache_hit"]
        misses = row[f"{core}_r0_read_cache_miss_allocate"] + row[f"{core}_r1_read_cache_miss_allocate"]
        assert row[f"{core}_l2_read_hit_rate"] == (pytest.approx(hits / (hits + misses)) if hits + misses else 0)
        hits, misses = row[f"{core}_write_cache_hit"], row[f"{core}_write_cache_miss_allocate"]
        assert row[f"{core}_l2_write_hit_rate"] == (pytest.approx(hits / (hits + misses)) if hits + misses else 0)


def test_arithmetic_utilization_counts_what_the_ops_compute(store: Path) -> None:
    """The cube's operations are those of the matrix products, and padding; the vector unit's kinds are floats."""
    with traceconv.open_store(store) as opened:
        flops = dict(opened.query("SELECT op_id, flops FROM op WHERE run_id = 1").fetchall())
    rows = summary(store, "ArithmeticUtilization")
    products = [row for row in rows if row["core_type"] in ("AI_CORE", "MIX_AIC")]
    for row in products:
        assert row["aic_mac_fp32_ratio"] > 0 == row["aic_mac_fp16_ratio"] == row["aic_mac_int8_ratio"]
        vector = row["aiv_vector_fops"]
        # But for a bias or a Relu, which fixpipe applies: less than a hundredth of the smallest product here.
        assert (row["aic_cube_fops"] + vector) * 100 >= flops[row["op_id"]] * 99
        assert (vector > 0) == (row["core_type"] == "MIX_AIC")
    assert products
    assert all(row["aiv_vec_fp16_ratio"] == 0 for row in rows if row["metric_group"])


def test_a_task_with_counters_of_two_groups_is_one_row(tmp_path: Path, msprof_csv: Report) -> None:
    b = CaptureBuilder(tmp_path / "two").add("op", name="conv", op_type="Conv2D", op_index=0)
    b.add("device", 0, kind="NPU", name="sim", clock_hz=10**8, core_clock_hz=10**9, device_id=0,
          ai_core_count=8, ai_vector_core_count=16, ai_cpu_count=2)  # fmt: skip
    b.sync(0, 0).sync(100, 1_000).task(1, 10, 20, op_index=0)
    b.add("pmu_l2_cache", 0, ticks=20, task_id=1, aic_total_cycles=80,
          aic_r0_read_cache_hit_count=3, aic_r1_read_cache_miss_count=1)  # fmt: skip
    b.add("pmu_memory", 0, ticks=20, task_id=1, aic_total_cycles=80, aic_l1_read_bytes=2**33, aiv_l2_read_bytes=2**63)
    b.close()
    store = tmp_path / "two.duckdb"
    traceconv.ingest(tmp_path / "two", db=store)
    with traceconv.open_store(store) as opened:
        (row,) = opened.report("op-summary")
    assert row["metric_group"] == "Memory;L2Cache"
    assert (row["aic_total_cycles"], row["aicore_time_ns"]) == (80, 80)
    assert (row["aic_l1_read_gib_per_s"], row["aic_l2_read_hit_rate"]) == (1e8, 0.75)
    # No vector core, so no rate of it; values not recorded, or of more than 63 bits, are unknown.
    assert (row["aiv_ub_read_gib_per_s"], row["aiv_l2_read_hit_rate"]) == (0, 0)
    assert row["aic_mac_ratio"] is row["aic_mac_fp16_ratio"] is row["aiv_vec_bank_cflt_ratio"] is None
    header, line = msprof_csv(store)
    assert set(header[21:]) == set(f"{GROUPS['Memory']},{GROUPS['L2Cache']}".split(","))
    assert dict(zip(header, line, strict=True))["aic_l1_read_bw(GB/s)"] == "100000000.0"
