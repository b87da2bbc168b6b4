"""`traceconv record` without the command line: one model, run so many times, into one capture folder."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from traceconv import __version__
from traceconv.errors import OutputError, UsageError, printable, suggestion
from traceconv.runtime import counters
from traceconv.runtime.clock import LiveClock
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.host import THREADS, Host, live_host, modelled_host
from traceconv.runtime.identity import Identity, modelled_identity, real_identity
from traceconv.runtime.inference import CaptureIds
from traceconv.runtime.inputs import fitting_inputs, random_inputs, read_arrays
from traceconv.runtime.recorder import Recorder
from traceconv.runtime.schedule import schedule
from traceconv.runtime.session import MODEL_ID, CompiledModel, Session, compile_model
from traceconv.runtime.spec import DeviceSpec, load_spec, reference_npu
from traceconv.runtime.truth import TRUTH, DeviceTruth, write_truth

_WRITER = f"traceconv {__version__} reference NPU"
_MAX_DEVICES = 64
#: Records wait for no longer than this, or until there are so many, so that a killed process leaves the rest.
_FLUSH_NS = 200_000_000
_FLUSH_RECORDS = 256

Inputs = dict[str, Array]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to run and how. `model`: a path, or a name of `zoo.model_names()`.

    input_path    an .npz file, or None for random inputs
    aic_metrics   which group of counters the device keeps, one of `counters.RECORDS`
    devices       how many run the model at a time, each for itself
    device_spec   a TOML file that describes them; None: the reference NPU
    streams       most compute streams in use; None: as the device has
    prefetch      whether the inputs of a run are copied while the one before it computes
    fetch         tensors whose values the host reads in the midst of each run
    truth         whether what really happened is written beside the manifest
    """

    model: str
    output_dir: Path
    iterations: int = 5
    warmup: int = 0
    batch: int | None = None
    input_path: Path | None = None
    seed: int = 0
    deterministic: bool = False
    aic_metrics: str = counters.DEFAULT_GROUP
    devices: int = 1
    device_spec: Path | None = None
    streams: int | None = None
    prefetch: bool = True
    fetch: tuple[str, ...] = ()
    truth: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished capture: its folder, the model's name, ops of one iteration, the last outputs of device 0 by name."""

    folder: Path
    model_name: str
    op_count: int
    outputs: Inputs


@dataclass(frozen=True, slots=True)
class _Lane:
    """One device at work: its host threads, its model, its inputs."""

    host: Host
    session: Session
    inputs: Inputs
    truth: DeviceTruth | None


def record(options: RecordOptions, progress: Callable[[int, int], None] = lambda done, total: None) -> Recorded:
    """Runs a model on the reference NPU and logs it; `progress` is told runs done and runs in all.

    Raises ModelError, InputError and UsageError before anything is written, OutputError when the folder
    can't be. Whatever ends it early, what was logged so far stays, without a manifest.
    """
    _check(options)
    spec = _spec(options)
    given = None if options.input_path is None else read_arrays(options.input_path)
    model = compile_model(options.model, options.batch, inputs=given, seed=options.seed, spec=spec)
    schedule(model.program, model.spec, options.fetch)
    if given is None:
        inputs = [random_inputs(model, options.seed + device) for device in range(options.devices)]
    else:
        inputs = [fitting_inputs(model, given)] * options.devices
    # Some ops find fault with their inputs only when they run: better now than in the middle of a capture.
    for values in inputs if given is None else inputs[:1]:
        model.executor.run(values)
    identity = modelled_identity(options.seed) if options.deterministic else real_identity(options.output_dir)
    folder = options.output_dir / identity.folder_name
    if folder.exists():
        raise OutputError(f"{printable(str(folder))} is there already: give another folder, or remove it")
    recorder = Recorder(
        folder,
        writer_id=identity.writer_id,
        device_clock_hz=dict.fromkeys(range(options.devices), model.spec.clock_hz),
        metric_group=options.aic_metrics,
    )
    lanes: list[_Lane] = []
    try:
        lanes += _lanes(options, model, inputs, recorder, identity)
        outputs = _run(options, lanes, recorder, progress)
        if options.truth:
            write_truth(folder / TRUTH, [lane.truth for lane in lanes if lane.truth is not None])
        recorder.close(_manifest(options, model))
    except BaseException:
        _leave(recorder)
        raise
    finally:
        for lane in lanes:
            lane.host.stop()
    return Recorded(folder, model.name, len(model.program.ops), outputs)


def _leave(recorder: Recorder) -> None:
    """Keeps what is logged so far, without a manifest: a capture that was cut off."""
    with contextlib.suppress(OutputError):  # what ended the recording is told, and may be this very thing
        recorder.flush()
    recorder.abandon()


def _check(options: RecordOptions) -> None:
    if options.iterations < 1:
        raise UsageError(f"--iterations {options.iterations}: must be at least 1")
    if options.warmup < 0:
        raise UsageError(f"--warmup {options.warmup}: must not be negative")
    if not 0 <= options.seed < 1 << 63:
        raise UsageError(f"--seed {options.seed}: must be from 0 to 2^63 - 1")
    if not 1 <= options.devices <= _MAX_DEVICES:
        raise UsageError(f"--devices {options.devices}: must be from 1 to {_MAX_DEVICES}")
    if options.streams is not None and not 1 <= options.streams <= 64:
        raise UsageError(f"--streams {options.streams}: must be from 1 to 64")
    if options.aic_metrics not in counters.RECORDS:
        near = suggestion(options.aic_metrics, list(counters.RECORDS))
        raise UsageError(
            f"--aic-metrics '{printable(options.aic_metrics)}': no such group.{near} All: {', '.join(counters.RECORDS)}"
        )


def _spec(options: RecordOptions) -> DeviceSpec:
    spec = reference_npu() if options.device_spec is None else load_spec(options.device_spec)
    return spec if options.streams is None else replace(spec, compute_stream_count=options.streams)


def _lanes(
    options: RecordOptions, model: CompiledModel, inputs: list[Inputs], recorder: Recorder, identity: Identity
) -> Iterator[_Lane]:
    """A device after another, each with threads and a clock of its own; the host's clock is one."""
    ids = CaptureIds()
    clock = LiveClock()
    for device_id in range(options.devices):
        first = identity.process_id + device_id * len(THREADS)
        thread_ids = range(first, first + len(THREADS))
        names = tuple(name if options.devices == 1 else f"{name} {device_id}" for name in THREADS)
        host_seed, trace_seed = identity.device_seeds(device_id)
        if identity.host_ns is None:
            host = live_host(recorder, thread_ids, names, clock, ids.correlations)
        else:
            host = modelled_host(recorder, thread_ids, names, identity.host_ns, host_seed, ids.correlations)
        start_ns = host.channel.now()
        if device_id == 0:
            recorder.capture(
                start_ns,
                identity.epoch_ns,
                identity.process_id,
                identity.host_name,
                model.name,
                _WRITER,
                _options(options),
            )
        for order, thread in enumerate((host.channel, host.worker, host.driver), device_id * len(THREADS)):
            recorder.thread(identity.process_id, "traceconv record", thread.thread_id, thread.name, order)
        device = Device(model.spec, identity.device_clock(device_id, start_ns, model.spec), device_id)
        truth = DeviceTruth(device) if options.truth else None
        session = Session(model, host, device, ids=ids, seed=trace_seed, fetch=options.fetch, truth=truth)
        yield _Lane(host, session, inputs[device_id], truth)
    recorder.model(model.spec, model.program, MODEL_ID)


def _run(
    options: RecordOptions, lanes: list[_Lane], recorder: Recorder, progress: Callable[[int, int], None]
) -> Inputs:
    """Runs all lanes: in turn where time is modelled, side by side where it is real. Outputs of the first."""
    outputs: Inputs = {}
    total, flushed = options.warmup + options.iterations, time.monotonic_ns()
    first = lanes[0]
    works = [_work(options, lane) for lane in lanes]
    helpers = contextlib.ExitStack()
    if options.deterministic:
        rounds: Iterator[Inputs | None] = (values[0] for values in zip_longest(*works))
    else:
        helpers.enter_context(_side_by_side(works[1:]))
        rounds = works[0]
    with helpers:
        for done, values in enumerate(rounds):
            outputs = values or outputs
            progress(min(done, total), total)
            if options.deterministic:
                due = recorder.pending >= _FLUSH_RECORDS
            else:
                due = time.monotonic_ns() - flushed >= _FLUSH_NS
            if due or done == 0:
                with first.host.stopped():
                    recorder.flush()
                flushed = time.monotonic_ns()
    return outputs


def _work(options: RecordOptions, lane: _Lane) -> Iterator[Inputs]:
    """One device's work: yields once it is set up, and after each run its outputs."""
    session, inputs = lane.session, lane.inputs
    total = options.warmup + options.iterations

    def run(number: int) -> Inputs:
        following = inputs if options.prefetch and number + 1 < total else None
        step = number >= options.warmup
        return session.run(inputs, step=step, then=following, then_step=number + 1 >= options.warmup)

    with session:
        yield {}
        if options.warmup:
            with session.record("warm up", f'{{"runs": {options.warmup}}}'):
                for number in range(options.warmup):
                    yield run(number)
        for number in range(options.warmup, total):
            yield run(number)


@contextlib.contextmanager
def _side_by_side(works: list[Iterator[Inputs]]) -> Iterator[None]:
    """Does each of `works` in a thread of its own; what goes wrong there is raised at the end."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def drive(work: Iterator[Inputs]) -> None:
        try:
            for _ in work:
                if ended.is_set():
                    return
        except BaseException as failure:  # noqa: BLE001 - carried over to the main thread, which raises it
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
    """The options as the log keeps them: no path of the machine."""
    return {
        "batch": options.batch,
        "deterministic": options.deterministic,
        "device_spec": "reference" if options.device_spec is None else "file",
        "devices": options.devices,
        "fetch": list(options.fetch),
        "input": "random" if options.input_path is None else "file",
        "iterations": options.iterations,
        "metric_group": options.aic_metrics,
        "prefetch": options.prefetch,
        "seed": options.seed,
        "streams": options.streams,
        "warmup": options.warmup,
    }


def _manifest(options: RecordOptions, model: CompiledModel) -> dict[str, object]:
    return {
        "writer": _WRITER,
        "model": model.name,
        "device_ids": list(range(options.devices)),
        "options": _options(options),
    }
