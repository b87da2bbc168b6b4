"""`traceconv record` without the command line: one model, run several times, into one capture folder."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from traceconv.base.errors import OutputError, UsageError, option, printable
from traceconv.runtime.clock import LiveClock
from traceconv.runtime.compiled import MODEL_ID, compile_model
from traceconv.runtime.control_bodies import Flow
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import CaptureIds
from traceconv.runtime.graph import Array
from traceconv.runtime.host import THREADS, Host, live_host, modelled_host
from traceconv.runtime.identity import Identity, modelled_identity, real_identity
from traceconv.runtime.inputs import fitting_inputs, random_inputs, read_arrays
from traceconv.runtime.profile_options import ProfileOptions
from traceconv.runtime.recorder import Recorder
from traceconv.runtime.schedule import schedule
from traceconv.runtime.session import Session
from traceconv.runtime.spec import MAX_STREAMS, DeviceSpec, spec_of
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.truth import TRUTH, DeviceTruth, write_truth

_LIMITS = {
    "iterations": (1, 1 << 31),
    "warmup": (0, 1 << 31),
    "seed": (0, (1 << 63) - 1),
    "devices": (1, 64),
    "streams": (1, MAX_STREAMS),
}
#: Records are written at this interval or, in modelled time, after this many: a killed process leaves a useful log.
_FLUSH_NS = 200_000_000
_FLUSH_RECORDS = 256

#: Options of a profile that select what is recorded.
_SELECTING = ("level", "resources", "sample_rate", "task_trace", "training_trace")

Inputs = dict[str, Array]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to run and how. `model`: a path, or a name of `zoo.model_names()`.

    input_path    an .npz file; None: random inputs
    profile       what is recorded; formats other than raw are refused, and `output` is `output_dir`
    devices       number of devices that run the model, each independently
    device_spec   a TOML file that describes them; None: the reference NPU
    streams       maximum number of compute streams; None: as many as the device has
    prefetch      whether the inputs of a run are copied while the previous run computes; None: yes, except in training
    fetch         tensors whose values the host reads during each run
    truth         whether the ground truth is written next to the manifest
    train         how to train the model, with a step per iteration; None: inference
    """

    model: str
    output_dir: Path
    iterations: int = 5
    warmup: int = 0
    batch: int | None = None
    input_path: Path | None = None
    seed: int = 0
    deterministic: bool = False
    profile: ProfileOptions = field(default_factory=ProfileOptions)
    devices: int = 1
    device_spec: Path | None = None
    streams: int | None = None
    prefetch: bool | None = None
    fetch: tuple[str, ...] = ()
    truth: bool = False
    train: TrainOptions | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished capture: its folder, the model's name, ops per iteration, the last outputs of device 0 by name.

    After training: the loss of each step except warm-up, and the learned weights by name.
    """

    folder: Path
    model_name: str
    op_count: int
    outputs: Inputs
    losses: tuple[float, ...] = ()
    weights: Mapping[str, Array] = field(default_factory=dict)


class Seat(NamedTuple):
    """A device and its host threads, before there is anything to run."""

    host: Host
    device: Device
    trace_seed: int
    truth: DeviceTruth | None


Progress = Callable[[int, int], None]


def record(options: RecordOptions, progress: Progress = lambda done, total: None) -> Recorded:
    """Run a model on the reference NPU and log it; `progress` gets the number of finished runs, and of all.

    Raises ModelError, InputError and UsageError before anything is written, OutputError when the folder can't be
    written. If it fails later, what was logged so far remains, without a manifest.
    """
    _check(options)
    spec = spec_of(options.device_spec, options.streams)
    given = None if options.input_path is None else read_arrays(options.input_path)
    if options.train is not None:
        return _record_training(options, options.train, spec, given, progress)
    model = compile_model(options.model, options.batch, inputs=given, seed=options.seed, spec=spec)
    schedule(model.program, model.spec, options.fetch)
    if given is None:
        inputs = [random_inputs(model, options.seed + device) for device in range(options.devices)]
    else:
        inputs = [fitting_inputs(model, given)] * options.devices
    # Some ops reject inputs only when they run: better now than in the middle of a capture.
    for values in inputs if given is None else inputs[:1]:
        flows: dict[int, Flow] = {}
        model.executor.run(values, flows=flows)
        for index, flow in flows.items():  # the log's description of the model includes what its bodies run
            list(model.executor.control.launched(index, flow))
    ids = CaptureIds()
    with _capture(options, model.name, model.spec, ids) as (recorder, seats):
        works = []
        for (host, device, seed, truth), values in zip(seats, inputs, strict=True):
            session = Session(model, host, device, ids=ids, seed=seed, fetch=options.fetch, truth=truth)
            session.options = replace(session.options, sample_rate=options.profile.sample_rate)
            works.append(_work(options, session, values))
        recorder.model(model.spec, model.program, MODEL_ID)
        if options.deterministic:
            rounds = (values[0] for values in zip_longest(*works))
            outputs = _follow(options, rounds, recorder, seats[0].host, progress)
        else:
            with _in_threads(works[1:]):
                outputs = _follow(options, works[0], recorder, seats[0].host, progress)
    return Recorded(recorder.folder, model.name, len(model.program.ops), outputs)


def _record_training(
    options: RecordOptions, train: TrainOptions, spec: DeviceSpec, given: Inputs | None, progress: Progress
) -> Recorded:
    """Record the training of a model, with a step per iteration."""
    from traceconv.runtime.training.capture import plan_capture

    profile = options.profile
    fp_point, bp_point = train.fp_point or profile.fp_point, train.bp_point or profile.bp_point
    training = plan_capture(options, replace(train, fp_point=fp_point, bp_point=bp_point), given, spec)
    plan, ids = training.plan, CaptureIds()
    with _capture(options, plan.program.graph.name, spec, ids) as (recorder, seats):
        recorder.model(spec, plan.program, MODEL_ID)
        _follow(options, training.steps(seats, ids), recorder, seats[0].host, progress)
    op_count = sum(not op.is_collective for op in plan.program.ops)
    return Recorded(recorder.folder, plan.program.graph.name, op_count, {}, tuple(training.losses), training.learned)


@contextlib.contextmanager
def _capture(
    options: RecordOptions, model_name: str, spec: DeviceSpec, ids: CaptureIds
) -> Iterator[tuple[Recorder, list[Seat]]]:
    """A capture around a block: complete if that succeeds, truncated if not."""
    identity = modelled_identity(options.seed) if options.deterministic else real_identity(options.output_dir)
    folder = options.output_dir / identity.folder_name
    if os.path.exists(folder):
        raise OutputError(f"{printable(str(folder))} already exists: choose another folder, or remove it")
    recorder = Recorder(
        folder,
        writer_id=identity.writer_id,
        device_clock_hz=dict.fromkeys(range(options.devices), spec.clock_hz),
        metric_group=options.profile.aic_metrics,
        selection=options.profile.selection,
    )
    seats: list[Seat] = []
    try:
        seats.extend(_seats(options, model_name, spec, recorder, identity, ids))
        yield recorder, seats
        if options.truth:
            write_truth(folder / TRUTH, [seat.truth for seat in seats if seat.truth is not None])
        device_ids = list(range(options.devices))
        recorder.close({"model": model_name, "device_ids": device_ids, "options": _options(options)})
    except BaseException:
        with contextlib.suppress(OutputError):  # the original error is being raised, and may be the same
            recorder.flush()
        recorder.abandon()
        raise
    finally:
        for seat in seats:
            seat.host.stop()


def _check(options: RecordOptions) -> None:
    for name, (low, high) in _LIMITS.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"{option(f'--{name}')} {value}: must be from {low} to {high}")
    profile, fetch = options.profile, option("--fetch")
    if profile.file is not None or profile.formats != ("raw",):
        formats = ", ".join(profile.formats)
        raise UsageError(f"format {formats}: a recording is a folder of raw logs; ingest it, then export it")
    if options.deterministic and profile.clock == "wall":
        flag = option("--deterministic")
        raise UsageError(f"{option('--clock')} wall: {flag} simulates the host's times; remove one of them")
    if options.train is not None:
        options.train.check()
        if options.fetch:
            raise UsageError(f"{fetch}: not supported in training; remove it")
        if profile.sample_rate:
            raise UsageError("sample_rate: not supported in training; remove it")
    for flag, point in (("--fp-point", profile.fp_point), ("--bp-point", profile.bp_point)):
        if point is not None and options.train is None:
            raise UsageError(f"{option(flag)} is for training; add {option('--train')}")


def _seats(
    options: RecordOptions, model_name: str, spec: DeviceSpec, recorder: Recorder, identity: Identity, ids: CaptureIds
) -> Iterator[Seat]:
    """Yield the devices, each with threads and a clock of its own; the host clock is shared."""
    clock = LiveClock(is_wall=options.profile.clock == "wall")
    for device_id in range(options.devices):
        first = identity.process_id + device_id * len(THREADS)
        thread_ids = range(first, first + len(THREADS))
        names = tuple(name if options.devices == 1 else f"{name} {device_id}" for name in THREADS)
        host_seed, trace_seed = identity.device_seeds(device_id)
        if identity.host_ns is None:
            host = live_host(recorder, thread_ids, names, clock, ids)
        else:
            host = modelled_host(recorder, thread_ids, names, identity.host_ns, host_seed, ids.correlations)
        start_ns = host.channel.now()
        if device_id == 0:
            recorder.capture(start_ns, identity, model_name, _options(options))
        for order, thread in enumerate((host.channel, host.worker, host.driver), device_id * len(THREADS)):
            recorder.thread(identity.process_id, "traceconv record", thread.thread_id, thread.name, order)
        device = Device(spec, identity.device_clock(device_id, start_ns, spec), device_id)
        yield Seat(host, device, trace_seed, DeviceTruth(device) if options.truth else None)


def _follow(
    options: RecordOptions, rounds: Iterator[Inputs | None], recorder: Recorder, host: Host, progress: Progress
) -> Inputs:
    """Run the rounds, of which the first is the setup, and write records meanwhile; return the last outputs."""
    total, outputs = options.warmup + options.iterations, Inputs()
    flushed = time.monotonic_ns()
    for done, values in enumerate(rounds):
        outputs = values or outputs
        progress(min(done, total), total)
        if options.deterministic:
            due = recorder.pending >= _FLUSH_RECORDS
        else:
            due = time.monotonic_ns() - flushed >= _FLUSH_NS
        if due or done == 0:
            with host.stopped("write the log"):
                recorder.flush()
            flushed = time.monotonic_ns()
    return outputs


def _work(options: RecordOptions, session: Session, inputs: Inputs) -> Iterator[Inputs]:
    """Run one device: yield once it is set up, then yield the outputs of each run."""
    total = options.warmup + options.iterations
    # A model with a single operator has no iterations: its runs belong to no step.
    has_steps = not session.model.program.is_single_operator

    def run(number: int) -> Inputs:
        following = inputs if options.prefetch is not False and number + 1 < total else None
        step, then_step = (has_steps and place >= options.warmup for place in (number, number + 1))
        return session.run(inputs, step=step, then=following, then_step=then_step)

    with session:
        yield {}
        if options.warmup:
            with session.record("warm up", f'{{"runs": {options.warmup}}}'):
                for number in range(options.warmup):
                    yield run(number)
        for number in range(options.warmup, total):
            yield run(number)


@contextlib.contextmanager
def _in_threads(works: list[Iterator[Inputs]]) -> Iterator[None]:
    """Do each of `works` in a thread of its own during a block; raise the first error at the end."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def drive(work: Iterator[Inputs]) -> None:
        try:
            for _ in work:
                if ended.is_set():
                    return
        except BaseException as failure:  # noqa: BLE001 - raised on the main thread
            failures.append(failure)

    threads = [threading.Thread(target=drive, args=(work,), name="channel", daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    except BaseException:
        ended.set()
        raise
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _options(options: RecordOptions) -> dict[str, object]:
    """Return the options as logged, without paths. What is recorded is included if it is not everything."""
    selected, everything = options.profile.described(), ProfileOptions().described()
    changed = {name: selected[name] for name in _SELECTING if selected[name] != everything[name]}
    if not options.deterministic:
        changed["clock"] = options.profile.clock
    trained = {} if options.train is None else {"train": options.train.described()}
    return (
        changed
        | trained
        | {
            "batch": options.batch,
            "deterministic": options.deterministic,
            "device_spec": "reference" if options.device_spec is None else "file",
            "devices": options.devices,
            "fetch": list(options.fetch),
            "input": "random" if options.input_path is None else "file",
            "iterations": options.iterations,
            "metric_group": options.profile.aic_metrics if options.profile.selection.pmu else None,
            "prefetch": options.train is None if options.prefetch is None else options.prefetch,
            "seed": options.seed,
            "streams": options.streams,
            "warmup": options.warmup,
        }
    )
