"""Real recordings exported as msprof's folder: equal to the vendor's own tables, verified, and read back unchanged."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter, defaultdict
from decimal import Decimal, InvalidOperation
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.cli import app

REAL = shared("real")
TORCH = REAL / "ascend" / "torch_npu_level1_rank1"
SAMPLES = Path(__file__).parents[2] / "sample_traces"
SOURCES = {
    "mini_resnet": SAMPLES / "mini_resnet",
    "mini_transformer": SAMPLES / "mini_transformer",
    "torch_npu": TORCH,
    "trace_view": REAL / "ascend" / "msprof_analyze_trace_view.json",
    "kernel_details": REAL / "ascend" / "msprof_analyze_kernel_details.csv",
    "msprof_timeline": REAL / "mindspore" / "msprof_0_2_1.json",
}
REPORTS = ("op_summary", "task_time", "step_trace", "fusion_op", "api_statistic", "op_statistic")
#: What the folder doesn't contain: IDs, the transfer of the batch, and the origin of steps and types.
NOT_IN_FOLDER = {
    "run_id",
    "id",
    "op_id",
    "fusion_id",
    "step_id",
    "step_source",
    "op_type_source",
    "get_next_ns",
    "get_next_start_ns",
}


def ingest(source: Path, store: Path) -> None:
    assert app.run(["ingest", str(source), "--db", str(store)]) == 0


#: Others have the same kinds of rows: recordings, the vendor's timelines.
SIMILAR = ("mini_resnet", "trace_view")


@pytest.fixture(
    params=[*(pytest.param(one, marks=pytest.mark.long if one in SIMILAR else ()) for one in SOURCES), "training"]
)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "training":
        command = ["record", "mini_resnet", "-o", str(tmp_path / "raw"), "--train", "--steps", "2", "--devices", "2"]
        assert app.run([*command, "--batch", "2", "--deterministic"]) == 0
        return tmp_path / "raw"
    path = SOURCES[request.param]
    if path.suffix == ".csv":  # under its name in a folder
        (tmp_path / "kernels").mkdir()
        shutil.copy(path, tmp_path / "kernels" / "kernel_details.csv")
        return tmp_path / "kernels"
    return path


def test_no_cell_differs_and_every_row_comes_back(source: Path, tmp_path: Path) -> None:
    first, second, out = tmp_path / "first.duckdb", tmp_path / "second.duckdb", tmp_path / "PROF_1"
    ingest(source, first)
    assert app.run(["export", "msprof", "--db", str(first), "-o", str(out)]) == 0
    assert app.run(["verify", str(out)]) == 0
    ingest(out, second)
    with duckdb.connect(str(first), read_only=True) as a, duckdb.connect(str(second), read_only=True) as b:
        for report in REPORTS:
            for connection in (a, b):
                connection.execute(f"CREATE TEMP TABLE found_{report} AS FROM {report}")
            described = a.execute(f"DESCRIBE FROM {report}").fetchall()
            # Ratios have three decimals in the folder.
            columns = [
                f"round({name}, 2)" if kind == "DOUBLE" else name
                for name, kind, *_ in described
                if name not in NOT_IN_FOLDER
            ]
            for column in columns:
                if report in ("op_summary", "task_time") and column.startswith("stream"):
                    continue  # below
                query = f"SELECT {column} FROM found_{report}"
                ours, theirs = (Counter(map(repr, c.execute(query).fetchall())) for c in (a, b))
                if "round" in column:
                    assert abs(sum(ours.values()) - sum(theirs.values())) == 0, (report, column)
                else:
                    assert ours == theirs, (report, column)
        # msprof shows collectives in a process of their own, without their stream.
        query = "SELECT name, stream_id, start_ns, dur_ns, kind, task_type FROM task"
        query += " WHERE kind <> 'collective' ORDER BY ALL"
        assert a.execute(query).fetchall() == b.execute(query).fetchall()
        query = "SELECT t.device_id, t.name, t.start_ns, s.iteration FROM task AS t LEFT JOIN step AS s "
        query += "ON s.run_id = t.run_id AND s.step_id = t.step_id AND s.device_id = t.device_id "
        query += "WHERE t.kind IN ('compute', 'collective') ORDER BY ALL"
        assert a.execute(query).fetchall() == b.execute(query).fetchall()
        for table in ("task", "api", "counter", "step", "device"):
            assert (
                a.execute(f"SELECT count(*) FROM {table}").fetchall()
                == b.execute(f"SELECT count(*) FROM {table}").fetchall()
            )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables and the timeline of a real recording."""
    folder = tmp_path_factory.mktemp("torch_npu")
    ingest(TORCH, folder / "trace.duckdb")
    assert app.run(["export", "msprof", "--db", str(folder / "trace.duckdb"), "-o", str(folder)]) == 0
    return folder / "mindstudio_profiler_output"


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def value(cell: str) -> Decimal | str:
    try:
        return Decimal(cell.strip())
    except InvalidOperation:
        return cell


#: The columns of kernel_details.csv that op_summary names differently.
RENAMED = {
    "Name": "Op Name", "Type": "OP Type", "Accelerator Core": "Task Type", "Start Time(us)": "Task Start Time(us)",
    "Duration(us)": "Task Duration(us)", "Wait Time(us)": "Task Wait Time(us)", "Block Dim": "Block Num",
    "Mix Block Dim": "Mix Block Num",
}  # fmt: skip


def test_tables_are_those_of_the_vendor_cell_by_cell(exported: Path) -> None:
    found = {path.name.rpartition("_")[0]: path for path in exported.iterdir()}
    # Numbers are equal or 1 ns apart: durations in the timeline are the vendor's before rounding, and msprof computes
    # waits in doubles. It also sums before it rounds, so totals differ by up to 1 ns per call.
    off = {
        "Task Duration(us)": 6,
        "Task Wait Time(us)": 55,
        "Total Time(us)": 9,
        "Max Time(us)": 1,
        "Avg(us)": 1,
        "Variance": 1,
    }
    differing: Counter[str] = Counter()
    for kind, theirs, keys in (
        ("op_summary", "kernel_details.csv", ("Op Name", "Task Duration(us)", "Task ID")),
        ("op_statistic", "op_statistic.csv", ("OP Type", "Core Type")),
        ("api_statistic", "api_statistic.csv", ("Level", "API Name")),
    ):
        ours: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
        keys = keys if kind != "op_summary" else ("Op Name", "Task ID")
        for row in cells(found[kind]):
            ours[tuple(row[key] for key in keys)].append(row)
        for cells_of_row in cells(TORCH / theirs):
            row = {RENAMED.get(name, name): cell for name, cell in cells_of_row.items()}
            own = ours[tuple(row[key] for key in keys)].pop(0)
            assert set(row) - set(own) <= {"Step Id"}
            for name in set(row) & set(own):
                if (a := value(own[name])) != (b := value(row[name])):
                    calls = int(row.get("Count", 1))
                    assert isinstance(a, Decimal)
                    assert isinstance(b, Decimal)
                    assert abs(a - b) <= Decimal("0.001") * calls, (name, a, b)
                    differing[name] += 1
                elif kind != "op_summary":
                    assert own[name] == row[name]  # also the text
        assert not any(ours.values())
    assert differing.keys() <= {*off, "Task Start Time(us)"}
    assert all(differing[name] <= most for name, most in off.items())
    assert differing["Task Start Time(us)"] <= 1


#: Args that other files add.
MADE = {"l2_cache", "kernel_details"}


def test_timeline_has_the_events_of_the_source(exported: Path) -> None:
    (path,) = exported.glob("msprof_*.json")
    kinds = []
    for file in (TORCH / "trace_view.json", path):
        events = json.loads(file.read_text("utf-8"), parse_float=Decimal)
        slices = Counter(
            (
                e["name"],
                e["pid"],
                e["tid"],
                e["ts"],
                round(Decimal(e["dur"]), 3),
                *sorted(set(e.get("args", ())) - MADE),
            )
            for e in events
            if e["ph"] == "X"
        )
        kinds.append((slices, {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}))
    (theirs, their_processes), (ours, our_processes) = kinds
    assert their_processes == our_processes
    assert sum(ours.values()) == sum(theirs.values())
    assert (theirs - ours).total() <= 10  # durations are finer than a nanosecond, and rounded otherwise
