"""`python -m tests.fuzz`: runs a number of inputs, or for a time, on all cores; keeps failing ones. See --help."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from .coverage import fuzz_with_coverage, instrument

if "--atheris" in sys.argv:
    instrument()  # before anything of the project is loaded

from .engine import SECONDS_AN_INPUT, Fuzzer, keep, kept, limit_memory, numbers, watch
from .targets import TARGETS

_REPORT_SECONDS = 1.0


def main() -> int:
    """Exit code: 0 nothing was found, 1 something was."""
    arguments = _parser().parse_args()
    if arguments.replay:
        return _replay(arguments)
    if arguments.atheris:
        return fuzz_with_coverage(arguments.targets or list(TARGETS), Path(arguments.out))
    if arguments.worker is not None:
        return _work(arguments)
    return _spread(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, help="how many inputs in all (default: no limit)")
    parser.add_argument("--seconds", type=float, help="for how long (default: 60, without --inputs)")
    parser.add_argument("--seed", type=int, default=0, help="other seeds make other inputs (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: 0)")
    parser.add_argument("--target", action="append", dest="targets", choices=list(TARGETS), help="only this; repeat")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument(
        "--limit", type=float, default=SECONDS_AN_INPUT, help=f"seconds that one input may take ({SECONDS_AN_INPUT})"
    )
    parser.add_argument("--out", default="build/fuzz", help="where failing inputs go (default: build/fuzz)")
    parser.add_argument("--replay", metavar="FILE", help="read a kept input once more, and show what happens")
    parser.add_argument("--atheris", action="store_true", help="led by coverage, if atheris is installed; on one core")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--state", help=argparse.SUPPRESS)
    return parser


def _replay(arguments: argparse.Namespace) -> int:
    if not arguments.targets:
        sys.exit("--replay needs --target")
    fuzzer = Fuzzer(arguments.targets[:1], arguments.seed, Path(arguments.out))
    try:
        fuzzer.targets[0].run(kept(Path(arguments.replay)))
    finally:
        fuzzer.close()
    print("read")
    return 0


def _work(arguments: argparse.Namespace) -> int:
    """One process of several, which runs every n-th number. A file has its current input, in case it ends."""
    state = Path(arguments.state)
    fuzzer = Fuzzer(arguments.targets or list(TARGETS), arguments.seed, Path(arguments.out))
    limit_memory()
    reported_at = 0.0
    try:
        with state.with_suffix(".now").open("w") as now, state.with_suffix(".hang").open("w") as hang:
            for number in numbers(arguments.worker, arguments.jobs, arguments.inputs, arguments.seconds):
                now.seek(0)
                now.write(f"{number:<20}")
                now.flush()
                watch(hang, arguments.limit)
                fuzzer.run(number)
                if time.monotonic() - reported_at > _REPORT_SECONDS:
                    reported_at = time.monotonic()
                    _say(state, fuzzer)
        _say(state, fuzzer)
    finally:
        fuzzer.close()
    return 0


def _say(state: Path, fuzzer: Fuzzer) -> None:
    tally = fuzzer.tally
    found = {key: str(path) for key, path in tally.failures.items()}
    text = json.dumps([tally.inputs, tally.refused, tally.failed, tally.by_target, found])
    part = state.with_suffix(".part")
    part.write_text(text)
    part.replace(state)


def _spread(arguments: argparse.Namespace) -> int:
    """Starts the processes, and restarts one that an input ended."""
    seconds = arguments.seconds if arguments.seconds or arguments.inputs else 60.0
    began = time.monotonic()
    out = Path(arguments.out)
    totals: list[tuple[int, int, int, dict[str, int], dict[str, str]]] = []
    ended: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="traceconv-fuzz-") as folder:
        states = [Path(folder) / f"worker{number}.json" for number in range(arguments.jobs)]
        running = {
            number: _start(arguments, number, arguments.first + number, seconds, state)
            for number, state in enumerate(states)
        }
        while running:
            time.sleep(0.2)
            for number, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[number]
                state = states[number]
                if state.exists():
                    totals.append(json.loads(state.read_text()))
                    state.unlink()
                if process.returncode == 0:
                    continue
                at = int(state.with_suffix(".now").read_text() or 0)
                why = state.with_suffix(".hang").read_text() or f"the process ended with {process.returncode}"
                ended[f"input {at}: {why.splitlines()[0]}"] = str(_keep(arguments, at, why, out))
                left = None if seconds is None else seconds - (time.monotonic() - began)
                if left is None or left > 1:
                    running[number] = _start(arguments, number, at + arguments.jobs, left, state)
    return _summary(totals, ended, time.monotonic() - began, arguments)


def _start(
    arguments: argparse.Namespace, number: int, first: int, seconds: float | None, state: Path
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.fuzz", "--worker", str(first), "--jobs", str(arguments.jobs)]
    command += ["--seed", str(arguments.seed), "--state", str(state), "--out", arguments.out]
    command += ["--limit", str(arguments.limit)]
    if arguments.inputs is not None:
        command += ["--inputs", str(arguments.first + arguments.inputs)]
    if seconds is not None:
        command += ["--seconds", str(seconds)]
    for target in arguments.targets or ():
        command += ["--target", target]
    return subprocess.Popen(command)


def _keep(arguments: argparse.Namespace, number: int, why: str, out: Path) -> Path:
    fuzzer = Fuzzer(arguments.targets or list(TARGETS), arguments.seed, out)
    try:
        target, one = fuzzer.input(number)
        return keep(out, target.name, one, why)
    finally:
        fuzzer.close()


def _summary(
    totals: list[tuple[int, int, int, dict[str, int], dict[str, str]]],
    ended: dict[str, str],
    seconds: float,
    arguments: argparse.Namespace,
) -> int:
    inputs, refused = sum(one[0] for one in totals), sum(one[1] for one in totals)
    failed = sum(one[2] for one in totals) + len(ended)
    by_target: dict[str, int] = {}
    found: dict[str, str] = {**ended}
    for _, _, _, counts, failures in totals:
        for name, count in counts.items():
            by_target[name] = by_target.get(name, 0) + count
        found.update(failures)
    for name in sorted(by_target):
        print(f"  {name:<18}{by_target[name]:>12,}")
    print(
        f"{inputs:,} inputs in {seconds:.0f} s (seed {arguments.seed}): {refused:,} refused in words, {failed:,} failed"
    )
    for key, path in sorted(found.items()):
        print(f"  {key}\n    {path}.txt")
    return 1 if failed else 0


sys.exit(main())
