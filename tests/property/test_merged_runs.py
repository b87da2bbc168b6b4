"""A store merged from two has the rows of one into which both were ingested."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ingest_checks import all_rows
from references import dangling
from shared_data import shared
from stores import query
from trace_files import write_trace

from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.runs import merge_stores
from traceconv.store.database import open_store

SAMPLES = Path(__file__).parents[2] / "sample_traces"
UNBALANCED = """
SELECT * FROM import_account WHERE record_count <> row_count + paired_count + used_count + lost_count
"""


def check_merged(folder: Path, first: list[Path], second: list[Path]) -> None:
    """Ingest into two stores and merge them; ingest into one store; compare all rows."""
    merged, other, both = (folder / f"{name}.duckdb" for name in ("merged", "other", "both"))
    for store, sources in ((merged, first), (other, second), (both, first), (both, second)):
        if sources:
            ingest(sources, store)
    expected, before = all_rows(both), all_rows(other)
    done = merge_stores([other], merged)
    assert all_rows(merged) == expected
    assert {one.action for one in done} <= {"merged", "kept"}
    # Replacing runs by equal ones changes nothing.
    done = merge_stores([other], merged, replace=True)
    assert all_rows(merged) == expected
    assert {one.action for one in done} == {"replaced"}
    assert all_rows(other) == before
    assert query(merged, UNBALANCED) == []
    with open_store(merged) as connection:
        assert dangling(connection) == []


files = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("", ".gz")), st.booleans()), min_size=1, max_size=3)


@settings(max_examples=1)
@given(files, files)
@example([(0, "", False)], [(0, ".gz", False), (1, "", True)])
def test_random_traces(first: list[tuple[int, str, bool]], second: list[tuple[int, str, bool]]) -> None:
    """Some have the same content in another file, or are in both stores."""
    with tempfile.TemporaryDirectory() as name:

        def write(seed: int, ending: str, ranked: bool) -> Path:
            path = Path(name) / f"{'rank' if ranked else 'trace'}{seed}.json{ending}"
            return write_trace(path, rank=seed if ranked else None, seed=seed, count=2)

        chosen = [list(dict.fromkeys(write(*one) for one in some)) for some in (first, second)]
        check_merged(Path(name), *chosen)


@pytest.mark.long
def test_the_samples(tmp_path: Path) -> None:
    check_merged(tmp_path, [SAMPLES / "mini_resnet", SAMPLES / "pytorch"], [SAMPLES / "mini_transformer"])


@pytest.mark.long
def test_real_files(tmp_path: Path) -> None:
    """Of other programs, with losses, counters, flows and tables of vendors."""
    real, proto = shared("real"), shared("perfetto_proto")
    first = [
        real / "speedscope_trace_event",
        real / "bazel" / "tiny.json.gz",
        next(iter(sorted(proto.rglob("*.pftrace")))),
    ]
    second = [
        real / "ascend" / "torch_npu_level1_rank1",
        real / "dftracer" / "graph_test_data1.pfw",
        real / "bazel" / "tiny.json.gz",
    ]
    check_merged(tmp_path, first, second)
