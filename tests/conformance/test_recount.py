"""A recount of every real file by plain code agrees with the store, to the nanosecond."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from recount import rocprofv3, sources, torch_npu, writers
from recount.compare import disagreements, explained, statistic, sums
from recount.stored import runs_by_path, tallies
from recount.tally import Tally, differences, nanoseconds
from references import dangling
from shared_data import SHARED, shared

from traceconv.pipeline.ingest import ingest

shared("real")


@pytest.fixture(scope="module", params=["small", pytest.param("all", marks=pytest.mark.long)])
def chrome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Path, Tally]]:
    """A store with every Chrome trace, or those that are not large, and the recount of each."""
    store = tmp_path_factory.mktemp("chrome") / "trace.duckdb"
    traces = sources.chrome_traces(SHARED, small=request.param == "small")
    runs = ingest(list(traces), store)
    counted = {path: sources.count(path, of) for path, of in traces.items()}
    paths = {run: path for path, run in runs_by_path(store).items()}
    assert len(runs) > 100
    for run in runs:
        if run.action == "kept":  # a copy of another file
            continue
        assert all(account.balanced for account in run.accounts.by_record.values())
        events = counted[Path(paths[run.run_id])].event_count
        assert run.record_count == events or (run.lossy and run.record_count > events), run.label
    return store, counted


def test_chrome_traces(chrome: tuple[Path, dict[Path, Tally]]) -> None:
    store, counted = chrome
    assert disagreements(store, counted, SHARED) == []


def test_ids_in_chrome_traces(chrome: tuple[Path, dict[Path, Tally]]) -> None:
    with duckdb.connect(str(chrome[0]), read_only=True) as connection:
        assert dangling(connection) == []


def test_statistics_of_chrome_traces(chrome: tuple[Path, dict[Path, Tally]]) -> None:
    """Reports sum the rows of the tables: calls by level and name, kernels by device."""
    store, counted = chrome
    calls: Counter[tuple[object, ...]] = Counter()
    work: Counter[tuple[object, ...]] = Counter()
    runs = {Path(path): run for path, run in runs_by_path(store).items()}
    stored = set()
    of_ops = (writers.kineto, writers.raf)  # their collectives are ops as well
    for path, classify in sources.chrome_traces(SHARED).items():
        if path not in runs or (path.relative_to(SHARED).as_posix(), "task") in explained():
            continue
        tally = counted[path]
        stored.add(runs[path])
        for (table, kind, device, _, name), one in tally.slices.items():
            if table == "api":
                calls[runs[path], kind, name] += one.dur_ns
            elif table == "task" and (kind == "compute" or (kind == "collective" and classify in of_ops)):
                work[runs[path], device] += one.dur_ns
    api = "SELECT run_id, level, name, total_ns FROM api_statistic"
    ops = "SELECT run_id, device_id, sum(total_ns)::HUGEINT FROM op_statistic GROUP BY ALL"
    with duckdb.connect(str(store), read_only=True) as connection:
        assert {tuple(key): total for *key, total in connection.execute(api).fetchall()} == calls
        found = {tuple(key): int(total) for *key, total in connection.execute(ops).fetchall()}
    assert {key: total for key, total in found.items() if key[0] in stored} == work


#: A parent encloses its child, on the same track and one level up; self time is the time without a child.
NOT_NESTED = """
SELECT count(*) FROM slice AS c JOIN slice AS p ON p.run_id = c.run_id AND p.id = c.parent_id
WHERE p.track_id <> c.track_id OR p.depth <> c.depth - 1 OR p.start_ns > c.start_ns
   OR p.start_ns + p.dur_ns < c.start_ns + c.dur_ns
"""
ROOTS_BELOW = "SELECT count(*) FROM slice WHERE parent_id IS NULL AND depth > 0"
OTHER_SELF_TIMES = """
SELECT count(*) FROM slice AS p JOIN (
  SELECT run_id, parent_id, sum(greatest(0, end_ns - greatest(start_ns, coalesce(covered_ns, start_ns)))) AS inside
  FROM (
    SELECT *, start_ns + dur_ns AS end_ns, max(start_ns + dur_ns) OVER (
      PARTITION BY run_id, parent_id ORDER BY start_ns, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS covered_ns
    FROM slice WHERE dur_ns IS NOT NULL
  )
  GROUP BY ALL
) AS c ON c.run_id = p.run_id AND c.parent_id = p.id
WHERE p.self_ns <> p.dur_ns - c.inside
"""
WITHOUT_BYTES = """
SELECT count(*) FROM slice AS s WHERE NOT EXISTS (
  SELECT 1 FROM source_block AS b
  WHERE b.run_id = s.run_id AND s.id >= b.first_id AND s.id < b.first_id + b.event_count)
"""


@pytest.mark.parametrize("wrong", [NOT_NESTED, ROOTS_BELOW, OTHER_SELF_TIMES, WITHOUT_BYTES])
def test_slices_of_chrome_traces_nest(chrome: tuple[Path, dict[Path, Tally]], wrong: str) -> None:
    with duckdb.connect(str(chrome[0]), read_only=True) as connection:
        assert connection.execute(wrong).fetchone() == (0,)


def test_a_torch_npu_folder(tmp_path: Path) -> None:
    folder = SHARED / "real" / "ascend" / "torch_npu_level1_rank1"
    store = tmp_path / "trace.duckdb"
    ingest([folder], store)
    recording = torch_npu.add_up(folder)
    assert differences(recording.tally, tallies(store)[1].without_devices()) == []
    # Blocks missing in the table were allocated before the recording; with them the peak equals the vendor's.
    query = (
        "SELECT count(*), sum(size_bytes)::BIGINT, (SELECT max(peak_used_bytes) FROM memory_peak WHERE pool = 'PTA') "
        "FROM memory WHERE kind = 'block' AND op_id IS NOT NULL"
    )
    with duckdb.connect(str(store), read_only=True) as connection:
        assert connection.execute(query).fetchone() == recording.blocks
    kernels = statistic(store, "op_type, core_type", "op_statistic")
    assert kernels == sums(recording.kernels)
    # The vendor sums before rounding, but rounds each duration of the timeline: up to 1 ns per call.
    for row in torch_npu.rows_of(folder / "op_statistic.csv"):
        count, total_ns, *_ = kernels.pop((row["OP Type"], row["Core Type"]))
        assert count == int(row["Count"])
        assert abs(total_ns - nanoseconds(Decimal(row["Total Time(us)"]))) <= count
    assert kernels == {}
    calls = statistic(store, "level, name", "api_statistic")
    assert calls == sums(torch_npu.calls(folder))
    for row in torch_npu.rows_of(folder / "api_statistic.csv"):
        count, total_ns, *_ = calls.pop((row["Level"], row["API Name"]))
        assert (count, total_ns) == (int(row["Count"]), nanoseconds(Decimal(row["Time(us)"])))
    assert calls == {}


def test_rocprofv3(tmp_path: Path) -> None:
    path = SHARED / "real" / "rocm" / "rocprofv3_908_results.json.gz"
    ingest([path], tmp_path / "trace.duckdb")
    assert disagreements(tmp_path / "trace.duckdb", {path: rocprofv3.add_up(path)}, SHARED) == []


def test_other_formats(tmp_path: Path) -> None:
    counted = {path: add_up(path) for path, add_up in sources.others(SHARED).items()}
    for run in ingest(list(counted), tmp_path / "trace.duckdb"):
        assert all(account.balanced for account in run.accounts.by_record.values())
    assert disagreements(tmp_path / "trace.duckdb", counted, SHARED) == []
