"""The threads of this process as logs number and name them; asyncio tasks with open spans have numbers of their own."""

from __future__ import annotations

import heapq
import itertools
import os
import sys
import threading
import weakref
from pathlib import Path

#: First number of threads without one from the operating system: those of sessions, and asyncio tasks with spans.
_FIRST_SESSION_THREAD = 1 << 31
FIRST_TASK_THREAD = 3 << 30


class Threads:
    """Numbers and names of threads."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, int]] = {}
        self._session_numbers = itertools.count(_FIRST_SESSION_THREAD)
        self._task_numbers = itertools.count(FIRST_TASK_THREAD)
        self.after_fork()

    def after_fork(self) -> None:
        """In the child of a fork: forget the parent's other threads and its tasks."""
        #: Reentrant: signal handlers and the garbage collector may begin and end spans at any point.
        self._lock = threading.RLock()
        self._local = threading.local()
        self._task_lanes: weakref.WeakKeyDictionary[object, list[int]] = weakref.WeakKeyDictionary()
        self._free_lanes: dict[int, list[int]] = {}
        self._task_counts = itertools.count(1)

    def current(self) -> int:
        """Return the number of this thread."""
        try:
            known: int = self._local.thread_id
            return known
        except AttributeError:
            found = self._local.thread_id = threading.get_native_id()
            self._names[found] = threading.current_thread().name, found & 0xFFFF
            if threading.current_thread() is threading.main_thread():
                self._names[found] = "channel", 0  # of the calls of the program, as in recordings
            return found

    def enter_lane(self) -> int:
        """Return the number that a span beginning here has: this thread's, or that of the current asyncio task."""
        task, thread_id = _current_task(), self.current()
        if task is None:
            return thread_id
        with self._lock:
            lane = self._task_lanes.get(task)
            if lane is None:
                try:
                    number = heapq.heappop(self._free_lanes.setdefault(thread_id, []))
                except IndexError:
                    number, count = next(self._task_numbers), next(self._task_counts)
                    self._names[number] = f"asyncio {count}", 1000 + count
                lane = self._task_lanes[task] = [number, 1, thread_id]
            else:
                lane[1] += 1
            return lane[0]

    def leave_lane(self) -> None:
        """End a span of the current asyncio task: after its last span, its number is free for another task."""
        task = _current_task()
        if task is None:
            return
        with self._lock:
            lane = self._task_lanes.get(task)
            if lane is None:
                return
            lane[1] -= 1
            if lane[1] <= 0 and self._task_lanes.pop(task, None) is not None:
                heapq.heappush(self._free_lanes.setdefault(lane[2], []), lane[0])

    def add(self, name: str, sort_index: int) -> int:
        """Name a thread of a session, which has no number from the operating system; return its number."""
        number = next(self._session_numbers)
        self._names[number] = name, sort_index
        return number

    def describe(self, thread_id: int) -> tuple[int, str, int, str, int]:
        """Return the process and its name, and the number, name and sort index of a thread."""
        name, sort_index = self._names.get(thread_id, (f"thread {thread_id}", 500))
        argv = getattr(sys, "argv", None) or [""]  # a program that embeds the interpreter may set anything
        program = argv[0] if isinstance(argv[0], str) and argv[0] not in ("", "-c", "-m") else "python"
        return os.getpid(), Path(program).name, thread_id, name, sort_index


def _current_task() -> object:
    """Return the current asyncio task; None without asyncio, or while another thread is still importing it."""
    asyncio = sys.modules.get("asyncio")
    running_loop = getattr(asyncio, "_get_running_loop", None)
    return None if asyncio is None or running_loop is None or running_loop() is None else asyncio.current_task()
