"""Ascend timelines: our union of each kind of work is the vendor's own overlap analysis in the same file."""

from __future__ import annotations

import csv
from collections import Counter
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.pipeline import ingest

REAL = shared("real")


@pytest.mark.parametrize("trace", ["mindspore/msprof_0_2_1.json", "ascend/torch_npu_level1_rank1/trace_view.json"])
def test_computing_and_communication_are_the_vendors(trace: str, tmp_path: Path) -> None:
    ingest([REAL / trace], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        vendor = dict(
            store.execute(
                "SELECT r.name, {'ns': sum(r.dur_ns)::BIGINT, 'slices': count(*)} "
                'FROM "range" AS r JOIN track AS t USING (run_id, track_id) '
                "JOIN process AS p USING (run_id, process_id) WHERE p.name = 'Overlap Analysis' GROUP BY 1"
            ).fetchall()
        )
        (ours,) = store.execute(
            "SELECT sum(compute_ns)::BIGINT, sum(collective_ns)::BIGINT, sum(exposed_collective_ns)::BIGINT "
            "FROM device_utilisation"
        ).fetchall()
    names = ("Computing", "Communication", "Communication(Not Overlapped)")
    for found, name in zip(ours, names, strict=True):
        # torch_npu rounds begin and end of each of its slices for itself: they are 1 ns off its own tasks at most.
        assert abs(found - vendor[name]["ns"]) <= (0 if "mindspore" in trace else vendor[name]["slices"]), name


def test_device_time_of_operators_is_the_vendors(tmp_path: Path) -> None:
    """operator_details.csv has the device's own time of each operator of the framework."""
    folder = REAL / "ascend/torch_npu_level1_rank1"
    ingest([folder], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        ours = dict(
            store.execute(
                "SELECT range_name, sum(dur_ns)::BIGINT FROM launching_range "
                "WHERE kind <> 'sync' AND range_name IS NOT NULL GROUP BY 1"
            ).fetchall()
        )
    vendor: Counter[str] = Counter()
    with (folder / "operator_details.csv").open() as file:
        for row in csv.DictReader(file):
            vendor[row["Name"]] += round(Decimal(row["Device Self Duration(us)"]) * 1000)
    wanted = {name: time for name, time in vendor.items() if time}
    assert ours.keys() == wanted.keys()
    assert len(wanted) == 33
    # The vendor sums in doubles, and from its own rounded slices.
    assert all(abs(ours[name] - time) <= 50 for name, time in wanted.items())


def test_a_collective_is_one_task_whatever_its_planes_do(tmp_path: Path) -> None:
    """Four all-reduces in 300 parts; msprof-analyze 26.2 compares them as 4 calls of 100,375.285 µs."""
    ingest([REAL / "ascend/torch_npu_level1_rank1"], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        rows = store.execute(
            "SELECT count(*), sum(dur_ns)::BIGINT, count(submit_ns) FROM task WHERE kind = 'collective'"
        ).fetchall()
        parts = store.execute(
            'SELECT r.name, count(*) FROM "range" AS r JOIN track AS t USING (run_id, track_id) '
            "WHERE t.name LIKE 'Plane %' GROUP BY 1 ORDER BY 1"
        ).fetchall()
        reduces = store.execute("SELECT len(reduce_dur_ns), list_sum(reduce_dur_ns)::BIGINT FROM step_trace").fetchall()
    assert rows == [(4, 100_375_286, 4)]
    assert parts == [("Memcpy", 36), ("Notify_Record", 112), ("Notify_Wait", 112), ("Reduce_Inline", 36)]
    assert reduces == [(4, 100_375_286)]
