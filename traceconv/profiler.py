"""`traceconv.profile(...)`: what a program does on the reference NPU, from a `with` block or a decorated function.

    with traceconv.profile(output="raw", aic_metrics="Memory") as p, traceconv.Session("resnet50") as session:
        with p.record("warm up"):
            session.run(inputs)
        session.run(inputs)
    for row in p.report("op-statistic", top=5):
        print(row["op_type"], row["total_ns"])

Each entry of the block, and each call of the function, is one profile: a capture of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from traceconv.errors import InputError, TraceconvError, UsageError, printable, suggestion
from traceconv.runtime.capture import Capture
from traceconv.runtime.live import PROCESS
from traceconv.runtime.profile_options import FORMATS, ProfileOptions, check_writable, parse_options
from traceconv.runtime.spans import span, wrap

if TYPE_CHECKING:
    import duckdb
    import pandas
    import pyarrow

    from traceconv.api import PathLike, Store

_F = TypeVar("_F", bound=Callable[..., object])

OUTPUT_VARIABLE = "TRACECONV_OUTPUT"
OPTIONS_VARIABLE = "TRACECONV_OPTIONS"
_EXPORTS = ("chrome", "memory-flow", "store")


class Profiler:
    """Takes profiles. Use it as a context manager, as a decorator, or by `start` and `stop`; see `profile`.

    `captures`: the folders of the profiles that have ended, the latest last.
    """

    def __init__(self, options: ProfileOptions) -> None:
        self.options = options
        self.captures: list[Path] = []
        self._active: list[Capture] = []
        self._temporary: Path | None = None
        self._finalizer: weakref.finalize[[Path, int], Profiler] | None = None
        self._opened: Store | None = None
        self._ingested = 0
        self._stores = 0

    # Taking profiles

    def __enter__(self) -> Profiler:
        self._begin(self.options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._active[-1], error)

    def __call__(self, function: _F) -> _F:
        """`function`, each call of which is one profile."""
        return wrap(function, lambda: _Entry(self))

    def start(self, level: int | None = None) -> None:
        """Begins a profile; `level` 1 (kernels only) or 2 instead of the one that was chosen before.

        Raises UsageError when one has begun already, OutputError when nothing can be written.
        """
        if self._active:
            raise UsageError("this profile has started already: stop it first")
        options = self.options
        if level is not None and level != options.level:
            resources = parse_options({"level": level}).resources
            options = replace(options, level=level, resources=resources)
        self._begin(options)

    def stop(self) -> None:
        """Ends the profile and writes its files. Raises UsageError when none has begun."""
        if not self._active:
            raise UsageError("this profile has not started")
        self._end(self._active[-1], None)

    def pause(self) -> None:
        """Nothing that happens until `resume` is in the log. Waits for runs that are under way.

        Spans that are open end in the log here, and begin again at the resume.
        """
        for capture in self._active:
            PROCESS.pause(capture)

    def resume(self) -> None:
        """What happens from now on is in the log again."""
        for capture in self._active:
            PROCESS.resume(capture)

    def record(self, name: str, **attributes: object) -> span:
        """A labelled range around a `with` block; also a decorator. The same as `traceconv.span`."""
        return span(name, **attributes)

    def step(self) -> None:
        """A step (iteration) begins: all runs until the next call, or the end of the profile, belong to it.

        Without a call each run is a step of its own.
        """
        if self._active:
            PROCESS.next_step()

    def _begin(self, options: ProfileOptions) -> Capture:
        made = check_writable(options)
        keeps = options.output is not None and "raw" in options.formats and options.file is None
        try:
            capture = PROCESS.begin(options, cast("Path", options.output) if keeps else self._folder() / "raw")
        except TraceconvError:
            with suppress(OSError):
                for folder in made:
                    folder.rmdir()  # only while it is empty
            raise
        self._active.append(capture)
        return capture

    def _end(self, capture: Capture, error: BaseException | None) -> None:
        self._active.remove(capture)
        if capture.closed:
            return  # the child of a fork leaves the block: the profile is the parent's
        try:
            PROCESS.end(capture, "end of the block" if error is None else f"{type(error).__name__}")
            self.captures.append(capture.folder)
            self._write_files(capture)
        except TraceconvError as failure:
            if error is None:
                raise
            # What ended the block is told first; this must not take its place.
            warnings.warn(f"the profile is incomplete: {failure}", RuntimeWarning, stacklevel=3)

    def _write_files(self, capture: Capture) -> None:
        options = capture.options
        for name in options.formats:
            if name != "raw" and options.output is not None:
                path = options.file or options.output / f"{capture.folder.name}{FORMATS[name]}"
                self.export(name, path)

    # Results

    @property
    def store(self) -> Store:
        """The profiles that have ended, as an open store. Raises UsageError when there is none."""
        from traceconv import api

        if not self.captures:
            raise UsageError("no profile has ended: its results are there after the block")
        if self._opened is None or self._ingested != len(self.captures):
            self._close_store()
            path = self._folder() / f"trace_{self._stores}.duckdb"
            api.ingest(*self.captures[self._ingested :], db=path)
            self._ingested = len(self.captures)
            self._opened = api.open_store(path)
        return self._opened

    def report(self, name: str, *, run: int | str | None = None, **options: object) -> Iterator[dict[str, object]]:
        """The rows of a report on the latest profile, as `Store.report` gives them: `p.report("op-statistic", top=5)`.

        A report that has no rows says why, and what to record to have some, as a UserWarning.
        """
        rows = self.store.report(name, run=run, **options)  # type: ignore[arg-type]  # passed on as they are
        return self._told_when_empty(name, run, rows)

    def _told_when_empty(
        self, name: str, run: int | str | None, rows: Iterator[dict[str, object]]
    ) -> Iterator[dict[str, object]]:
        from traceconv.reports import run as asking

        empty = True
        for row in rows:
            empty = False
            yield row
        if empty:
            report = asking.find_report(name)
            choice = asking.choose_run(self.store.connection, None if run is None else str(run))
            parameters = {} if choice.run_id is None else {"run": choice.run_id}
            question = asking.Question(report, parameters, report.columns, ())
            warnings.warn(asking.why_empty(self.store.connection, question), UserWarning, stacklevel=2)

    def arrow(self, source: str = "slice") -> pyarrow.Table:
        """A table, view or report of the latest profile, or the answer to a statement of SQL, as an Arrow table."""
        return self._relation(source).to_arrow_table()

    def df(self, source: str = "slice") -> pandas.DataFrame:
        """The same as a pandas data frame. Raises UsageError when pandas is not installed."""
        try:
            import pandas  # noqa: F401 - only to know whether it is there
        except ImportError as error:
            raise UsageError("df() needs pandas: pip install pandas; or use arrow()") from error
        return self._relation(source).df()

    def _relation(self, source: str) -> duckdb.DuckDBPyRelation:
        from traceconv.schema.ddl import quote_identifier

        store = self.store
        if len(source.split()) > 1:
            return store.query(source)
        name = source.replace("-", "_")
        known = [str(row[0]) for row in store.query("SELECT table_name FROM information_schema.tables").fetchall()]
        if name not in known:
            raise UsageError(f"no table or report '{printable(source, 60)}'.{suggestion(name, known)}")
        return store.query(f"FROM {quote_identifier(name)} WHERE run_id = (SELECT max(run_id) FROM run)")  # noqa: S608 - a known name

    def export(self, format: str, path: PathLike) -> None:
        """Writes the latest profile to a file: `chrome`, `memory-flow` or `store`, or their names in `formats`.

        Raises UsageError for another format, OutputError when the file can't be written.
        """
        from traceconv import api

        target = Path(path)
        name = {"chrome_timeline.json": "chrome", "memory_flow.svg": "memory-flow", "memory_flow": "memory-flow",
                "duckdb": "store"}.get(format, format)  # fmt: skip
        if name == "chrome":
            # A connection of its own: the exporter leaves tables of its own in it.
            with api.open_store(self.store.path) as store:
                store.export_chrome(target)
        elif name == "memory-flow":
            from traceconv.export.memory_flow import export_memory_flow

            with api.open_store(self.store.path) as store:
                [(run_id,)] = store.query("SELECT max(run_id) FROM run").fetchall()
                export_memory_flow(store.connection, run_id, target)
        elif name == "store":
            if not self.captures:
                raise UsageError("no profile has ended: its results are there after the block")
            api.ingest(self.captures[-1], db=target)
        else:
            raise UsageError(
                f"format '{printable(format, 60)}': unknown.{suggestion(format, list(_EXPORTS))} "
                f"All: {', '.join(_EXPORTS)}"
            )

    def get(self) -> dict[str, object]:
        """The latest profile as a Chrome trace in memory: `{"traceEvents": […], …}`. It stays until `clear`."""
        path = self._folder() / "get.json"
        self.dump(path)
        content: dict[str, object] = json.loads(path.read_text("utf-8"))
        path.unlink()
        return content

    def dump(self, path: PathLike) -> None:
        """Writes the latest profile to a file as a Chrome trace."""
        self.export("chrome", path)

    def clear(self) -> None:
        """Forgets the profiles that have ended. Files in `output` stay."""
        self._close_store()
        self.captures.clear()
        self._ingested = 0
        self._stores += 1
        if self._temporary is not None and not self._active:
            assert self._finalizer is not None
            self._finalizer()
            self._temporary = self._finalizer = None

    def _close_store(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _folder(self) -> Path:
        """A folder for what is not to stay."""
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="traceconv-"))
            self._finalizer = weakref.finalize(self, _remove, self._temporary, os.getpid())
        return self._temporary


class _Entry:
    """One call of a function that is profiled."""

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._capture: Capture | None = None

    def __enter__(self) -> _Entry:
        self._capture = self._profiler._begin(self._profiler.options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._capture is not None:
            self._profiler._end(self._capture, error)


def _remove(folder: Path, process_id: int) -> None:
    """Not in the child of a fork, whose parent still needs it."""
    if os.getpid() == process_id:
        shutil.rmtree(folder, ignore_errors=True)


def profile(
    output: PathLike | Callable[..., object] | None = None,
    *,
    path: PathLike | None = None,
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
) -> Profiler:
    """A profiler with these options; use it as `with profile(…) as p:` or `@profile(…)`.

    output, path    folder of the files, or the one file of a format; None: nothing stays but what `p` gives
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
    function = output if callable(output) else None
    given: dict[str, object] = {
        "output": None if function is not None else output, "path": path, "format": format, "formats": formats,
        "resource": resource, "level": level, "sample_rate": sample_rate, "profile_device": profile_device,
        "aic_metrics": aic_metrics, "training_trace": training_trace, "task_trace": task_trace,
        "fp_point": fp_point or None, "bp_point": bp_point or None,
    }  # fmt: skip
    profiler = Profiler(parse_options(given, profiling_options))
    if function is not None:
        # @profile without parentheses
        return cast("Profiler", profiler(function))
    return profiler


_started_here: int | None = None


def start_from_environment() -> None:
    """Profiles the rest of this process when TRACECONV_OUTPUT says where to; TRACECONV_OPTIONS says how.

    Raises UsageError and OutputError for what they say wrong. A forked child is not profiled.
    """
    global _started_here
    output = os.environ.get(OUTPUT_VARIABLE)
    if not output or _started_here is not None:
        return
    _started_here = os.getpid()
    said = os.environ.get(OPTIONS_VARIABLE) or None
    try:
        profiler = Profiler(parse_options({"output": output}, said))
        if set(profiler.options.formats) - {"raw"}:
            # What is written when the interpreter ends can't load what wants to be told of its end.
            import_module("concurrent.futures.thread")
            import pyarrow

            pyarrow.array([""])  # pandas too, which pyarrow loads where it is installed
        profiler._begin(profiler.options)
    except TraceconvError as error:
        raise type(error)(f"{OUTPUT_VARIABLE}, {OPTIONS_VARIABLE}: {error}") from error
    atexit.register(_end_at_exit, profiler)


def _end_at_exit(profiler: Profiler) -> None:
    if os.getpid() != _started_here:
        return
    for capture in list(profiler._active):
        try:
            profiler._end(capture, None)
        except (TraceconvError, InputError) as error:
            sys.stderr.write(f"traceconv: {error}\n")
