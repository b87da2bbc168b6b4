"""Ingest → export → ingest gives the same rows, for real traces of many writers and for captures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest
from recount.sources import real_traces
from round_trip import differences
from shared_data import SHARED, shared

import traceconv
from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store

#: Gecko's format has no events of the trace format.
CASES = sorted(
    path.parent.name for path in (SHARED / "perfetto_json").glob("*/trace.json") if "Gecko" not in path.parent.name
)
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
#: Files of at least this size are tested by `make test-long` only.
LONG_BYTES = 100_000


FOLDER = shared("real")
TRACES = real_traces(SHARED)
LARGE = [name for name in TRACES if (FOLDER / name).stat().st_size > LONG_BYTES]
#: Files of a folder share a store, because creating a store is slow.
SMALL = {
    folder: list(names)
    for folder, names in groupby((name for name in TRACES if name not in LARGE), lambda name: name.partition("/")[0])
}


def there_and_back(sources: Sequence[Path], folder: Path) -> list[str]:
    """Rows that the stores of both exports lack or have in addition."""
    runs = sorted({run.run_id for run in ingest(sources, folder / "first.duckdb")})
    found = []
    for export, ending in ((export_chrome, "json"), (export_perfetto, "pftrace")):
        files = [folder / f"trace{number}.{ending}" for number in runs]
        with open_store(folder / "first.duckdb") as connection:
            for number, file in zip(runs, files, strict=True):
                export(connection, number, file)
        back = ingest(files, folder / f"{ending}.duckdb")
        assert [(run.run_id, run.log) for run in back] == [(number, ()) for number in runs]
        found += differences(folder / "first.duckdb", folder / f"{ending}.duckdb")
    return found


@pytest.mark.parametrize("folder", SMALL)
def test_real_traces_of_a_writer(folder: str, tmp_path: Path) -> None:
    assert there_and_back([FOLDER / name for name in SMALL[folder]], tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_a_large_trace(name: str, tmp_path: Path) -> None:
    assert there_and_back([FOLDER / name], tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_a_trace_of_another_tool_s_tests(name: str, tmp_path: Path) -> None:
    assert there_and_back([SHARED / "perfetto_json" / name / "trace.json"], tmp_path) == []


@pytest.mark.parametrize("name", ["mini_resnet", "mini_transformer"])
def test_a_capture(name: str, tmp_path: Path) -> None:
    assert there_and_back([SAMPLES / name], tmp_path) == []


def test_reports_that_depend_on_the_format_of_the_source(tmp_path: Path) -> None:
    """The work of a capture's ops is that of the cost model; static profiles of MegEngine have it in args."""
    static = shared("seed_systems") / "megengine" / "static_conv_infer.profiling.json"
    assert there_and_back([SAMPLES / "mini_resnet", static], tmp_path) == []
    rows = {}
    for name in ("first", "json", "pftrace"):
        with traceconv.open_store(tmp_path / f"{name}.duckdb") as store:
            rows[name] = list(store.report("roofline", run="all"))
    assert {row["work_source"] for row in rows["first"]} >= {"model", "recorded"}
    assert rows["json"] == rows["pftrace"] == rows["first"]


def test_a_flow_without_a_known_end_far_before_the_end_of_the_file(tmp_path: Path) -> None:
    """The thread of such flows is named after all flows, while the file is read in chunks."""
    slices = [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 9_000_000}]
    title = {"name": "f" * 1000, "cat": "c", "pid": 1, "tid": 1}
    flows = [{**title, "ph": "s", "id": 0, "ts": 1}]
    for number in range(1, 4001):
        flows.append({**title, "ph": "s", "id": number, "ts": 10 * number})
        flows.append({**title, "ph": "f", "bp": "e", "id": number, "ts": 10 * number + 5})
    source = tmp_path / "source.json"
    source.write_text(json.dumps(slices + flows))
    assert there_and_back([source], tmp_path) == []
    assert (tmp_path / "trace1.json").stat().st_size > 8 << 20
