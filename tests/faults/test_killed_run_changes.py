"""A `traceconv runs` that is killed leaves the old store or the new one, and the next one cleans up."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ingest_checks import all_rows
from processes import TRACECONV
from trace_files import write_trace

from traceconv.cli.app import run
from traceconv.pipeline.ingest import ingest

#: Kills a command when a method is called for the Nth time with an argument that contains a text.
_KILLED = """
import os, signal, sys
from traceconv.cli.app import run
from traceconv.store import compact, writer
place, name, text, times, *words = sys.argv[1:]
owner = {"writer": writer.StoreWriter, "compact": compact}[place]
original, calls = getattr(owner, name), []
def watched(*arguments):
    if any(text in str(one) for one in arguments):
        calls.append(1)
        if len(calls) == int(times):
            os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)
setattr(owner, name, watched)
run(words)
"""
CHANGES = {"delete": ("delete", "1"), "merge": ("merge", "other.duckdb"), "label": ("label", "2", "b")}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs, and another of one."""
    folder = tmp_path_factory.mktemp("stores")
    for name, seeds in (("s", (1, 2)), ("other", (3,))):
        for seed in seeds:
            ingest([write_trace(folder / f"{seed}.json", seed=seed, count=2)], folder / f"{name}.duckdb")
    return folder


def change(folder: Path, words: tuple[str, ...]) -> list[str]:
    files = [str(folder / word) if word.endswith(".duckdb") else word for word in words]
    return ["runs", *files, "--db", str(folder / "s.duckdb")]


@pytest.mark.parametrize(
    ("what", "place", "is_new"),
    [
        ("delete", ("writer", "_execute_at_once", "DELETE FROM", "9"), False),
        ("delete", ("writer", "_execute_at_once", "COMMIT", "1"), False),
        ("delete", ("writer", "_execute_at_once", "CHECKPOINT", "1"), True),
        ("delete", ("compact", "lock_down", "", "1"), True),
        ("delete", ("compact", "sync", "partial", "1"), True),
        ("delete", ("compact", "sync", "", "2"), True),
        ("merge", ("writer", "_execute_at_once", "INSERT INTO", "12"), False),
        ("merge", ("writer", "_execute_at_once", "CHECKPOINT", "1"), True),
        ("label", ("writer", "_execute_at_once", "COMMIT", "1"), False),
    ],
)
def test_a_kill_leaves_the_old_or_the_new_store(
    stores: Path, tmp_path: Path, what: str, place: tuple[str, ...], is_new: bool
) -> None:
    old, new = shutil.copytree(stores, tmp_path / "old"), shutil.copytree(stores, tmp_path / "new")
    words = CHANGES[what]
    assert run(change(new, words)) == 0
    expected = all_rows((new if is_new else stores) / "s.duckdb")
    done = subprocess.run([sys.executable, "-c", _KILLED, *place, *change(old, words)], check=False)
    assert done.returncode == -9
    assert all_rows(old / "s.duckdb") == expected
    assert run(change(old, ("label", "2", "c"))) == 0
    assert sorted(path.name for path in old.glob("*duckdb*")) == ["other.duckdb", "s.duckdb"]


@pytest.mark.long
@pytest.mark.parametrize("what", ["delete", "merge"])
def test_a_kill_at_any_time_leaves_the_old_or_the_new_store(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "stores"
    for name, seeds in (("s", (1, 2)), ("other", (3,))):
        for seed in seeds:
            ingest([write_trace(folder / f"{seed}.json", seed=seed, count=10_000)], folder / f"{name}.duckdb")
    old, command = all_rows(folder / "s.duckdb"), TRACECONV
    new, took = _changed(folder, tmp_path / "new", command, what, lambda process: process.wait() and None)
    assert new != old
    chance = random.Random(what)
    for attempt in range(6):
        delay = chance.uniform(0.2, 1) * took
        rows, _ = _changed(folder, tmp_path / str(attempt), command, what, lambda process: _kill_after(process, delay))  # noqa: B023
        # Which of them depends on scheduling; the test above kills at places that leave each.
        assert rows in (old, new)
        shutil.rmtree(tmp_path / str(attempt))


def _changed(
    stores: Path, folder: Path, command: list[str], what: str, ended: Callable[[subprocess.Popen[bytes]], None]
) -> tuple[dict[str, list[tuple[object, ...]]], float]:
    """Change a copy of the stores; return the rows and the time it took."""
    shutil.copytree(stores, folder)
    start = time.monotonic()
    with subprocess.Popen([*command, *change(folder, CHANGES[what])]) as process:
        ended(process)
    return all_rows(folder / "s.duckdb"), time.monotonic() - start


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
