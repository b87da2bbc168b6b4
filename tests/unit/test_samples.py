"""The sample captures are what their commands make, byte for byte, and small."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import runtime_invariants
import tomli
from runtime_reader import Capture

from traceconv.cli.app import run

FOLDER = Path(__file__).parents[2] / "sample_traces"
SAMPLES: list[dict[str, Any]] = tomli.loads((FOLDER / "MANIFEST.toml").read_text(encoding="utf-8"))["samples"]


def digests(folder: Path) -> dict[str, str]:
    import hashlib

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["folder"])
def test_the_files_are_those_of_the_manifest(sample: dict[str, Any]) -> None:
    assert digests(FOLDER / sample["folder"]) == sample["sha256"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["folder"])
def test_the_command_makes_the_same_bytes(
    sample: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(sample["command"])
    assert program == "traceconv"
    assert run(arguments) == 0
    made = digests(tmp_path / "sample_traces" / sample["folder"])
    assert made == sample["sha256"], "the runtime or the format has changed: python sample_traces/remake.py"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["folder"])
def test_a_sample_keeps_the_invariants(sample: dict[str, Any]) -> None:
    (folder,) = (FOLDER / sample["folder"]).iterdir()
    runtime_invariants.check(Capture(folder))


def test_samples_are_small() -> None:
    assert len(SAMPLES) >= 2
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 2_000_000
