"""Many files at once: which files of folders are read, and that an unusable one does not stop the others."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from commands import Command
from ingest_checks import all_rows, check_accounting
from processes import TRACECONV, heed_interrupts
from stores import query
from trace_files import events, write_trace

from traceconv.base.errors import DataLossError, InputError, UsageError
from traceconv.cli.app import run
from traceconv.formats import find_traces
from traceconv.formats.common.folder_walk import by_numbers
from traceconv.pipeline.discover import find_sources
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun, NothingUsable, Observer
from traceconv.store.writer import StoreWriter

RUNS = "SELECT run_id, label, rank, group_label FROM run ORDER BY run_id"


def capture(folder: Path) -> Path:
    b = CaptureBuilder(folder)
    for tick in (0, 100, 10_000):
        b.sync(tick, tick * 10)
    b.call(1, 1, 50, "call")
    b.task(1, 10, 15, "k", correlation_id=1)
    return b.close()


@pytest.mark.parametrize("bad", [0, 3])
def test_the_number_of_statements_does_not_depend_on_the_number_of_small_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    statements: list[str] = []
    execute = StoreWriter._execute_at_once

    def noted(writer: StoreWriter, statement: str, parameters: list[object] | dict[str, object]) -> None:
        statements.append(statement)
        execute(writer, statement, parameters)

    monkeypatch.setattr(StoreWriter, "_execute_at_once", noted)
    counts = []
    for number in (2, 6):
        job = tmp_path / f"job{number}"
        for rank in range(number):
            args = {"device": 0, "stream": 7, "In msg nelems": 10 + rank, "dtype": "Float"}
            collective = {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce",
                "ts": 9,
                "dur": 5,
                "args": args,
            }
            path = write_trace(job / f"rank{rank}" / "trace.json", rank=rank, seed=rank)
            trace = json.loads(path.read_text())
            trace["traceEvents"].append({"pid": 0, "tid": 7, **collective})
            path.write_text(json.dumps(trace))
        for place in range(bad * number):
            (job / f"bad{place}.json").write_text('{"traceEvents": [{"ph": "X"}]}')
        statements.clear()
        result = ingest([job], tmp_path / f"{number}.duckdb")
        assert len(result) == number
        assert len(result.unusable) + len(result.others) == bad * number
        counts.append(len(statements))
        sizes = "SELECT run_id, size_bytes FROM task WHERE kind = 'collective' ORDER BY run_id"
        assert query(tmp_path / f"{number}.duckdb", sizes) == [(rank + 1, (10 + rank) * 4) for rank in range(number)]
    assert counts[0] == counts[1]


def test_every_rank_of_a_folder_is_a_run_in_the_order_of_ranks(tmp_path: Path) -> None:
    job = tmp_path / "job7"
    for rank in (10, 2, 0, 1):
        write_trace(job / f"rank{rank}" / "trace.json.gz", rank=rank, seed=rank)
    runs = ingest([job], tmp_path / "s.duckdb")
    assert query(tmp_path / "s.duckdb", RUNS) == [
        (number, f"rank{rank}/trace.json.gz", rank, "job7") for number, rank in enumerate((0, 1, 2, 10), 1)
    ]
    assert [(one.rank, one.group_label) for one in runs] == [(0, "job7"), (1, "job7"), (2, "job7"), (10, "job7")]
    for one in runs:
        check_trace_accounting(one)
    assert query(tmp_path / "s.duckdb", "SELECT run_id, count(*) FROM task GROUP BY 1 ORDER BY 1") == [
        (number, 4) for number in (1, 2, 3, 4)
    ]


def check_trace_accounting(one: IngestedRun) -> None:
    assert all(account.balanced for account in one.accounts.by_record.values())


def test_the_folders_of_ranks_named_one_by_one_are_the_same_job(tmp_path: Path) -> None:
    folders = [write_trace(tmp_path / "job" / f"rank{rank}" / "t.json", seed=rank).parent for rank in (0, 1)]
    ingest(folders, tmp_path / "s.duckdb")
    assert query(tmp_path / "s.duckdb", RUNS) == [(1, "rank0/t.json", 0, "job"), (2, "rank1/t.json", 1, "job")]


def test_each_run_keeps_its_own_clock(tmp_path: Path) -> None:
    """Ranks whose clocks are an hour apart are not aligned; the run has what is known about their origin."""
    write_trace(tmp_path / "j/rank0.json")
    write_trace(tmp_path / "j/rank1.json", seed=3_600_000_000)
    other = {"traceEvents": events(start_us=500), "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    (tmp_path / "j/rank2.json").write_text(json.dumps(other))
    ingest([tmp_path / "j"], tmp_path / "s.duckdb")
    rows = query(tmp_path / "s.duckdb", "SELECT start_ns, epoch_known, epoch_offset_ns FROM run ORDER BY rank")
    zero = 1_700_000_000 * 10**9
    assert rows == [(zero, True, 0), (zero + 3600 * 10**9, True, 0), (500_000, False, zero)]


def test_files_in_a_folder_are_recognised_by_their_first_bytes(tmp_path: Path) -> None:
    top = tmp_path / "all"
    write_trace(top / "a.json.gz")
    write_trace(top / "b.trace", seed=1)
    (top / "c.pfw").write_text("[\n" + ",\n".join(json.dumps(event) for event in events(start_us=5)))
    scope = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": [{"name": "f"}]}}
    profile = {"type": "sampled", "name": "p", "unit": "microseconds", "startValue": 0, "endValue": 1}
    scope["profiles"] = [{**profile, "samples": [[0]], "weights": [1]}]
    (top / "deep/er/d.speedscope.json").parent.mkdir(parents=True)
    (top / "deep/er/d.speedscope.json").write_text(json.dumps(scope))
    capture(top / "raw/PROF_1")
    assert run(["ingest", str(top), "--db", str(tmp_path / "s.duckdb")]) == 0
    assert query(tmp_path / "s.duckdb", "SELECT label, source_format FROM run ORDER BY 1") == [
        ("PROF_1", "npulog"),
        ("a.json.gz", "chrome_json"),
        ("b.trace", "chrome_json"),
        ("c.pfw", "chrome_json"),
        ("d.speedscope.json", "speedscope"),
    ]


def test_other_files_are_reported_but_not_a_loss(tmp_path: Path, command: Command) -> None:
    top = tmp_path / "t"
    write_trace(top / "rank0.json")
    (top / "notes.txt").write_text("I am no trace\n")
    (top / "package.json").write_text('{"name": "x", "version": "1"}')
    (top / "picture.png").write_bytes(b"\x89PNG\r\n" + bytes(100))
    write_trace(top / ".hidden.json")
    write_trace(top / ".git/x.json")
    err = command("ingest", top, "--db", tmp_path / "s.duckdb").err
    messages = [line for line in err.splitlines() if line.startswith("skipped: ")]
    assert messages == [
        f"skipped: {top / name} is not a trace" for name in ("notes.txt", "picture.png", "package.json")
    ]
    assert "hidden" not in err
    assert query(tmp_path / "s.duckdb", "SELECT label FROM run") == [("rank0.json",)]
    command("ingest", top, "--db", tmp_path / "t.duckdb", "--strict")


def test_artifacts_of_tlparse_are_not_a_loss(tmp_path: Path, command: Command) -> None:
    """Some are texts named .json. Elsewhere such a file counts as a rank that is missing (`BAD`)."""
    write_trace(tmp_path / "t" / "chromium_events.json")
    for folder in ("t/-_0_0_0", "u"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fx_graph_cache_hash_3.json").write_text("fkey: [0] a\n")
    err = command("ingest", tmp_path / "t", "--db", tmp_path / "s.duckdb").err
    assert "failed: " not in err
    assert f"skipped: {tmp_path}/t/-_0_0_0/fx_graph_cache_hash_3.json is an artifact of tlparse, not a trace" in err
    command("ingest", tmp_path / "t", tmp_path / "u", "--db", tmp_path / "s.duckdb", code=3)


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    top = tmp_path / "t"
    write_trace(top / "a/rank0.json")
    write_trace(tmp_path / "elsewhere/rank1.json", seed=1)
    (top / "loop").symlink_to(top)
    (top / "a/up").symlink_to("..")
    (top / "other").symlink_to(tmp_path / "elsewhere")
    (top / "same.json").symlink_to(top / "a/rank0.json")
    (top / "nothing.json").symlink_to(top / "gone")
    os.link(top / "a/rank0.json", top / "a/twin.json")
    found = find_sources([top, top / "a", top / "a/rank0.json"], None)
    assert sorted(os.path.realpath(trace.path) for trace in found.traces) == [
        str(tmp_path / "elsewhere/rank1.json"),
        str(top / "a/rank0.json"),
    ]
    assert not found.unusable


def test_pipes_and_sockets_are_not_opened() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path: a socket's is limited
        write_trace(Path(folder) / "t.json")
        os.mkfifo(Path(folder) / "pipe.json")
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(Path(folder) / "s.json"))
            assert [trace.path.name for trace in find_sources([Path(folder)], None).traces] == ["t.json"]
        assert run(["info", f"{folder}/pipe.json"]) == 1


BAD = {
    "empty": (b"", "is empty"),
    "zeros": (bytes(100), "is empty"),
    "text": (b"killed by signal 9\n", "does not begin like a trace"),
    "cut": (b'{"traceEvents": [{"ph": "X", "na', "contains no usable events"),
    "packed": (b"\x1f\x8b\x08\x00", "can't be decompressed"),
}


@pytest.mark.parametrize("what", BAD)
def test_one_unusable_file_among_good_ones(what: str, tmp_path: Path, command: Command) -> None:
    top, store = tmp_path / "t", tmp_path / "s.duckdb"
    for rank in (0, 2):
        write_trace(top / f"rank{rank}.json", rank=rank, seed=rank)
    content, reason = BAD[what]
    (top / "rank1.json").write_bytes(content)
    err = command("ingest", top, "--db", store, "--strict", code=3).err
    assert err.count("\n") == 1
    assert "rank1.json" in err
    assert "nothing was stored" in err
    assert not list(tmp_path.glob("s.duckdb*"))
    done = command("ingest", top, "--db", store, code=3)
    (line,) = [line for line in done.err.splitlines() if line.startswith("failed: ")]
    assert "rank1.json" in line
    assert reason in line
    assert query(store, RUNS) == [(1, "rank0.json", 0, "t"), (2, "rank2.json", 2, "t")]
    (top / "rank1.json").unlink()
    ingest([top], tmp_path / "complete.duckdb")
    assert all_rows(store) == all_rows(tmp_path / "complete.duckdb")


def test_one_unusable_file_among_named_files(tmp_path: Path, command: Command) -> None:
    good, bad = write_trace(tmp_path / "rank0.json"), tmp_path / "rank1.json"
    bad.write_bytes(b"")
    assert f"failed: {bad} is empty" in command("ingest", bad, good, "--db", tmp_path / "s.duckdb", code=3).err
    assert query(tmp_path / "s.duckdb", "SELECT label FROM run") == [("rank0.json",)]


def test_if_nothing_can_be_used_each_reason_is_reported(tmp_path: Path, command: Command) -> None:
    top = tmp_path / "t"
    top.mkdir()
    for rank in range(30):
        (top / f"rank{rank}.json").write_bytes(b"")
    lines = command("ingest", top, "--db", tmp_path / "s.duckdb", code=1).err.splitlines()
    assert lines[0] == f"failed: {top / 'rank0.json'} is empty"
    assert lines[-2:] == [
        "failed: … and 10 more",
        "traceconv: none of 30 files and folders can be used; nothing was stored",
    ]
    assert not list(tmp_path.glob("s.duckdb*"))
    with pytest.raises(NothingUsable) as caught:
        ingest([top], tmp_path / "s.duckdb")
    assert len(caught.value.problems) == 30


def test_a_folder_without_traces_is_a_one_line_error(tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    with pytest.raises(InputError, match="is empty; specify"):
        ingest([top], tmp_path / "s.duckdb")
    (top / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"no capture and no trace found in 1 file, such as notes\.txt"):
        ingest([top], tmp_path / "s.duckdb")


def test_an_unreadable_file_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "t"
    write_trace(top / "rank0.json")
    write_trace(top / "rank1.json", seed=1)
    whole = find_traces.head_of

    def head_of(path: Path) -> bytes:
        if path.name == "rank1.json":
            raise InputError(f"can't read {path}: Permission denied")
        return whole(path)

    monkeypatch.setattr(find_traces, "head_of", head_of)
    runs = ingest([top], tmp_path / "s.duckdb")
    assert [one.label for one in runs] == ["rank0.json"]
    assert [one.message for one in runs.unusable] == [f"can't read {top / 'rank1.json'}: Permission denied"]
    assert runs.lossy


def test_a_run_to_be_replaced_is_kept_if_its_file_is_unusable(tmp_path: Path) -> None:
    """The old run is gone from the transaction by then: only all of it can be taken back."""
    store = tmp_path / "s.duckdb"
    table = write_trace(tmp_path / "rank0.json")
    ingest([table], store)
    before = all_rows(store)
    with pytest.raises(InputError):
        ingest([table, write_trace(tmp_path / "rank1.json", seed=1)], store, replace=True, reader="speedscope")
    assert all_rows(store) == before


def vendor_folder(path: Path, start_us: int) -> Path:
    path.mkdir(parents=True)
    head = "Name,Type,Start Time(us),Duration(us),Accelerator Core,Stream ID\n"
    rows = "".join(f"op{n},Add,{start_us + n}.5\t,2.25,AI_VECTOR_CORE,1\n" for n in range(3))
    (path / "kernel_details.csv").write_text(head + rows)
    return path


def test_one_unusable_vendor_folder_of_several(tmp_path: Path, command: Command) -> None:
    good = vendor_folder(tmp_path / "job/rank0", 100)
    bad = tmp_path / "job/rank1"
    bad.mkdir()
    (bad / "kernel_details.csv").write_text("this,is\nno,table\n")
    (good / "profiler_info_5.json").write_text('{"rank_id": 5, "half a character": "\\ud800"}')
    done = command("ingest", tmp_path / "job", "--db", tmp_path / "s.duckdb", code=3)
    assert f"failed: {bad} contains no usable events" in done.err
    assert query(tmp_path / "s.duckdb", RUNS) == [(1, "rank0", 5, "job")]
    assert query(tmp_path / "s.duckdb", "SELECT json_valid(options) FROM run") == [(True,)]
    for table in ("task", "source", "import_account"):
        assert query(tmp_path / "s.duckdb", f"SELECT DISTINCT run_id FROM {table}") == [(1,)]


def test_a_vendor_folder_next_to_traces_of_other_writers(tmp_path: Path) -> None:
    vendor_folder(tmp_path / "job/npu", 100)
    write_trace(tmp_path / "job/npu/rank3/t.json", rank=3)
    write_trace(tmp_path / "job/gpu/rank0.json", rank=0)
    ingest([tmp_path / "job"], tmp_path / "s.duckdb")
    assert query(tmp_path / "s.duckdb", "SELECT label, source_format FROM run ORDER BY run_id") == [
        ("npu", "vendor_folder"),
        ("rank0.json", "chrome_json"),
        ("t.json", "chrome_json"),
    ]


class Interrupting(Observer):
    """Press Ctrl-C during an ingest: at the `at`th report of `what`."""

    def __init__(self, what: str, at: int) -> None:
        self.what, self.left = what, at

    def _tell(self, what: str) -> None:
        if what == self.what:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)

    def advance(self, byte_count: int) -> None:
        self._tell("advance")

    def storing(self) -> None:
        self._tell("storing")

    def stored(self, row_count: int) -> None:
        self._tell("stored")

    def done(self) -> None:
        self._tell("done")


@pytest.mark.parametrize(
    ("what", "at", "old", "jobs"),
    [
        ("advance", 1, False, 1),
        ("storing", 1, True, 1),
        ("stored", 1, False, 1),
        ("stored", 3, True, 1),
        ("done", 1, True, 1),
        ("advance", 4, False, 1),
        ("stored", 3, True, 2),
    ],
)
def test_ctrl_c_at_any_moment_leaves_the_store_unchanged(
    tmp_path: Path, what: str, at: int, old: bool, jobs: int
) -> None:
    top, store = tmp_path / "t", tmp_path / "s.duckdb"
    for rank in range(3):
        write_trace(top / f"rank{rank}.json", rank=rank, seed=rank)
    vendor_folder(top / "npu", 100)
    if old:
        ingest([write_trace(tmp_path / "before.json", seed=99)], store)
    before = all_rows(store) if old else {}
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ingest([top], store, observer=Interrupting(what, at), jobs=jobs)
    finally:
        signal.signal(signal.SIGINT, heeding)
    names = ["before.json", "s.duckdb"] if old else []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "t"])
    if old:
        assert all_rows(store) == before
    assert len(ingest([top], store)) == 4


def test_ctrl_c_during_the_commit_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the program would say that it was stopped, and the rows would be in the store."""
    whole = StoreWriter._execute_at_once
    pressed = []

    def execute(writer: StoreWriter, statement: str, parameters: list[object] | dict[str, object]) -> None:
        if statement in ("COMMIT", "CHECKPOINT"):
            pressed.append(statement)
            os.kill(os.getpid(), signal.SIGINT)
        whole(writer, statement, parameters)

    monkeypatch.setattr(StoreWriter, "_execute_at_once", execute)
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert len(ingest([write_trace(tmp_path / "rank0.json")], tmp_path / "s.duckdb")) == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, heeding)
    assert pressed == ["COMMIT", "CHECKPOINT"]
    assert query(tmp_path / "s.duckdb", "SELECT label FROM run") == [("rank0.json",)]


def test_ctrl_c_while_a_trace_is_read_from_a_pipe(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*TRACECONV, "ingest", "-", "--db", str(tmp_path / "s.duckdb")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )
    assert process.stdin is not None
    text = json.dumps({"traceEvents": events(8_000)}).encode()
    process.stdin.write(text[: len(text) // 2])  # more than a pipe holds: when it is written, the program reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, b"traceconv: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_many_files_need_few_descriptors(tmp_path: Path) -> None:
    for number in range(60):
        write_trace(tmp_path / f"t/rank{number}.json", rank=number, seed=number, count=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (sum(1 for _ in Path("/proc/self/fd").iterdir()) + 25, hard))
    try:
        runs = ingest([tmp_path / "t"], tmp_path / "s.duckdb")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [one.rank for one in runs] == list(range(60))
    assert query(tmp_path / "s.duckdb", "SELECT count(*), count(DISTINCT run_id) FROM task") == [(60, 60)]


def test_many_runs_have_a_line_each_and_a_total(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(25):
        write_trace(tmp_path / f"t/rank{number}.json", rank=number, seed=number, count=1)
    command = ["ingest", str(tmp_path / "t"), "--db", str(tmp_path / "s.duckdb")]
    assert run(command) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[3] == "rank3.json ingested as run 4 (rank 3, group t): 3 records"
    assert len(lines) == 23
    assert lines[20].startswith("… and 5 more without losses; list them with: traceconv info ")
    assert lines[21] == "25 runs ingested"
    assert lines[22].startswith("  75 records, ")
    assert run(command) == 0
    assert "0 runs ingested, 25 already in" in capfd.readouterr().err


def test_a_pattern_sets_rank_and_host_of_recordings(tmp_path: Path, command: Command) -> None:
    for number in range(2):
        write_trace(tmp_path / f"gpu{number}@hosta/t.json", seed=number)
    paths = [str(tmp_path / f"gpu{number}@hosta") for number in range(2)]
    pattern = r"gpu(?P<rank>\d+)@(?P<host>\w+)"
    command("ingest", *paths, "--db", tmp_path / "s", "--rank-pattern", pattern, "--group", "job7")
    assert query(tmp_path / "s", "SELECT rank, host, group_label FROM run ORDER BY run_id") == [
        (0, "hosta", "job7"),
        (1, "hosta", "job7"),
    ]
    command("ingest", *paths, "--db", tmp_path / "s", "--rank-pattern", "(", code=2)
    assert "gemm" in command("report", "op-statistic", "--db", tmp_path / "s", "--run", "rank=1", "--format", "csv").out
    done = command("report", "op-statistic", "--db", tmp_path / "s", "--run", "host=hosta", code=2)
    assert "2 runs match 'host=hosta'; select one with --run 1, 2" in done.err
    command("report", "op-statistic", "--db", tmp_path / "s", "--run", "rank=7", code=2)
    assert "rank 1, host hosta, group job7" in command("info", tmp_path / "s").out


def test_a_timeline_contains_one_run(tmp_path: Path, command: Command) -> None:
    """Clocks that may disagree are not put on one axis."""
    for number in range(2):
        write_trace(tmp_path / f"t/rank{number}.json", rank=number, seed=number)
    ingest([tmp_path / "t"], tmp_path / "s.duckdb")
    to = ["export", "chrome", "--db", str(tmp_path / "s.duckdb"), "-o", str(tmp_path / "out.json")]
    assert "needs a single run" in command(*to, "--run", "all", code=2).err
    command(*to, "--run", "rank=0")
    start = json.loads((tmp_path / "out.json").read_text())["otherData"]["base_ns"]
    assert int(start) == 1_700_000_000 * 10**9


def test_an_export_keeps_its_rank_in_any_folder(tmp_path: Path) -> None:
    ingest([write_trace(tmp_path / "job/rank5/t.json")], tmp_path / "s.duckdb")
    away = tmp_path / "away/out.json"
    away.parent.mkdir()
    assert run(["export", "chrome", "--db", str(tmp_path / "s.duckdb"), "-o", str(away)]) == 0
    ingest([away], tmp_path / "t.duckdb")
    assert query(tmp_path / "t.duckdb", RUNS) == [(1, "out.json", 5, "job")]


def test_one_reader_for_an_entire_folder(tmp_path: Path) -> None:
    write_trace(tmp_path / "t/rank0.json")
    capture(tmp_path / "t/PROF_1")
    runs = ingest([tmp_path / "t"], tmp_path / "s.duckdb", reader="chrome_json")
    assert [one.label for one in runs] == ["rank0.json"]
    with pytest.raises(UsageError, match="unknown reader"):
        ingest([tmp_path / "t/rank0.json"], tmp_path / "s.duckdb", reader="chrome")


def test_strict_refuses_losses_of_any_run(tmp_path: Path) -> None:
    write_trace(tmp_path / "t/rank0.json")
    damaged = write_trace(tmp_path / "t/rank1.json", seed=1)
    damaged.write_bytes(damaged.read_bytes().replace(b'"name": "gemm"', b'"name" gemm"', 1))
    with pytest.raises(DataLossError, match=r"rank1\.json"):
        ingest([tmp_path / "t"], tmp_path / "s.duckdb", strict=True)
    assert not list(tmp_path.glob("s.duckdb*"))


def test_numbers_in_names_count_by_value() -> None:
    paths = [Path(name) for name in ("rank10", "rank9", "²", "b", "a/10", "1", "a/2", "b" + "9" * 5000, "rank09")]
    names = [path.as_posix()[:9] for path in sorted(paths, key=by_numbers)]
    assert names == ["a/2", "a/10", "b", "b99999999", "rank09", "rank9", "rank10", "²", "1"]


def test_too_many_files_are_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_trace(tmp_path / f"t/rank{number}.json", seed=number)
    monkeypatch.setattr(find_traces, "MAX_FILES", 3)
    with pytest.raises(InputError, match="contains more than 3 files"):
        ingest([tmp_path / "t"], tmp_path / "s.duckdb")


def test_a_store_in_the_ingested_folder_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    write_trace(Path("rank0.json"))
    command("ingest", ".")
    write_trace(Path("rank1.json"), seed=1)
    assert "skipped" not in command("ingest", ".").err
    assert query(Path("trace.duckdb"), "SELECT label, rank FROM run ORDER BY 1") == [
        ("rank0.json", 0),
        ("rank1.json", 1),
    ]
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_accounting_of_captures_among_traces(tmp_path: Path) -> None:
    capture(tmp_path / "t/rank0/PROF_1")
    write_trace(tmp_path / "t/rank1/t.json")
    runs = ingest([tmp_path / "t"], tmp_path / "s.duckdb")
    check_accounting(tmp_path / "s.duckdb", runs[0])
    assert query(tmp_path / "s.duckdb", RUNS) == [(1, "PROF_1", 0, "t"), (2, "t.json", 1, "t")]


@pytest.fixture
def unsearchable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which names can be listed, and nothing can be opened (mode 444)."""
    if sys.version_info < (3, 11):
        pytest.skip("pathlib of Python 3.10 calls functions that can't be replaced")
    top = tmp_path / "t"
    write_trace(top / "locked" / "rank0.json")
    write_trace(top / "locked" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json")
    CaptureBuilder(top / "locked" / "PROF_1").call(1, 0, 5).close()
    write_trace(top / "open.json")

    def refused(whole: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def ask(path: object, *args: object, **options: object) -> os.stat_result:
            if isinstance(path, str | os.PathLike) and "/t/locked/" in os.fspath(path):
                raise PermissionError(13, "Permission denied")
            return whole(path, *args, **options)

        return ask

    monkeypatch.setattr(os, "stat", refused(os.stat))
    monkeypatch.setattr(os, "lstat", refused(os.lstat))
    return top


def test_a_file_without_read_permission_is_no_usage_error(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser of the command line would end with 2, and read no other file; the tests may run as root."""
    write_trace(tmp_path / "locked.json")
    monkeypatch.setattr(os, "access", lambda path, *_: "locked" not in os.fsdecode(path))
    command("ingest", tmp_path / "locked.json", "--db", tmp_path / "s.duckdb")


def test_files_in_a_folder_without_search_permission_are_named(unsearchable: Path, tmp_path: Path) -> None:
    runs = ingest([unsearchable], tmp_path / "s.duckdb")
    assert [one.label for one in runs] == ["open.json"]
    assert runs.lossy
    locked = unsearchable / "locked"
    messages = {one.message for one in runs.unusable}
    assert {f"can't read {locked / name}: Permission denied" for name in ("PROF_1", "rank0.json")} <= messages
    assert find_sources([locked], None).unusable
    for name in ("PROF_1", "ASCEND_PROFILER_OUTPUT", "rank0.json"):
        with pytest.raises(InputError):
            ingest([locked / name], tmp_path / "s.duckdb")


def test_info_names_unreadable_files_of_an_output_folder(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    write_trace(folder / "trace_view.json")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert f"can't read {folder / 'trace_view.json'}: Permission denied" in command("info", tmp_path, code=3).err
