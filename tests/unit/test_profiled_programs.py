"""Complete programs: traced through the environment, killed at any moment, forked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_until
from references import dangling
from runtime_reader import Capture

import traceconv
from traceconv.base.diagnostics import Code
from traceconv.pipeline.ingest import ingest

PROGRAM = """
import sys
from traceconv import Session, span
with Session("mini_resnet") as session:
    inputs = session.random_inputs()
    for number in range(int(sys.argv[1])):
        with span("turn", number=number):
            session.run(inputs)
        if number == 0:
            print("ready", flush=True)
"""


def start(folder: Path, runs: int, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(runs)],
        cwd=folder, env={**os.environ, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_program_is_traced_unchanged(tmp_path: Path) -> None:
    options = '{"aic_metrics": "Memory", "formats": ["raw", "chrome_timeline.json"]}'
    done = start(tmp_path, 3, TRACECONV_OUTPUT="out", TRACECONV_OPTIONS=options)
    printed, complained = done.communicate()
    assert (done.returncode, printed, complained) == (0, "ready\n", "")
    [folder] = [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert (tmp_path / "out" / f"{folder.name}.chrome_timeline.json").stat().st_size > 1000
    capture = Capture(folder)
    assert len(capture["pmu_memory"]) > 0
    begins, _ = capture.pairs("range", "span_id")
    assert capture.text(begins["name"]).count("turn") == 3
    assert (folder / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TRACECONV_OUTPUT": "/dev/null/x"}, "can't write"),
        ({"TRACECONV_OUTPUT": "out", "TRACECONV_OPTIONS": '{"levle": 1}'}, "Did you mean 'level'"),
    ],
)
def test_errors_in_the_environment_are_reported_before_anything_runs(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    done = start(tmp_path, 1, **variables)
    printed, complained = done.communicate()
    assert (done.returncode, printed) == (1, "")
    assert message in complained.splitlines()[-1]
    assert "TRACECONV_OUTPUT" in complained.splitlines()[-1]


def kill_and_ingest(folder: Path, after_bytes: int) -> None:
    """Kills a program that is traced when its logs have that size; what it leaves ingests up to the cut."""
    folder.mkdir()
    program = start(folder, 1_000_000, TRACECONV_OUTPUT="out")
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    logs = folder / "out"
    wait_until(program, lambda: sum(file.stat().st_size for file in logs.rglob("*.bin")) >= after_bytes)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    [run] = ingest([folder / "out"], folder / "trace.duckdb")
    codes = {entry.code for entry in run.log}
    assert Code.NO_MANIFEST in codes
    # Other losses: a block that the kill cut, and what refers to records of another file that were not written yet.
    losses = {Code.TRUNCATED, Code.MISSING_TEXT, Code.ORPHAN_WAIT}
    assert codes <= {Code.NO_MANIFEST, Code.UNFINISHED, Code.CUT_AT, *losses}, run.log
    assert not run.complete
    with traceconv.open_store(folder / "trace.duckdb") as store:
        assert dangling(store.connection) == []
        [(tasks, last)] = store.query("SELECT count(*), max(start_ns + dur_ns) FROM task").fetchall()
        cuts = store.query("SELECT message FROM import_log WHERE code = 'cut_at' ORDER BY message").fetchall()
    streams = {row[0].split(":")[0] for row in cuts}
    if tasks:
        assert streams <= {f"device 0, stream {number}" for number in range(3)} and streams
        assert any(str(last) in row[0] for row in cuts)


@pytest.mark.parametrize("after_bytes", [1, 300_000])
def test_a_killed_program_leaves_its_events_until_then(tmp_path: Path, after_bytes: int) -> None:
    kill_and_ingest(tmp_path / "killed", after_bytes)


@pytest.mark.long
@pytest.mark.parametrize("number", range(50))
def test_a_program_killed_at_any_moment(tmp_path: Path, number: int) -> None:
    kill_and_ingest(tmp_path / "killed", random.Random(number).randrange(1_000_000))


def test_a_fork_leaves_the_profile_to_its_parent(tmp_path: Path) -> None:
    program = """
import os, sys
import traceconv
session = traceconv.Session("mini_resnet")
inputs = session.random_inputs()
with traceconv.profile("out") as p:
    session.run(inputs)
    with p.record("around the fork"):
        child = os.fork()
        session.run(inputs)
    if child:
        assert os.waitpid(child, 0)[1] == 0
if child == 0:
    assert p.captures == []
    with traceconv.profile("child") as mine:
        session.run(inputs)
    assert mine.arrow("step").num_rows == 1
    os._exit(0)  # as the children of multiprocessing do: native libraries can't be unloaded without their threads
assert p.arrow("step").num_rows == 2
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [mine] = (tmp_path / "out").iterdir()
    [childs] = (tmp_path / "child").iterdir()
    for folder, runs in ((mine, 2), (childs, 1)):
        assert (folder / "manifest.json").is_file()
        begins, _ = Capture(folder).pairs("range", "span_id")
        assert Capture(folder).text(begins["name"]).count("Inference") == runs
