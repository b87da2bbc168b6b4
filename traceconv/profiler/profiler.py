"""`Profiler`: takes profiles, each from an entry to its exit."""

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
from traceconv.profiler.temporary import new_folder, say
from traceconv.runtime.capture import Capture
from traceconv.runtime.live import PROCESS
from traceconv.runtime.profile_options import ProfileOptions, check_formats, check_writable, parse_options
from traceconv.runtime.spans import span, wrap

if TYPE_CHECKING:
    from traceconv.api import PathLike

_F = TypeVar("_F", bound=Callable[..., object])

#: How long the end of the program waits for daemon threads that are ending a profile.
_EXIT_WAIT_S = 10

#: Numbers of the profiles that enclose the running code, in its thread and its asyncio task.
_AROUND: ContextVar[tuple[int, ...]] = ContextVar("traceconv_profiles", default=())
_numbers = itertools.count(1)
#: Open profiles by number; the interpreter's exit ends them.
_running: dict[int, Profiler] = {}
_profilers: weakref.WeakSet[Profiler] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A profile that is being taken, and the code that entered it: the id of its frame and what runs there.

    As a context manager it is one call of a function.
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

    output, path    folder of the files, or the single file of a format. None: for a decorated function, a new folder
                    `traceconv-<time>`, named on stderr; otherwise nothing is kept, but a log that nobody has read
                    moves to such a folder when the profiler is deleted
    file            the single file of a format: its path, or a file object that is open for writing, which gets a
                    Chrome trace if no format is named
    format(s)       files to write when a profile ends: raw, chrome_timeline.json, memory_flow.svg, store; default:
                    raw. A data frame needs none: p.df()
    resource        what to record: host, inferences, operators, npu, pmu, memory, or all, cpu, device
    level           1: kernels only; 2 (the default): kernels and host execution
    sample_rate     sample the memory in use every N ops; 0: every 100 µs of device time
    profile_device  False: nothing of the device
    aic_metrics     group of hardware counters, such as PipeUtilization or Memory; "off": none
    training_trace  False: no steps;  task_trace  False: no tasks; also "on" and "off", as Ascend writes them
    fp_point        op at whose start the forward part of a step begins; bp_point: at whose end its backward part ends
    profiling_options  the same options as a JSON text, a JSON file or a mapping

    Raises UsageError for a wrong option; OutputError, before anything runs, when `output` can't be written.
    """

    def __new__(cls, output: PathLike | Callable[..., object] | None = None, **options: object) -> Profiler:
        if not _is_function(output):
            return super().__new__(cls)
        # @profile without parentheses
        return cast("Profiler", cls(**options)(cast("Callable[..., object]", output)))  # type: ignore[arg-type]  # passed on as they are

    def __init__(
        self,
        output: PathLike | Callable[..., object] | None = None,
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
        profiling_options: str | os.PathLike[str] | Mapping[str, object] | None = None,
    ) -> None:
        given: dict[str, object] = {
            "output": output, "path": path, "format": format, "formats": formats, "resource": resource, "level": level,
            "sample_rate": sample_rate, "profile_device": profile_device, "aic_metrics": aic_metrics,
            "training_trace": training_trace, "task_trace": task_trace, "fp_point": fp_point or None,
            "bp_point": bp_point or None,
        }  # fmt: skip
        # Relative paths are relative to the current folder, wherever the program goes later.
        start = _current_folder()
        stream = None if isinstance(file, (str, os.PathLike)) else file
        if file is not None:
            if output is not None or path is not None:
                raise UsageError("output and file mean the same: give one")
            given["output"] = "stream.json" if stream is not None else file
        self.options = parse_options(given, profiling_options).below(start)
        if stream is not None:
            self.options = stream_options(stream, self.options, start)
        elif file is not None and self.options.file is None:
            raise UsageError(f"file {printable(str(file))}: its name must end in .json, .json.gz, .svg or .duckdb")
        super().__init__(start, stream)
        self._open: dict[int, _Entry] = {}
        self._started: int | None = None
        #: Number of profiles that some thread is ending; the end of the program waits for daemon threads there.
        self._ending = 0
        self._ending_changed = threading.Condition(self._lock)
        self._ended_at_exit = False
        self._function_folder: Path | None = None
        # At exit only after the profiles that end then.
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
        """`function`, each call of which is one profile; its attribute `profiler` is this profiler."""
        name = getattr(function, "__qualname__", type(function).__name__)
        wrapped = wrap(function, lambda: self._begin(self.options, function=name))
        # Callers of a static or class method see its function.
        setattr(getattr(wrapped, "__func__", wrapped), "profiler", self)  # noqa: B010 - functions take any attribute
        return wrapped

    def start(self, level: int | None = None, *, prof_level: int | None = None) -> None:
        """Begin a profile.

        level       1 (kernels only) or 2; None: as in the profiler's options
        prof_level  the same, as RAF names it

        Raises UsageError when one was started already, OutputError when nothing can be written.
        """
        if level is not None and prof_level is not None:
            raise UsageError("level and prof_level mean the same: give one")
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
        """End the profile that `start` began, and write its files. Raises UsageError when none has begun."""
        with self._lock:
            entry = self._take(self._started)
            if entry is None and not self._ended_at_exit:
                raise UsageError("this profile has not started")
            self._started = None
        if entry is not None:
            self._end(entry, None)

    def pause(self) -> None:
        """Log nothing until `resume`. Waits for runs that are under way.

        Open spans end in the log here and begin again at the resume. If several threads or asyncio tasks have entered
        this profiler, the profiles around the caller pause; called from outside of all, all pause.
        """
        for entry in self._around():
            PROCESS.pause(entry.capture)

    def resume(self) -> None:
        """Log again, in the profiles that `pause` would pause."""
        for entry in self._around():
            PROCESS.resume(entry.capture)

    def record(self, name: str, **attributes: object) -> span:
        """A labelled range around a `with` block; also a decorator. The same as `traceconv.span`."""
        return span(name, **attributes)

    def step(self) -> None:
        """Begin a step (iteration) to which all runs belong until the next call or the end of the profile.

        Without a call each run is a step of its own.
        """
        if self._open:
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
            raise UsageError("a file object takes only one profile: give a path to write a file for each")
        if options.output is None and "raw" in options.formats and function is not None:
            options = replace(options, output=self._folder_of(function))
        made = check_writable(options)
        # Next to the requested files, the log can be found even if the program is killed.
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
        """Where profiles of a function go if no output is given: the same folder for all calls."""
        with self._lock:
            if self._function_folder is None:
                self._function_folder = new_folder(self._temporary.start)
                say(f"profiles of {printable(function, 80)} go to {printable(str(self._function_folder))}")
            return self._function_folder

    def _take(self, number: int | None) -> _Entry | None:
        """Take an open profile, which the caller then has to end; None: another caller has taken it."""
        with self._lock:
            entry = self._open.pop(number or 0, None)
            self._ending += entry is not None
            _running.pop(number or 0, None)
            return entry

    def _leave(self, frame: FrameType) -> _Entry | None:
        """Take the profile whose block the code in `frame` leaves; None: the end of the program has taken it.

        A `with` statement enters and leaves in one frame, in a generator or coroutine too. Without such a statement,
        as with an ExitStack, it is the latest profile of this thread or task, or else of all.
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

    def _around(self) -> list[_Entry]:
        """The profiles around the caller and the one that `start` began; all, if there is none."""
        with self._lock:
            around = {*_AROUND.get(), self._started}
            entries = list(self._open.values())
            return [entry for entry in entries if entry.number in around] or entries

    def _end(self, entry: _Entry, error: BaseException | None, *, at_exit: bool = False) -> None:
        try:
            if not entry.capture.closed:  # as its parent's is in a forked child that leaves the block
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
            # The error that ended the block must not be replaced.
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
            say(str(error))
        except (ImportError, RuntimeError) as error:
            # Threads can't be started any more, and modules that need some can't be imported.
            say(
                f"can't write files at this stage of the exit ({error}); "
                f"the log is in {printable(str(entry.capture.folder))}"
            )

    def _clean_up_at_exit(self) -> None:
        if self._temporary.are_own:
            with self._lock:
                self._ending_changed.wait_for(lambda: not self._ending, _EXIT_WAIT_S)
            self._temporary.remove()


#: The same, by the name that decorators and blocks use.
profile = Profiler


def log_folder(file: Path) -> Path:
    """Where the log is until a profile with a single file has ended."""
    return file.with_name(f"{file.name}.raw")


def _is_function(value: object) -> bool:
    """Whether it can be decorated; if not, it is a path."""
    return not isinstance(value, (str, os.PathLike)) and (callable(value) or isinstance(value, classmethod))


def _current_folder() -> Path:
    """The current folder; if it was removed, relative paths stay relative."""
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
