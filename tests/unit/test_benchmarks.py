"""The results of the benchmarks are written as a page, and a quick run is compared with it."""

from __future__ import annotations

from benchmarks import run


def result(name: str, ratio: float | None) -> run.Result:
    return run.Result(name, 1.0, "1 s", "≤ 2 s", True, ratio)


def test_ratios_that_are_clearly_worse_than_on_the_page_are_reported() -> None:
    full = [result("ingest ÷ bulk insert", 0.9)]
    page = run._markdown(full, [result("ingest ÷ bulk insert", 0.5), result("store size", None), result("export", 2.0)])
    assert "| ingest ÷ bulk insert | 1 s | ≤ 2 s | met |" in page
    before = run._ratios(page)
    assert before == {"ingest ÷ bulk insert": 0.5, "export": 2.0}
    now = [result("ingest ÷ bulk insert", 0.36), result("export", 1.3), result("new", 0.1), result("store size", None)]
    assert run.worse(now, before) == ["export: ratio 1.3, 2 in results.md"]
