"""Runs inputs one after another, each generated from its number; stores failures with the command to repeat them."""

from __future__ import annotations

import faulthandler
import hashlib
import random
import resource
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.base.errors import TraceconvError

from .targets import TARGETS, Input, Target, clear

#: How long one input may take, in seconds; then the process ends, and the input counts as one that hangs.
SECONDS_AN_INPUT = 20
#: Address space beyond what is taken at the start: more is a failure.
MEMORY_BYTES = 3 << 30


@dataclass
class Tally:
    """What came of the inputs: refused means a TraceconvError."""

    inputs: int = 0
    refused: int = 0
    failed: int = 0
    by_target: dict[str, int] = field(default_factory=dict)
    failures: dict[str, Path] = field(default_factory=dict)


class Fuzzer:
    """Inputs by number: the same seed and number make the same input on any machine."""

    def __init__(self, names: list[str], seed: int, failures: Path) -> None:
        base = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.work = Path(tempfile.mkdtemp(prefix="traceconv-fuzz-", dir=base))
        self.seed = seed
        self.failures = failures
        self.targets: list[Target] = []
        for name in names:
            folder = self.work / name
            folder.mkdir()
            target = TARGETS[name](folder)
            target.name = name
            self.targets.append(target)
        self.tally = Tally()

    def close(self) -> None:
        """Takes the folder of the targets away."""
        clear(self.work)

    def input(self, number: int) -> tuple[Target, Input]:
        """The target and the input of a number."""
        rng = random.Random(f"{self.seed}:{number}")
        (target,) = rng.choices(self.targets, [one.weight for one in self.targets])
        return target, target.input(rng)

    def run(self, number: int) -> None:
        """Make an input, read it, and count the results."""
        target, one = self.input(number)
        self.tally.inputs += 1
        self.tally.by_target[target.name] = self.tally.by_target.get(target.name, 0) + 1
        if not self.try_one(target, one):
            self.tally.failed += 1

    def try_one(self, target: Target, one: Input) -> bool:
        """Whether an input gave rows or a TraceconvError; if not, it is kept."""
        try:
            target.run(one)
        except TraceconvError as error:
            self.tally.refused += 1
            if "\n" in str(error) or not str(error).isprintable():
                return self._failed(
                    target, one, f"an error of several lines, or with control characters: {error!r}", "text"
                )
        except Exception as error:  # noqa: BLE001 - whatever comes out is the finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            mine = [frame for frame in traceback.extract_tb(error.__traceback__) if "traceconv" in frame.filename]
            near = mine[-1] if mine else where
            key = f"{type(error).__name__} {Path(near.filename).name}:{near.lineno}"
            return self._failed(target, one, traceback.format_exc(), key)
        return True

    def _failed(self, target: Target, one: Input, text: str, key: str) -> bool:
        if f"{target.name}: {key}" in self.tally.failures:
            return False  # one of a kind is enough
        self.tally.failures[f"{target.name}: {key}"] = keep(self.failures, target.name, one, f"{key}\n\n{text}")
        return False


def keep(folder: Path, target: str, one: Input, text: str) -> Path:
    """Stores an input, and next to it what happened and the command that repeats it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{hashlib.sha256(one[1]).hexdigest()[:12]}"
    path.write_bytes(one[0].encode() + b"\n" + one[1])
    command = f"python -m tests.fuzz --target {target} --replay {path}"
    path.with_suffix(".txt").write_text(f"{command}\n\n{text}\n", encoding="utf-8", errors="backslashreplace")
    return path


def kept(path: Path) -> Input:
    """A stored input."""
    name, _, data = path.read_bytes().partition(b"\n")
    return name.decode(), data


def numbers(first: int, step: int, count: int | None, seconds: float | None) -> Iterator[int]:
    """Numbers of inputs, up to a count or a time limit."""
    end = None if seconds is None else time.monotonic() + seconds
    number = first
    while (count is None or number < count) and (end is None or time.monotonic() < end):
        yield number
        number += step


def limit_memory() -> None:
    """What the process takes beyond this makes an allocation fail."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if _PROC else 0
    if taken:
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, resource.RLIM_INFINITY))


def watch(log: object, seconds: float) -> None:
    """Ends the process, with where it was, when one input takes longer: also inside of C."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=log)  # type: ignore[arg-type]


_PROC = Path("/proc/self/statm").exists()
