"""`traceconv record` without the command line: one model, run so many times, into one capture folder."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traceconv import __version__
from traceconv.errors import OutputError, UsageError, printable, suggestion
from traceconv.runtime import counters
from traceconv.runtime.clock import DeviceClock, Random
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.host import Host, live_host, modelled_host
from traceconv.runtime.inputs import fitting_inputs, random_inputs, read_arrays
from traceconv.runtime.recorder import Recorder
from traceconv.runtime.session import CompiledModel, Session, compile_model

_WRITER = f"traceconv {__version__} reference NPU"
#: 2024-01-01T00:00:00Z; deterministic captures begin within the year after it.
_MODELLED_EPOCH_S = 1_704_067_200
_YEAR_S = 366 * 86_400
#: Records wait for no longer than this, or until there are so many, so that a killed process leaves the rest.
_FLUSH_NS = 200_000_000
_FLUSH_RECORDS = 256


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to run and how. `model`: a path, or a name of `zoo.model_names()`.

    `input_path`: an .npz file, or None for random inputs. `aic_metrics`: which group of counters the device keeps,
    one of `counters.RECORDS`.
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished capture: its folder, the model's name, ops of one iteration, the last outputs by name."""

    folder: Path
    model_name: str
    op_count: int
    outputs: dict[str, Array]


@dataclass(frozen=True, slots=True)
class _Identity:
    """Who records and when: from the machine, or all of it from the seed."""

    folder_name: str
    writer_id: int
    host_ns: int | None
    epoch_ns: int
    process_id: int
    channel_id: int
    host_name: str
    counter_offset: int
    seeds: tuple[int, int]


def record(options: RecordOptions, progress: Callable[[int, int], None] = lambda done, total: None) -> Recorded:
    """Runs a model on the reference NPU and logs it; `progress` is told runs done and runs in all.

    Raises ModelError, InputError and UsageError before anything is written, OutputError when the folder
    can't be. Whatever ends it early, what was logged so far stays, without a manifest.
    """
    _check(options)
    given = None if options.input_path is None else read_arrays(options.input_path)
    model = compile_model(options.model, options.batch, inputs=given, seed=options.seed)
    inputs = random_inputs(model, options.seed) if given is None else fitting_inputs(model, given)
    # Some ops find fault with their inputs only when they run: better now than in the middle of a capture.
    model.executor.run(inputs)
    identity = _modelled_identity(options.seed) if options.deterministic else _real_identity(options.output_dir)
    folder = options.output_dir / identity.folder_name
    if folder.exists():
        raise OutputError(f"{printable(str(folder))} is there already: give another folder, or remove it")
    recorder = Recorder(
        folder,
        writer_id=identity.writer_id,
        device_clock_hz={0: model.spec.clock_hz},
        metric_group=options.aic_metrics,
    )
    host: Host | None = None
    try:
        if identity.host_ns is None:
            host = live_host(recorder, identity.channel_id)
        else:
            host = modelled_host(recorder, identity.channel_id, identity.host_ns, identity.seeds[0])
        outputs = _record(options, model, inputs, host, recorder, identity, progress)
        host.stop()
        recorder.close(_manifest(options, model))
    except BaseException:
        if host is not None:
            host.stop()
        _leave(recorder)
        raise
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
    if options.aic_metrics not in counters.RECORDS:
        near = suggestion(options.aic_metrics, list(counters.RECORDS))
        raise UsageError(
            f"--aic-metrics '{printable(options.aic_metrics)}': no such group.{near} All: {', '.join(counters.RECORDS)}"
        )


def _record(
    options: RecordOptions,
    model: CompiledModel,
    inputs: dict[str, Array],
    host: Host,
    recorder: Recorder,
    identity: _Identity,
    progress: Callable[[int, int], None],
) -> dict[str, Array]:
    start_ns = host.channel.now()
    recorder.capture(
        start_ns,
        identity.epoch_ns,
        identity.process_id,
        identity.host_name,
        model.name,
        _WRITER,
        _options(options),
    )
    for order, thread in enumerate((host.channel, host.worker)):
        recorder.thread(identity.process_id, "traceconv record", thread.thread_id, thread.name, order)
    clock = DeviceClock(start_ns, identity.counter_offset, model.spec.clock_hz, model.spec.drift_ppb)
    total = options.warmup + options.iterations
    outputs: dict[str, Array] = {}
    flushed = time.monotonic_ns()
    progress(0, total)
    with Session(model, host, Device(model.spec, clock), seed=identity.seeds[1]) as session:
        recorder.flush()
        if options.warmup:
            with session.record("warm up", f'{{"runs": {options.warmup}}}'):
                for done in range(options.warmup):
                    session.run(inputs, step=False)
                    progress(done + 1, total)
        for done in range(options.warmup, total):
            outputs = session.run(inputs)
            if options.deterministic:
                due = recorder.pending >= _FLUSH_RECORDS
            else:
                due = time.monotonic_ns() - flushed >= _FLUSH_NS
            if due:
                with host.stopped():
                    recorder.flush()
                flushed = time.monotonic_ns()
            progress(done + 1, total)
    return outputs


def _options(options: RecordOptions) -> dict[str, object]:
    """The options as the log keeps them: no path of the machine."""
    return {
        "batch": options.batch,
        "deterministic": options.deterministic,
        "input": "random" if options.input_path is None else "file",
        "iterations": options.iterations,
        "metric_group": options.aic_metrics,
        "seed": options.seed,
        "warmup": options.warmup,
    }


def _manifest(options: RecordOptions, model: CompiledModel) -> dict[str, object]:
    return {
        "writer": _WRITER,
        "model": model.name,
        "device_ids": [0],
        "options": _options(options),
    }


def _real_identity(output_dir: Path) -> _Identity:
    epoch_ns = time.time_ns()
    return _Identity(
        _folder_name(_next_sequence(output_dir), epoch_ns, secrets.randbits(32)),
        secrets.randbits(64),
        None,
        epoch_ns,
        os.getpid(),
        os.getpid(),
        socket.gethostname(),
        secrets.randbits(40),
        (secrets.randbits(64), secrets.randbits(64)),
    )


def _modelled_identity(seed: int) -> _Identity:
    random = Random(seed)
    epoch_ns = (_MODELLED_EPOCH_S + random.below(_YEAR_S)) * 10**9
    process_id = 1_000 + random.below(30_000)
    return _Identity(
        _folder_name(1, epoch_ns, random.below(1 << 32)),
        random.bits64(),
        random.below(10**15),
        epoch_ns,
        process_id,
        process_id,
        "reference-host",
        random.below(1 << 40),
        (random.bits64(), random.bits64()),
    )


def _folder_name(sequence: int, epoch_ns: int, number: int) -> str:
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(epoch_ns // 10**9))
    return f"PROF_{sequence:06d}_{stamp}_{number:08X}"


def _next_sequence(output_dir: Path) -> int:
    """One more than the captures that are in the folder."""
    try:
        names = [entry.name for entry in output_dir.iterdir()]
    except OSError:
        return 1  # not there yet, or unreadable: making the capture will say so
    numbers = [int(match[1]) for name in names if (match := re.match(r"PROF_([0-9]{1,9})_", name))]
    return max(numbers, default=0) + 1
