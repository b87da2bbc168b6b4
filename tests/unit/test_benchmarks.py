"""The results of the benchmarks are written as a page, and a quick run is compared with it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from stores import query

from benchmarks import parts, results, run
from traceconv.pipeline.ingest import ingest

SAMPLES = Path(__file__).parents[2] / "sample_traces"
AFTER_TASKS = "SELECT count(*), any_value(end_ns) - max(task.start_ns + dur_ns) FROM task JOIN run USING (run_id)"


def result(name: str, ratio: float | None) -> results.Result:
    return results.Result(name, 1.0, "1 s", "≤ 2 s", True, ratio)


def test_ratios_that_are_clearly_worse_than_on_the_page_are_reported() -> None:
    full = [result("ingest ÷ bulk insert", 0.9)]
    page = results.markdown(
        full, [result("ingest ÷ bulk insert", 0.5), result("store size", None), result("export", 2.0)]
    )
    assert "| ingest ÷ bulk insert | 1 s | ≤ 2 s | met |" in page
    before = results.ratios(page)
    assert before == {"ingest ÷ bulk insert": 0.5, "export": 2.0}
    now = [result("ingest ÷ bulk insert", 0.36), result("export", 1.3), result("new", 0.1), result("store size", None)]
    assert results.worse(now, before) == ["export: ratio 1.3, 2 in results.md"]


def test_a_failure_is_a_missed_result_and_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("no | rows\nfor this")

    bench = run.Bench(tmp_path, 1, 1)
    good = result("good", 1.0)
    monkeypatch.setattr(bench, "sections", lambda: {"bad": broken, "good": lambda: bench.results.append(good)})
    bench.run((), None)
    failed, other = bench.results
    assert other is good
    assert (failed.name, failed.shown, failed.met) == ("bad", "failed: for this", False)
    assert math.isnan(failed.value)
    assert results.worse(bench.results, {"good": 1.0}) == ["bad: failed: for this"]


def test_a_multiplied_run_ends_as_long_after_its_last_task(tmp_path: Path) -> None:
    single, several = tmp_path / "single.duckdb", tmp_path / "several.duckdb"
    ingest([SAMPLES / "mini_resnet"], single)
    [(count, after)] = query(single, AFTER_TASKS)
    assert parts.multiply(str(single), str(several), str(count + 1)) == {"tasks": 2 * count}
    assert query(several, AFTER_TASKS) == [(2 * count, after)]


@pytest.mark.long
def test_the_measurements_run_on_small_inputs(tmp_path: Path) -> None:
    bench = run.Bench(tmp_path, 20_000, 1)
    bench.run(("start-up", "wire", "ingest", "reports", "exports", "small-files", "nsys"), None)
    assert not [one for one in bench.results if math.isnan(one.value)]
    assert {"ingest ÷ bulk insert", "export chrome", "what-if", "all reports, top 20"} <= {
        one.name for one in bench.results if one.ratio
    }
