"""A pool of threads that also works while the interpreter exits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Workers(ThreadPoolExecutor):
    """Threads that call functions. Functions that exit handlers submit are called at once, in the same thread.

    A profile that is open at the end of a program is written by an exit handler, when Python starts no more threads.
    """

    def submit(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Call `function` in a thread and return its future result."""
        if threading.main_thread().is_alive():
            return super().submit(function, *args, **kwargs)
        return _called(function, *args, **kwargs)


class AtOnce:
    """The same methods, without a thread: for little work, starting one takes longer."""

    def submit(
        self, function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Result]:
        """Call `function` and return its result."""
        return _called(function, *args, **kwargs)

    def shutdown(self, cancel_futures: bool = False) -> None:
        """Do nothing."""


def _called(
    function: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
        future.set_exception(error)
    return future


class WorkBehind:
    """Work that is done in order while its caller goes on, one call at a time: the next one waits for it."""

    def __init__(self, workers: Workers | None) -> None:
        """`workers`: None calls everything at once, in the same thread."""
        self._workers = workers
        self._running: Future[None] | None = None

    def submit(self, function: Callable[Arguments, None], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Call `function`, after the call before has ended. Raises what that raised."""
        self.wait()
        if self._workers is None:
            function(*args, **kwargs)
        else:
            self._running = self._workers.submit(function, *args, **kwargs)

    def wait(self) -> None:
        """Wait for the last call. Raises what it raised."""
        if self._running is not None:
            running, self._running = self._running, None
            running.result()
