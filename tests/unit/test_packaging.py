"""Each package of the source tree is listed in pyproject.toml, since a wheel would lack it otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="runs from a checkout only")
def test_every_package_is_listed() -> None:
    listed = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in (ROOT / "traceconv").rglob("__init__.py")}
    assert sorted(listed) == sorted(found | {"traceconv.schemas"})
