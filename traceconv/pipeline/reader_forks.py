"""Start reading processes: a process without threads imports what they need, once, and forks each of them.

It doesn't fork the process of the ingest, which has threads, and may be the user's own program. It gets messages on a
socket: 0 with the descriptors of a new process, or the ID of a process to end, which it answers with the exit code.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from traceconv.base.errors import is_command_line
from traceconv.base.interrupts import interrupts_held
from traceconv.base.quick_imports import make_imports_quick
from traceconv.base.temporary_folder import temporary_folder
from traceconv.normalize import memory_budget

PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from traceconv.base.malloc_tuning import limit_arenas; limit_arenas(); "
    "from traceconv.pipeline.reader_forks import main; main({modules!r}, {entries!r}, {command_line!r})"
)
_NUMBER = struct.Struct("<q")
#: More descriptors than a process has.
_MOST_DESCRIPTORS = 16
_SECONDS_TO_END = 5


class ForkServer:
    """The process that forks others. It ends, with all of them, when it is closed, or when this process ends."""

    def __init__(self, modules: Sequence[str], entries: int) -> None:
        """`modules`: what to import first. `entries`: the memory budget of a process. Raises OSError."""
        self._socket, other = socket.socketpair()
        program = PROGRAM.format(path=sys.path, modules=list(modules), entries=entries, command_line=is_command_line())
        try:
            with other, interrupts_held():
                self._program = subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=other.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except BaseException:
            self._socket.close()
            raise

    def start(self, descriptors: Sequence[int]) -> None:
        """Start a process with a socket and spill files. If that fails, the other end of its socket is closed."""
        with suppress(OSError):  # it has ended
            socket.send_fds(self._socket, [_NUMBER.pack(0)], descriptors)

    def end(self, pid: int) -> int | None:
        """End a process if it still runs; return its exit code, or minus the signal, or None if that is unknown."""
        try:
            self._socket.sendall(_NUMBER.pack(pid))
            answer = self._socket.recv(_NUMBER.size)
        except OSError:
            return None
        return int(_NUMBER.unpack(answer)[0]) if len(answer) == _NUMBER.size else None

    def close(self) -> None:
        """End all processes."""
        self._socket.close()
        try:
            self._program.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()


def main(modules: Sequence[str], entries: int, command_line: bool) -> None:
    """Fork and end processes for the messages on standard input, a socket, until it is closed."""
    control = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    gc.set_threshold(150_000)  # as on the command line
    memory_budget.MEMORY_ENTRIES = entries
    if command_line:
        make_imports_quick()
    import pyarrow as pa

    from traceconv.pipeline.reader_process import read_orders

    for name in modules:
        importlib.import_module(name)
    pa.array([0])  # loads what pyarrow loads at its first use
    gc.freeze()
    with temporary_folder() as folder:  # for files of processes that are killed
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        _serve(control, partial(read_orders, command_line=command_line))


def _serve(control: socket.socket, read: Callable[[int, Sequence[int]], None]) -> None:
    running: set[int] = set()
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, _NUMBER.size, _MOST_DESCRIPTORS)
            if len(message) < _NUMBER.size:
                return
            [pid] = _NUMBER.unpack(message)
            if pid:
                control.sendall(_NUMBER.pack(_end(pid) if pid in running else 0))
                running.discard(pid)
                continue
            pid = _fork()
            if pid == 0:
                try:
                    control.close()
                    read(descriptors[0], descriptors[1:])
                finally:
                    os._exit(1)
            for descriptor in descriptors:
                os.close(descriptor)
            if pid is not None:
                os.setpgid(pid, pid)  # with the programs that it starts
                running.add(pid)
    finally:
        for pid in running:
            _end(pid)


def _fork() -> int | None:
    """Fork; return None if that fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of threads: Arrow's allocator has one, which is not used
        try:
            return os.fork()
        except OSError:
            return None


def _end(pid: int) -> int:
    """Kill a child and what it started; return its exit code, which is that of before if it had ended."""
    with suppress(OSError):  # nothing else runs
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
