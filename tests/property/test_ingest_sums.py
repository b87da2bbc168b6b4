"""Random captures: the store agrees with the sums of an independent reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capture_builder import NS_PER_TICK, CaptureBuilder
from ingest_checks import ingested, normalized
from recount import npu_log
from recount.compare import statistic, sums
from recount.stored import tallies
from recount.tally import differences
from stores import query

from traceconv.base.diagnostics import Code
from traceconv.schema import record
from traceconv.wire.log_writer import CaptureWriter, new_records
from traceconv.wire.text import encode_text

TYPES = record("task").field("task_type").values or {}
SAMPLES = sorted((Path(__file__).resolve().parents[2] / "sample_traces").glob("*/PROF_*"))


def random_capture(folder: Path, seed: int) -> Path:
    """Two devices with drifting clocks, nested calls on two threads, tasks on three streams; small blocks."""
    rng = np.random.default_rng(seed)
    b = CaptureBuilder(folder, devices=(0, 1), block_bytes=512, slice_bytes=4096)
    b.add("capture", host_ns=0, epoch_ns=1_720_000_000_123_456_789)
    ns, key = 0, 0
    stacks: dict[int, list[int]] = {1: [], 2: []}
    for _ in range(400):
        ns += int(rng.integers(0, 1000))
        thread = int(rng.integers(1, 3))
        if stacks[thread] and rng.random() < 0.5:
            b.end(stacks[thread].pop(), ns, thread_id=thread)
        else:
            key += 1
            stacks[thread].append(key)
            b.begin(key, ns, f"call {rng.integers(5)}", thread_id=thread)
    for device in (0, 1):
        tick, host = int(rng.integers(0, 1 << 50)), 0
        ends = dict.fromkeys(range(3), tick)
        for number in range(120):
            if number % 10 == 0:
                b.sync(max(ends.values()) + number, host, int(rng.integers(0, 50)), device)
                host += int(rng.integers(60_000, 61_000)) * NS_PER_TICK
            stream = int(rng.integers(3))
            start = ends[stream] + int(rng.integers(0, 500))
            ends[stream] = start + int(rng.integers(0, 900))
            kind = int(rng.integers(len(TYPES)))
            b.task(number, start, ends[stream], f"k{kind}", device, task_type=kind, stream_id=stream)
    return b.close()


@pytest.mark.parametrize("seed", range(3))
def test_sums_of_the_store_agree_with_sums_of_the_records(tmp_path: Path, seed: int) -> None:
    folder = random_capture(tmp_path / "PROF_1", seed)
    (run,) = ingested(tmp_path / "s.duckdb", folder)
    assert not run.lossy
    tally, _ = npu_log.add_up(folder)
    assert differences(tally, tallies(tmp_path / "s.duckdb")[1]) == []
    # Self times of finished calls add up to the durations of the outermost calls, except around unfinished calls.
    unequal = """SELECT count(*) FROM api AS a WHERE dur_ns <> self_ns + coalesce(
        (SELECT sum(c.dur_ns) FROM api AS c WHERE c.parent_id = a.id), 0)"""
    assert query(tmp_path / "s.duckdb", unequal) == [(0,)]


@pytest.mark.parametrize("capture", SAMPLES, ids=lambda path: path.parent.name)
def test_samples_and_three_reports_agree_with_sums_of_the_records(tmp_path: Path, capture: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingested(store, capture)
    tally, operators = npu_log.add_up(capture)
    assert differences(tally, tallies(store)[1]) == []
    assert statistic(store, "op_type, core_type", "op_statistic") == sums(operators)
    total = sum(map(sum, operators.values()))
    assert query(store, "SELECT sum(dur_ns) FROM op_summary WHERE task_type <> 'HCCL'") == [(total,)]
    assert query(store, "SELECT sum(dur_ns) FROM task_time WHERE op_id IS NOT NULL") == [(total,)]


def tiny_blocks(folder: Path, count: int) -> Path:
    writer = CaptureWriter(folder, writer_id=1, device_clock_hz={0: 10**8}, block_bytes=1)
    tasks = new_records("task", count)
    tasks["task_id"], tasks["event"] = np.arange(count) // 2, np.arange(count) % 2
    tasks["ticks"] = np.arange(count)
    writer.append("task", tasks, 0)
    writer.close({})
    return folder


def test_blocks_of_one_record_yield_the_same_rows(tmp_path: Path) -> None:
    accounts, _, counts = normalized(tiny_blocks(tmp_path / "PROF_1", 20_000))
    assert (counts["task"], accounts["task"].paired) == (10_000, 10_000)


def test_task_ids_in_random_order_find_their_counters(tmp_path: Path) -> None:
    """Counters and launches are anywhere in their files, which is the worst case for spilling."""
    count = 100_000
    rng = np.random.default_rng(2)
    writer = CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={0: 10**8})
    calls = new_records("api", 2 * count)
    for half in (0, 1):
        calls["correlation_id"][half::2] = rng.permutation(count) + 1 if half == 0 else calls["correlation_id"][0::2]
        calls["host_ns"][half::2], calls["event"][half::2] = np.arange(count) * 2 + half, half
    writer.append("api", calls)
    tasks = new_records("task", 2 * count)
    numbers = rng.permutation(count)
    for half in (0, 1):
        tasks["task_id"][half::2], tasks["event"][half::2] = numbers, half
        tasks["ticks"][half::2] = np.arange(count) * 10 + half * 5
        tasks["correlation_id"][half::2] = numbers + 1
    writer.append("task", tasks, 0)
    counters = new_records("pmu_pipe_utilization", count)
    counters["task_id"] = rng.permutation(count)
    writer.append("pmu_pipe_utilization", counters, 0)
    writer.close({})
    accounts, log, counts = normalized(tmp_path / "PROF_1")
    assert counts["task_pmu"] == counts["task"] == counts["flow"] == counts["api"] == count
    assert accounts["pmu_pipe_utilization"].lost == 0
    assert {entry.code for entry in log} == {Code.NO_CLOCK_SYNC}


def test_text_beyond_the_limit_is_reported_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traceconv.normalize.npulog.raw_log.TEXT_LIMIT_BYTES", 10_000)
    b = CaptureBuilder(tmp_path / "PROF_1")
    b.call(1, 0, 5, "first").call(2, 6, 7, "x" * 9_000).call(3, 8, 9, "y" * 9_000)
    (run,) = ingested(tmp_path / "s.duckdb", b.close())
    assert query(tmp_path / "s.duckdb", "SELECT length(name) FROM api ORDER BY start_ns") == [(5,), (9_000,), (None,)]
    lost = {entry.code: entry.event_count for entry in run.log}
    assert lost[Code.MISSING_TEXT] == 1
    assert lost[Code.TOO_MUCH_TEXT] + lost.get(Code.BAD_TEXT, 0) == len(encode_text(1, "y" * 9_000))
    assert run.accounts["dictionary"].balanced
