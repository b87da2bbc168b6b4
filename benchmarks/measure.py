"""Run a program and measure its time and peak memory.

The measuring process imports little, because a child's peak includes the memory of the process that forked it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = Path(sys.executable).with_name("traceconv")
#: A program for what the libraries alone take for two rows in a store.
ROWS_ALONE = """
import sys, duckdb, numpy, pyarrow
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO run (run_id, label) VALUES (2, 'b'); INSERT INTO task (run_id, id) VALUES (2, 1)")
connection.close()
"""
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class Measured:
    """Wall-clock seconds from start to exit, peak resident memory, output, and CPU seconds.

    Memory is that of the largest process, CPU time that of all that it has waited for.

    message_seconds  from start to the first line of stderr; None: there was none
    """

    seconds: float
    peak_bytes: int
    output: str
    cpu_seconds: float
    message_seconds: float | None = None


def run(command: Sequence[str | Path], accepted: Sequence[int] = (0,)) -> Measured:
    """Run a command. Raises RuntimeError with its stderr if its exit code is not in `accepted`."""
    begin = time.perf_counter()
    # Without cached bytecode every start would compile all modules again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as stdout:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=stdout, stderr=subprocess.PIPE, env=environment
        )
        assert process.stderr is not None
        with process.stderr as stderr:
            first = stderr.readline()
            message_seconds = time.perf_counter() - begin if first else None
            errors = (first + stderr.read()).decode()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        output = stdout.read().decode()
    if process.returncode not in accepted:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{errors}")
    return Measured(seconds, usage.ru_maxrss * 1024, output, usage.ru_utime + usage.ru_stime, message_seconds)


def traceconv(*arguments: str | Path, accepted: Sequence[int] = (0,)) -> Measured:
    """Run the installed program."""
    return run([_PROGRAM, *arguments], accepted)


def part(name: str, *arguments: str | Path) -> Any:
    """Run a function of benchmarks.parts in a new process; return its measurements."""
    return json.loads(run([sys.executable, "-m", "benchmarks.parts", name, *arguments]).output)


def drop_caches() -> bool:
    """Drop the file caches; False if that is not permitted."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
