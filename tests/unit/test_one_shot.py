"""Commands on trace files: ingested into a cached store, with the same answer and the same losses the second time."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import Command
from processes import TRACECONV

from traceconv.pipeline import trace_store

SQL = "SELECT count(*) AS n, sum(dur_ns) AS ns FROM slice"


def write_trace(path: Path, count: int = 3, *, cut: int = 0) -> Path:
    events = [{"ph": "X", "name": f"e{n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 2} for n in range(count)]
    text = json.dumps(events).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text[: len(text) - cut])
    return path


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "stores"


def asked(command: Command, *arguments: object, code: int = 0) -> tuple[str, str]:
    out, err = command("query", SQL, "--format", "csv", *arguments, code=code)
    return out.removeprefix("n,ns\n").strip(), err


def stores(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix == ".duckdb")


def test_the_second_answer_comes_from_the_cache(
    cache: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = write_trace(tmp_path / "t.json.gz")
    assert asked(command, trace) == ("3,6000", "")
    with monkeypatch.context() as patched:
        patched.setattr(trace_store, "_ingest", lambda *_: pytest.fail("ingested again"))
        patched.chdir(tmp_path)
        assert asked(command, "t.json.gz") == ("3,6000", "")
    assert len(stores(cache)) == 1
    # Another content, size or time is another store.
    write_trace(trace, 4)
    assert asked(command, trace)[0] == "4,8000"
    os.utime(trace, ns=(5, 5))
    assert asked(command, trace)[0] == "4,8000"
    assert len(stores(cache)) == 3
    assert asked(command, trace, "--no-cache")[0] == "4,8000"
    assert len(stores(cache)) == 3


def test_damage_is_reported_each_time(cache: Path, tmp_path: Path, command: Command) -> None:
    trace = write_trace(tmp_path / "t.json", cut=12)
    first = asked(command, trace, code=3)
    assert first[0] == "2,4000"
    assert "data_loss: t.json: " in first[1]
    assert asked(command, trace, code=3) == first
    assert asked(command, trace, "--no-cache", code=3) == first


def test_reports_exports_folders_and_several_files(cache: Path, tmp_path: Path, command: Command) -> None:
    one, two = write_trace(tmp_path / "one.json"), write_trace(tmp_path / "two.json", 5)
    report = ["report", "range-statistic", "--format", "csv", "--columns", "run_id,count"]
    assert command(*report, one, two).out.count("\n2,1") == 5
    assert command(*report, tmp_path / "one.json").out.count("\n1,1") == 3
    (tmp_path / "folder").mkdir()
    write_trace(tmp_path / "folder" / "three.json", 2)
    assert asked(command, tmp_path / "folder")[0] == "2,4000"
    write_trace(tmp_path / "folder" / "four.json", 7)
    assert asked(command, tmp_path / "folder")[0] == "9,18000"
    command("export", "chrome", one, "-o", tmp_path / "out.json")
    assert len([e for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if e["ph"] == "X"]) == 3
    (tmp_path / "q.sql").write_text(SQL)
    assert command("query", "-f", tmp_path / "q.sql", one, "--format", "csv").out == "n,ns\n3,6000\n"


def test_a_folder_with_a_pipe_and_a_broken_link(cache: Path, tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_trace(folder / "t.json")
    os.mkfifo(folder / "pipe.json")  # opening it would wait for a writer
    (folder / "gone.json").symlink_to(tmp_path / "nothing")
    assert asked(command, folder)[0] == "3,6000"
    assert len(stores(cache)) == 1
    assert "pipe a trace through standard input" in asked(command, folder / "pipe.json", code=1)[1]
    assert "does not exist" in asked(command, folder / "gone.json", code=1)[1]


def test_a_store_as_the_file(cache: Path, tmp_path: Path, command: Command) -> None:
    write_trace(tmp_path / "t.json")
    command("ingest", tmp_path / "t.json", "--db", tmp_path / "s.duckdb")
    assert asked(command, tmp_path / "s.duckdb") == ("3,6000", "")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["none.json"], 1, "none.json does not exist"),
        (["bad.txt"], 1, "bad.txt"),
        (["t.json", "--db", "x"], 2, "exclude"),
    ],
)
def test_errors(
    cache: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str], code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("nothing of interest")
    write_trace(tmp_path / "t.json")
    answer, err = asked(command, *arguments, code=code)
    assert answer == "" and says in err
    assert not cache.exists() or list(cache.iterdir()) == []


def test_the_least_recently_used_stores_are_removed(
    cache: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [write_trace(tmp_path / f"t{n}.json", n + 1) for n in range(3)]
    for trace in traces[:2]:
        asked(command, trace)
    size = max(path.stat().st_size for path in cache.iterdir())
    for path in cache.glob("*.duckdb"):
        os.utime(path, (1, 1))
    asked(command, traces[0])  # used last
    first = max(cache.glob("*.duckdb"), key=lambda path: path.stat().st_mtime)
    monkeypatch.setattr(trace_store, "_MAX_BYTES", size * 2 + size // 2)
    assert asked(command, traces[2])[0] == "3,6000"
    assert len(stores(cache)) == 2
    assert first.exists()
    assert len(list(cache.iterdir())) == 4  # each with its losses
    monkeypatch.setattr(trace_store, "_MAX_BYTES", 0)
    assert asked(command, traces[1])[0] == "2,4000"
    assert len(stores(cache)) == 1


def test_without_a_usable_cache(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = write_trace(tmp_path / "t.json")
    for folder in ("", str(trace / "below"), "/proc/none"):
        monkeypatch.setenv("TRACECONV_CACHE", folder)
        assert asked(command, trace) == ("3,6000", "")


def test_several_processes_at_once_and_standard_input(cache: Path, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json.gz", 500)
    command = [*TRACECONV, "query", SQL, "--format", "csv"]
    running = [
        subprocess.Popen([*command, str(trace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate() for process in running] == [(b"n,ns\n500,1000000\n", b"")] * 2
    assert len(list(cache.iterdir())) == 2
    piped = subprocess.run([*command, "-"], input=trace.read_bytes(), capture_output=True, check=True)
    assert piped.stdout == b"n,ns\n500,1000000\n"
    assert len(list(cache.iterdir())) == 2
