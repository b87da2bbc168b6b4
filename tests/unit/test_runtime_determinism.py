"""The same options produce the same bytes: in another process, with other hash seeds, threads and time zones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from processes import TRACECONV

SHARED = ["--warmup", "1", "--deterministic", "--seed", "9", "--devices", "2", "--truth"]
RUNS = ["mini_quantized", "-n", "3", "--streams", "3", "--aic-metrics", "Memory"]
#: With what draws, sums and exchanges: batches and their shifts, gradients, collectives, an optimizer's state.
TRAINING = ["mini_resnet", "--train", "--steps", "2", "--batch", "4", "--optimizer", "adam", "--prefetch"]


def made(folder: Path, words: list[str], **environment: str) -> dict[str, bytes]:
    folder.mkdir()
    subprocess.run(
        [*TRACECONV, "record", *words, *SHARED, "-o", "raw"],
        cwd=folder,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", [RUNS, TRAINING], ids=["runs", "training"])
def test_two_processes_write_the_same_bytes(tmp_path: Path, words: list[str]) -> None:
    one = made(tmp_path / "a", words, PYTHONHASHSEED="1", OMP_NUM_THREADS="1", TZ="Asia/Seoul", LC_ALL="C")
    two = made(tmp_path / "b", words, PYTHONHASHSEED="4242", OMP_NUM_THREADS="3", TZ="UTC")
    assert one == two
    assert any(path.endswith("truth.jsonl") for path in one) and any("/device_1/" in path for path in one)
