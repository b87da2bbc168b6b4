"""Commands on trace files: ingested into a cached store, with the same answer and the same losses the second time."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import TRACECONV

from traceconv.cli.app import run as run_command
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


def asked(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_command(["query", SQL, "--format", "csv", *map(str, arguments)])
    out, err = capfd.readouterr()
    return code, out.removeprefix("n,ns\n").strip(), err


def stores(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.suffix == ".duckdb")


def test_the_second_answer_comes_from_the_cache(
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = write_trace(tmp_path / "t.json.gz")
    assert asked(capfd, trace) == (0, "3,6000", "")
    with monkeypatch.context() as patched:
        patched.setattr(trace_store, "_ingest", lambda *_: pytest.fail("ingested again"))
        patched.chdir(tmp_path)
        assert asked(capfd, "t.json.gz") == (0, "3,6000", "")
    assert len(stores(cache)) == 1
    # Another content, size or time is another store.
    write_trace(trace, 4)
    assert asked(capfd, trace)[1] == "4,8000"
    os.utime(trace, ns=(5, 5))
    assert asked(capfd, trace)[1] == "4,8000"
    assert len(stores(cache)) == 3
    assert asked(capfd, trace, "--no-cache")[1] == "4,8000"
    assert len(stores(cache)) == 3


def test_damage_is_reported_each_time(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = write_trace(tmp_path / "t.json", cut=12)
    first = asked(capfd, trace)
    assert (first[0], first[1]) == (3, "2,4000")
    assert "data_loss: t.json: " in first[2]
    assert asked(capfd, trace) == first
    assert asked(capfd, trace, "--no-cache") == first


def test_reports_exports_folders_and_several_files(
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one, two = write_trace(tmp_path / "one.json"), write_trace(tmp_path / "two.json", 5)
    report = ["report", "range-statistic", "--format", "csv", "--columns", "run_id,count"]
    assert run_command([*report, str(one), str(two)]) == 0
    assert capfd.readouterr().out.count("\n2,1") == 5
    assert run_command([*report, str(tmp_path / "one.json")]) == 0
    assert capfd.readouterr().out.count("\n1,1") == 3
    (tmp_path / "folder").mkdir()
    write_trace(tmp_path / "folder" / "three.json", 2)
    assert asked(capfd, tmp_path / "folder")[1] == "2,4000"
    write_trace(tmp_path / "folder" / "four.json", 7)
    assert asked(capfd, tmp_path / "folder")[1] == "9,18000"
    assert run_command(["export", "chrome", str(one), "-o", str(tmp_path / "out.json")]) == 0
    assert len([e for e in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if e["ph"] == "X"]) == 3
    capfd.readouterr()
    (tmp_path / "q.sql").write_text(SQL)
    assert run_command(["query", "-f", str(tmp_path / "q.sql"), str(one), "--format", "csv"]) == 0
    assert capfd.readouterr().out == "n,ns\n3,6000\n"


def test_a_folder_with_a_pipe_and_a_broken_link(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    write_trace(folder / "t.json")
    os.mkfifo(folder / "pipe.json")  # opening it would wait for a writer
    (folder / "gone.json").symlink_to(tmp_path / "nothing")
    assert asked(capfd, folder)[:2] == (0, "3,6000")
    assert len(stores(cache)) == 1
    code, _, err = asked(capfd, folder / "pipe.json")
    assert code == 1 and "pipe a trace through standard input" in err
    code, _, err = asked(capfd, folder / "gone.json")
    assert code == 1 and "does not exist" in err


def test_a_store_as_the_file(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_trace(tmp_path / "t.json")
    assert run_command(["ingest", str(tmp_path / "t.json"), "--db", str(tmp_path / "s.duckdb")]) == 0
    capfd.readouterr()
    assert asked(capfd, tmp_path / "s.duckdb") == (0, "3,6000", "")
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
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str], code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("nothing of interest")
    write_trace(tmp_path / "t.json")
    found = asked(capfd, *arguments)
    assert (found[0], found[1], says in found[2]) == (code, "", True)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_the_least_recently_used_stores_are_removed(
    cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [write_trace(tmp_path / f"t{n}.json", n + 1) for n in range(3)]
    for trace in traces[:2]:
        asked(capfd, trace)
    size = max(path.stat().st_size for path in cache.iterdir())
    for path in cache.glob("*.duckdb"):
        os.utime(path, (1, 1))
    asked(capfd, traces[0])  # used last
    first = max(cache.glob("*.duckdb"), key=lambda path: path.stat().st_mtime)
    monkeypatch.setattr(trace_store, "_MAX_BYTES", size * 2 + size // 2)
    assert asked(capfd, traces[2])[1] == "3,6000"
    assert len(stores(cache)) == 2
    assert first.exists()
    assert len(list(cache.iterdir())) == 4  # each with its losses
    monkeypatch.setattr(trace_store, "_MAX_BYTES", 0)
    assert asked(capfd, traces[1])[1] == "2,4000"
    assert len(stores(cache)) == 1


def test_without_a_usable_cache(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = write_trace(tmp_path / "t.json")
    for folder in ("", str(trace / "below"), "/proc/none"):
        monkeypatch.setenv("TRACECONV_CACHE", folder)
        assert asked(capfd, trace) == (0, "3,6000", "")


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
