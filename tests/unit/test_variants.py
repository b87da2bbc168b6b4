"""The table of tests with many variants names tests that exist."""

from __future__ import annotations

from pathlib import Path

from variants import KEPT

TESTS = Path(__file__).parents[1]


def test_they_exist() -> None:
    tests = [test.split("::") for test in KEPT]
    assert [test for test in tests if f"\ndef {test[1]}(" not in (TESTS / test[0]).read_text("utf-8")] == []
