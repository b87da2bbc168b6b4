"""The public Python API: what the commands do, in the same words.

    import traceconv

    capture = traceconv.record("resnet50", "raw")
    traceconv.ingest("raw", db="trace.duckdb")
    with traceconv.open_store("trace.duckdb") as store:
        for row in store.report("op-statistic", top=10):
            print(row["op_type"], row["total_ns"])
        table = store.query("FROM task WHERE kind = 'copy'").to_arrow_table()
        store.export_chrome("trace.json")

Times are signed 64-bit integers of nanoseconds. Errors are `traceconv.errors.TraceconvError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from traceconv.errors import UsageError, printable

if TYPE_CHECKING:
    import duckdb

    from traceconv.pipeline import IngestedRuns
    from traceconv.runtime.training.options import TrainOptions
    from traceconv.why.evidence import Answer

PathLike: TypeAlias = "str | os.PathLike[str]"
Cell: TypeAlias = "object"


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
    aic_metrics: str = "PipeUtilization",
    devices: int = 1,
    device_spec: PathLike | None = None,
    streams: int | None = None,
    prefetch: bool | None = None,
    fetch: Sequence[str] = (),
    truth: bool = False,
    train: TrainOptions | None = None,
) -> Path:
    """Runs a model on the reference NPU and logs it; returns the capture's folder.

    model          path of an .onnx file, or the name of a network such as "resnet50"
    output_dir     where the PROF_… folder goes
    input_path     .npz file with the inputs by name; None: random ones, by `seed`
    deterministic  the same arguments give the same bytes, on any machine
    aic_metrics    group of counters to record of each task, such as "Memory"
    devices        how many run the model at a time, each for itself
    device_spec    TOML file that describes the device; None: the reference NPU
    streams        most streams for ops; None: as the device has
    prefetch       whether the inputs of a run are copied while the one before it computes; None: yes, not in training
    fetch          tensors that the host reads as soon as they are made
    truth          write what really happened beside the manifest, as truth.jsonl
    train          how to train the model, of which each iteration is a step then; None: it is run as it is

    Raises ModelError when the model can't be run, OutputError when the folder can't be written.
    """
    from traceconv.runtime import record as recording

    options = recording.RecordOptions(
        model=os.fspath(model),
        output_dir=Path(output_dir),
        iterations=iterations,
        warmup=warmup,
        batch=batch,
        input_path=None if input_path is None else Path(input_path),
        seed=seed,
        deterministic=deterministic,
        aic_metrics=aic_metrics,
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
    """Reads captures, traces, or folders that hold some, into the store; returns what became of each.

    db       the store; None: $TRACECONV_DB, or trace.duckdb in the current folder
    replace  captures that are in the store already are read again
    strict   any loss raises DataLossError, and the store stays as it was

    A run with losses says so (`lossy`, `log`). What can't be used is left out, and named in `unusable` of the result;
    InputError when a path does not exist, or nothing in any of them can be used.
    """
    from traceconv import pipeline
    from traceconv.store.database import default_store_path

    if not paths:
        raise UsageError("ingest needs at least one path")
    store = default_store_path() if db is None else Path(db)
    return pipeline.ingest([Path(path) for path in paths], store, replace=replace, strict=strict)


class Store:
    """A store, open for reading. Use as a context manager, or call `close`.

    Raises StoreError when there is none, or it can't be read.
    """

    def __init__(self, path: PathLike | None = None) -> None:
        from traceconv.store.database import default_store_path, open_store

        self.path = default_store_path() if path is None else Path(path)
        self.connection: duckdb.DuckDBPyConnection = open_store(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self.connection.close()

    def report(
        self,
        name: str,
        *,
        run: int | str | None = None,
        top: int | None = None,
        filters: Mapping[str, object] | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        **parameters: int,
    ) -> Iterator[dict[str, Cell]]:
        """The rows of a report, in its own order.

        name        as `traceconv report --list` says, such as "op-statistic"
        run         number or label of a run, or "all"; None: the latest
        filters     column → value that it must have; or texts such as "self_ns>=0.1ms" and "op_type~^Conv"
        parameters  of the report, such as device=0 or step=3

        Raises UsageError, with the nearest name, for a report, column, run or parameter that is not there.
        """
        from traceconv.reports import run as asking
        from traceconv.reports.columns import find_columns
        from traceconv.reports.filters import made_filter, parse_filter

        report = asking.find_report(name)
        known = {parameter.name for parameter in report.parameters}
        unknown = sorted(set(parameters) - known)
        if unknown:
            raise UsageError(f"{report.name} has no parameter '{unknown[0]}'; it has: {', '.join(sorted(known))}")
        choice = asking.choose_run(self.connection, None if run is None else str(run))
        if choice.run_id is not None:
            parameters = {"run": choice.run_id, **parameters}
        chosen = report.columns if columns is None else find_columns(report, columns)
        if isinstance(filters, str):
            raise UsageError(f"filters must be a list of texts or a mapping, not the text {printable(filters, 60)!r}")
        wanted = (
            [made_filter(report, name, "=", _as_text(value)) for name, value in filters.items()]
            if isinstance(filters, Mapping)
            else [parse_filter(report, text) for text in filters or ()]
        )
        question = asking.Question(report, parameters, chosen, tuple(wanted), top=top)
        names = [column.name for column in chosen]
        for rows in asking.answer(self.connection, question):
            for row in rows:
                yield dict(zip(names, row, strict=True))

    def query(self, sql: str) -> duckdb.DuckDBPyRelation:
        """A relation over the store's tables, views and reports: `.fetchall()`, `.to_arrow_table()`, `.df()` …"""
        return self.connection.sql(sql)

    def why(
        self, table: str, row_id: int | str, *, run: int | str | None = None, source: PathLike | None = None
    ) -> Answer:
        """Where a row came from: the pieces of its source, decoded, and what else it was made of.

        row_id  number of the row in the table's key; of counter TRACK_ID@TS_NS
        run     number or label; None: the latest
        source  where the run's source lies now, if it was moved

        Raises UsageError when there is no such row; a source that is gone or was changed is in `problems`.
        """
        from traceconv.why.find import why

        moved_to = None if source is None else Path(source)
        return why(
            self.connection, self.path, table, str(row_id), run=None if run is None else str(run), source=moved_to
        )

    def export_chrome(self, path: PathLike, *, run: int | str | None = None, device: int | None = None) -> None:
        """Writes one run (None: the latest) as a Chrome trace; compressed when `path` ends in .gz.

        Raises UsageError when there is no such run, OutputError when the file can't be written.
        """
        from traceconv.export.chrome import export_chrome

        export_chrome(self.connection, self._one_run(run, "a Chrome trace"), Path(path), device_id=device)

    def export_perfetto(
        self, path: PathLike, *, run: int | str | None = None, device: int | None = None, args: bool = True
    ) -> None:
        """Writes a run as a Perfetto trace in protobuf, as `traceconv export perfetto` does.

        Without `args` slices have only their names and categories. Raises UsageError and OutputError.
        """
        from traceconv.export.perfetto import export_perfetto

        run_id = self._one_run(run, "a Perfetto trace")
        export_perfetto(self.connection, run_id, Path(path), device_id=device, with_args=args)

    def export_memory_flow(self, path: PathLike, *, run: int | str | None = None, device: int | None = None) -> None:
        """Draws the memory of one run (None: the latest) as an SVG picture; compressed when `path` ends in .gz.

        Raises UsageError when there is no such run or device, InputError when the run has no memory log, OutputError
        when the file can't be written.
        """
        from traceconv.export.memory_flow import export_memory_flow

        export_memory_flow(self.connection, self._one_run(run, "a picture of memory"), Path(path), device_id=device)

    def _one_run(self, run: int | str | None, what: str) -> int:
        from traceconv.reports.run import choose_run

        choice = choose_run(self.connection, None if run is None else str(run))
        if choice.run_id is None:
            raise UsageError(
                f"{what} holds one run; name it by its number or its label"
                if choice.run_count
                else "the store has no run; ingest one first"
            )
        return choice.run_id


def open_store(path: PathLike | None = None) -> Store:
    """A store, open for reading; None: $TRACECONV_DB, or trace.duckdb in the current folder."""
    return Store(path)


def _as_text(value: object) -> str:
    """A value of a mapping of filters as it is written in one."""
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)
