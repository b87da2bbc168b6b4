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

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceconv.base.arguments import PathLike, checked, optional_path, path_of, paths_of, warn_of_loss
from traceconv.base.errors import UsageError
from traceconv.opened_store import Store

if TYPE_CHECKING:
    from traceconv.analysis.comparison import Comparison
    from traceconv.inspection.run import FileInfos
    from traceconv.pipeline.result import IngestedRuns
    from traceconv.reports.result import ReportRows
    from traceconv.runtime.training.options import TrainOptions
    from traceconv.runtime.user_session import AnyModel
    from traceconv.sampling.answer import SampledAnswer
    from traceconv.verification.run import Verdicts


@checked
def record(
    model: PathLike,
    output: PathLike | None = None,
    *,
    iterations: int = 5,
    warmup: int = 0,
    batch: int | None = None,
    input: PathLike | None = None,
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
    train: bool | TrainOptions = False,
    steps: int | None = None,
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    loss: str | None = None,
    fp_point: str | None = None,
    bp_point: str | None = None,
    augment: bool | None = None,
) -> Path:
    """Run a model on the reference NPU and log it; return the capture's folder.

    model          path of an .onnx file, or the name of a model such as "resnet50"
    output         folder to create the capture in; None: the one in `profiling_options`
    iterations     inferences to record, or steps of a training
    warmup         warm-up inferences to run first
    batch          batch size; None: the model's
    input          .npz file with the inputs by name; None: random inputs from `seed`
    deterministic  write the same bytes for the same arguments, on any machine
    aic_metrics    group of counters to record for each task, such as "Memory"; "off": none; None: PipeUtilization
    task_trace     False: record no tasks
    training_trace  False: record no steps
    clock          "wall": the host's clock goes on while kernels are emulated; "virtual" (the default): it stops
    profiling_options  options of `traceconv.profile` as JSON text, a JSON file or a mapping; arguments override them
    devices        number of devices that run the model at the same time
    device_spec    TOML file that describes the device; None: the reference NPU
    streams        maximum number of streams for ops; None: as many as the device has
    prefetch       copy the inputs of a run while the previous one computes; None: yes, except in training
    fetch          tensors that the host reads as soon as they are produced
    truth          write the ground truth next to the manifest, as truth.jsonl
    train          True: train the model, one step per iteration, with the options below; or all options of the training
    steps          training steps to record, instead of `iterations`
    optimizer      "sgd" (the default) or "adam"
    lr             learning rate; None: 0.01, or 0.001 with adam
    momentum       momentum for sgd; None: 0.9
    loss           "cross-entropy" (of logits) or "mse"; None: "mse" if the targets are floats
    fp_point       name of the op that starts the forward pass; None: the first
    bp_point       name of the op that ends the backward pass; None: the last
    augment        shift images by a few pixels before each step; None: yes

    Raises ModelError if the model can't be run, OutputError if the folder can't be written.
    """
    from traceconv.runtime import record as recording
    from traceconv.runtime.record_arguments import record_options

    options = record_options(
        os.fspath(model), optional_path(output), iterations=iterations, warmup=warmup, batch=batch,
        input=optional_path(input), seed=seed, deterministic=deterministic, aic_metrics=aic_metrics,
        task_trace=task_trace, training_trace=training_trace, clock=clock, profiling_options=profiling_options,
        devices=devices, device_spec=optional_path(device_spec), streams=streams, prefetch=prefetch,
        fetch=fetch, truth=truth, train=train, steps=steps, optimizer=optimizer, lr=lr,
        momentum=momentum, loss=loss, fp_point=fp_point, bp_point=bp_point, augment=augment,
    )  # fmt: skip
    return recording.record(options).folder


@checked
def get_profile(
    model: AnyModel,
    *,
    batch: int | None = None,
    device_spec: PathLike | None = None,
    streams: int | None = None,
    prefetch: bool = True,
) -> dict[str, object]:
    """Return the static profile of a model, which is not run, as values that `json.dump` writes.

    model        path of an .onnx file, the name of a network such as "resnet50", or an onnx.ModelProto
    batch        first dimension of the inputs, if the model leaves it open
    device_spec  TOML file that describes the device; None: the reference NPU
    streams      maximum number of streams for ops; None: as many as the device has
    prefetch     allocate the inputs of the next run during a run, as `record` does

    `ops`, `cores` and `memory` are lists of rows with the columns of `traceconv model --show`; `total_ns`, `flops`,
    `param_count`, `peak_used_bytes` and `peak_reserved_bytes` are totals; `assumptions` is what is assumed of control
    flow. Times are those of the cost model, for each op alone on the device. Raises ModelError for an invalid model.
    """
    from traceconv.runtime.spec import spec_of
    from traceconv.runtime.static_profile import static_profile
    from traceconv.runtime.static_tables import as_dict
    from traceconv.runtime.user_session import model_of

    spec = spec_of(None if device_spec is None else Path(device_spec), streams)
    return as_dict(static_profile(model_of(model), batch, spec=spec, prefetch=prefetch))


@checked
def ingest(
    *paths: PathLike,
    db: PathLike | None = None,
    replace: bool = False,
    strict: bool = False,
    reader: str | None = None,
    rank_pattern: str | None = None,
    group: str | None = None,
    rules: Sequence[PathLike] = (),
    max_event_mb: int = 64,
    max_ratio: int = 1000,
    jobs: int | None = None,
) -> IngestedRuns:
    """Import captures, traces, or folders that contain some, into the store.

    paths         captures, .bin files, trace files, output folders of msprof and torch_npu; folders with any of these
    db            the store; None: $TRACECONV_DB, or trace.duckdb in the current folder
    replace       re-import captures that are already in the store
    strict        on any loss, raise DataLossError and leave the store unchanged
    reader        reader for all paths, such as "nsys"; None: by the content of each file
    rank_pattern  regular expression that extracts rank, host and group from the path: `(?P<rank>…)` …
    group         group label for all these runs, such as a job
    rules         rule files (TOML) for trace events, tried before the built-in rules
    max_event_mb  skip events of trace files larger than this
    max_ratio     maximum decompression ratio
    jobs          number of processes that read files; 1: only this one; None: one per core, if there is enough to read

    Losses are in `lossy` and `log` of each run, skipped files in `unusable` of the result. Raises InputError if a path
    does not exist or nothing can be used.
    """
    from traceconv.pipeline import ingest as pipeline
    from traceconv.store.database import default_store_path, named_store

    found = paths_of("ingest", paths)
    store = default_store_path() if db is None else named_store(path_of(db))
    rule_files = [path_of(path) for path in rules]
    return pipeline.ingest(
        found,
        store,
        replace=replace,
        strict=strict,
        reader=reader,
        trace_options=pipeline.trace_options_of(rule_files, max_event_mb, max_ratio),
        naming=pipeline.naming_of(rank_pattern, group),
        jobs=jobs,
    )


@checked
def lake_ingest(
    *paths: PathLike,
    into: PathLike,
    replace: bool = False,
    reader: str | None = None,
    rank_pattern: str | None = None,
    group: str | None = None,
    rules: Sequence[PathLike] = (),
    max_event_mb: int = 64,
    max_ratio: int = 1000,
    jobs: int | None = None,
    engine: str = "duckdb",
    master: str = "local[*]",
) -> IngestedRuns:
    """Add captures, traces, or folders that contain some, to a lake; runs whose content is in it are kept.

    into     the lake: a folder, or s3://BUCKET/FOLDER; it is created if it does not exist
    replace  replace runs that are already in the lake
    engine   "duckdb": on this machine; "spark": on executors, which need traceconv, the paths and the lake
    master   for "spark": where it runs, such as "spark://HOST:7077"

    Other parameters and the result are those of `ingest`; runs are numbered as in the lake. Each run is added once it
    is complete, so that calling it again continues after a failure. Raises OutputError if the lake can't be written.
    """
    from traceconv.pipeline.ingest import naming_of, trace_options_of
    from traceconv.pipeline.lake_ingest import ingest_into_lake

    return ingest_into_lake(
        paths_of("lake_ingest", paths),
        path_of(into),
        replace=replace,
        reader=reader,
        trace_options=trace_options_of([path_of(path) for path in rules], max_event_mb, max_ratio),
        naming=naming_of(rank_pattern, group),
        jobs=jobs,
        engine=engine,
        master=master,
    )


@checked
def info(*paths: PathLike, quick: bool = False) -> FileInfos:
    """Identify captures, trace files, folders that contain some, log files, stores and lakes, and check them.

    paths  captures, trace files, folders that contain them, .bin files, stores, lakes
    quick  only read headers and manifest, the first events of a trace, or the sizes of a lake's files

    Return one object per file or folder: its `kind`, `path`, whether it is `intact` and `usable`, and `details` such as
    runs, record counts, writer and damage. `problems` of the result has a line for each file that can't be used. Raises
    InputError if a path does not exist or nothing can be used.
    """
    from traceconv.inspection.run import info as identify

    return identify(paths_of("info", paths), quick=quick)


@checked
def dump(*paths: PathLike, type: str | None = None, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the records of raw logs in file order, with all fields and the place of each: `_file`, `_offset` …

    paths  captures (PROF_…), or .bin files of a capture
    type   only this record type, such as "task"
    limit  only the first N records

    Fields are as in `traceconv dump --json`: enum values by name, strings from the capture's dictionary, None for
    missing values, raw timestamps (ns on the host, ticks on a device). A DataLossWarning reports what can't be read.
    Raises InputError if there is no capture, UsageError for an unknown type.
    """
    from traceconv.formats.npulog.dump import DumpOptions, captures_with, dump_captures

    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}")
    captures = captures_with(paths_of("dump", paths), type)
    problems: list[str] = []
    texts = dump_captures(captures, DumpOptions(type, limit, as_json=True, on_damage=problems.append))

    def records() -> Iterator[dict[str, Any]]:
        import json

        for text in texts:
            yield from map(json.loads, text.splitlines())
            while problems:
                warn_of_loss(problems.pop(0))
        while problems:
            warn_of_loss(problems.pop(0))

    return records()


@checked
def verify(path: PathLike, *, exact: bool = False) -> Verdicts:
    """Recompute the tables of output folders of msprof or torch_npu from their timelines.

    path   an output folder, or a folder that contains some
    exact  require exact equality, without differences that rounding explains

    Return a result for each folder, with the `differences` of each file. `agree` of the result: all cells agree and
    nothing was lost. Raises InputError if nothing could be checked.
    """
    from traceconv.verification.run import verify as verify_folders

    verdicts = verify_folders(path_of(path), exact=exact)
    verdicts.check_any()
    return verdicts


@checked
def compare(
    base: PathLike | int,
    new: PathLike | int,
    *,
    db: PathLike | None = None,
    cache: bool = True,
    device: int | None = None,
    steps: int | str | None = None,
    warmup: int | None = None,
    anyway: bool = False,
    fail_over: str | float | None = None,
) -> Comparison:
    """Compare two runs and return what changed: `step`, `parts`, `ops`, and `to_dict()` for JSON.

    base, new  runs of the store (a number, a label, "rank=N"), or captures, traces and stores with one run each
    db         the store of the runs; None: $TRACECONV_DB, or trace.duckdb in the current folder
    cache      keep what is ingested from files for the next time
    device     only this device; None: the mean over all
    steps      only these steps: "3-5", "3-" or "-5"
    warmup     leading steps to leave out; None: 1 of 3 or more, or 0 if `steps` has a first one
    anyway     compare runs that are not comparable
    fail_over  percentage, such as "5%": `failed` of the result is True if the steps are slower by more

    Raises IncomparableError with its `reasons` for other models, input shapes, devices or numbers of steps, UsageError
    for an unknown run, InputError if nothing in a file can be used.
    """
    from traceconv.analysis.comparison import compare_runs, find_side, parse_limit
    from traceconv.reports.fetch import reading
    from traceconv.reports.window import parse_window
    from traceconv.store.database import names_file

    limit, window = parse_limit(fail_over), parse_window(steps)
    if warmup is not None and warmup < 0:
        raise UsageError(f"warmup must be 0 or more, not {warmup}")
    with ExitStack() as stack:
        sides = []
        for wanted in (base, new):
            is_file = not isinstance(wanted, int) and names_file(path_of(wanted), optional_path(db))
            store = stack.enter_context(Store(wanted, cache=cache) if is_file else Store(db=db))  # type: ignore[arg-type]
            cursor = stack.enter_context(store._cursor())
            sides.append(find_side(cursor, None if is_file else str(wanted), str(wanted)))
        with reading():
            return compare_runs(
                sides[0], sides[1], window, device=device, warmup=warmup, anyway=anyway, limit_percent=limit
            )


@checked
def first_answers(
    path: PathLike, report: str = "summary", *, sample: bool = False, cache: bool = True
) -> Iterator[SampledAnswer | ReportRows]:
    """Yield estimates of a report from larger and larger samples of a trace file, then the exact rows.

    path    a trace in JSON, plain or compressed
    report  summary, kernels or op-statistic
    sample  yield a single estimate, without reading all of the file
    cache   keep what is ingested for the next time

    An estimate iterates over rows with columns such as `count`, `count_low` and `count_high`, the 95 % interval; None
    if unknown. The file is ingested meanwhile, in a thread, which goes on if the iterator is closed before. The last
    answer is that of `open_store(path).report(report)`, which is to be read before the iterator is continued. Raises
    UsageError for a report without estimates, or with `sample` for a file of another format, InputError if nothing can
    be used.
    """
    from traceconv.sampling.answer import sampled_report

    found = path_of(path)
    sampled_report(report, "first_answers")
    return _first_answers(found, report, sample=sample, cache=cache)


def _first_answers(path: Path, report: str, *, sample: bool, cache: bool) -> Iterator[SampledAnswer | ReportRows]:
    from queue import SimpleQueue

    from traceconv.base.workers import Workers
    from traceconv.sampling.process import first_answers
    from traceconv.sampling.sample import is_sampled
    from traceconv.sampling.sample import sample as answer_of_sample

    if sample:
        yield answer_of_sample(path, report)
        return
    answers: SimpleQueue[SampledAnswer | None] = SimpleQueue()
    thread = Workers(1, "traceconv-ingest")
    with ExitStack() as sampling:
        if is_sampled(path):
            sampling.enter_context(first_answers(path, report, answers.put))
        ingested = thread.submit(Store, path, cache=cache)
        ingested.add_done_callback(lambda _: answers.put(None))
        while (answer := answers.get()) is not None:
            yield answer
    with ingested.result() as store:
        yield store.report(report)


@checked
def open_store(*paths: PathLike, db: PathLike | None = None, cache: bool = True) -> Store:
    """Open a store for reading, or trace files like one: `open_store("worker0.pt.trace.json.gz")`.

    paths  a store; or captures, traces or folders, which are ingested once into a cached store that can't be changed
    db     the store, if there are no paths; None: $TRACECONV_DB, or trace.duckdb in the current folder
    cache  keep what is ingested from `paths` for the next time
    """
    return Store(*paths, db=db, cache=cache)
