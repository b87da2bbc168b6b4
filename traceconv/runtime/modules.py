"""The modules of a model as ranges of the log: ops come one after another, and modules end and begin between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from traceconv.runtime.clock import HostThread
from traceconv.runtime.host import Host
from traceconv.runtime.inference import RangeLog
from traceconv.runtime.launch import Run


class Modules:
    """The modules of a model as a run passes them: on the channel, and with a lag on the worker."""

    def __init__(self, ranges: RangeLog, host: Host, run: Run) -> None:
        self._ranges = ranges
        self._host = host
        self._run = run
        self._path: tuple[str, ...] = ()
        self._open: dict[HostThread, list[int]] = {host.channel: [], host.worker: []}

    def enter(self, scopes: tuple[str, ...]) -> Callable[[], None] | None:
        """What comes next is in these modules, outermost first: others end. Returns what the worker has to do first.

        It is handed over with what comes next, since handing over takes longer than all else.
        """
        if scopes is self._path or scopes == self._path:
            return None
        same = 0
        for before, now in zip(self._path, scopes, strict=False):
            if before != now:
                break
            same += 1
        self._path = scopes
        self._go(self._host.channel, same, scopes)
        return partial(self._go, self._host.worker, same, scopes)

    def _go(self, thread: HostThread, keep: int, scopes: tuple[str, ...]) -> None:
        opened = self._open[thread]
        while len(opened) > keep:
            self._ranges.module_end(thread, opened.pop())
        for path in scopes[keep:]:
            parent = opened[-1] if opened else self._run.span_id
            opened.append(self._ranges.module(thread, path, parent, self._run.step_id))


def one_by_one(first: Callable[[], None], second: Callable[[], None]) -> None:
    """Both, in this order."""
    first()
    second()


def scopes_of(path: str | None) -> tuple[str, ...]:
    """`a/b` → (`a`, `a/b`)."""
    parts = [part for part in (path or "").split("/") if part]
    return tuple("/".join(parts[: count + 1]) for count in range(len(parts)))
