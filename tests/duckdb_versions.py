"""The DuckDB shells, and the package of the oldest DuckDB, that `make` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHELLS = Path(os.environ.get("TRACECONV_SHELLS") or ROOT / ".shells")
OLDEST_PACKAGE = SHELLS / "oldest-package"
MAGICS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"MZ")


def find_shell(version: str) -> Path | None:
    """Find the executable: its folder differs between packages, which may also have a script with the same name."""
    for place in ("duckdb_cli/duckdb", "bin/duckdb"):
        path = SHELLS / version / place
        if path.is_file() and path.open("rb").read(4).startswith(MAGICS):
            return path
    return None


def runnable_shell(version: str, folder: Path) -> Path:
    """Return an executable shell, copied to `folder` if necessary; skip the test without one."""
    found = find_shell(version)
    if found is None:
        pytest.skip(f"no duckdb shell in {SHELLS / version}: make test installs it")
    # Some packages install it without execute permission.
    if not os.access(found, os.X_OK):
        found = Path(shutil.copy(found, folder / "duckdb"))
        found.chmod(0o755)
    return found


def python_of(package: Path | None, *arguments: object, standard_input: str = "") -> str:
    """Run a Python program with DuckDB from a folder (None: the installed one); return its output."""
    if package is not None and not (package / "duckdb").is_dir():
        pytest.skip(f"no duckdb package in {package}: make test installs it")
    paths = [*([str(package)] if package else []), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, input=standard_input, capture_output=True, text=True, timeout=300, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
