"""Runs a program and says how long it took and how much memory it had at its peak.

The process that measures loads nothing: a child's peak counts the memory of the process that it was forked from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = Path(sys.executable).with_name("traceconv")
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class Measured:
    """Wall-clock seconds from start to exit, peak of resident memory, what was printed, and the processor's seconds."""

    seconds: float
    peak_bytes: int
    output: str
    cpu_seconds: float


def run(command: Sequence[str | Path], fine: Sequence[int] = (0,)) -> Measured:
    """Runs a command to its end. RuntimeError, with what it said, when its exit code is none of `fine`."""
    begin = time.perf_counter()
    # A machine may be set to keep no bytecode: every start would compile all modules anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    # What these programs print is far less than a pipe holds, so that waiting for them first can't block.
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stdout is not None
    assert process.stderr is not None
    output, said = process.stdout.read().decode(), process.stderr.read().decode()
    process.stdout.close()
    process.stderr.close()
    if process.returncode not in fine:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{said}")
    return Measured(seconds, usage.ru_maxrss * 1024, output, usage.ru_utime + usage.ru_stime)


def traceconv(*arguments: str | Path, fine: Sequence[int] = (0,)) -> Measured:
    """Runs the installed program, as a user does."""
    return run([_PROGRAM, *arguments], fine)


def part(name: str, *arguments: str | Path) -> Any:
    """Runs a function of benchmarks.parts in a process of its own; returns what it measured."""
    return json.loads(run([sys.executable, "-m", "benchmarks.parts", name, *arguments]).output)


def drop_caches() -> bool:
    """Makes the next read of every file come from the disk; False where that is not allowed."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
