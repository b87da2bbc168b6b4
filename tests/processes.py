"""Start and watch programs in tests with signals."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import pytest


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
