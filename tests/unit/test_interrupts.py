"""Ctrl-C while something starts that has to be ended."""

from __future__ import annotations

import subprocess
import sys

from processes import heed_interrupts

#: Ctrl-C while another thread runs, which doesn't block it.
PROGRAM = """
import os, signal, threading, time
from traceconv.base.interrupts import interrupts_held
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
started = False
try:
    with interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        started = True
except KeyboardInterrupt:
    print(started, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_a_held_interrupt_is_raised_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    assert (done.stdout, done.returncode) == ("True True\n", 0)
