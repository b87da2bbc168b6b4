"""What the Makefile names exists: its slowest targets are run too rarely to notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

_ROOT = Path(__file__).parents[2]
_TEXT = (_ROOT / "Makefile").read_text("utf-8")


def test_fuzz_targets_exist() -> None:
    assert set(re.findall(r"--target (\w+)", _TEXT)) <= TARGETS.keys()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"tests/[\w/]+\.py", _TEXT))))
def test_test_files_exist(path: str) -> None:
    assert (_ROOT / path).is_file()
