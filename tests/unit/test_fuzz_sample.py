"""A fixed sample of what `make fuzz` runs; and a check that the fuzzer detects failures."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import engine
from fuzz.engine import Fuzzer, kept
from fuzz.targets import TARGETS, Input, Target

from traceconv.base.errors import InputError

ROOT = Path(__file__).parents[2]
#: Inputs of each target: as many as some seconds allow in all.
INPUTS = {
    "capture": 6,
    "own_chrome_json": 5,
    "own_perfetto_proto": 5,
    "frames": 60,
    "rules": 60,
    "furiosa_csv": 60,
    "megengine_static": 60,
    "speedscope": 40,
    "vendor_csv": 30,
}


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "ingest"])
def test_mutated_samples_yield_rows_or_log_entries(name: str, tmp_path: Path) -> None:
    fuzzer = Fuzzer([name], seed=7, failures=tmp_path)
    try:
        for number in range(INPUTS.get(name, 12)):
            fuzzer.run(number)
    finally:
        fuzzer.close()
    assert fuzzer.tally.failures == {}, [path.with_suffix(".txt").read_text() for path in tmp_path.glob("*.txt")]


@pytest.mark.long
def test_mutated_samples_are_ingested_into_a_store(tmp_path: Path) -> None:
    fuzzer = Fuzzer(["ingest"], seed=7, failures=tmp_path)
    try:
        for number in range(60):
            fuzzer.run(number)
    finally:
        fuzzer.close()
    assert fuzzer.tally.failures == {}, [path.with_suffix(".txt").read_text() for path in tmp_path.glob("*.txt")]


@pytest.mark.parametrize("name", ["chrome_json", "frames"])
def test_an_input_is_determined_by_its_number(name: str, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        fuzzer = Fuzzer([name], seed=3, failures=tmp_path)
        found.append([fuzzer.input(number)[1] for number in range(5)])
        fuzzer.close()
    assert found[0] == found[1]


class _Faulty(Target):
    name, weight = "faulty", 1

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.samples = [("a", b"x")]

    def input(self, rng: random.Random) -> Input:
        return "a", bytes([rng.randrange(4)])

    def run(self, one: Input) -> None:
        if one[1] == b"\x00":
            raise InputError("that is no file")
        if one[1] == b"\x01":
            raise InputError("two\nlines")
        if one[1] == b"\x02":
            raise KeyError("a traceback")


def test_failures_are_detected_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.TARGETS, "faulty", _Faulty)
    fuzzer = Fuzzer(["faulty"], seed=1, failures=tmp_path / "out")
    for number in range(40):
        fuzzer.run(number)
    fuzzer.close()
    tally = fuzzer.tally
    assert tally.inputs == 40
    assert tally.refused > 0
    assert tally.failed > 2
    assert sorted(key.split()[1] for key in tally.failures) == ["KeyError", "text"]
    paths = sorted(tally.failures.values())
    assert sorted(kept(path)[1] for path in paths) == [b"\x01", b"\x02"]
    assert all(f"--replay {path}" in path.with_suffix(".txt").read_text() for path in paths)
    assert not fuzzer.work.exists()


@pytest.mark.long
def test_the_program_repeats_an_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--target", "frames"]
    done = subprocess.run(
        [*command, "--inputs", "20", "--jobs", "2", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "20 inputs in" in done.stdout
    (tmp_path / "one").write_bytes(b"api.slice_0.bin\n\x89NPULOG\n")
    done = subprocess.run(
        [*command, "--replay", str(tmp_path / "one")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "read\n", done.stderr


@pytest.mark.long
def test_an_input_that_takes_too_long_ends_its_process_only(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--target", "capture", "--limit", "0.001"]
    done = subprocess.run(
        [*command, "--inputs", "3", "--jobs", "1", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "input 0: Timeout" in done.stdout
    assert "input 2: Timeout" in done.stdout
    assert "3 failed" in done.stdout
