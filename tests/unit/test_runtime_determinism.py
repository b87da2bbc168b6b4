"""The same options, the same bytes: in another process, with other hash seeds, threads and time zones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = "import sys; from traceconv.cli.app import run; sys.exit(run(sys.argv[1:]))"
COMMAND = ["record", "mini_quantized", "-n", "3", "--warmup", "1", "--deterministic", "--seed", "9"]
MORE = ["--devices", "2", "--streams", "3", "--truth", "--aic-metrics", "Memory"]


def made(folder: Path, **environment: str) -> dict[str, bytes]:
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *COMMAND, *MORE, "-o", "raw"],
        cwd=folder,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    one = made(tmp_path / "a", PYTHONHASHSEED="1", OMP_NUM_THREADS="1", TZ="Asia/Seoul", LC_ALL="C")
    two = made(tmp_path / "b", PYTHONHASHSEED="4242", OMP_NUM_THREADS="3", TZ="UTC")
    assert one == two
    assert any(path.endswith("truth.jsonl") for path in one) and any("/device_1/" in path for path in one)
