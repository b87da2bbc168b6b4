"""Real output of torch_npu is ingested completely, and its tables are verified."""

from __future__ import annotations

import csv
import io
import json
import shutil
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from commands import Command
from shared_data import TORCH_NPU, shared
from stores import query

from traceconv.pipeline.ingest import ingest

ASCEND = shared("real") / "ascend"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vendor") / "trace.duckdb"
    run = ingest([TORCH_NPU], path)[0]
    assert all(account.balanced and account.lost == 0 for account in run.accounts.by_record.values())
    assert run.complete
    assert not run.lossy
    return path


def kernels() -> list[dict[str, str]]:
    with (TORCH_NPU / "kernel_details.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_kernel_completes_a_task_of_the_timeline(store: Path) -> None:
    accounting = (
        "SELECT record_count, paired_count, lost_count FROM import_account WHERE record = 'kernel_details records'"
    )
    assert query(store, accounting) == [(191, 191, 0)]
    assert query(store, "SELECT count(*) FROM import_log WHERE severity <> 'info'") == [(0,)]


def test_a_flow_tells_the_launch_of_a_task_with_another_connection_id(tmp_path: Path) -> None:
    source = ASCEND / "msprof_analyze_trace_view.json"
    events = json.loads(source.read_text(encoding="utf-8"), parse_float=Decimal)
    slices: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            start_ns, dur_ns = (round(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
            slices.setdefault((event["pid"], event["tid"]), []).append((start_ns, start_ns + dur_ns, event["name"]))
    starts = {event["id"]: event for event in events if event["ph"] == "s" and event["cat"] == "HostToDevice"}
    expected = []
    for end in (event for event in events if event["ph"] == "f" and event["cat"] == "HostToDevice"):
        called, begun = (
            max(
                one
                for one in slices[event["pid"], event["tid"]]
                if one[0] <= int(Decimal(event["ts"]) * 1000) <= one[1]
            )
            for event in (starts[end["id"]], end)
        )
        expected.append((begun[2], begun[0], called[0], called[1] - called[0]))
    ingest([source], tmp_path / "t.duckdb")
    launched = "SELECT name, start_ns, submit_ns, call_ns FROM task WHERE submit_ns IS NOT NULL"
    assert sorted(query(tmp_path / "t.duckdb", launched)) == sorted(expected)
    assert len(expected) == 274


def test_tasks_have_the_values_of_kernel_details(store: Path) -> None:
    rows = {
        (name, start_ns): (op_type, state, core)
        for name, start_ns, op_type, state, core in query(
            store,
            "SELECT t.name, t.start_ns, o.op_type, o.state, t.core_type FROM task AS t JOIN op AS o "
            "USING (run_id, op_id)",
        )
    }
    computing = [cells for cells in kernels() if cells["Accelerator Core"] not in ("HCCL", "COMMUNICATION")]
    assert len(computing) == len(rows) == 187
    near = 0
    for cells in computing:
        whole, _, part = cells["Start Time(us)"].strip().partition(".")
        start_ns = int(whole) * 1000 + int(part.ljust(3, "0"))
        found = [rows[key] for at in (0, 1, -1) if (key := (cells["Name"], start_ns + at)) in rows]
        near += (cells["Name"], start_ns) not in rows
        assert found[0] == (cells["Type"], cells["OP State"], cells["Accelerator Core"])
    assert near < len(computing)


def test_verify_agrees_and_lists_cells_that_agree_only_in_doubles(command: Command) -> None:
    shown, err = command("verify", TORCH_NPU, "--format", "csv")
    assert list(csv.DictReader(io.StringIO(shown))) == []
    assert "total: 1,763 cells, all agree" in err
    assert "kernel_details.csv: 951 cells, all agree" in err
    assert "step_trace_time.csv: 9 cells, all agree, 2 within double-precision rounding" in err
    assert "l2_cache.csv: not checked: no other file has its content" in err
    done = command("verify", TORCH_NPU, "--format", "csv", "--exact", code=3)
    cells = [(row["column_name"], row["vendor_value"], row["our_value"]) for row in csv.DictReader(io.StringIO(
        done.out)) if row["file"] == "step_trace_time.csv"]  # fmt: skip
    assert ("stage", "131912.5", "131912.616") in cells
    assert ("preparing", "20433.25", "20433.190") in cells


@pytest.mark.parametrize(
    ("folder", "table", "slack_ns"),
    [("torch_npu_level1_rank1", "kernel_details.csv", 1), (None, "msprof_analyze_kernel_details.csv", 100)],
)
def test_waits_are_equal_to_the_vendors(folder: str | None, table: str, slack_ns: int, tmp_path: Path) -> None:
    """Row by row, up to the rounding of doubles: a tenth of a µs for starts printed with one decimal."""
    source = ASCEND / (folder or "")
    path = tmp_path / "recording"
    path.mkdir()
    for file in source.iterdir() if folder else ():
        shutil.copy(file, path)
    shutil.copy(source / table, path / "kernel_details.csv")
    ingest([path], tmp_path / "trace.duckdb")
    with (path / "kernel_details.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        query = "SELECT name, wait_ns FROM task WHERE wait_ns IS NOT NULL ORDER BY start_ns, id"
        ours = store.execute(query).fetchall()
    assert [name for name, _ in ours] == [row["Name"].strip() for row in rows]
    off = [abs(wait - int(Decimal(row["Wait Time(us)"]) * 1000)) for row, (_, wait) in zip(rows, ours, strict=True)]
    assert max(off) <= slack_ns
    assert max(wait for _, wait in ours) > 50_000_000 or not folder


def test_collectives_are_rows_of_op_summary_with_their_size_and_group(store: Path) -> None:
    with (TORCH_NPU / "trace_view.json").open(encoding="utf-8") as file:
        slices = [event for event in json.load(file) if event["ph"] == "X" and event["name"].startswith("hcom_")]
    sizes = {event["name"]: event["args"]["count"] * 4 for event in slices}  # all are FP32
    assert dict(query(store, "SELECT name, size_bytes FROM task WHERE comm_group = 'Group 0'")) == sizes
    shown = query(store, "SELECT op_name, op_type, op_type_source FROM op_summary WHERE op_id IS NULL")
    assert sorted(shown) == sorted((name, "hcom_allReduce_", "name") for name in sizes)
    assert query(store, "SELECT count(*) FROM op_summary") == [(191,)]
    assert query(store, "SELECT count(*) FROM op_summary(step := 50)") == [(191,)]


def test_counter_times_and_ratios_are_equal_to_the_table(store: Path, command: Command) -> None:
    done = command("report", "op-summary", "--db", store, "--format", "msprof-csv")
    shown = list(csv.DictReader(io.StringIO(done.out)))
    columns = [name for name in shown[0] if name.startswith(("aic", "aiv", "cube"))]
    assert len(columns) == 25
    for ours, theirs in zip(shown, kernels(), strict=True):
        assert ours["Op Name"] == theirs["Name"]
        for name in columns:
            cells = [cell[name] for cell in (ours, theirs)]
            assert cells[0] == cells[1] or Decimal(cells[0]) == Decimal(cells[1]), name


def test_links_have_the_sums_of_the_communication_matrix(store: Path) -> None:
    matrix = json.loads((TORCH_NPU / "communication_matrix.json").read_text(), parse_float=Decimal)
    (collectives,) = (kinds["collective"] for kinds in matrix.values())
    (total,) = (links for name, links in collectives.items() if "-total@" in name)
    expected = {
        tuple(map(int, pair.split("-"))): (
            {"LOCAL": "ON_CHIP"}.get(link["Transport Type"], link["Transport Type"]),
            int(link["Transit Size(MB)"].quantize(Decimal("1e-6")) * 1_000_000),
            int(link["Transit Time(ms)"].quantize(Decimal("1e-6")) * 1_000_000),
        )
        for pair, link in total.items()
    }
    assert len(expected) == 8
    found = query(store, "SELECT rank, peer_rank, link_type, transfer_bytes, transfer_ns FROM links")
    assert {(rank, peer): tuple(rest) for rank, peer, *rest in found} == {
        pair: (link, size, pytest.approx(ns, abs=1)) for pair, (link, size, ns) in expected.items()
    }
    with (TORCH_NPU / "trace_view.json").open() as file:
        events = json.load(file, parse_float=Decimal)
    waits: dict[int, list[int]] = {}
    for event in events:
        if event["name"] == "Notify_Wait" and "dst rank" in event.get("args", ()):
            waits.setdefault(event["args"]["dst rank"], []).append(round(Decimal(event["dur"]) * 1000))
    sums = query(store, "SELECT peer_rank, wait_count, wait_ns, max_wait_ns FROM links WHERE wait_count > 0")
    assert {peer: tuple(rest) for peer, *rest in sums} == {
        peer: (len(one), pytest.approx(sum(one), abs=len(one)), pytest.approx(max(one), abs=1))
        for peer, one in waits.items()
    }
