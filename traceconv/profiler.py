"""`traceconv.profile(...)`: what a program does on the reference NPU, from a `with` block or a decorated function.

    with traceconv.profile(output="raw", aic_metrics="Memory") as p, traceconv.Session("resnet50") as session:
        with p.record("warm up"):
            session.run(inputs)
        session.run(inputs)
    for row in p.report("op-statistic", top=5):
        print(row["op_type"], row["total_ns"])

Each entry of the block, and each call of the function, is one profile: a capture of its own. One profiler may be
entered many times at once, nested or by several threads and asyncio tasks: each exit ends the profile of its entry.
"""

from __future__ import annotations

import atexit
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import IO, TYPE_CHECKING, TypeVar, cast

from traceconv.base.errors import OutputError, StoreError, TraceconvError, UsageError, printable, suggestion
from traceconv.runtime.capture import Capture
from traceconv.runtime.live import PROCESS
from traceconv.runtime.profile_options import FORMATS, ProfileOptions, check_formats, check_writable, parse_options
from traceconv.runtime.spans import span, wrap

if TYPE_CHECKING:
    import duckdb
    import pandas
    import pyarrow

    from traceconv.api import PathLike, Store
    from traceconv.reports.result import ReportRows

_F = TypeVar("_F", bound=Callable[..., object])

OUTPUT_VARIABLE = "TRACECONV_OUTPUT"
OPTIONS_VARIABLE = "TRACECONV_OPTIONS"
#: Number of the first process that wrote to the output: those that it starts inherit it.
PROCESS_VARIABLE = "TRACECONV_PROCESS"
#: So long the end of the program waits for a daemon thread, which may itself wait for something.
_EXIT_WAIT_S = 10
_EXPORTS = ("chrome", "memory-flow", "store")


#: Numbers of the profiles that were begun around the code that runs, in its thread and its asyncio task.
_AROUND: ContextVar[tuple[int, ...]] = ContextVar("traceconv_profiles", default=())
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A profile that is being taken, and the code that entered it: the number of its frame, and what runs there."""

    number: int
    capture: Capture
    frame: int = 0
    code: CodeType | None = None


@dataclass(slots=True)
class _Leftovers:
    """What is there besides the files that were asked for, and goes when the profiler does.

    folder    holds what is not to stay: logs of profiles without an output, the store that reports are read from
    unread    logs in it that nobody has asked for: they are kept after all, below `start`
    """

    start: Path
    process_id: int
    folder: Path | None = None
    unread: list[Path] = field(default_factory=list)


class Profiler:
    """Takes profiles. Use it as a context manager, as a decorator, or by `start` and `stop`.

    output, path    folder of the files, or the one file of a format. None: of a decorated function, a new folder
                    `traceconv-<time>`, named on stderr; else nothing stays but what is asked of the profiler, and
                    when nothing was asked the log is kept in such a folder when the profiler goes
    file            the one file of a format by its path, or a file object that is open for writing, which gets a
                    Chrome trace where no format is named
    format(s)       files to write when a profile ends: raw, chrome_timeline.json, memory_flow.svg, store; raw when
                    none is named. For a data frame none is needed: p.df()
    resource        what to record: host, inferences, operators, npu, pmu, memory, or all, cpu, device
    level           1: kernels only; 2 (as without): kernels and host execution
    sample_rate     memory in use is sampled every so many ops; 0: every 100 µs of the device's time
    profile_device  False: nothing of the device
    aic_metrics     group of hardware counters, such as PipeUtilization or Memory; "off": none
    training_trace  False: no steps;  task_trace  False: no tasks; "on" and "off" as Ascend writes them do too
    fp_point        op at whose start the forward part of a step begins; bp_point: at whose end its backward part ends
    profiling_options  the same as a JSON text, a JSON file or a mapping, in the same words

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
        # A relative path is meant from here, wherever the program goes later.
        start = _current_folder()
        self._stream = None if isinstance(file, (str, os.PathLike)) else file
        if file is not None:
            if output is not None or path is not None:
                raise UsageError("output and file mean the same: give one")
            given["output"] = "stream.json" if self._stream is not None else file
        self.options = parse_options(given, profiling_options).below(start)
        if self._stream is not None:
            self.options = _of_stream(self._stream, self.options, start)
        elif file is not None and self.options.file is None:
            raise UsageError(f"file {printable(str(file))}: end its name in .json, .json.gz, .svg or .duckdb")
        self._lock = threading.RLock()
        self._results_lock = threading.RLock()
        self._captures: list[Path] = []
        self._open: dict[int, _Entry] = {}
        self._started: int | None = None
        #: Profiles that some thread is ending; the end of the program waits for daemon threads there.
        self._ending = 0
        self._ending_changed = threading.Condition(self._lock)
        self._ended_at_exit = False
        self._default: Path | None = None
        self._leftovers = _Leftovers(start, os.getpid())
        weakref.finalize(self, _put_away, self._leftovers).atexit = False  # but after profiles that end then
        _profilers.add(self)
        self._opened: Store | None = None
        self._ingested = 0
        self._stores = 0

    @property
    def captures(self) -> list[Path]:
        """The folders of the profiles that have ended, the latest last."""
        self._leftovers.unread.clear()
        return list(self._captures)

    # Taking profiles

    def __enter__(self) -> Profiler:
        self._begin(self.options, frame=sys._getframe(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = self._leave(sys._getframe(1))
        if entry is not None:
            self._end(entry, error)

    def __call__(self, function: _F) -> _F:
        """`function`, each call of which is one profile; its attribute `profiler` is this profiler."""
        name = getattr(function, "__qualname__", type(function).__name__)
        wrapped = wrap(function, lambda: _Call(self, name))
        # The function of a static or class method is what a caller gets to see.
        setattr(getattr(wrapped, "__func__", wrapped), "profiler", self)  # noqa: B010 - functions take any attribute
        return wrapped

    def start(self, level: int | None = None, *, prof_level: int | None = None) -> None:
        """Begins a profile; `level` 1 (kernels only) or 2 instead of the one that was chosen before.

        prof_level  the same as level, as RAF names it

        Raises UsageError when one was started already, OutputError when nothing can be written.
        """
        if level is not None and prof_level is not None:
            raise UsageError("level and prof_level mean the same: give one")
        level = prof_level if level is None else level
        options = self.options
        if level is not None and level != options.level:
            resources = parse_options({"level": level}).resources
            options = replace(options, level=level, resources=resources)
            check_formats(options)
        with self._lock:
            if self._started is not None:
                raise UsageError("this profile has started already: stop it first")
            self._started = number = next(_numbers)
        _load_what_files_need(options)  # it may end with the program
        try:
            self._begin(options, number=number)
        except BaseException:
            self._started = None
            raise

    def stop(self) -> None:
        """Ends the profile that `start` began, and writes its files. Raises UsageError when none has begun."""
        with self._lock:
            entry = self._take(self._started)
            if entry is None and not self._ended_at_exit:
                raise UsageError("this profile has not started")
            self._started = None
        if entry is not None:
            self._end(entry, None)

    def pause(self) -> None:
        """Nothing that happens until `resume` is in the log. Waits for runs that are under way.

        Spans that are open end in the log here, and begin again at the resume. Where several threads or asyncio tasks
        have entered this profiler it is the profiles around the caller that pause; from outside of all, all do.
        """
        for entry in self._around():
            PROCESS.pause(entry.capture)

    def resume(self) -> None:
        """What happens from now on is in the log again: of the profiles that `pause` would pause."""
        for entry in self._around():
            PROCESS.resume(entry.capture)

    def record(self, name: str, **attributes: object) -> span:
        """A labelled range around a `with` block; also a decorator. The same as `traceconv.span`."""
        return span(name, **attributes)

    def step(self) -> None:
        """A step (iteration) begins: all runs until the next call, or the end of the profile, belong to it.

        Without a call each run is a step of its own.
        """
        if self._open:
            PROCESS.next_step()

    def _begin(
        self,
        options: ProfileOptions,
        *,
        number: int | None = None,
        frame: FrameType | None = None,
        of_function: str | None = None,
    ) -> _Entry:
        if self._stream is not None and (self._open or self._captures):
            raise UsageError("a file object takes one profile: give a path to write a file for each")
        if options.output is None and "raw" in options.formats and of_function is not None:
            options = replace(options, output=self._default_folder(of_function))
        made = check_writable(options)
        try:
            capture = PROCESS.begin(options, self._log_parent(options))
        except TraceconvError:
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()  # only while it is empty
            raise
        number = next(_numbers) if number is None else number
        entry = _Entry(number, capture) if frame is None else _Entry(number, capture, id(frame), frame.f_code)
        with self._lock:
            self._open[number] = entry
            _running[number] = self
        _AROUND.set((*(one for one in _AROUND.get() if one in _running), number))
        return entry

    def _take(self, number: int | None) -> _Entry | None:
        """A profile that is open, which the caller then has to end; None: another has done so."""
        with self._lock:
            entry = self._open.pop(number or 0, None)
            self._ending += entry is not None
            _running.pop(number or 0, None)
            return entry

    def _log_parent(self, options: ProfileOptions) -> Path:
        """Where the log goes: whatever ends the program, it is found beside the files that were asked for."""
        if options.output is None:
            return self._folder() / "raw"
        return options.output if options.file is None else options.file.with_name(f"{options.file.name}.raw")

    def _leave(self, frame: FrameType) -> _Entry | None:
        """The profile whose block is left by code in `frame`: no longer open. None: the program's end has ended it.

        A `with` statement enters and leaves in one frame, in a generator or coroutine too, whoever runs it. Where
        there is no such statement, as with an ExitStack, it is the latest one of this thread or task, or else of all.
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
        """The profiles around the caller, and the one that `start` began; where there is none, all."""
        with self._lock:
            around = {*_AROUND.get(), self._started}
            every = list(self._open.values())
            return [entry for entry in every if entry.number in around] or every

    def _end(self, entry: _Entry, error: BaseException | None, *, at_exit: bool = False) -> None:
        try:
            if not entry.capture.closed:  # but of the parent, where the child of a fork leaves the block
                self._finish(entry.capture, error, at_exit=at_exit)
        finally:
            with self._lock:
                self._ending -= 1
                self._ending_changed.notify_all()

    def _finish(self, capture: Capture, error: BaseException | None, *, at_exit: bool) -> None:
        try:
            PROCESS.end(capture, "end of the block" if error is None else f"{type(error).__name__}")
            with self._lock:
                self._captures.append(capture.folder)
            if capture.options.output is None and self._stream is None:
                if "raw" in capture.options.formats:
                    self._leftovers.unread.append(capture.folder)
            else:
                self._write_files(capture, at_exit=at_exit)
        except TraceconvError as failure:
            if error is None:
                raise
            # What ended the block is told first; this must not take its place.
            warnings.warn(f"the profile is incomplete: {failure}", RuntimeWarning, stacklevel=4)
        except BaseException:
            if capture.options.output is None:
                self._leftovers.unread.append(capture.folder)  # what a signal's handler has interrupted
            raise

    def _write_files(self, capture: Capture, *, at_exit: bool) -> None:
        options, folder = capture.options, capture.folder
        try:
            for name in options.formats:
                if self._stream is not None:
                    path = self._folder() / f"stream{FORMATS[name]}"
                    self._export(name, path, folder)
                    _copy_into(self._stream, path)
                elif name != "raw":
                    assert options.output is not None
                    self._export(name, options.file or options.output / f"{folder.name}{FORMATS[name]}", folder)
        except TraceconvError as error:
            if options.output is None:
                self._leftovers.unread.append(folder)
            raise type(error)(f"{error}; the log is in {printable(str(folder))}") from error
        if options.output is None or (options.file is None and "raw" in options.formats):
            return
        if at_exit:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._set_aside(folder)
        if options.file is not None:
            with suppress(OSError):
                folder.parent.rmdir()  # unless another profile of that file is being taken

    def _set_aside(self, folder: Path) -> None:
        """A log that nobody wants as a file: reports still read it. It stays where it is when it can't be moved."""
        place = self._folder() / "raw"
        with suppress(OSError):
            place.mkdir(exist_ok=True)
            moved = Path(shutil.move(folder, place / folder.name))
            with self._lock:
                self._captures = [moved if one == folder else one for one in self._captures]

    # Results

    @property
    def store(self) -> Store:
        """The profiles that have ended, as an open store. Raises UsageError when there is none."""
        from traceconv import api

        with self._results_lock:
            captures = self.captures
            if not captures:
                raise UsageError("no profile has ended: its results are there after the block")
            if self._opened is None or self._ingested != len(captures):
                self._close_store()
                path = self._folder() / f"trace_{self._stores}.duckdb"
                api.ingest(*captures[self._ingested :], db=path)
                self._ingested = len(captures)
                self._opened = api.open_store(path)
            return self._opened

    def report(self, name: str, *, run: int | str | None = None, **options: object) -> ReportRows:
        """The rows of a report on the latest profile, as `Store.report` gives them: `p.report("op-statistic", top=5)`.

        They stay those of that profile when another is taken, until `clear`. Where there are none, reading them says
        why, and what to record to have some, as a UserWarning.
        """
        with self._results_lock:
            number = self._stores
            rows = self.store.report(name, run=run, **options)  # type: ignore[arg-type]  # passed on as they are

        @contextmanager
        def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
            with ExitStack() as stack:
                with self._results_lock:
                    if self._stores != number:
                        raise StoreError(f"{rows.name}: its profiles were cleared")
                    found = stack.enter_context(self.store._cursor())
                yield found

        return rows.of_profiles(cursor)

    def arrow(self, source: str = "slice") -> pyarrow.Table:
        """A table, view or report of the latest profile, or the answer to a statement of SQL, as an Arrow table."""
        return self._relation(source).to_arrow_table()

    def df(self, source: str = "slice") -> pandas.DataFrame:
        """The same as a pandas data frame. Raises UsageError when pandas is not installed."""
        from traceconv.reports.result import arrow_to_pandas

        return arrow_to_pandas(self.arrow(source))

    def _relation(self, source: str) -> duckdb.DuckDBPyRelation:
        from traceconv.schema.ddl import quote_identifier

        store = self.store
        if len(source.split()) > 1:
            return store.query(source)
        name = source.replace("-", "_")
        known = [str(row[0]) for row in store.query("SELECT table_name FROM information_schema.tables").fetchall()]
        if name not in known:
            raise UsageError(f"no table or report '{printable(source, 60)}'.{suggestion(name, known)}")
        return store.query(f"FROM {quote_identifier(name)} WHERE run_id IN (SELECT max(run_id) FROM run)")  # noqa: S608 - a known name

    def export(self, format: str, path: PathLike) -> None:
        """Writes the latest profile to a file: `chrome`, `memory-flow` or `store`, or their names in `formats`.

        Raises UsageError for another format, OutputError when the file can't be written.
        """
        name = {"chrome_timeline.json": "chrome", "memory_flow.svg": "memory-flow", "memory_flow": "memory-flow",
                "duckdb": "store"}.get(format, format)  # fmt: skip
        if name not in _EXPORTS:
            raise UsageError(
                f"format '{printable(format, 60)}': unknown.{suggestion(format, list(_EXPORTS))} "
                f"All: {', '.join(_EXPORTS)}"
            )
        captures = self.captures
        if not captures:
            raise UsageError("no profile has ended: its results are there after the block")
        self._export(name, Path(path), captures[-1])

    def _export(self, name: str, target: Path, folder: Path) -> None:
        """Writes the profile of one log: others may have ended meanwhile."""
        from traceconv import api

        if name == "store":
            api.ingest(folder, db=target)
            return
        # A connection of its own: the exporter leaves tables of its own in it.
        with self._results_lock, api.open_store(self.store.path) as store:
            if name in ("chrome", "chrome_timeline.json"):
                store.export_chrome(target, run=folder.name)
            else:
                from traceconv.export.memory_flow import export_memory_flow
                from traceconv.reports.run import one_run

                run_id, _ = one_run(store.connection, folder.name, name)
                export_memory_flow(store.connection, run_id, target, may_be_empty=True)

    def get(self) -> dict[str, object]:
        """The latest profile as a Chrome trace in memory: `{"traceEvents": […], …}`. It stays until `clear`."""
        path = self._folder() / "get.json"
        self.dump(path)
        content: dict[str, object] = json.loads(path.read_text("utf-8"))
        path.unlink()
        return content

    def dump(self, filename: PathLike) -> None:
        """Writes the latest profile to a file as a Chrome trace."""
        self.export("chrome", filename)

    def clear(self) -> None:
        """Forgets the profiles that have ended. Files in `output` stay."""
        with self._results_lock, self._lock:
            self._close_store()
            self._captures.clear()
            self._ingested = 0
            self._stores += 1
            self._leftovers.unread.clear()
            if not self._open:
                _put_away(self._leftovers)

    def _close_store(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _leave_nothing(self) -> None:
        """The program ends: once no daemon thread is ending a profile, what is not to stay is removed."""
        if os.getpid() == self._leftovers.process_id:
            with self._lock:
                self._ending_changed.wait_for(lambda: not self._ending, _EXIT_WAIT_S)
            _put_away(self._leftovers)

    def _folder(self) -> Path:
        """A folder for what is not to stay."""
        with self._lock:
            if self._leftovers.folder is None:
                self._leftovers.folder = Path(tempfile.mkdtemp(prefix="traceconv-"))
            return self._leftovers.folder

    def _default_folder(self, function: str) -> Path:
        """Where profiles of a function go when nothing says where to; the same folder for all its calls."""
        with self._lock:
            if self._default is None:
                self._default = _new_folder(self._leftovers.start)
                _say(f"profiles of {printable(function, 80)} go to {printable(str(self._default))}")
            return self._default


#: The same by the name that decorators and blocks use.
profile = Profiler


class _Call:
    """One call of a function that is profiled."""

    def __init__(self, profiler: Profiler, name: str) -> None:
        self._profiler = profiler
        self._name = name
        self._entry: _Entry | None = None

    def __enter__(self) -> _Call:
        self._entry = self._profiler._begin(self._profiler.options, of_function=self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entry = None if self._entry is None else self._profiler._take(self._entry.number)
        if entry is not None:
            self._profiler._end(entry, error)


def _is_function(value: object) -> bool:
    """Whether it is something to decorate, and no path."""
    return not isinstance(value, (str, os.PathLike)) and (callable(value) or isinstance(value, classmethod))


def _of_stream(stream: IO[str] | IO[bytes], options: ProfileOptions, start: Path) -> ProfileOptions:
    """Options of a profile that goes into a file object; where that is a file, the log is beside it meanwhile."""
    try:
        if not stream.writable():
            raise OutputError("file: it is not open for writing")
    except (AttributeError, ValueError) as error:
        raise OutputError(f"file: give a path or a file object that is open for writing ({error})") from error
    name = getattr(stream, "name", None)
    file = start / name if isinstance(name, str) and (start / name).is_file() else None
    return replace(options, output=None if file is None else file.parent, file=file)


def _copy_into(stream: IO[str] | IO[bytes], path: Path) -> None:
    """Writes the content of a file as the stream takes it: as text or as bytes."""
    binary = isinstance(stream, (io.RawIOBase, io.BufferedIOBase)) or "b" in str(getattr(stream, "mode", ""))
    content = path.read_bytes()
    path.unlink()
    try:
        stream.write(content if binary else content.decode("utf-8"))  # type: ignore[arg-type]  # as asked just now
        stream.flush()
    except (OSError, ValueError) as error:
        raise OutputError(f"can't write to the file object: {error}") from error


def _put_away(leftovers: _Leftovers) -> None:
    """Removes what is not to stay; logs that nobody has read are kept, and where is said."""
    folder, unread = leftovers.folder, [path for path in leftovers.unread if path.exists()]
    if folder is None or os.getpid() != leftovers.process_id:
        return  # a child of a fork: its parent still needs it
    leftovers.folder = None
    leftovers.unread.clear()
    if unread:
        count = "a profile" if len(unread) == 1 else f"{len(unread)} profiles"
        try:
            kept = _new_folder(leftovers.start)
            for path in unread:
                shutil.move(path, kept / path.name)
        except (OSError, OutputError) as error:
            _say(f"nothing was asked of {count}, left in {printable(str(folder))}: {printable(str(error))}")
            return
        _say(f"nothing was asked of {count}: kept in {printable(str(kept))}")
    shutil.rmtree(folder, ignore_errors=True)


def _new_folder(parent: Path) -> Path:
    """A folder named after the time, which no other process has. Raises OutputError."""
    name = time.strftime("traceconv-%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            shown = printable(str(folder))
            raise OutputError(f"can't write {shown}: {error.strerror or error}; give an output") from error
        return folder
    raise AssertionError("unreachable: numbers never end")


def _say(text: str) -> None:
    """A line on stderr, where there is one."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"traceconv: {text}\n")


def _current_folder() -> Path:
    """The current folder; where it was removed, relative paths stay as they are."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


#: Profiles that are open, by number: they are ended at the latest when the interpreter is.
_running: dict[int, Profiler] = {}
_profilers: weakref.WeakSet[Profiler] = weakref.WeakSet()
_environment_lock = threading.Lock()
_environment_read = False


def start_from_environment(started_in: str | None = None) -> None:
    """Profiles the rest of this process when TRACECONV_OUTPUT says where to; TRACECONV_OPTIONS says how.

    started_in  the folder that relative paths are meant from; None: the current one

    Raises UsageError and OutputError for what they say wrong. A forked child is not profiled.
    """
    global _environment_read
    output = os.environ.get(OUTPUT_VARIABLE)
    with _environment_lock:
        if not output or _environment_read:
            return
        _environment_read = True
    start = Path(started_in) if started_in is not None else _current_folder()
    said = os.environ.get(OPTIONS_VARIABLE) or None
    if said is not None and not said.lstrip().startswith("{"):
        said = str(start / said)
    try:
        profiler = Profiler(start / output, profiling_options=said)
        profiler.options = _of_this_process(profiler.options)
        _load_what_files_need(profiler.options)
        entry = profiler._begin(profiler.options)
    except TraceconvError as error:
        raise type(error)(f"{OUTPUT_VARIABLE}, {OPTIONS_VARIABLE}: {error}") from error
    file = profiler.options.file
    if file is not None:
        # A process that is killed can't say where its log is.
        log = printable(str(entry.capture.folder.parent))
        _say(f"{printable(str(file))} is written when the program ends; until then its log is in {log}")


def _of_this_process(options: ProfileOptions) -> ProfileOptions:
    """A file is the first process's; what that starts writes files of its own, with the process's number."""
    first = os.environ.setdefault(PROCESS_VARIABLE, str(os.getpid()))
    if options.file is None or first == str(os.getpid()):
        return options
    stem, dot, rest = options.file.name.partition(".")
    return replace(options, file=options.file.with_name(f"{stem}.{os.getpid()}{dot}{rest}"))


def _load_what_files_need(options: ProfileOptions) -> None:
    """What is written when the interpreter ends can't load what wants to be told of its end."""
    if not set(options.formats) - {"raw"}:
        return
    try:
        import_module("concurrent.futures.thread")
    except RuntimeError:
        return  # the main thread has ended: the log stays when the file can't be written
    import pyarrow

    pyarrow.array([""])  # pandas too, which pyarrow loads where it is installed


def _end_at_exit() -> None:
    for number, profiler in list(_running.items()):
        profiler._ended_at_exit = True
        entry = profiler._take(number)
        if entry is None:
            continue
        try:
            profiler._end(entry, None, at_exit=True)
        except TraceconvError as error:
            _say(str(error))
        except (ImportError, RuntimeError) as error:
            # Threads can't be made any more, nor what needs some be loaded.
            _say(f"no file can be written so late ({error}); the log is in {printable(str(entry.capture.folder))}")
    for profiler in list(_profilers):
        profiler._leave_nothing()


atexit.register(_end_at_exit)
