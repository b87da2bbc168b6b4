"""What all tests share: properties are checked with the same examples each time, however slow the machine is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, database=None)
settings.load_profile("project")

# What is kept for the next time is kept beside the packages, and not with what the user keeps.
os.environ["TRACECONV_CACHE"] = str(Path(sys.prefix) / "traceconv-cache")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update` is for goldens whose difference was read and is meant."""
    parser.addoption("--update", action="store_true", help="rewrite the files in tests/golden/expected")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("x.json", text)`: the text is that of tests/golden/expected/x.json, which `pytest --update` rewrites."""

    def check(name: str, text: str) -> None:
        file = Path(__file__).parent / "golden" / "expected" / name
        if request.config.getoption("--update"):
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), "if this is meant: pytest --update, and read the diff"

    return check


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """`make_store(task=[{...}], op=[...])`: the path of a new store that holds these rows."""
    from store_builder import build_store

    def make(**rows: object) -> Path:
        return build_store(tmp_path / f"{len(list(tmp_path.iterdir()))}.duckdb", **rows)  # type: ignore[arg-type]

    return make
