"""A store that is open for reading: reports, queries, exports and changes of its runs, from Python."""

from __future__ import annotations

import html
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, overload

from traceconv.base.arguments import PathLike, check, checked, optional_path, paths_of, warn_of_loss
from traceconv.base.errors import TraceconvError, UsageError, printable, suggestion

if TYPE_CHECKING:
    import duckdb

    from traceconv.analysis.advice import Advice
    from traceconv.analysis.advice_of_runs import AdviceOfRuns
    from traceconv.analysis.critical_path import CriticalPath
    from traceconv.analysis.graph_replays import GraphReplays
    from traceconv.analysis.what_if import WhatIf
    from traceconv.export.registry import Written
    from traceconv.pipeline.runs import DeletedRuns, MergedRun
    from traceconv.provenance.answer import Answer
    from traceconv.reports.described import Catalogue, Described
    from traceconv.reports.result import ReportRows
    from traceconv.reports.runs import RunRows


class Store:
    """A store, open for reading. Use it as a context manager, or call `close`.

    paths  a store; or captures, traces or folders, which are ingested once into a cached store that can't be changed
    db     the store, if there are no paths; None: $TRACECONV_DB, or trace.duckdb in the current folder
    cache  keep what is ingested from `paths` for the next time

    Each report, query and export has its own connection: several can be read alternately or in different threads, and
    reading may stop early. Losses in `paths` are reported as a DataLossWarning. Raises StoreError if the store does not
    exist or can't be read, InputError if nothing in `paths` can be used. A store of an older schema version is
    migrated, with a StoreMigrated warning.
    """

    def __init__(self, *paths: PathLike, db: PathLike | None = None, cache: bool = True) -> None:
        from traceconv.pipeline.trace_store import store_of
        from traceconv.reports.shared_connection import SharedConnection

        found = paths_of("open_store", paths) if paths else []
        with ExitStack() as made:
            store = made.enter_context(store_of(found, optional_path(db), cache=cache))
            self.path = store.path
            self._shared = SharedConnection(self.path, ", ".join(map(str, found)) if store.made else str(self.path))
            # A temporary store is removed when this one is closed or deleted.
            self._made = made.pop_all()
        self._is_made = store.made
        #: As on the command line, reports on several files are on all runs.
        self._default_run = "all" if store.made and len(found) > 1 else None
        for line in (*store.losses, *store.notes):
            warn_of_loss(line)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Running reads, also those in other threads, end with a StoreError."""
        self._shared.close()
        self._made.close()

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB's connection to the store."""
        return self._shared.connection

    @checked
    def report(
        self,
        name: str,
        *,
        run: int | str | None = None,
        rank: int | str | None = None,
        device: int | None = None,
        step: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        peak_tflops: float | None = None,
        peak_gbps: float | None = None,
        by_shape: bool = False,
        by_module: bool = False,
        min_percent: float | None = None,
        top: int | None = None,
        order_by: str | Sequence[str] | None = None,
        ascending: bool | None = None,
        filters: Mapping[str, object] | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        engine: str = "duckdb",
        master: str = "local[*]",
    ) -> ReportRows:
        """Return the rows of a report. Each iteration reads them from the store.

        name       name of a report in `reports()`, such as "op-statistic"
        run        number or label of a run, or "all"; None: the latest; several: "1,2"
        rank       run of this rank, like `run="rank=N"`
        device     only this device
        step       only this step (step.step_id)
        steps      only these steps: "3-5", "3-" or "-5"
        from_ns    only from this time on, in absolute ns, or since the start of the run: "1.5ms"
        to_ns      only before this time
        peak_tflops, peak_gbps
                   for roofline: the devices' peak in 10^12 operations, and bandwidth in 10^9 bytes, per second
        by_shape   for kernels: rows per operator that launched the kernel, and per shape of its arguments
        by_module  for memory-statistic: rows per module, too
        min_percent
                   for op-tree: sum ranges below this share of the time
        top        the N largest rows by the report's measure, or the first N by `order_by`
        order_by   a column or several: "dur_ns", "name DESC"
        ascending  direction of `order_by`; None: numbers descending, text ascending
        filters    column → required value; or conditions such as "self_ns>=0.1ms" and "op_type~^Conv"
        columns    columns in this order; None: all
        engine     "duckdb", or "spark" for a lake: computed once, here
        master     for "spark": where it runs, such as "spark://HOST:7077"

        Raises UsageError, with the nearest name, for an unknown report, column, run or option.
        """
        from traceconv.reports.columns import find_columns
        from traceconv.reports.filters import make_filter, parse_filter
        from traceconv.reports.question import check_engine, find_report, make_question, on_runs
        from traceconv.reports.result import ReportRows
        from traceconv.reports.run_choice import wanted_run
        from traceconv.reports.window import parse_window

        report = find_report(name)
        check_engine(engine)
        conditions = (
            [make_filter(report, column, "=", _as_text(column, value)) for column, value in filters.items()]
            if isinstance(filters, Mapping)
            else [parse_filter(report, text) for text in filters or ()]
        )
        window = parse_window(steps, from_ns, to_ns)
        question = make_question(
            report, report.columns if columns is None else find_columns(report, columns), window=window,
            filters=conditions, order_by=[order_by] if isinstance(order_by, str) else order_by or (),
            ascending=ascending, top=top, device=device, step=step, peak_tflops=peak_tflops, peak_gbps=peak_gbps,
            by_shape=by_shape, by_module=by_module, min_percent=min_percent,
        )  # fmt: skip
        wanted = wanted_run(_text(run), _text(rank)) or ("all" if report.compares_runs else self._default_run)
        with self._cursor() as cursor:
            question, _ = on_runs(cursor, question, wanted)
            if engine == "spark":
                from traceconv.spark.session import spark_question

                question = spark_question(cursor, self.path, question, master)
        return ReportRows(question, self._cursor)

    @staticmethod
    def reports() -> Catalogue:
        """Return the reports: the name, title, question (`doc`) and columns of each."""
        from traceconv.reports.described import report_catalogue

        return report_catalogue()

    @overload
    def schema(self, name: None = None) -> Catalogue: ...

    @overload
    def schema(self, name: str) -> Described: ...

    @checked
    def schema(self, name: str | None = None) -> Catalogue | Described:
        """Return the tables, views and reports of the store with their columns and row counts, or the one of this name.

        Raises UsageError, with the nearest name, for an unknown one.
        """
        from traceconv.reports.described import catalogue

        with self._cursor() as cursor:
            found = catalogue(cursor)
        return found if name is None else found.find(name)

    @checked
    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """Return a relation over the store's tables, views and reports: `.fetchall()`, `.to_arrow_table()`, `.df()` …

        Sums of integers are BIGINT, so that pandas gets them as integers; DuckDB's HUGEINT would become floats.
        Raises UsageError with DuckDB's message if the statement is invalid. The relation is DuckDB's: rows are computed
        when they are fetched, and errors of that moment, such as a failing cast or a sum beyond 64 bits, are DuckDB's
        own.
        """
        from traceconv.reports.free_query import check_statement, explained, with_64_bits

        if not sql.strip():
            raise UsageError("a query must be a statement that returns rows")
        with ExitStack() as on_error:
            cursor = self._shared.open_cursor()
            on_error.callback(self._shared.close_cursor, cursor)
            with self._shared.checking_closed(), explained(sql):
                relation = cursor.sql(check_statement(cursor, sql))
            if relation is None:
                raise UsageError("a query must be a statement that returns rows")
            relation = with_64_bits(relation)
            on_error.pop_all()
        # The cursor stays open until the relation is deleted or the store is closed.
        weakref.finalize(relation, self._shared.cursors.pop, id(cursor), None)
        return relation

    def runs(self) -> RunRows:
        """Return the runs in order, each a dict with the columns of `traceconv runs list --format csv`."""
        from traceconv.reports.runs import RUN_COLUMNS, RunRows, stored_runs

        with self._cursor() as cursor:
            rows = stored_runs(cursor)
        return RunRows({column.name: value for column, value in zip(RUN_COLUMNS, row, strict=True)} for row in rows)

    @checked
    def label_runs(self, run: int | str, label: str | None = None, *, group: str | None = None) -> None:
        """Set the label of a run, or the group label of one or more; "" removes a group. None: unchanged.

        This and the other methods that change the store close it for reading and open it again: reads that are running
        end with a StoreError. Raises UsageError for an unknown run, or a label that another run has.
        """
        from traceconv.pipeline.runs import find_runs, label_runs

        with self._released():
            label_runs(self.path, find_runs(self.path, [str(run)]), label=label, group=group)

    @checked
    def delete_runs(self, *runs: int | str) -> DeletedRuns:
        """Delete runs, each given as for `report`, and rewrite the file without their space.

        Return the runs and the sizes of the file. Raises UsageError for an unknown run.
        """
        from traceconv.pipeline.runs import delete_runs, find_runs

        if not runs:
            raise UsageError("delete_runs needs at least one run")
        with self._released():
            return delete_runs(self.path, find_runs(self.path, [str(run) for run in runs]))

    @checked
    def merge_runs(self, *others: PathLike, replace: bool = False) -> list[MergedRun]:
        """Copy all runs of other stores into this one; return them with their old and new IDs.

        replace  replace runs whose source is already in the store, instead of keeping them

        Raises StoreError if a file is not a valid store.
        """
        from traceconv.pipeline.runs import merge_stores

        with self._released():
            return merge_stores(paths_of("merge_runs", others), self.path, replace=replace)

    @contextmanager
    def _released(self) -> Iterator[None]:
        """Close the file while it is changed."""
        self._shared.check_open()
        if self._is_made:
            raise UsageError(
                f"{printable(self._shared.name)} has no store of its own, so changes would be lost: ingest it first"
            )
        with self._shared.released():
            yield

    def __repr__(self) -> str:
        try:
            return f"{printable(self._shared.name)}\n{self.runs()!r}"
        except TraceconvError as error:
            return f"<store {printable(self._shared.name)}: {error}>"

    def _repr_html_(self) -> str:
        from traceconv.reports.result import html_table

        try:
            return html_table(printable(self._shared.name), *self.runs().shown())
        except TraceconvError:
            return f"<pre>{html.escape(repr(self))}</pre>"

    def _cursor(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return self._shared.cursor()

    @contextmanager
    def _on_run(self, run: int | str | None, what: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
        """A connection, and the number of the run for `what`."""
        from traceconv.reports.run_choice import one_run

        with self._cursor() as cursor:
            yield cursor, one_run(cursor, _text(run), what)[0]

    @overload
    def advise(  # type: ignore[overload-overlap]  # "all" is a str
        self,
        run: Literal["all"],
        *,
        device: int | None = None,
        top: int | None = None,
        least_percent: float | None = None,
    ) -> AdviceOfRuns: ...

    @overload
    def advise(
        self,
        run: int | str | None = None,
        *,
        device: int | None = None,
        top: int | None = None,
        least_percent: float | None = None,
    ) -> Advice: ...

    @checked
    def advise(
        self,
        run: int | str | None = None,
        *,
        device: int | None = None,
        top: int | None = None,
        least_percent: float | None = None,
    ) -> Advice | AdviceOfRuns:
        """Find what could make a run (None: the latest) faster: `findings`, and `to_dict()` for JSON.

        run            number or label of a run; "all": the findings of all runs, added up
        device         only this device
        top            only the N findings with the largest savings
        least_percent  omit findings that save less of the time of the device; None: by the rule, mostly 3

        Each finding has the time that a fix could save in the run, what to try, and SQL that shows it. Savings may
        overlap, so they don't add up. Raises UsageError for an unknown run, or a device without tasks.
        """
        from traceconv.analysis.advice import advise
        from traceconv.analysis.advice_of_runs import advise_all

        if top is not None and top < 1:
            raise UsageError(f"top must be 1 or more, not {top}")
        if run == "all":
            with self._cursor() as cursor:
                return advise_all(cursor, device=device, top=top, least_percent=least_percent)
        with self._on_run(run, "advice") as (cursor, run_id):
            return advise(cursor, run_id, device=device, top=top, least_percent=least_percent)

    @checked
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

        with self._cursor() as cursor:
            return why(cursor, self.path, table, str(row_id), run=_text(run), source=optional_path(source))

    @checked
    def critical_path(
        self,
        *,
        run: int | str | None = None,
        device: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        save: bool = True,
    ) -> CriticalPath:
        """Return the longest chain of dependent work through each step: `steps`, `parts` (Arrow), `kinds`, `ops`.

        run             number or label; None: the latest
        device          only the steps of this device
        steps           only these steps: "3-5", "3-" or "-5"
        from_ns, to_ns  a time window instead of steps: absolute ns, or "1.5ms" since the start of the run
        save            write the parts to the table critical_path, unless the store was made of files

        The durations of the parts of a step add up to the step. Raises UsageError for an unknown run or step,
        InputError if the run has no tasks.
        """
        from traceconv.analysis.critical_path import critical_path, find_steps, save_critical_path
        from traceconv.reports.window import parse_window

        window = parse_window(steps, from_ns, to_ns)
        with self._on_run(run, "a critical path") as (cursor, run_id):
            chosen = find_steps(cursor, run_id, window, device=device)
            if not save or self._is_made:
                return critical_path(cursor, run_id, chosen)
        with self._released():
            return save_critical_path(self.path, run_id, chosen)

    @checked
    def graph_replays(self, *, run: int | str | None = None, reference: int | str | None = None) -> GraphReplays:
        """Find the operators, modules and shapes of the kernels that graphs ran, and return how many are known.

        run        number or label; None: the latest
        reference  run in which the host called the operators; None: the same run

        The rows are in the table graph_replay. A store made of files has those of its own run. Raises UsageError for an
        unknown run, InputError if the run has no launches of graphs or their kernels aren't recorded.
        """
        from traceconv.analysis.graph_replays import align_replays, graph_replays
        from traceconv.reports.run_choice import one_run

        with self._on_run(run, "an alignment of graph replays") as (cursor, run_id):
            name = run_id if reference is None else reference
            reference_id, _ = one_run(cursor, _text(name), "a reference")
            graph_replays(cursor, run_id, reference_id)
        if not self._is_made:
            with self._released():
                align_replays(self.path, run_id, reference_id)
        with self._cursor() as cursor:
            return graph_replays(cursor, run_id, reference_id)

    @checked
    def what_if(
        self,
        *,
        op_type: str | None = None,
        category: str | None = None,
        launched_by: str | None = None,
        host_range: str | None = None,
        speed_up: float | str | None = None,
        no_launch_cost: bool = False,
        overlap_communication: bool = False,
        no_host_waits: bool = False,
        run: int | str | None = None,
        device: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
    ) -> WhatIf:
        """Return how long steps would take if something were faster: `predicted_ns`, `measured_ns`, `replayed_ns`.

        op_type                ops of this type or name are faster, or tasks with this name
        category               kernels of this category are faster: gemm, attention, as in the report kernels
        launched_by            tasks launched inside operators, modules or functions of this name are faster
        host_range             ranges and calls of this name take less time on the host
        speed_up               how much faster: 2, 1.5
        no_launch_cost         calls that launch tasks take no time
        overlap_communication  nothing waits for collectives to move data
        no_host_waits          no call waits for the device
        run                    number or label; None: the latest
        device                 only the steps of this device
        steps                  only these steps: "3-5", "3-" or "-5"
        from_ns, to_ns         a time window instead of steps: absolute ns, or "1.5ms" since the start of the run

        `replayed_ns` is the replay of the unchanged trace. Raises UsageError for an unknown name, run or step.
        """
        from traceconv.analysis.what_if import make_change, what_if
        from traceconv.reports.window import parse_window

        change = make_change(
            speed_up, op_type=op_type, category=category, launched_by=launched_by, host_range=host_range,
            no_launch_cost=no_launch_cost, overlap_communication=overlap_communication, no_host_waits=no_host_waits,
        )  # fmt: skip
        window = parse_window(steps, from_ns, to_ns)
        with self._on_run(run, "a prediction") as (cursor, run_id):
            return what_if(cursor, run_id, change, window, device=device)

    @checked
    def export(
        self, target: str, path: PathLike | None = None, *, run: int | str | None = None, **options: object
    ) -> Written:
        """Write a run (None: the latest) in another program's format; compressed if `path` ends in .gz.

        target   name of a format in `traceconv export --help`, such as "perfetto"
        path     the file; for "msprof", the folder to write into, None for the PROF folder of the run; for "parquet",
                 the lake, to which all runs are added if `run` is None
        options  options of the format's command, such as device=0

        Return the number of rows of each kind that were written and omitted, and the size. Raises UsageError for an
        unknown target, run or option, InputError if the run has nothing to export, OutputError if the file can't be
        written.
        """
        from traceconv.export.registry import find_export

        export = find_export(target)
        known = [option.name for option in export.options]
        for name in options:
            if name not in known:
                raise UsageError(f"export {target} has no option '{printable(name)}'.{suggestion(name, known)}")
        for option in export.options:
            if option.name in options:
                kind = "int | str" if option.kind is str else option.kind.__name__
                value = check(option.name, options[option.name], kind + (" | None" if option.default is None else ""))
                options[option.name] = _text(value) if option.kind is str else value
        if path is None and (not export.folder or export.many_runs):
            raise UsageError(f"export {target} needs a path")
        with self._cursor() as cursor:
            run_ids, _ = export.runs(cursor, _text(run))
            return export.write(cursor, run_ids, optional_path(path), options)

    @checked
    def timeline(
        self,
        *,
        run: int | str | None = None,
        device: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        args: bool = True,
        critical_path: bool = False,
        on_address: Callable[[str], None] = print,
    ) -> None:
        """Show a run, or several, in Perfetto's viewer; return when the browser has read what `export_perfetto` writes.

        Options not listed are those of `export_perfetto`.

        on_address  is given the address that the browser opens, for a browser that is elsewhere

        Raises OutputError if port 9001 is in use.
        """
        from traceconv.base.temporary_folder import temporary_folder
        from traceconv.export.viewer import show_trace

        with temporary_folder() as folder:
            trace = folder / "trace.pftrace"
            self.export_perfetto(
                trace, run=run, device=device, steps=steps, from_ns=from_ns, to_ns=to_ns, args=args,
                critical_path=critical_path,
            )  # fmt: skip
            show_trace(trace, on_address)

    @checked
    def export_chrome(
        self,
        path: PathLike,
        *,
        run: int | str | None = None,
        device: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        args: bool = True,
        critical_path: bool = False,
    ) -> Written:
        """Write a run as a Chrome trace: `export("chrome", …)`.

        steps           only what overlaps these steps: "3-5", "3-", "-5" or 4
        from_ns, to_ns  only what overlaps this time: absolute ns, or "1.5ms" since the start of the run
        args            include the arguments of slices
        critical_path   show the path that `critical_path` found as arrows
        """
        return self.export(
            "chrome", path, run=run, device=device, steps=steps, from_ns=from_ns, to_ns=to_ns, args=args,
            critical_path=critical_path,
        )  # fmt: skip

    @checked
    def export_perfetto(
        self,
        path: PathLike,
        *,
        run: int | str | None = None,
        device: int | None = None,
        steps: int | str | None = None,
        from_ns: int | str | None = None,
        to_ns: int | str | None = None,
        args: bool = True,
        critical_path: bool = False,
    ) -> Written:
        """Write a run as a Perfetto trace, or several in one timeline (run="all", "1,2"): `export("perfetto", …)`.

        steps           only what overlaps these steps: "3-5", "3-", "-5" or 4
        from_ns, to_ns  only what overlaps this time: absolute ns, or "1.5ms" since the start of the run
        args            include the arguments of slices
        critical_path   show the path that `critical_path` found as arrows
        """
        return self.export(
            "perfetto", path, run=run, device=device, steps=steps, from_ns=from_ns, to_ns=to_ns, args=args,
            critical_path=critical_path,
        )  # fmt: skip

    @checked
    def export_html(self, path: PathLike, *, run: int | str | None = None, top: int = 50) -> Written:
        """Write a run, or several (run="all", "1,2"), as an HTML page: `export("html", …)`.

        top  rows of each report
        """
        return self.export("html", path, run=run, top=top)

    @checked
    def export_memory_flow(self, path: PathLike, *, run: int | str | None = None, device: int | None = None) -> Written:
        """Draw the memory of a run as an SVG: `export("memory-flow", …)`."""
        return self.export("memory-flow", path, run=run, device=device)

    @checked
    def export_msprof(
        self, path: PathLike | None = None, *, run: int | str | None = None, overwrite: bool = False
    ) -> Written:
        """Write the output folder of msprof into `path`, or into the run's PROF folder: `export("msprof", …)`."""
        return self.export("msprof", path, run=run, overwrite=overwrite)

    @checked
    def export_parquet(self, path: PathLike, *, run: int | str | None = None, overwrite: bool = False) -> Written:
        """Add runs (None: all) to the lake `path`, a folder or s3://BUCKET/FOLDER: `export("parquet", …)`.

        overwrite  replace runs that are already in the lake
        """
        return self.export("parquet", path, run=run, overwrite=overwrite)


def _text(value: int | str | None) -> str | None:
    return None if value is None else str(value)


def _as_text(column: str, value: object) -> str:
    """Return a value as a filter writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple, set, dict)):
        raise UsageError(f"a filter has one value, not a list: use a condition such as '{printable(column)}~^(A|B)$'")
    return str(value).lower() if isinstance(value, bool) else str(value)
