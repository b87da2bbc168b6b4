"""How tests start programs whose signals matter."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For `preexec_fn`: an interrupt ends the program, also where whoever runs the tests ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
