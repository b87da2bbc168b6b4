"""Spark returns the rows of DuckDB to the last digit, for every portable report, on a lake of recordings and traces.

`make test-spark` runs these tests, on a master with two worker processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import traceconv
from benchmarks.fleet import Fleet
from traceconv.base.errors import StoreError, UsageError
from traceconv.lake.entries import read_lake
from traceconv.lake.folder import lake_folder
from traceconv.reports.catalog import reports

pytest.importorskip("pyspark", reason="not installed: pip install traceconv[spark]")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed: Spark needs Java 17"),
]

from traceconv.spark.constructs import NotPortableError  # noqa: E402
from traceconv.spark.session import run_tasks, spark_rows, spark_session  # noqa: E402
from traceconv.spark.translation import spark_query  # noqa: E402

ROOT = Path(__file__).parents[2]
MASTER = "local-cluster[2,1,1024]"
REAL = ROOT.parent / "shared" / "conformance" / "real"


def is_portable(name: str) -> bool:
    try:
        spark_query(name)
    except NotPortableError:
        return False
    return True


PORTABLE = [name for name in reports() if is_portable(name)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, a PyTorch trace, vendors' folders if there are any, and the ranks of two jobs with planted faults."""
    folder = tmp_path_factory.mktemp("lake")
    Fleet(ranks=16, steps=4, seed=3).write(folder / "fleet")
    Fleet(ranks=8, steps=3, seed=4).write(folder / "other")
    samples = [ROOT / "sample_traces" / name for name in ("mini_resnet", "mini_transformer", "pytorch")]
    vendors = [path for path in (REAL / "ascend" / "torch_npu_level1_rank1", REAL / "mindspore") if path.exists()]
    found = folder / "lake"
    for number, paths in enumerate([samples, *([path] for path in vendors), [folder / "fleet"], [folder / "other"]]):
        db = folder / f"{number}.duckdb"
        traceconv.ingest(*paths, db=db)
        with traceconv.open_store(db=db) as store:
            store.export_parquet(found)
    return found


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        # Queries run a few times on few rows: code that is compiled fast takes less time than fast code.
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        with spark_session(MASTER) as found:
            yield found


def questions(name: str, lake: Path) -> list[dict[str, int]]:
    """No parameters, each alone, and a window."""
    known = {parameter.name for parameter in reports()[name].parameters}
    with traceconv.open_store(lake) as store:
        [run] = store.query("SELECT run_id FROM run WHERE label LIKE 'PROF%' ORDER BY run_id LIMIT 1").fetchall()[0]
        sql = f"SELECT min(start_ns), max(start_ns) FROM task WHERE run_id = {run}"
        [(first, last)] = store.query(sql).fetchall()
    asked: list[dict[str, int]] = [
        {}, {"run": run}, {"run": 5}, {"device": 1}, {"step": 2}, {"first_step": 2, "last_step": 3},
        {"run": run, "from_ns": first + (last - first) // 3, "to_ns": first + (last - first) // 2},
    ]  # fmt: skip
    return [one for one in asked if one.keys() <= known]


def plain(value: object) -> object:
    return [plain(one) for one in value] if isinstance(value, list) else repr(value)


@pytest.mark.parametrize("name", PORTABLE)
def test_rows_are_equal(name: str, lake: Path, session: Any) -> None:
    report = reports()[name]
    compared = 0
    for parameters in questions(name, lake):
        found = spark_rows(session, read_lake(lake_folder(lake)), report, parameters)
        with traceconv.open_store(lake) as store:
            named = ", ".join(f"{key} := {value}" for key, value in parameters.items())
            expected = store.query(f"FROM {name}({named})").fetchall()
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert found.column_names == [column.name for column in report.columns]
        assert sorted(map(plain, map(list, rows)), key=repr) == sorted(map(plain, map(list, expected)), key=repr)
        compared += len(rows)
    assert compared, "the lake has no rows of this report"


def test_the_api_and_the_shaping_of_rows(lake: Path) -> None:
    with traceconv.open_store(lake) as store:
        shaping: dict[str, Any] = {"run": "all", "top": 3, "filters": ["count>1"], "columns": ["op_type", "total_ns"]}
        rows = store.report("op-statistic", engine="spark", master="local[2]", **shaping)
        assert list(rows) == list(rows) == list(store.report("op-statistic", **shaping))
        with pytest.raises(UsageError, match="kernels can't run on Spark: it uses"):
            store.report("kernels", engine="spark")


def test_a_damaged_file_is_an_error_that_names_the_lake(lake: Path, session: Any, tmp_path: Path) -> None:
    copy = tmp_path / "lake"
    shutil.copytree(lake, copy)
    for file in copy.glob("task/*/*/*.parquet"):
        content = bytearray(file.read_bytes())
        content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
        file.write_bytes(content)
    with pytest.raises(StoreError, match=r"Spark can't compute op_statistic on .*lake list DIR --check"):
        spark_rows(session, read_lake(lake_folder(copy)), reports()["op_statistic"], {})


def test_128_bit_numbers_become_the_same_doubles(session: Any) -> None:
    """The translation of such casts relies on it."""
    import duckdb

    bits = [0, 1, 52, 53, 54, 62, 63, 64, 65, 66, 90, 117, 118]
    numbers = [sign * (2**bit + more) for bit in bits for more in (-3, -1, 0, 1, 2**bit // 3) for sign in (1, -1)]
    numbers += [1234567890123456789012345, -(2**64), -(2**64) - 1, 18014398509481985, -18014398509481985]
    frame = session.createDataFrame([(Decimal(number),) for number in numbers], "x DECIMAL(38,0)")
    found = [row[0] for row in frame.selectExpr("CAST(x AS DOUBLE)").collect()]
    listed = ", ".join(f"({number}::HUGEINT)" for number in numbers)
    expected = duckdb.sql(f"SELECT n::DOUBLE FROM (VALUES {listed}) AS t(n)").fetchall()
    assert found == [value for (value,) in expected]


def test_the_progress_of_tasks_is_followed(session: Any) -> None:
    seen: list[int] = []
    found = run_tasks(abs, [-1, -22, -333], MASTER, str, lambda notes: seen.append(sum(map(len, notes))))
    assert found == [1, 22, 333]
    assert seen == sorted(seen)
    assert set(seen) <= {0, 1, 2, 3, 4, 5, 6}
