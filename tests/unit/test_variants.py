"""The table of tests with many variants names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from variants import KEPT

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("test", KEPT)
def test_it_exists_and_has_variants(test: str) -> None:
    file, _, name = test.partition("::")
    before, found, _ = (TESTS / file).read_text("utf-8").partition(f"\ndef {name}(")
    assert found
    assert "parametrize" in before or "params=" in before
