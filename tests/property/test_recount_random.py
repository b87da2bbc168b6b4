"""Random traces, as irregular as real ones: the store agrees with plain code to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest
from recount import (
    chrome,
    furiosa_csv,
    megengine_static,
    msprof,
    nsys,
    perfetto,
    random_perfetto,
    random_reports,
    random_traces,
    speedscope,
    torch_npu,
)
from recount.compare import disagreements, statistic, sums
from recount.stored import runs_by_path, tallies
from recount.tally import differences
from vendor_recording import made_up, write_folder

from traceconv.pipeline.ingest import ingest


@pytest.mark.parametrize("first", [0, pytest.param(80, marks=pytest.mark.long)])
def test_chrome_traces(tmp_path: Path, first: int) -> None:
    traces = [random_traces.write(tmp_path, seed) for seed in range(first, first + 80)]
    store = tmp_path / "trace.duckdb"
    ingest([path for path, *_ in traces], store)
    counted = {
        path: chrome.add_up(chrome.events_of(chrome.read(path)), classify, chains=chains)
        for path, classify, chains in traces
    }
    assert disagreements(store, counted, tmp_path) == []


@pytest.mark.parametrize("seed", range(6))
def test_torch_npu_folders(tmp_path: Path, seed: int) -> None:
    devices = (0, 3) if seed % 2 else (0,)
    recording = made_up(seed, devices=devices, kernels=30)
    out = write_folder(tmp_path, recording, seed % 3, device_id=len(devices) > 1, old=seed > 2)
    store = tmp_path / "trace.duckdb"
    ingest([out], store)
    counted = torch_npu.add_up(out)
    assert differences(counted.tally, tallies(store)[1].without_devices()) == []
    assert statistic(store, "op_type, core_type", "op_statistic") == sums(counted.kernels)


@pytest.mark.parametrize("seed", range(6))
def test_msprof_folders(tmp_path: Path, seed: int) -> None:
    out = random_reports.write_msprof(tmp_path, seed)
    store = tmp_path / "trace.duckdb"
    ingest([out], store)
    tally, kernels = msprof.add_up(out)
    assert differences(tally, tallies(store)[1]) == []
    assert statistic(store, "op_type, core_type", "op_statistic") == sums(kernels)


def test_nsys_reports(tmp_path: Path) -> None:
    reports = [random_reports.write_nsys(tmp_path / f"{seed}.sqlite", seed) for seed in range(10)]
    store = tmp_path / "trace.duckdb"
    ingest(reports, store)
    stored = tallies(store)
    for path, run in runs_by_path(store).items():
        counted = nsys.without_titles(nsys.add_up(Path(path)))
        assert differences(counted, nsys.without_titles(stored[run])) == [], path
    assert len(stored) == len(reports)


def test_speedscope_profiles(tmp_path: Path) -> None:
    profiles = [random_reports.write_speedscope(tmp_path / f"{seed}.json", seed) for seed in range(40)]
    store = tmp_path / "trace.duckdb"
    ingest(profiles, store)
    assert disagreements(store, {path: speedscope.add_up(path) for path in profiles}, tmp_path) == []


def test_furiosa_tables_and_megengine_profiles(tmp_path: Path) -> None:
    """With unquoted commas, quotes and line feeds in names, and truncated last lines."""
    tables = [random_reports.write_furiosa(tmp_path / f"{seed}.csv", seed) for seed in range(40)]
    graphs = [random_reports.write_megengine(tmp_path / f"{seed}.json", seed) for seed in range(10)]
    counted = {path: furiosa_csv.add_up(path) for path in tables}
    counted |= {path: megengine_static.add_up(path) for path in graphs}
    store = tmp_path / "trace.duckdb"
    for run in ingest([*tables, *graphs], store):
        is_cut = any(entry.code.text in ("no_end", "damaged_event") for entry in run.log)
        assert run.complete != is_cut
    assert disagreements(store, counted, tmp_path) == []


def test_perfetto_traces(tmp_path: Path) -> None:
    """With interned strings, drifting and incremental clocks, lost state, compressed packets and legacy events."""
    traces = [random_perfetto.write(tmp_path / f"{seed}.pftrace", seed) for seed in range(40)]
    store = tmp_path / "trace.duckdb"
    ingest(traces, store)
    assert disagreements(store, {path: perfetto.add_up(path) for path in traces}, tmp_path) == []
