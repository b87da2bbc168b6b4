"""`Profiler`: takes profiles from its entries to their exits."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, TYPE_CHECKING, TypeVar, cast

from traceconv.base.errors import TraceconvError, UsageError, printable
from traceconv.profiler.results import ProfileResults, load_writers
from traceconv.profiler.stream import stream_options
from traceconv.profiler.temporary import new_folder, print_stderr
from traceconv.runtime.capture import Capture
from traceconv.runtime.live import PROCESS
from traceconv.runtime.profile_options import ProfileOptions, check_formats, check_writable, parse_options
from traceconv.runtime.spans import span, wrap

if TYPE_CHECKING:
    from traceconv.base.arguments import PathLike

_F = TypeVar("_F", bound=Callable[..., object])

#: Maximum time that the exit of the program waits for daemon threads that are ending a profile.
_EXIT_WAIT_S = 10

#: Numbers of the profiles that are open around the running code, in its thread or asyncio task.
_AROUND: ContextVar[tuple[int, ...]] = ContextVar("traceconv_profiles", default=())
_numbers = itertools.count(1)
#: Profilers of open profiles by number; the interpreter's exit ends them.
_running: dict[int, Profiler] = {}
_profilers: weakref.WeakSet[Profiler] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _Entry:
    """An open profile, and the code that entered it: the id of its frame, and the frame's code.

    As a context manager, one call of a function.
    """

    profiler: Profiler
    number: int
    capture: Capture
    frame: int = 0
    code: CodeType | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.profiler._take(self.number) is not None:
            self.profiler._end(self, error)


class Profiler(ProfileResults):
    """Takes profiles. Use it as a context manager, as a decorator, or with `start` and `stop`.

    output, path    folder of the files, or the single file of a format, such as t.pftrace, by its path or as a file
                    object. None: for a decorated function, a new folder `traceconv-<time>`, reported on stderr;
                    otherwise nothing is kept except unread logs, which are moved to such a folder when the profiler is
                    deleted
    file            the single file of a format: its path, or a file object that is open for writing, by default for a
                    Chrome trace
    format(s)       files to write when a profile ends: raw, chrome_timeline.json, perfetto, memory_flow.svg, store;
                    default: raw. A data frame needs none: p.df()
    resource        what to record: host, inferences, operators, npu, pmu, memory, or all, cpu, device
    level           1: kernels only; 2 (the default): kernels and host execution
    sample_rate     sample the memory in use every N ops; 0: every 100 µs of device time
    profile_device  False: record nothing on the device
    aic_metrics     group of hardware counters, such as PipeUtilization or Memory; "off": none
    training_trace  False: no steps;  task_trace  False: no tasks; also "on" and "off", as in Ascend's options
    fp_point        op that starts the forward part of a step;  bp_point  op that ends its backward part
    clock           "virtual" (the default): the host's clock stops while kernels are emulated, as if the device were
                    real; "wall": it goes on, and ranges `emulation` show that time. For programs with other threads
    profiling_options  the same options as a JSON string, a JSON file or a mapping

    Raises UsageError for a wrong option, and OutputError, before anything runs, if `output` can't be written.
    """

    def __new__(
        cls, output: PathLike | IO[str] | IO[bytes] | Callable[..., object] | None = None, **options: object
    ) -> Profiler:
        if not _is_function(output):
            return super().__new__(cls)
        # @profile without parentheses
        return cast("Profiler", cls(**options)(cast("Callable[..., object]", output)))  # type: ignore[arg-type]  # checked there

    def __init__(
        self,
        output: PathLike | IO[str] | IO[bytes] | Callable[..., object] | None = None,
        *,
        path: PathLike | None = None,
        file: PathLike | IO[str] | IO[bytes] | None = None,
        format: str | None = None,
        formats: object = None,
        resource: object = None,
        level: int | None = None,
        sample_rate: int | None = None,
        profile_device: bool | None = None,
        aic_metrics: str | None = None,
        training_trace: bool | str | None = None,
        task_trace: bool | str | None = None,
        fp_point: str | None = None,
        bp_point: str | None = None,
        clock: str | None = None,
        profiling_options: str | os.PathLike[str] | Mapping[str, object] | None = None,
    ) -> None:
        given: dict[str, object] = {
            "output": output, "path": path, "format": format, "formats": formats, "resource": resource, "level": level,
            "sample_rate": sample_rate, "profile_device": profile_device, "aic_metrics": aic_metrics,
            "training_trace": training_trace, "task_trace": task_trace, "fp_point": fp_point or None,
            "bp_point": bp_point or None, "clock": clock,
        }  # fmt: skip
        # Relative paths stay relative to the current folder if the program changes it later.
        start = _current_folder()
        if file is None and hasattr(output, "write"):
            file, given["output"] = cast("IO[str] | IO[bytes]", output), None
            output = None
        stream = None if isinstance(file, (str, os.PathLike)) else file
        if file is not None:
            if output is not None or path is not None:
                raise UsageError("output and file mean the same: give only one")
            given["output"] = "stream.json" if stream is not None else file
        self.options = parse_options(given, profiling_options).below(start)
        if stream is not None:
            self.options = stream_options(stream, self.options, start)
        elif file is not None and self.options.file is None:
            raise UsageError(
                f"file {printable(str(file))}: its name must end in .json, .json.gz, .pftrace, .svg or .duckdb"
            )
        super().__init__(start, stream)
        self._open: dict[int, _Entry] = {}
        self._started: int | None = None
        #: Number of profiles that are being ended; the exit of the program waits for daemon threads that do.
        self._ending = 0
        self._ending_changed = threading.Condition(self._lock)
        self._ended_at_exit = False
        self._function_folder: Path | None = None
        # At exit, `_clean_up_at_exit` removes them after the last profiles have ended.
        weakref.finalize(self, self._temporary.remove).atexit = False
        _profilers.add(self)

    def __enter__(self) -> Profiler:
        self._begin(self.options, frame=sys._getframe(1))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        entry = self._leave(sys._getframe(1))
        if entry is not None:
            self._end(entry, error)

    def __call__(self, function: _F) -> _F:
        """Wrap a function: each call is one profile. Its attribute `profiler` is this profiler."""
        name = getattr(function, "__qualname__", type(function).__name__)
        wrapped = wrap(function, lambda: self._begin(self.options, function=name))
        # For a static or class method, the attribute belongs on its function.
        setattr(getattr(wrapped, "__func__", wrapped), "profiler", self)  # noqa: B010 - functions take any attribute
        return wrapped

    def start(self, level: int | None = None, *, prof_level: int | None = None) -> None:
        """Begin a profile.

        level       1 (kernels only) or 2; None: the profiler's level
        prof_level  RAF's name for `level`

        Raises UsageError if one has started already, OutputError if the output can't be written.
        """
        if level is not None and prof_level is not None:
            raise UsageError("level and prof_level mean the same: give only one")
        level = prof_level if level is None else level
        options = self.options
        if level is not None and level != options.level:
            options = replace(options, level=level, resources=parse_options({"level": level}).resources)
            check_formats(options)
        with self._lock:
            if self._started is not None:
                raise UsageError("this profile has started already: stop it first")
            self._started = number = next(_numbers)
        load_writers(options)  # the profile may end with the program
        try:
            self._begin(options, number=number)
        except BaseException:
            self._started = None
            raise

    def stop(self) -> None:
        """End the profile that `start` began, and write its files. Raises UsageError if none has started."""
        with self._lock:
            entry = self._take(self._started)
            if entry is None and not self._ended_at_exit:
                raise UsageError("this profile has not started")
            self._started = None
        if entry is not None:
            self._end(entry, None)

    def pause(self) -> None:
        """Log nothing until `resume`. Waits for running inferences.

        Open spans end in the log here and begin again at `resume`. If several threads or asyncio tasks have entered
        this profiler, the profiles around the caller are paused; if there are none, all are.
        """
        for entry in self._around("pause"):
            PROCESS.pause(entry.capture)

    def resume(self) -> None:
        """Resume logging in the profiles that `pause` would pause."""
        for entry in self._around("resume"):
            PROCESS.resume(entry.capture)

    def record(self, name: str, **attributes: object) -> span:
        """Label a `with` block or a function with a span, like `traceconv.span`."""
        return span(name, **attributes)

    def step(self) -> None:
        """Begin a step (iteration), which includes all runs until the next call or the end of the profile.

        Without a call, each run is a separate step.
        """
        if self._around("step"):
            PROCESS.next_step()

    def clear(self) -> None:
        """Forget the profiles that have ended. Files in `output` stay."""
        with self._reading, self._lock:
            self._forget()
            if not self._open:
                self._temporary.remove()

    def _begin(
        self,
        options: ProfileOptions,
        *,
        number: int | None = None,
        frame: FrameType | None = None,
        function: str | None = None,
    ) -> _Entry:
        if self._stream is not None and (self._open or self._captures):
            raise UsageError("a file object takes only one profile: to write a file for each, give a path")
        if options.output is None and "raw" in options.formats and function is not None:
            options = replace(options, output=self._folder_of(function))
        made = check_writable(options)
        # Next to the output, so that the log can be found if the program is killed.
        logs = options.output or self._temporary.folder() / "raw"
        try:
            capture = PROCESS.begin(options, logs if options.file is None else log_folder(options.file))
        except TraceconvError:
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()  # only while it is empty
            raise
        number = next(_numbers) if number is None else number
        entered = () if frame is None else (id(frame), frame.f_code)
        entry = _Entry(self, number, capture, *entered)
        with self._lock:
            self._open[number] = entry
            _running[number] = self
        _AROUND.set((*(one for one in _AROUND.get() if one in _running), number))
        return entry

    def _folder_of(self, function: str) -> Path:
        """Return the folder for all profiles of a function without an output."""
        with self._lock:
            if self._function_folder is None:
                self._function_folder = new_folder(self._temporary.start)
                print_stderr(f"profiles of {printable(function, 80)} go to {printable(str(self._function_folder))}")
            return self._function_folder

    def _take(self, number: int | None) -> _Entry | None:
        """Remove an open profile, for the caller to end; None: another caller has removed it."""
        with self._lock:
            entry = self._open.pop(number or 0, None)
            self._ending += entry is not None
            _running.pop(number or 0, None)
            return entry

    def _leave(self, frame: FrameType) -> _Entry | None:
        """Remove the profile whose block the code in `frame` leaves; None: the exit of the program has removed it.

        A `with` statement enters and leaves in the same frame, even in a generator or coroutine. Otherwise, as with an
        ExitStack, it is the latest profile of this thread or task, or else of all.
        """
        around = _AROUND.get()

        def nearness(entry: _Entry) -> tuple[bool, bool, bool, int]:
            code, leaving = entry.code, frame.f_code
            same_frame = entry.frame == id(frame) and code is leaving
            same_file = code is not None and code.co_filename == leaving.co_filename
            return same_frame, entry.number in around, same_file, entry.number

        with self._lock:
            entries = [entry for entry in self._open.values() if entry.number != self._started]
            entry = self._take(max(entries, key=nearness).number) if entries else None
        if entry is None and not self._ended_at_exit:
            raise UsageError("this profile has not started")
        return entry

    def _around(self, caller: str) -> list[_Entry]:
        """Return the profiles around the caller and the one that `start` began; if there are none, all.

        If none is open at all, issues a RuntimeWarning.
        """
        with self._lock:
            around = {*_AROUND.get(), self._started}
            entries = list(self._open.values())
        if not entries:
            text = f"{caller} has no effect: no profile of this profiler is open; call it in the block, or after start"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return [entry for entry in entries if entry.number in around] or entries

    def _end(self, entry: _Entry, error: BaseException | None, *, at_exit: bool = False) -> None:
        try:
            if not entry.capture.closed:  # a forked child closes its parent's captures
                self._finish(entry.capture, error, at_exit=at_exit)
        finally:
            with self._lock:
                self._ending -= 1
                self._ending_changed.notify_all()

    def _finish(self, capture: Capture, error: BaseException | None, *, at_exit: bool) -> None:
        try:
            PROCESS.end(capture, "end of the block" if error is None else f"{type(error).__name__}")
            self._add(capture, at_exit=at_exit)
        except TraceconvError as failure:
            if error is None:
                raise
            # Don't replace the error that ended the block.
            warnings.warn(f"the profile is incomplete: {failure}", RuntimeWarning, stacklevel=4)
        except BaseException:
            if capture.options.output is None:
                self._temporary.unread.append(capture.folder)  # a signal handler has raised
            raise

    def _end_at_exit(self, number: int) -> None:
        self._ended_at_exit = True
        if (entry := self._take(number)) is None:
            return
        try:
            self._end(entry, None, at_exit=True)
        except TraceconvError as error:
            print_stderr(str(error))
        except (ImportError, RuntimeError) as error:
            # The interpreter can't start threads here, or import modules that do.
            print_stderr(
                f"can't write files at this stage of the exit ({error}); "
                f"the log is in {printable(str(entry.capture.folder))}"
            )

    def _clean_up_at_exit(self) -> None:
        if self._temporary.are_own:
            with self._lock:
                self._ending_changed.wait_for(lambda: not self._ending, _EXIT_WAIT_S)
            self._temporary.remove()


#: The name for decorators and blocks.
profile = Profiler


def log_folder(file: Path) -> Path:
    """Return the folder of the log until a profile with a single file has ended."""
    return file.with_name(f"{file.name}.raw")


def _is_function(value: object) -> bool:
    """Whether a value can be decorated; if not, it is a path."""
    return not isinstance(value, (str, os.PathLike)) and (callable(value) or isinstance(value, classmethod))


def _current_folder() -> Path:
    """Return the current folder; if it has been removed, an empty path."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


@atexit.register
def _end_all() -> None:
    for number, profiler in list(_running.items()):
        profiler._end_at_exit(number)
    for profiler in list(_profilers):
        profiler._clean_up_at_exit()
