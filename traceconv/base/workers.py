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
        future: Future[Result] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            future.set_exception(error)
        return future
