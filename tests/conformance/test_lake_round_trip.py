"""Store → lake → store gives the same rows in every table, for the samples and for all real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingest_checks import all_rows
from recount.sources import chrome_traces, others
from shared_data import SHARED

import traceconv
from traceconv.base.errors import InputError
from traceconv.export.parquet import export_parquet
from traceconv.pipeline.ingest import ingest
from traceconv.reports.catalog import reports
from traceconv.store.database import open_store

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
#: Files of at least this size are tested by `make test-long` only.
LONG_BYTES = 100_000
#: Files in a store.
GROUP = 25


def check(sources: list[Path], folder: Path) -> int:
    """Return the number of runs."""
    store, lake, back = folder / "s.duckdb", folder / "lake", folder / "back.duckdb"
    try:
        ingest(sources, store)
    except InputError:  # no usable events in any
        return 0
    with open_store(store) as connection:
        runs = [run_id for (run_id,) in connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall()]
        for run_id in runs:
            export_parquet(connection, run_id, lake)
    result = ingest([lake], back)
    assert not result.unusable
    assert [one.run_id for one in result] == runs
    assert all_rows(back) == all_rows(store)
    return len(runs)


@pytest.mark.long
def test_the_samples(tmp_path: Path) -> None:
    assert check([SAMPLES / "mini_resnet", SAMPLES / "mini_transformer", SAMPLES / "pytorch"], tmp_path) == 3


def real_files(small: bool) -> list[Path]:
    found = sorted({*chrome_traces(SHARED), *others(SHARED)}) if SHARED.exists() else []
    return [path for path in found if (path.stat().st_size < LONG_BYTES) == small]


SMALL, LARGE = real_files(True), real_files(False)
PARTS = [
    *(
        pytest.param(SMALL[i : i + GROUP], id=f"small{i}", marks=[pytest.mark.long] if i else [])
        for i in range(0, len(SMALL), GROUP)
    ),
    *(pytest.param(LARGE[i : i + 5], id=f"large{i}", marks=pytest.mark.long) for i in range(0, len(LARGE), 5)),
]


@pytest.mark.parametrize("files", PARTS)
def test_real_files(files: list[Path], tmp_path: Path) -> None:
    check(files, tmp_path)


def test_reports_of_a_lake_are_those_of_the_store(tmp_path: Path) -> None:
    """All reports, on runs of three kinds at once."""
    ingest([SAMPLES / "mini_resnet", SAMPLES / "mini_transformer", SAMPLES / "pytorch"], tmp_path / "s.duckdb")
    with_rows = 0
    with traceconv.open_store(tmp_path / "s.duckdb") as store:
        store.export_parquet(tmp_path / "lake")
        with traceconv.open_store(tmp_path / "lake") as lake:
            for name in reports():
                expected = list(store.report(name, run="all"))
                assert list(lake.report(name, run="all")) == expected, name
                with_rows += bool(expected)
    assert with_rows > 20
