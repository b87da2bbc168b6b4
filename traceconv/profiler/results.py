"""Reports, tables and files of profiles that have ended."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING

from traceconv.base.errors import StoreError, TraceconvError, UsageError, printable, suggestion
from traceconv.profiler.merge import merged
from traceconv.profiler.stream import move_into
from traceconv.profiler.temporary import TemporaryFiles
from traceconv.runtime.capture import Capture
from traceconv.runtime.profile_options import FORMAT_NAMES, FORMATS, ProfileOptions

if TYPE_CHECKING:
    import duckdb
    import pandas
    import pyarrow

    from traceconv.base.arguments import PathLike
    from traceconv.opened_store import Store
    from traceconv.reports.result import ReportRows

#: Format of a profile → target of an export.
_TARGETS = {"chrome_timeline.json": "chrome", "perfetto": "perfetto"}
_EXPORTS = ("chrome", "perfetto", "memory-flow", "store")


#: The view `slice` with its thread and inference. Tasks belong to the inference of their execution.
_SLICES = """(
  SELECT s.*, CASE WHEN t.kind = 'thread' THEN t.tid_text END AS thread_id,
         CASE WHEN t.kind = 'thread' THEN t.name END AS thread_name, coalesce(r.trace_id, e.trace_id) AS trace_id
  FROM slice AS s
  LEFT JOIN track AS t ON t.run_id = s.run_id AND t.track_id = s.track_id
  LEFT JOIN "range" AS r ON s.table_name = 'range' AND r.run_id = s.run_id AND r.id = s.id
  LEFT JOIN task AS k ON s.table_name = 'task' AND k.run_id = s.run_id AND k.id = s.id
  LEFT JOIN "range" AS e ON e.kind = 'execution' AND e.run_id = k.run_id AND e.correlation_id = k.execution_id
  ORDER BY s.run_id, s.start_ns, s.id)"""


class ProfileResults:
    """The profiles of a profiler that have ended."""

    def __init__(self, start: Path, stream: IO[str] | IO[bytes] | None) -> None:
        self._lock = threading.RLock()
        self._temporary = TemporaryFiles(start)
        self._stream = stream
        self._captures: list[Path] = []
        #: Locked while results are read, which may take long.
        self._reading = threading.RLock()
        self._opened: Store | None = None
        self._ingested = 0
        self._clears = 0

    @property
    def captures(self) -> list[Path]:
        """The captures of the profiles that have ended, in that order."""
        self._temporary.unread.clear()
        return list(self._captures)

    @property
    def store(self) -> Store:
        """An open store with the profiles that have ended. Raises UsageError if none has."""
        from traceconv import api

        with self._reading:
            captures = self._ended()
            if self._opened is None or self._ingested != len(captures):
                self._close_store()
                path = self._temporary.folder() / f"trace_{self._clears}.duckdb"
                api.ingest(*captures[self._ingested :], db=path)
                self._ingested = len(captures)
                self._opened = api.open_store(path)
            return self._opened

    def report(self, name: str, *, run: int | str | None = None, **options: object) -> ReportRows:
        """Return the rows of a report on the latest profile, like `Store.report`: `p.report("op-statistic", top=5)`.

        Later profiles don't change them; `clear` invalidates them. If there are no rows, a UserWarning gives the reason
        and what to record.
        """
        with self._reading:
            clears = self._clears
            rows = self.store.report(name, run=run, **options)  # type: ignore[arg-type]  # checked there

        @contextmanager
        def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
            with ExitStack() as stack:
                with self._reading:
                    if self._clears != clears:
                        raise StoreError(f"{rows.name}: its profiles were cleared")
                    found = stack.enter_context(self.store._cursor())
                yield found

        return rows.of_profiles(cursor)

    def arrow(self, source: str = "slice") -> pyarrow.Table:
        """Return a table, view or report of the latest profile, or the result of an SQL query, as an Arrow table.

        The slices, which are the default, also have `thread_id`, `thread_name` and the `trace_id` of their inference.
        """
        from traceconv.schema.ddl import quote_identifier

        store = self.store
        if len(source.split()) > 1:
            return store.query(source).to_arrow_table()
        name = source.replace("-", "_")
        known = [str(row[0]) for row in store.query("SELECT table_name FROM information_schema.tables").fetchall()]
        if name not in known:
            raise UsageError(f"no table or report '{printable(source, 60)}'.{suggestion(name, known)}")
        rows = _SLICES if name == "slice" else quote_identifier(name)
        latest = f"FROM {rows} WHERE run_id IN (SELECT max(run_id) FROM run)"  # noqa: S608 - a known name
        return store.query(latest).to_arrow_table()

    def df(self, source: str = "slice") -> pandas.DataFrame:
        """Return the same as a pandas data frame. Raises UsageError if pandas is not installed."""
        from traceconv.reports.result import arrow_to_pandas

        return arrow_to_pandas(self.arrow(source))

    def export(self, format: str, path: PathLike) -> None:
        """Write the latest profile to a file. `format`: `chrome`, `perfetto`, `memory-flow`, `store`, or their names in
        `formats`.

        Raises UsageError for another format, OutputError if the file can't be written.
        """
        name = FORMAT_NAMES.get(format, "raw")
        if name == "raw":
            near = suggestion(format, list(_EXPORTS))
            raise UsageError(f"format '{printable(format, 60)}': unknown.{near} All: {', '.join(_EXPORTS)}")
        self._export(name, Path(path), self._ended()[-1])

    def get(self) -> dict[str, object]:
        """Return all profiles since the last `clear` as one Chrome trace in memory: `{"traceEvents": […], …}`."""

        def traces() -> Iterator[dict[str, object]]:
            path = self._temporary.folder() / "get.json"
            for folder in self._ended():
                self._export("chrome_timeline.json", path, folder)
                yield json.loads(path.read_text("utf-8"))
                path.unlink()

        return merged(traces())

    def dump(self, filename: PathLike) -> None:
        """Write what `get` returns to a file."""
        if len(self._ended()) == 1:
            self.export("chrome", filename)
            return
        from traceconv.export.output import open_output

        with open_output(Path(filename)) as file:
            file.write(json.dumps(self.get(), ensure_ascii=False).encode())

    def _ended(self) -> list[Path]:
        captures = self.captures
        if not captures:
            raise UsageError("no profile has ended: results are available after the block")
        return captures

    def _export(self, name: str, target: Path, folder: Path) -> None:
        """Write any one profile. `name`: a key of `FORMATS`."""
        from traceconv import api

        if name == "store":
            api.ingest(folder, db=target)
            return
        # A separate connection, as the exporter leaves tables in it.
        with self._reading, api.open_store(self.store.path) as store:
            if name in _TARGETS:
                store.export(_TARGETS[name], target, run=folder.name)
            else:
                from traceconv.export.memory_flow import export_memory_flow
                from traceconv.reports.run_choice import one_run

                run_id, _ = one_run(store.connection, folder.name, name)
                export_memory_flow(store.connection, run_id, target, may_be_empty=True)

    def _add(self, capture: Capture, *, at_exit: bool) -> None:
        """Add a profile that has ended, and write its files."""
        with self._lock:
            self._captures.append(capture.folder)
        if capture.options.output is None and self._stream is None:
            if "raw" in capture.options.formats:
                self._temporary.unread.append(capture.folder)
        else:
            self._write_files(capture, at_exit=at_exit)

    def _write_files(self, capture: Capture, *, at_exit: bool) -> None:
        options, folder = capture.options, capture.folder
        try:
            for name in options.formats:
                if self._stream is not None:
                    path = self._temporary.folder() / f"stream{FORMATS[name]}"
                    self._export(name, path, folder)
                    move_into(self._stream, path)
                elif name != "raw":
                    assert options.output is not None
                    self._export(name, options.file or options.output / f"{folder.name}{FORMATS[name]}", folder)
        except TraceconvError as error:
            if options.output is None:
                self._temporary.unread.append(folder)
            raise type(error)(f"{error}; the log is in {printable(str(folder))}") from error
        if options.output is None or (options.file is None and "raw" in options.formats):
            return
        if at_exit:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._make_temporary(folder)
        if options.file is not None:
            with suppress(OSError):
                folder.parent.rmdir()  # fails while another profile of that file is being taken

    def _make_temporary(self, folder: Path) -> None:
        """Move a log that is not an output to the temporary files, for reports; keep it if it can't be moved."""
        logs = self._temporary.folder() / "raw"
        with suppress(OSError):
            logs.mkdir(exist_ok=True)
            moved = Path(shutil.move(folder, logs / folder.name))
            with self._lock:
                self._captures = [moved if one == folder else one for one in self._captures]

    def _forget(self) -> None:
        self._close_store()
        self._captures.clear()
        self._ingested = 0
        self._clears += 1
        self._temporary.unread.clear()

    def _close_store(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def load_writers(options: ProfileOptions) -> None:
    """Import the modules that write files: some register exit handlers, which fails while the interpreter exits."""
    if not set(options.formats) - {"raw"}:
        return
    try:
        import_module("concurrent.futures.thread")
    except RuntimeError:
        return  # the main thread has ended; if the file can't be written, the log is kept
    import pyarrow

    pyarrow.array([""])  # pyarrow imports pandas here, if it is installed
