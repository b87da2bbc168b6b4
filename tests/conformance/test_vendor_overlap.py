"""Ascend timelines: the union of each kind of work equals the vendor's overlap analysis in the same file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.pipeline.ingest import ingest

REAL = shared("real")
RECORDING = REAL / "ascend/torch_npu_level1_rank1"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path: Path = tmp_path_factory.mktemp("recording") / "trace.duckdb"
    ingest([RECORDING], path)
    with duckdb.connect(str(path), read_only=True) as store:
        yield store


def off_by(store: duckdb.DuckDBPyConnection) -> list[tuple[int, int]]:
    """For computing, communication and exposed communication: the difference in ns, and the vendor's slices."""
    vendor = dict(
        store.execute(
            "SELECT r.name, (sum(r.dur_ns)::BIGINT, count(*)) "
            'FROM "range" AS r JOIN track AS t USING (run_id, track_id) '
            "JOIN process AS p USING (run_id, process_id) WHERE p.name = 'Overlap Analysis' GROUP BY 1"
        ).fetchall()
    )
    (ours,) = store.execute(
        "SELECT sum(compute_ns)::BIGINT, sum(collective_ns)::BIGINT, sum(exposed_collective_ns)::BIGINT FROM breakdown"
    ).fetchall()
    names = ("Computing", "Communication", "Communication(Not Overlapped)")
    return [(abs(found - vendor[name][0]), vendor[name][1]) for found, name in zip(ours, names, strict=True)]


def test_computing_and_communication_of_msprof(tmp_path: Path) -> None:
    ingest([REAL / "mindspore/msprof_0_2_1.json"], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert [off for off, _ in off_by(store)] == [0, 0, 0]


def test_computing_and_communication_of_torch_npu(recording: duckdb.DuckDBPyConnection) -> None:
    """The vendor rounds the start and end of each slice, so its slices differ from its tasks by at most 1 ns."""
    assert all(off <= slices for off, slices in off_by(recording))


def test_device_time_of_operators_is_the_vendors(recording: duckdb.DuckDBPyConnection) -> None:
    """operator_details.csv has the device self time of each framework operator."""
    ours = dict(
        recording.execute(
            "SELECT range_name, sum(dur_ns)::BIGINT FROM launching_range "
            "WHERE kind <> 'sync' AND range_name IS NOT NULL GROUP BY 1"
        ).fetchall()
    )
    vendor: Counter[str] = Counter()
    with (RECORDING / "operator_details.csv").open() as file:
        for row in csv.DictReader(file):
            vendor[row["Name"]] += round(Decimal(row["Device Self Duration(us)"]) * 1000)
    wanted = {name: time for name, time in vendor.items() if time}
    assert ours.keys() == wanted.keys()
    assert len(wanted) == 33
    # The vendor sums its rounded slices in doubles.
    assert all(abs(ours[name] - time) <= 50 for name, time in wanted.items())


def test_a_collective_is_one_task_for_all_its_planes(recording: duckdb.DuckDBPyConnection) -> None:
    """Four all-reduces in 300 parts; msprof-analyze 26.2 compares them as 4 calls of 100,375.285 µs."""
    rows = recording.execute(
        "SELECT count(*), sum(dur_ns)::BIGINT, count(submit_ns) FROM task WHERE kind = 'collective'"
    ).fetchall()
    parts = recording.execute(
        'SELECT r.name, count(*) FROM "range" AS r JOIN track AS t USING (run_id, track_id) '
        "WHERE t.name LIKE 'Plane %' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    reduces = recording.execute("SELECT len(reduce_dur_ns), list_sum(reduce_dur_ns)::BIGINT FROM step_trace").fetchall()
    assert rows == [(4, 100_375_286, 4)]
    assert parts == [("Memcpy", 36), ("Notify_Record", 112), ("Notify_Wait", 112), ("Reduce_Inline", 36)]
    assert reduces == [(4, 100_375_286)]
