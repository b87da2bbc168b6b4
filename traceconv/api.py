"""The public Python API: functions for the commands, with the same names for options.

    import traceconv

    capture = traceconv.record("resnet50", "raw")
    traceconv.ingest("raw", db="trace.duckdb")
    with traceconv.open_store("trace.duckdb") as store:
        for row in store.report("op-statistic", top=10):
            print(row["op_type"], row["total_ns"])
        table = store.query("FROM task WHERE kind = 'copy'").to_arrow_table()
        store.export_chrome("trace.json")
        store.label_runs(1, "baseline")

Times are signed 64-bit integers of nanoseconds. All errors derive from `traceconv.TraceconvError`.
"""

from __future__ import annotations

import html
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from traceconv.base.errors import StoreError, TraceconvError, UsageError, printable, suggestion

if TYPE_CHECKING:
    import duckdb

    from traceconv.pipeline.result import IngestedRuns
    from traceconv.pipeline.runs import DeletedRuns, MergedRun
    from traceconv.provenance.answer import Answer
    from traceconv.reports.result import ReportRows
    from traceconv.runtime.training.options import TrainOptions

PathLike: TypeAlias = "str | os.PathLike[str]"
Cell: TypeAlias = "object"
#: Options of `Store.report`.
_REPORT_OPTIONS = [
    "run", "device", "step", "steps", "from_ns", "to_ns", "top", "order_by", "filters", "columns",
]  # fmt: skip


def record(
    model: PathLike,
    output_dir: PathLike,
    *,
    iterations: int = 5,
    warmup: int = 0,
    batch: int | None = None,
    input_path: PathLike | None = None,
    seed: int = 0,
    deterministic: bool = False,
    aic_metrics: str | None = None,
    task_trace: bool | None = None,
    training_trace: bool | None = None,
    clock: str | None = None,
    profiling_options: PathLike | Mapping[str, object] | None = None,
    devices: int = 1,
    device_spec: PathLike | None = None,
    streams: int | None = None,
    prefetch: bool | None = None,
    fetch: Sequence[str] = (),
    truth: bool = False,
    train: TrainOptions | None = None,
) -> Path:
    """Run a model on the reference NPU and log it; return the capture's folder.

    model          path of an .onnx file, or the name of a network such as "resnet50"
    output_dir     folder for the PROF_… folder
    input_path     .npz file with the inputs by name; None: random inputs from `seed`
    deterministic  write the same bytes for the same arguments, on any machine
    aic_metrics    group of counters to record for each task, such as "Memory"; "off": none; None: PipeUtilization
    task_trace     False: record no tasks;  training_trace  False: record no steps
    clock          "wall": the host's clock goes on while kernels are emulated; "virtual" (the default): it stops
    profiling_options  options of `traceconv.profile` as JSON text, a JSON file or a mapping; arguments override them
    devices        number of devices that run the model at the same time
    device_spec    TOML file that describes the device; None: the reference NPU
    streams        maximum number of streams for ops; None: as many as the device has
    prefetch       copy the inputs of a run while the previous one computes; None: yes, except in training
    fetch          tensors that the host reads as soon as they are produced
    truth          write the ground truth next to the manifest, as truth.jsonl
    train          train the model, one step per iteration; None: inference

    Raises ModelError if the model can't be run, OutputError if the folder can't be written.
    """
    from traceconv.runtime import record as recording
    from traceconv.runtime.profile_options import parse_options

    given = {
        "aic_metrics": aic_metrics, "task_trace": task_trace, "training_trace": training_trace, "clock": clock,
    }  # fmt: skip
    options = recording.RecordOptions(
        model=os.fspath(model),
        output_dir=Path(output_dir),
        iterations=iterations,
        warmup=warmup,
        batch=batch,
        input_path=None if input_path is None else Path(input_path),
        seed=seed,
        deterministic=deterministic,
        profile=parse_options({**given, "output": output_dir}, profiling_options, override=True),
        devices=devices,
        device_spec=None if device_spec is None else Path(device_spec),
        streams=streams,
        prefetch=prefetch,
        fetch=tuple(fetch),
        truth=truth,
        train=train,
    )
    return recording.record(options).folder


def ingest(*paths: PathLike, db: PathLike | None = None, replace: bool = False, strict: bool = False) -> IngestedRuns:
    """Import captures, traces, or folders that contain some, into the store.

    db       the store; None: $TRACECONV_DB, or trace.duckdb in the current folder
    replace  re-import captures that are already in the store
    strict   on any loss, raise DataLossError and leave the store unchanged

    Losses are in `lossy` and `log` of each run, skipped files in `unusable` of the result. Raises InputError if a path
    does not exist or nothing can be used.
    """
    from traceconv.pipeline.ingest import ingest as ingest_paths
    from traceconv.store.database import default_store_path

    if not paths:
        raise UsageError("ingest needs at least one path")
    store = default_store_path() if db is None else Path(db)
    return ingest_paths([Path(path) for path in paths], store, replace=replace, strict=strict)


class Store:
    """A store, open for reading. Use it as a context manager, or call `close`.

    Each report, query and export has its own connection: several can be read alternately or in different threads, and
    reading may stop early. Raises StoreError if the store does not exist or can't be read. A store of an older schema
    version is migrated, with a StoreMigrated warning.
    """

    def __init__(self, path: PathLike | None = None) -> None:
        from traceconv.reports.current_store import open_current_store
        from traceconv.store.database import default_store_path

        self.path = default_store_path() if path is None else Path(path)
        self.connection: duckdb.DuckDBPyConnection = open_current_store(self.path)
        self._cursors: dict[int, duckdb.DuckDBPyConnection] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Running reads, also those in other threads, end with a StoreError."""
        from traceconv.store.database import close_in_use

        with self._lock:
            self._closed = True
            cursors = list(self._cursors.values())
            self._cursors.clear()
        close_in_use(cursors)
        self.connection.close()

    def report(
        self,
        name: str,
        *,
        run: int | str | None = None,
        device: int | None = None,
        step: int | None = None,
        steps: str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        top: int | None = None,
        order_by: str | Sequence[str] | None = None,
        filters: Mapping[str, object] | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        **unknown: NoReturn,
    ) -> ReportRows:
        """Return the rows of a report. Each iteration reads them from the store.

        name      name of a report in `traceconv report --list`, such as "op-statistic"
        run       number or label of a run, or "all"; None: the latest; several: "1,2"
        device    only this device
        step      only this step (step.step_id)
        steps     only these steps: "3-5", "3-" or "-5"
        from_ns   only from this time on, in absolute ns, or since the start of the run: "1.5ms"
        to_ns     only before this time
        top       the N largest rows by the report's measure, or the first N by `order_by`
        order_by  a column or several: "dur_ns", "name DESC"; by default numbers descending, text ascending
        filters   column → required value; or conditions such as "self_ns>=0.1ms" and "op_type~^Conv"
        columns   columns in this order; None: all

        Raises UsageError, with the nearest name, for an unknown report, column, run or option.
        """
        from traceconv.reports import run as questions
        from traceconv.reports.columns import find_columns, parse_order
        from traceconv.reports.filters import make_filter, parse_filter
        from traceconv.reports.result import ReportRows

        report = questions.find_report(name)
        for option in unknown:
            near = suggestion(option, _REPORT_OPTIONS)
            raise UsageError(f"report has no option '{printable(option)}'.{near}")
        parameters = questions.given_parameters(report, device=device, step=step, **questions.given_steps(steps))
        if top is not None and top < 1:
            raise UsageError(f"top must be 1 or more, not {top}")
        for option, value in (("filters", filters), ("columns", columns)):
            if isinstance(value, str):
                raise UsageError(f"{option} must be a list of strings, not the string {printable(value, 60)!r}")
        chosen = report.columns if columns is None else find_columns(report, columns)
        conditions = (
            [make_filter(report, column, "=", _as_text(value)) for column, value in filters.items()]
            if isinstance(filters, Mapping)
            else [parse_filter(report, text) for text in filters or ()]
        )
        order = [order_by] if isinstance(order_by, str) else order_by or ()
        with self._cursor() as cursor:
            choice = questions.choose_run(cursor, None if run is None else str(run))
            window = [None if time is None else str(time) for time in (from_ns, to_ns)]
            times = questions.given_parameters(report, **questions.given_times(cursor, choice, *window))
        parameters = {**choice.parameters, **parameters, **times}
        terms = tuple(parse_order(report, text) for text in order)
        question = questions.Question(report, parameters, chosen, choice.run_ids, tuple(conditions), terms, top)
        return ReportRows(question, self._cursor)

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return a relation over the store's tables, views and reports: `.fetchall()`, `.to_arrow_table()`, `.df()` …

        Raises UsageError with DuckDB's message if the statement is invalid.
        """
        from traceconv.reports.free_query import explained

        with ExitStack() as on_error:
            cursor = self._open_cursor()
            on_error.callback(self._close_cursor, cursor)
            with self._check_closed(), explained():
                relation = cursor.sql(sql)
            if relation is None:
                raise UsageError("a query must be a statement that returns rows")
            on_error.pop_all()
        # The cursor stays open until the relation is deleted or the store is closed.
        weakref.finalize(relation, self._cursors.pop, id(cursor), None)
        return relation

    def runs(self) -> list[dict[str, Cell]]:
        """Return the runs in order, each with the columns of `traceconv runs list --format csv`."""
        from traceconv.reports.runs import RUN_COLUMNS, stored_runs

        with self._cursor() as cursor:
            rows = stored_runs(cursor)
        return [{column.name: value for column, value in zip(RUN_COLUMNS, row, strict=True)} for row in rows]

    def label_runs(self, run: int | str, label: str | None = None, *, group: str | None = None) -> None:
        """Set the label of a run, or the group label of one or more; "" removes a group. None: unchanged.

        This and the other methods that change the store close it for reading and open it again: reads that are running
        end with a StoreError. Raises UsageError for an unknown run, or a label that another run has.
        """
        from traceconv.pipeline.runs import find_runs, label_runs

        with self._released():
            label_runs(self.path, find_runs(self.path, [str(run)]), label=label, group=group)

    def delete_runs(self, *runs: int | str) -> DeletedRuns:
        """Delete runs, each given as for `report`, and rewrite the file without their space.

        Return the runs and the sizes of the file. Raises UsageError for an unknown run.
        """
        from traceconv.pipeline.runs import delete_runs, find_runs

        if not runs:
            raise UsageError("delete_runs needs at least one run")
        with self._released():
            return delete_runs(self.path, find_runs(self.path, [str(run) for run in runs]))

    def merge_runs(self, *others: PathLike, replace: bool = False) -> list[MergedRun]:
        """Copy all runs of other stores into this one; return them with their old and new IDs.

        replace  replace runs whose source is already in the store, instead of keeping them

        Raises StoreError if a file is not a valid store.
        """
        from traceconv.pipeline.runs import merge_stores

        if not others:
            raise UsageError("merge_runs needs at least one store")
        with self._released():
            return merge_stores([Path(other) for other in others], self.path, replace=replace)

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Close the file while it is changed."""
        from traceconv.reports.current_store import open_current_store

        if self._closed:
            raise StoreError(f"{printable(str(self.path))} is closed: open it again")
        self.close()
        try:
            yield
        finally:
            self.connection = open_current_store(self.path)
            self._closed = False

    def __repr__(self) -> str:
        from traceconv.reports.result import text_table

        try:
            return f"{printable(str(self.path))}\n{text_table(*self._runs())}"
        except TraceconvError as error:
            return f"<store {printable(str(self.path))}: {error}>"

    def _repr_html_(self) -> str:
        from traceconv.reports.result import html_table

        try:
            return html_table(printable(str(self.path)), *self._runs())
        except TraceconvError:
            return f"<pre>{html.escape(repr(self))}</pre>"

    def _runs(self) -> tuple[dict[str, bool], list[list[str]]]:
        """Return the runs for display: whether each column is right-aligned, and the cells."""
        from traceconv.reports.run import reading
        from traceconv.reports.values import human

        texts = dict.fromkeys(("label", "format", "model"), "text")
        columns = {"run": "id", **texts, "duration": "ns", "complete": "flag"}
        with self._cursor() as cursor, reading():
            rows = cursor.execute(
                "SELECT run_id, label, source_format, model_name, end_ns - start_ns, complete FROM run ORDER BY run_id"
            ).fetchall()
        cells = [[human(value, unit) for value, unit in zip(row, columns.values(), strict=True)] for row in rows]
        return {name: unit in ("id", "ns") for name, unit in columns.items()}, cells

    def _open_cursor(self) -> duckdb.DuckDBPyConnection:
        from traceconv.store.database import new_cursor

        with self._lock:
            if self._closed:
                raise StoreError(f"{printable(str(self.path))} is closed: open it again")
            cursor = new_cursor(self.connection)
            self._cursors[id(cursor)] = cursor
        return cursor

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self._open_cursor()
        try:
            with self._check_closed():
                yield cursor
        finally:
            self._close_cursor(cursor)

    def _close_cursor(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Close a cursor, unless `close` has removed it to close it itself."""
        if self._cursors.pop(id(cursor), None) is not None:
            cursor.close()

    @contextmanager
    def _check_closed(self) -> Iterator[None]:
        """Raise StoreError if the block fails because the store was closed."""
        import duckdb

        connection = self.connection
        try:
            yield
        except (duckdb.Error, TraceconvError, KeyboardInterrupt) as error:
            by_user = isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, duckdb.Error)
            if by_user or (not self._closed and self.connection is connection):
                raise
            raise StoreError(f"{printable(str(self.path))} was closed before all rows were read") from error

    def why(
        self, table: str, row_id: int | str, *, run: int | str | None = None, source: PathLike | None = None
    ) -> Answer:
        """Return the origin of a row: the parts of its source, decoded, and the other rows it was derived from.

        row_id  number in the table's key; for `counter`, TRACK_ID@TS_NS
        run     number or label; None: the latest
        source  current path of the run's source, if it was moved

        Raises UsageError if the row does not exist. Missing and changed sources are in `problems`.
        """
        from traceconv.provenance.find import why

        moved_to = None if source is None else Path(source)
        with self._cursor() as cursor:
            return why(cursor, self.path, table, str(row_id), run=None if run is None else str(run), source=moved_to)

    def export(
        self, target: str, path: PathLike | None = None, *, run: int | str | None = None, **options: object
    ) -> None:
        """Write a run (None: the latest) in another program's format; compressed if `path` ends in .gz.

        target   name of a format in `traceconv export --help`, such as "perfetto"
        path     the file; for "msprof", the folder to write into, None for the PROF folder of the run
        options  options of the format's command, such as device=0

        Raises UsageError for an unknown target, run or option, InputError if the run has nothing to export, OutputError
        if the file can't be written.
        """
        from traceconv.export.registry import find_export
        from traceconv.reports.run import one_run

        export = find_export(target)
        known = [option.name for option in export.options]
        for option in options:
            if option not in known:
                raise UsageError(f"export {target} has no option '{printable(option)}'.{suggestion(option, known)}")
        if path is None and not export.folder:
            raise UsageError(f"export {target} needs a path")
        with self._cursor() as cursor:
            run_id, _ = one_run(cursor, None if run is None else str(run), export.title)
            export.load_writer()(cursor, run_id, None if path is None else Path(path), **options)

    def export_chrome(self, path: PathLike, *, run: int | str | None = None, device: int | None = None) -> None:
        """Write a run as a Chrome trace: `export("chrome", …)`."""
        self.export("chrome", path, run=run, device=device)

    def export_perfetto(
        self, path: PathLike, *, run: int | str | None = None, device: int | None = None, args: bool = True
    ) -> None:
        """Write a run as a Perfetto trace: `export("perfetto", …)`. `args`: include the arguments of slices."""
        self.export("perfetto", path, run=run, device=device, args=args)

    def export_memory_flow(self, path: PathLike, *, run: int | str | None = None, device: int | None = None) -> None:
        """Draw the memory of a run as an SVG: `export("memory-flow", …)`."""
        self.export("memory-flow", path, run=run, device=device)


def open_store(path: PathLike | None = None) -> Store:
    """Open a store for reading; None: $TRACECONV_DB, or trace.duckdb in the current folder."""
    return Store(path)


def _as_text(value: object) -> str:
    """Return a value as a filter writes it."""
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)
