"""The sizes of texts in rows that DuckDB may read together are not below what they are; those of a store are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from stores import attached

from traceconv.pipeline.ingest import ingest
from traceconv.store.load_memory import bytes_for_texts, has_long_texts
from traceconv.store.text_sizes import VECTOR_ROWS, RecentRows, TextSizes, sizes_in_table


@pytest.mark.parametrize("seed", range(20))
def test_no_vector_of_rows_has_more_than_twice_the_size(seed: int) -> None:
    rng = np.random.default_rng(seed)
    recent, found, lengths = RecentRows("range"), TextSizes(), np.zeros(0, np.int64)
    for count in rng.integers(0, rng.choice([40, 3000, 9000]), 12).tolist():
        drawn = rng.geometric(0.2, (2, count)) * rng.choice([1, 1, 1, 50], (2, count))
        args = pa.array(["x" * size for size in drawn[0].tolist()], pa.string())
        names = pa.array([None if size == 1 else "y" * size for size in drawn[1].tolist()], pa.string())
        batch = pa.record_batch([args, names.dictionary_encode()], names=["args", "name"])
        found = found.over(recent.sizes_with(batch))
        recent.add(batch)
        lengths = np.concatenate([lengths, drawn[0] + np.where(drawn[1] == 1, 0, drawn[1])])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    width = min(VECTOR_ROWS, len(lengths))
    assert 2 * found.vector_bytes >= int((ends[width:] - ends[: len(ends) - width]).max())
    assert found.longest_bytes == 0


def test_only_different_texts_that_may_have_a_dictionary_are_long() -> None:
    def mean_of(name: str, texts: list[str], *, coded: bool) -> int:
        column = pa.array(texts)
        batch = pa.record_batch([column.dictionary_encode() if coded else column], names=[name])
        return RecentRows("range").sizes_with(batch).mean_bytes

    different = [f"{number:0400d}" for number in range(300)]
    assert mean_of("name", different, coded=True) == mean_of("name", different, coded=False) == 400
    assert mean_of("name", different[:3] * 100, coded=True) == 4
    assert mean_of("args", different, coded=False) == 0
    for coded in (True, False):
        assert mean_of("name", ["x" * 5000, *different[1:]], coded=coded) == 400 * 299 // 300
    assert has_long_texts(TextSizes(mean_bytes=400)) and not has_long_texts(TextSizes(mean_bytes=4))


def test_the_limit_grows_in_few_steps() -> None:
    limits = {bytes_for_texts(TextSizes(0, size)) for size in range(0, 1 << 28, 1 << 16)}
    assert 0 in limits and len(limits) < 8
    assert all(bytes_for_texts(TextSizes(0, size)) >= 1.5 * size for size in (25 << 20, 100 << 20, 255 << 20))


def test_the_sizes_in_a_store(tmp_path: Path) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "t.duckdb"
    sizes = [20_000, 5, 30_000]
    events = (
        f'{{"ph":"X","pid":1,"tid":1,"ts":{place},"dur":1,"name":"n","args":{{"s":"{"x" * size}"}}}}'
        for place, size in enumerate(sizes)
    )
    path.write_text(f"[{','.join(events)}]")
    ingest([path], store)
    with attached(store) as connection:
        found = sizes_in_table(connection, "range")
    around = len('{"s":""}')
    assert (found.longest_bytes, found.vector_bytes) == (30_000 + around, sum(sizes) + 3 * around)
