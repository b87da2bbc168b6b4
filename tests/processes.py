"""Start and watch programs in tests with signals."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pytest

#: The command, however it is installed.
TRACECONV = [sys.executable, "-m", "traceconv"]


def heed_interrupts() -> None:
    """For `preexec_fn`: an interrupt ends the program, also where whoever runs the tests ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Waits until something is true of what a program does; the test fails when the program ends, or takes a minute."""
    until = time.monotonic() + 60
    while not condition():
        try:
            process.wait(0.005)
        except subprocess.TimeoutExpired:
            if time.monotonic() < until:
                continue
            process.kill()
        pytest.fail(f"the program never came so far: {process.communicate()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def in_terminal(command: Sequence[str], *, width: int = 80, env: Mapping[str, str] | None = None) -> str:
    """Run a command in a terminal of this width; return what it shows, without styles."""
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **(env or {})}
    environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    shown = b""
    with subprocess.Popen(command, stdin=program, stdout=program, stderr=program, env=environment):
        os.close(program)
        with suppress(OSError):  # the end, on Linux
            while chunk := os.read(terminal, 1 << 16):
                shown += chunk
    os.close(terminal)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
