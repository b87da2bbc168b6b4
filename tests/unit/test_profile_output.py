"""Where profiles are written by default, if nothing happens in them, and when the program ends or is killed."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import traceconv
from traceconv.base.errors import OutputError, StoreError, UsageError
from traceconv.pipeline.ingest import ingest
from traceconv.profiler.temporary import new_folder
from traceconv.runtime.live import PROCESS
from traceconv.wire.log_writer import CaptureWriter


def run(folder: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def spans(folder: Path, db: Path) -> list[str]:
    """Names of the spans of all captures below a folder, by time, as ingest stores them."""
    ingest([folder], db)
    with traceconv.open_store(db) as store:
        return [
            name
            for (name,) in store.query("SELECT name FROM range WHERE kind = 'annotation' ORDER BY start_ns").fetchall()
        ]


# Without an output


def test_a_decorated_function_without_a_path_keeps_its_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "traceconv-20260102-030405")

    @traceconv.profile()
    def one(number: int) -> int:
        """Runs."""
        with traceconv.span(f"one {number}"):
            return number

    @traceconv.profile
    def two() -> None:
        with traceconv.span("two"):
            pass

    assert capsys.readouterr().err == ""
    monkeypatch.chdir("/")
    assert ([one(1), one(2)], one.__name__, one.__doc__) == ([1, 2], "one", "Runs.")
    two()  # type: ignore[operator]  # a function, as decorators give it
    first, second = tmp_path / "traceconv-20260102-030405", tmp_path / "traceconv-20260102-030405-2"
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(" go to ")[2] for line in lines] == [str(first), str(second)]
    assert "one" in lines[0] and "two" in lines[1]
    assert spans(first, tmp_path / "a.duckdb") == ["one 1", "one 2"]
    assert spans(second, tmp_path / "b.duckdb") == ["two"]
    # The function leads to its latest profile.
    profiler = one.profiler  # type: ignore[attr-defined]  # functions take any attribute
    assert [row["name"] for row in profiler.report("range-statistic")] == ["one 2"]


def test_a_block_without_an_output_is_deleted_only_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def taken() -> traceconv.Profiler:
        p = traceconv.Profiler()
        for name in ("first", "second"):
            with p, traceconv.span(name):
                pass
        return p

    for read in (
        lambda p: list(p.report("range-statistic")),
        lambda p: p.arrow("range"),
        lambda p: p.export("chrome", tmp_path / "x.json"),
        lambda p: p.captures,
        lambda p: p.clear(),
    ):
        read(taken())
        gc.collect()
    assert capsys.readouterr().err == ""
    assert sorted(tmp_path.iterdir()) == [tmp_path / "x.json"]
    assert taken() is not None
    gc.collect()
    [kept] = tmp_path.glob("traceconv-*")
    assert capsys.readouterr().err == f"traceconv: not read: 2 profiles, kept in {kept}\n"
    assert spans(kept, tmp_path / "t.duckdb") == ["first", "second"]
    p = traceconv.profile(format="pandas")
    with p:
        pass
    del p
    gc.collect()
    assert capsys.readouterr().err == ""


def test_profiles_open_at_the_end_of_the_program_are_written(tmp_path: Path) -> None:
    program = """
import os, traceconv
started = traceconv.profile("started.json")
started.start()
traceconv.profile("dropped").start()
forgotten = traceconv.Profiler()
with forgotten, traceconv.span("in a block"):
    pass
os.chdir("/")
with traceconv.span("until the end"):
    pass
"""
    done = run(tmp_path, program)
    assert (done.returncode, done.stdout) == (0, "")
    [kept] = tmp_path.glob("traceconv-*")
    assert done.stderr == f"traceconv: not read: a profile, kept in {kept}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["dropped", "started.json", kept.name])
    assert "until the end" in (tmp_path / "started.json").read_text()
    assert "until the end" in spans(tmp_path / "dropped", tmp_path / "t.duckdb")


def test_two_programs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "traceconv-same")
    assert [new_folder(tmp_path).name for _ in range(3)] == [
        "traceconv-same", "traceconv-same-2", "traceconv-same-3",
    ]  # fmt: skip
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"can't write .* give an output"):
        new_folder(tmp_path / "file")


def test_a_profiler_has_the_options_of_profile(tmp_path: Path) -> None:
    for make in (traceconv.Profiler, traceconv.profile):
        p = make(tmp_path / "out", level=1, aic_metrics="Memory", profiling_options={"sample_rate": 5})
        assert isinstance(p, traceconv.Profiler)
        assert (p.options.level, p.options.aic_metrics, p.options.sample_rate) == (1, "Memory", 5)
        with pytest.raises(UsageError, match="Did you mean 'memory'"):
            make(resource="memroy")


def test_a_relative_output_refers_to_the_folder_at_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folder, file = traceconv.profile("out", formats=["raw", "chrome"]), traceconv.profile("t.json")
    monkeypatch.chdir(tmp_path)
    with folder, file:
        monkeypatch.chdir(tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["out", "t.json"]
    assert len(list((tmp_path / "here" / "out").iterdir())) == 2


def test_a_profile_can_be_a_perfetto_trace(tmp_path: Path) -> None:
    """By the name of the file, in a folder, by export and into a file object: the same slices each time."""

    def names(path: Path) -> list[str]:
        ingest([path], path.with_name("check.duckdb"), replace=True)
        with traceconv.open_store(path.with_name("check.duckdb")) as store:
            # A profile inside another one ends with an open span in it.
            rows = store.query("SELECT r.name FROM range r JOIN run USING (run_id) ORDER BY run_id DESC, r.start_ns")
            return [name for (name,) in rows.fetchall()][:2]

    memory = io.BytesIO()
    file, packed, folder = tmp_path / "t.pftrace", tmp_path / "t.pftrace.gz", tmp_path / "folder"
    with (
        traceconv.profile(file), traceconv.profile(packed), traceconv.profile(folder, format="perfetto"),
        traceconv.profile(memory, format="perfetto"), traceconv.profile() as p, p.record("outer"), p.record("ä"),
    ):  # fmt: skip
        pass
    p.export("perfetto", tmp_path / "exported.pftrace")
    (tmp_path / "object.pftrace").write_bytes(memory.getvalue())
    (in_folder,) = folder.iterdir()
    assert in_folder.name.endswith(".pftrace") and packed.read_bytes()[:2] == b"\x1f\x8b"
    for path in (file, packed, in_folder, tmp_path / "exported.pftrace", tmp_path / "object.pftrace"):
        assert names(path) == ["outer", "ä"], path


# Into a file object


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_file_object_gets_a_chrome_trace(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "trace.out"
    with path.open(mode) as output, traceconv.profile(file=output) as profiler:
        with profiler.record("warm up"), profiler.record("ä"):
            pass
        assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()] == ["trace.out.raw"]
    names = [event["name"] for event in json.loads(path.read_text("utf-8"))["traceEvents"] if event["ph"] == "X"]
    assert sorted(names) == ["warm up", "ä"]
    assert list(tmp_path.iterdir()) == [path]
    assert len(list(profiler.report("range-statistic"))) == 2
    with pytest.raises(UsageError, match="takes only one profile"):
        profiler.start()


def test_file_objects_without_a_file_and_unwritable_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for output in (io.StringIO(), io.BytesIO()):
        with traceconv.profile(file=output):
            pass
        assert json.loads(output.getvalue())["traceEvents"] is not None
    picture = io.StringIO()
    with traceconv.profile(file=picture, format="memory_flow.svg"):
        pass
    assert "<svg" in picture.getvalue()
    with (tmp_path / "t.out").open("w") as positional, traceconv.profile(positional):
        pass
    assert json.loads((tmp_path / "t.out").read_text())["traceEvents"] is not None
    (tmp_path / "t").write_text("")
    with (tmp_path / "t").open() as readable, pytest.raises(OutputError, match="not open for writing"):
        traceconv.profile(file=readable)
    with pytest.raises(OutputError, match="give a path or a file object"):
        traceconv.profile(file=5)  # type: ignore[arg-type]  # what a user may write
    closed = io.StringIO()
    refused = pytest.raises(OutputError, match=r"can't write to the file object: .*; the log is in")
    with refused, traceconv.profile(file=closed):
        closed.close()
    with pytest.raises(UsageError, match="mean the same"):
        traceconv.profile("a", file=io.StringIO())
    with pytest.raises(UsageError, match="its name must end in"):
        traceconv.profile(file="trace.out")
    for binary in ("perfetto", "store"):
        with pytest.raises(UsageError, match=f"format {binary} is binary"):
            traceconv.profile(file=io.StringIO(), format=binary)
    assert traceconv.profile(file=tmp_path / "t.json").options.file == tmp_path / "t.json"


# Without content


@pytest.mark.parametrize("paused", [False, True])
def test_a_profile_in_which_nothing_happened_is_empty_in_each_format(tmp_path: Path, paused: bool) -> None:
    formats = ["raw", "chrome_timeline.json", "memory_flow.svg", "store"]
    with traceconv.Session("mini_resnet", compute=False) as session:
        with traceconv.profile(tmp_path / "all", formats=formats) as p:
            if paused:
                p.pause()
                with traceconv.span("unseen"):
                    session.run(session.random_inputs())
        for name in ("one.json", "one.svg", "one.duckdb"):
            with traceconv.profile(tmp_path / name) as one:
                one.pause()
    with pytest.warns(UserWarning):
        assert list(p.report("op-statistic")) == []
    assert p.arrow("task").num_rows == 0
    content: Any = p.get()
    assert [event for event in content["traceEvents"] if event["ph"] != "M"] == []
    written = {path.name.partition(".")[2]: path for path in (tmp_path / "all").iterdir()}
    for path in (written["chrome_timeline.json"], tmp_path / "one.json"):
        events = json.loads(path.read_text())["traceEvents"]
        assert [event for event in events if event["ph"] != "M"] == []
    for path in (written["memory_flow.svg"], tmp_path / "one.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    for path in (written["duckdb"], tmp_path / "one.duckdb"):
        with traceconv.open_store(path) as store:
            assert store.query("SELECT count(*), bool_and(complete) FROM run").fetchall() == [(1, True)]
    assert spans(tmp_path / "all", tmp_path / "again.duckdb") == []


@pytest.mark.parametrize(
    "options", [{"level": 1}, {"resource": "npu"}, {"level": 1, "resource": "all"}, {"resource": ["host", "npu"]}]
)
def test_a_memory_picture_without_recorded_memory_is_refused_first(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"memory_flow\.svg draws allocations, which .*: add memory to resource"):
        traceconv.profile(tmp_path / "x", formats=["raw", "memory_flow.svg"], **options)
    with pytest.raises(UsageError, match=r"memory_flow\.svg"):
        traceconv.profile(tmp_path / "x.svg", **options)
    with pytest.raises(UsageError, match=r"memory_flow\.svg"):
        traceconv.profile(tmp_path / "x.svg").start(level=1)
    traceconv.profile(tmp_path / "x.svg", level=1, resource="memory")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_file_leaves_the_log_and_names_its_path(tmp_path: Path) -> None:
    p = traceconv.profile(tmp_path / "t.json")
    with pytest.raises(OutputError, match="the log is in") as raised, p, traceconv.span("kept"):
        (tmp_path / "t.json").mkdir()
    log = Path(str(raised.value).rpartition(" the log is in ")[2])
    assert log.parent == tmp_path / "t.json.raw"
    assert spans(log, tmp_path / "t.duckdb") == ["kept"]


@pytest.mark.parametrize("name", ["nul\0.json", "nul\0", "x" * 300 + ".json", "x" * 300, "\udcff.duckdb"])
def test_an_impossible_file_name_is_refused_first(name: str, tmp_path: Path) -> None:
    with pytest.raises((OutputError, UsageError), match=r"choose another"):
        traceconv.profile(tmp_path / name).start()
    assert list(tmp_path.iterdir()) == []


def test_a_store_name_that_duckdb_rejects_is_refused(tmp_path: Path) -> None:
    with traceconv.profile(tmp_path / "out"):
        pass
    with pytest.raises(StoreError, match="only opens paths that are valid UTF-8"):
        ingest([tmp_path / "out"], tmp_path / "\udcff.duckdb")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_end_of_the_program_ends_a_profile_before_the_block_does(tmp_path: Path) -> None:
    program = """
import atexit, traceconv
def generator():
    with traceconv.profile("out"), traceconv.span("open"):
        yield
left = generator()
next(left)
p = traceconv.profile("started")
p.start()
"""
    late = "import atexit\natexit.register(lambda: p.stop())\n"
    done = run(tmp_path, late + program)
    assert (done.returncode, done.stderr) == (0, "")
    assert spans(tmp_path / "out", tmp_path / "t.duckdb") == ["open"]


def test_the_end_of_the_program_waits_for_threads_that_end_a_profile(tmp_path: Path) -> None:
    program = """
import threading, traceconv
from traceconv.runtime.live import PROCESS

ending, at_exit = threading.Event(), threading.Event()
end, clean_up = PROCESS.end, traceconv.Profiler._clean_up_at_exit

def slowly(*args):
    ending.set()
    at_exit.wait(60)
    end(*args)

def signalled(self):
    at_exit.set()
    clean_up(self)

PROCESS.end, traceconv.Profiler._clean_up_at_exit = slowly, signalled

def work():
    with traceconv.profile(), traceconv.span("at the end"):
        pass

threading.Thread(target=work, daemon=True).start()
ending.wait(60)
"""
    done = run(tmp_path, program, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    [kept] = tmp_path.iterdir()
    assert done.stderr == f"traceconv: not read: a profile, kept in {kept}\n"
    assert spans(kept, tmp_path / "t.duckdb") == ["at the end"]


@pytest.mark.parametrize("place", ["flush", "close"])
def test_an_interrupt_ends_the_profile_that_is_being_ended(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    p = traceconv.profile()
    with pytest.raises(KeyboardInterrupt), p:
        with traceconv.span("done"):
            pass
        PROCESS.deliver()
        monkeypatch.setattr(CaptureWriter, place, interrupted)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert PROCESS.captures == ()
    del p
    gc.collect()
    [kept] = tmp_path.glob("traceconv-*")
    assert str(kept) in capsys.readouterr().err
    assert spans(kept, tmp_path / "t.duckdb") == ["done"]
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        assert store.query("SELECT complete FROM run").fetchall() == [(False,)]


# By the environment

LATE = """
import threading
import traceconv

def work():
    threading.main_thread().join()
    with traceconv.span("late"):
        print("worked")

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("output", ["out", "t.duckdb"])
def test_a_thread_that_outlives_the_main_thread_is_profiled(tmp_path: Path, output: str) -> None:
    done = run(tmp_path, LATE, TRACECONV_OUTPUT=output)
    assert (done.returncode, done.stdout) == (0, "worked\n")
    assert "Traceback" not in done.stderr
    if output == "out" or not (tmp_path / output).exists():
        folder = tmp_path / ("out" if output == "out" else f"{output}.raw")
        assert output == "out" or f"the log is in {folder}" in done.stderr
        assert spans(folder, tmp_path / "s.duckdb") == ["late"]


def test_a_relative_output_in_the_environment_refers_to_the_first_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "options.json").write_text('{"level": 1}')
    program = """
import os, traceconv
os.chdir("elsewhere")
with traceconv.span("moved"):
    os.chdir("/")
"""
    done = run(tmp_path, program, TRACECONV_OUTPUT="out", TRACECONV_OPTIONS="options.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert spans(tmp_path / "out", tmp_path / "t.duckdb") == ["moved"]


@pytest.mark.parametrize("end", ["os._exit(5)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_killed_process_leaves_its_log_next_to_the_file(tmp_path: Path, end: str) -> None:
    program = f"""
import os, signal, time, traceconv
with traceconv.span("done"):
    pass
PROCESS.deliver()
{end}
"""
    done = run(tmp_path, f"from traceconv.runtime.live import PROCESS\n{program}", TRACECONV_OUTPUT="t.json")
    assert done.returncode in (5, -signal.SIGTERM)
    log = tmp_path / "t.json.raw"
    assert f"until then its log is in {log}" in done.stderr
    assert not (tmp_path / "t.json").exists()
    assert spans(log, tmp_path / "t.duckdb") == ["done"]


def test_a_handler_of_the_program_still_decides_what_a_signal_does(tmp_path: Path) -> None:
    program = """
import os, signal, sys, traceconv
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with traceconv.span("ends by a handler"):
    os.kill(os.getpid(), signal.SIGTERM)
"""
    done = run(tmp_path, program, TRACECONV_OUTPUT="t.json")
    assert done.returncode == 7
    assert "ends by a handler" in (tmp_path / "t.json").read_text()
    assert not (tmp_path / "t.json.raw").exists()


def test_processes_that_a_program_starts_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("""
import multiprocessing, os
import traceconv

def work(number):
    with traceconv.span(f"child {number}"):
        return os.getpid()

if __name__ == "__main__":
    with traceconv.span("parent"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(work, (0,)))
            pool.close()
            pool.join()
        child = os.fork()
        if not child:
            with traceconv.span("forked"):
                os._exit(0)
        os.waitpid(child, 0)
""")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**os.environ, "TRACECONV_OUTPUT": "t.json"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    texts = {path.name: path.read_text() for path in tmp_path.glob("t*.json")}
    found = {name: set(re.findall(r"parent|child \d|forked", text)) for name, text in texts.items()}
    assert found == {"t.json": {"parent"}, f"t.{done.stdout.strip()}.json": {"child 0"}}
    assert not list(tmp_path.glob("*.raw"))


def test_a_report_stays_that_of_its_profile_until_the_profiles_are_cleared() -> None:
    with traceconv.Session("mini_resnet", compute=False) as session:
        inputs = session.random_inputs()
        with traceconv.profile() as p:
            session.run(inputs)
        rows = p.report("inference", columns=["run_id", "dur_ns"])
        first, reading = rows.fetchall(), iter(rows)
        with p:
            session.run(inputs)
            session.run(inputs)
        assert [row["run_id"] for row in p.report("inference", columns=["run_id"])] == [2, 2]
        assert len(first) == len(list(reading)) == 1
        assert rows.fetchall() == list(rows.df().itertuples(index=False, name=None)) == first
        assert "inference\n" in repr(rows)
        p.clear()
        with pytest.raises(StoreError, match="cleared"):
            rows.fetchall()


def test_reports_without_rows_warn_in_the_line_that_reads_them() -> None:
    with traceconv.profile() as p:
        pass
    rows = p.report("op-statistic")
    for read in (rows.fetchall, lambda: list(rows), rows.arrow, rows.df):
        with pytest.warns(UserWarning, match="no rows in task") as caught:
            read()
        assert [warning.filename for warning in caught] == [__file__]


# As the documents of other systems write it

EXAMPLES = """
import json
import numpy as np
from traceconv import Profiler, Session, TrainingSession, profile

x, y = np.zeros((2, 3, 64, 64), np.float32), np.arange(2)
learning = TrainingSession("mini_resnet", {"input": x}, y)

@profile()
def train_step(data, label):
    return learning.train_step(data, label)

train_step({"input": x}, y)
train_step({"input": x}, y)

profiler = Profiler()

def train_step(data, label):
    with profiler:
        return learning.train_step(data, label)

train_step({"input": x}, y)
train_step({"input": x}, y)

with open("mobilenet_v1_trace.json", "w") as output:
    with profile(file=output) as profiler_of_inferences:
        with Session("mini_resnet") as runner:
            with profiler_of_inferences.record("warm up") as record:
                for _ in range(0, 2):
                    runner.run(runner.random_inputs())
            with profiler_of_inferences.record("trace") as record:
                for _ in range(0, 2):
                    runner.run(runner.random_inputs())

with Session("mini_resnet") as executor:
    of_latency = Profiler()
    of_latency.clear()
    of_latency.start(prof_level=2)
    executor.run(executor.random_inputs())
    of_latency.stop()
    result = of_latency.get()
    with open("profile.json", "w") as filep:
        json.dump(result, filep, indent=4)
    of_latency.dump(filename="dumped.json")
    of_latency.clear()

options = '{"output":"profiling_output","training_trace":"on","task_trace":"on","fp_point":"","bp_point":"",'
options += '"aic_metrics":"PipeUtilization"}'
with profile(profiling_options=options):
    learning.train_step({"input": x}, y)
"""


def test_examples_of_other_systems_documents_run(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES)
    assert done.returncode == 0, done.stderr
    decorated, block = (Path(line.rpartition(" ")[2]) for line in done.stderr.splitlines())
    assert [len(list(folder.iterdir())) for folder in (decorated, block)] == [2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["mobilenet_v1_trace.json", "profile.json", "dumped.json", "profiling_output", decorated.name, block.name]
    )
    ingest([decorated, block, tmp_path / "profiling_output"], tmp_path / "t.duckdb")
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        assert store.query("SELECT count(*), count(DISTINCT run_id) FROM step").fetchall() == [(5, 5)]
    traces = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("profile", "dumped")}
    assert traces["profile"] == traces["dumped"] and traces["profile"]["traceEvents"]
    names = [event["name"] for event in json.loads((tmp_path / "mobilenet_v1_trace.json").read_text())["traceEvents"]]
    assert (names.count("warm up"), names.count("trace"), names.count("Inference")) == (1, 1, 4)


def test_results_accumulate_until_clear(tmp_path: Path) -> None:
    """As RAF's: get and dump have all profiles on one time axis, with shared tracks and separate flows."""
    with traceconv.Session("mini_resnet") as session:
        inputs, p = session.random_inputs(), traceconv.profile()
        single = []
        for _ in range(2):
            with p:
                session.run(inputs)
            single.append(json.loads(_exported(p, tmp_path / "one.json")))
    both = p.get()
    events = both["traceEvents"]
    assert isinstance(events, list)

    def named(trace: dict[str, Any], names: tuple[str, ...]) -> list[tuple[object, ...]]:
        """Each slice with the names of its tracks and its start in ns since the epoch."""
        rows, base = trace["traceEvents"], int(trace["otherData"]["base_ns"])
        tracks = {(e["name"], e["pid"], e.get("tid")): json.dumps(e["args"]) for e in rows if e["ph"] == "M"}
        return sorted(
            (
                base + round(e["ts"] * 1000), e["name"], tracks["process_name", e["pid"], None],
                tracks["thread_name", e["pid"], e["tid"]],
            )
            for e in rows if e["ph"] == "X" and e["name"] in names
        )  # fmt: skip

    names = ("Inference", "StreamSynchronize", "/fc/Gemm")
    assert named(both, names) == sorted([*named(single[0], names), *named(single[1], names)])
    metadata = [json.dumps(event) for event in events if event["ph"] == "M"]
    assert len(metadata) == len(set(metadata))
    flows = [event["id"] for event in events if event["ph"] == "s"]
    assert len(flows) == len(set(flows)) > 0
    p.dump(tmp_path / "both.json")
    assert json.loads((tmp_path / "both.json").read_text()) == both
    p.clear()
    with pytest.raises(UsageError, match="no profile has ended"):
        p.get()


def _exported(p: traceconv.Profiler, path: Path) -> str:
    p.export("chrome", path)
    return path.read_text()


def test_slices_have_their_thread_and_inference() -> None:
    with traceconv.Session("mini_resnet") as session, traceconv.profile() as p:
        inputs = session.random_inputs()
        for _ in range(2):
            session.run(inputs)
    rows = p.arrow().to_pylist()
    assert len(rows) == p.store.query("SELECT count(*) FROM slice").fetchall()[0][0]
    inferences = [row["trace_id"] for row in rows if row["name"] == "Inference"]
    assert len(set(inferences)) == 2
    for name in ("Execution", "/fc/Gemm"):
        assert [row["trace_id"] for row in rows if row["name"] == name] == inferences
    assert {row["thread_name"] for row in rows if row["name"] == "Inference"} == {"channel"}
    assert {row["thread_name"] for row in rows if row["name"] == "/fc/Gemm"} == {None}


def test_memory_trace_without_tasks_is_that_with_tasks() -> None:
    found = []
    with traceconv.Session("mini_resnet") as session:
        inputs = session.random_inputs()
        for resource in ("all", "memory"):
            with traceconv.profile(resource=resource) as p:
                session.run(inputs)
            rows = p.report("memory-trace")
            found.append([(row["op_name"], row["used_bytes"], row["reserved_bytes"]) for row in rows])
    assert found[0] == found[1] and len(found[0]) == len(session.op_names)


def test_calls_without_a_profile_warn() -> None:
    p = traceconv.profile()
    for call in (p.pause, p.resume, p.step):
        with pytest.warns(RuntimeWarning, match=f"{call.__name__} has no effect") as caught:
            call()
        assert caught[0].filename == __file__
