"""A killed writer leaves no run that is seen; several writers of one lake agree."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import all_rows
from processes import TRACECONV
from trace_files import write_trace

import traceconv
from traceconv.lake.folder import lake_folder
from traceconv.lake.views import open_lake
from traceconv.pipeline.ingest import ingest

#: Kills an export when a method is called for the Nth time.
_KILLED = """
import os, signal, sys
from traceconv.cli.app import run
from traceconv.lake import folder
name, times, *words = sys.argv[1:]
original, calls = getattr(folder._LocalFolder, name), []
def watched(*arguments, **options):
    calls.append(1)
    if len(calls) == int(times):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments, **options)
setattr(folder._LocalFolder, name, watched)
run(words)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for seed in (1, 2, 3):
        ingest([write_trace(folder / f"{seed}.json", seed=seed, count=2)], folder / "s.duckdb")
    return folder / "s.duckdb"


@pytest.mark.parametrize(("method", "times", "seen"), [("publish", 3, 0), ("publish_entry", 1, 0), ("publish", 20, 1)])
def test_a_killed_export(store: Path, tmp_path: Path, method: str, times: int, seen: int) -> None:
    """The runs that were complete are in the lake; the next export adds the others."""
    lake = tmp_path / "lake"
    words = ["export", "parquet", "--db", str(store), "-o", str(lake)]
    done = subprocess.run([sys.executable, "-c", _KILLED, method, str(times), *words], check=False)
    assert done.returncode == -signal.SIGKILL
    if seen:
        with traceconv.open_store(lake) as opened:
            assert len(opened.runs()) == seen
    else:
        with pytest.raises(traceconv.InputError, match="has no runs"):
            open_lake(lake)
    with traceconv.open_store(store) as opened:
        opened.export_parquet(lake)
    ingest([lake], tmp_path / "back.duckdb")
    assert all_rows(tmp_path / "back.duckdb") == all_rows(store)


def test_a_killed_ingest_into_a_lake(store: Path, tmp_path: Path) -> None:
    """The run that was complete is kept; the same command adds the others, and the lake is that of an ingest."""
    files = [str(store.parent / f"{seed}.json") for seed in (1, 2, 3)]
    words = ["lake", "ingest", *files, "--into", str(tmp_path / "lake")]
    done = subprocess.run([sys.executable, "-c", _KILLED, "publish_entry", "2", *words], check=False)
    assert done.returncode == -signal.SIGKILL
    again = subprocess.run([*TRACECONV, *words], check=True, stderr=subprocess.PIPE, text=True)
    assert [line.split()[1] for line in again.stderr.splitlines() if " run " in line] == ["is", "ingested", "ingested"]
    ingest([tmp_path / "lake"], tmp_path / "back.duckdb")
    assert all_rows(tmp_path / "back.duckdb") == all_rows(store)


def test_writers_at_once(store: Path, tmp_path: Path) -> None:
    """Each run is in the lake once, with the files of one of them."""
    command = [*TRACECONV, "export", "parquet", "--db", str(store), "-o", str(tmp_path / "lake")]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ended = [(one.communicate()[1], one.returncode) for one in writers]
    assert [code for _, code in ended] == [0] * 3, ended
    assert len(list((tmp_path / "lake" / "task").rglob("*.parquet"))) <= 3
    with traceconv.open_store(tmp_path / "lake") as lake, traceconv.open_store(store) as opened:
        labels = [row["label"] for row in lake.runs()]
        assert sorted(labels) == sorted(row["label"] for row in opened.runs())
        sql = "SELECT label, count(*) FROM range JOIN run USING (run_id) GROUP BY label ORDER BY label"
        assert lake.query(sql).fetchall() == opened.query(sql).fetchall()


def test_another_writer_removes_the_empty_folder_for_partial_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def remove_before(**options: Any) -> str:
        monkeypatch.undo()
        options["dir"].rmdir()  # between mkdir and this call
        return make(**options)

    monkeypatch.setattr(tempfile, "mkdtemp", remove_before)
    with lake_folder(tmp_path / "lake").staging() as folder:
        assert folder.is_dir()
    assert not any((tmp_path / "lake").iterdir())
