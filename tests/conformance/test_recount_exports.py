"""Exports have the content of their run, in the files and read back, apart from the differences listed in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from recount import own_export, perfetto, random_traces
from recount.stored import runs_by_path, tallies
from recount.tally import Tally, differences
from shared_data import SHARED

from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
#: One trace of each of several writers, if available.
REAL = (
    "real/torch/triton_example.json.gz",
    "real/ascend/torch_npu_level1_rank1",
    "seed_systems/megengine/two_devices.chrome_timeline.json",
    "seed_systems/furiosa/injected_edge.rows.csv",
)


#: Seeds of random traces: one of each writer, and more.
SEEDS = {"some": (1001, 1004, 1005, 1006, 1009, 1010), "more": tuple(range(1000, 1012))}


@pytest.fixture(scope="module", params=["some", pytest.param("more", marks=pytest.mark.long)])
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of each source."""
    folder = tmp_path_factory.mktemp("sources")
    files = [SAMPLES / "mini_resnet", SAMPLES / "mini_transformer"]
    files += [SHARED / name for name in REAL if (SHARED / name).exists()]
    files += [random_traces.write(folder, seed)[0] for seed in SEEDS[request.param]]
    ingest(files, folder / "trace.duckdb")
    return folder / "trace.duckdb"


def test_chrome_traces(sources: Path, tmp_path: Path) -> None:
    runs = tallies(sources)
    with open_store(sources) as connection:
        for run in runs:
            export_chrome(connection, run, tmp_path / f"{run}.json")
    ingest([tmp_path / f"{run}.json" for run in runs], tmp_path / "back.duckdb")
    back, paths = tallies(tmp_path / "back.duckdb"), runs_by_path(tmp_path / "back.duckdb")
    for run, tally in runs.items():
        path = tmp_path / f"{run}.json"
        assert differences(own_export.count_chrome(path), tally) == [], run
        assert differences(back[paths[str(path)]], tally) == [], run


def test_perfetto_traces(sources: Path, tmp_path: Path) -> None:
    """Others see all slices as ranges, even with terms of other writers in them; read back, the run is the same."""
    runs = tallies(sources)
    with open_store(sources) as connection:
        for run in runs:
            export_perfetto(connection, run, tmp_path / f"{run}.pftrace")
    exports = {run: tmp_path / f"{run}.pftrace" for run in runs if (tmp_path / f"{run}.pftrace").stat().st_size}
    ingest(list(exports.values()), tmp_path / "back.duckdb")
    back, paths = tallies(tmp_path / "back.duckdb"), runs_by_path(tmp_path / "back.duckdb")
    for run, path in exports.items():
        stored = back[paths[str(path)]] if str(path) in paths else Tally()  # an empty run, as in other formats
        drawn = perfetto.add_up(path).moved(-perfetto.shift_of(path))
        for computed in ("Utilisation", "Pending ops", "Live tensors"):  # for viewers
            drawn.counters.pop((computed, "value"), None)
        assert differences(own_export.as_ranges(sources, run, runs[run]), drawn) == [], run
        assert differences(stored, runs[run]) == [], run
