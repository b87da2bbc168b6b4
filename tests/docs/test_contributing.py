"""Each walk-through of CONTRIBUTING.md works in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKS = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.MULTILINE)[1:]

_BLOCK = re.compile(r"(?:^`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"# exit code (\d+)$")


def copy_of_the_package(folder: Path) -> None:
    shutil.copytree(ROOT / "traceconv", folder / "traceconv", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "schemas", folder / "schemas")
    shutil.copytree(ROOT / "sample_traces", folder / "sample_traces")
    # The installed package has the schemas at this path.
    (folder / "traceconv" / "schemas").symlink_to(folder / "schemas")


def patch(folder: Path, diff: str) -> Path:
    """Apply a diff whose hunks have no line numbers: the old lines of a hunk must be in the file exactly once."""
    name, *hunks = re.split(r"^@@\n", diff, flags=re.MULTILINE)
    file = folder / name.removeprefix("--- ").strip()
    text = file.read_text("utf-8")
    for hunk in hunks:
        kinds = [(line[:1], line[1:] + "\n") for line in hunk.splitlines()]
        before = "".join(line for kind, line in kinds if kind != "+")
        assert text.count(before) == 1, f"{file.name}: {before}"
        text = text.replace(before, "".join(line for kind, line in kinds if kind != "-"))
    file.write_text(text, "utf-8")
    return file


def sh(folder: Path, commands: str) -> str:
    """Run commands with the copy of the package; return the output of the last one."""
    program = f'#!/bin/sh\nexec "{sys.executable}" -m traceconv "$@"\n'
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "traceconv").write_text(program)
    (folder / "bin" / "traceconv").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    printed = ""
    for command in commands.splitlines():
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        code = _EXIT_CODE.search(command)
        assert done.returncode == (int(code[1]) if code else 0), f"{command}\n{done.stderr}"
        printed = done.stdout
    return printed


def edit(folder: Path, file: str, kind: str, content: str) -> Path | None:
    """Write or patch the file of a block; None for other blocks."""
    if file:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(content, "utf-8")
        return folder / file
    return patch(folder, content) if kind == "diff" else None


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.splitlines()[0])
def test_walk_through_works_as_written(walk: str, tmp_path: Path) -> None:
    copy_of_the_package(tmp_path)
    printed = None
    for file, kind, content in _BLOCK.findall(walk):
        if edit(tmp_path, file, kind, content) is not None:
            continue
        if kind == "sh":
            printed = sh(tmp_path, content)
        else:
            assert (kind, printed) == ("text", content)
    assert printed is not None


@pytest.mark.long
def test_code_of_the_walk_throughs_passes_the_type_check(tmp_path: Path) -> None:
    copy_of_the_package(tmp_path)
    edited = {edit(tmp_path, *block) for walk in WALKS for block in _BLOCK.findall(walk)}
    files = sorted(str(path.relative_to(tmp_path)) for path in edited if path is not None and path.suffix == ".py")
    assert len(files) > 5
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir=.mypy", *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
