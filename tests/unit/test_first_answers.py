"""First answers from samples: which text is sampled, what is printed where, and that the exact answer is unchanged."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Command
from processes import heed_interrupts, in_terminal, wait_until

import traceconv
from traceconv.cli import first_answers as command_part
from traceconv.cli.app import run as run_command
from traceconv.reports.result import ReportRows
from traceconv.reports.values import human_duration
from traceconv.sampling import blocks as block_text
from traceconv.sampling import process
from traceconv.sampling import sample as sampling
from traceconv.sampling.answer import _COUNTS, _TIMES, SampledAnswer, _range
from traceconv.sampling.blocks import BlockReader, NotSampled, first_text, sampled_text
from traceconv.sampling.estimate import Interval
from traceconv.sampling.process import first_answers
from traceconv.sampling.sample import sample

KERNELS = ("gemm", "softmax", "relu")
#: Kernels in a file that is large enough for blocks.
COUNT = 70_000


def kernel(number: int) -> dict[str, Any]:
    """One of a step of ten kernels on one stream, all but one of them a gemm or softmax."""
    name = KERNELS[2 if number % 10 == 9 else number % 2]
    # Objects like events in args and in text must not be taken for events.
    args = {
        "device": 0,
        "stream": 7,
        "note": "x" * 100,
        "list": [{"name": "x", "id": 1}, {"id": 2}],
        "text": 'a, {"ph": "X"}',
    }
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10 * number, "dur": 4, "args": args}


def write(path: Path, count: int, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> Path:
    document = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "traceEvents": [kernel(number) for number in range(count)],
        "traceName": "t",
    }
    path.write_text(json.dumps(document, indent=indent, separators=separators))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def large(folder: Path) -> Path:
    """A trace that is large enough for blocks: kernels as above, written faster."""
    path = folder / "large.json"
    texts = [json.dumps(kernel(number) | {"ts": 0}, separators=(",", ":")).split('"ts":0') for number in range(10)]
    with path.open("w") as file:
        file.write('{"schemaVersion":1,"deviceProperties":[],"traceEvents":[')
        for number in range(COUNT):
            before, after = texts[number % 10]
            file.write(f'{"," if number else ""}{before}"ts":{10 * number}{after}')
        file.write('],"traceName":"t"}')
    return path


@pytest.fixture
def _any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sampling, "_LEAST_BYTES", 0)
    monkeypatch.setattr(sampling, "_LEAST_COMPRESSED_BYTES", 0)
    yield


@pytest.mark.parametrize("layout", [{"indent": 2}, {"separators": (",", ":")}, {}])
def test_blocks_contain_each_event_once(tmp_path: Path, layout: dict[str, Any]) -> None:
    path = write(tmp_path / "t.json", 500, **layout)
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = BlockReader(path, file.fileno(), 1000)
        # The last event is followed by no other.
        texts = [reader.events_between(start, min(start + 1000, size)) for start in range(1000, size - 3000, 1000)]
    assert None not in texts
    found = [event for text in texts if text for event in json.loads(b"[" + text + b"]")]
    first = found[0]["ts"] // 10
    assert first <= 10
    assert found == [kernel(first + number) for number in range(len(found))]


@pytest.mark.parametrize(("report", "key"), [("kernels", "kernel"), ("op-statistic", "op_type")])
def test_intervals_of_a_file_contain_its_numbers(report: str, key: str, large: Path) -> None:
    rows = {row[key]: row for row in sample(large, report, blocks=400)}
    for name, count in zip(KERNELS, (35_000, 28_000, 7000), strict=True):
        row = rows[name]
        assert row["count_low"] <= count <= row["count_high"] <= 1.5 * count
        assert row["total_low_ns"] <= 4000 * count <= row["total_high_ns"]
        assert row["ratio_low_percent"] <= count / 700 <= row["ratio_high_percent"]


def test_a_small_file_is_answered_exactly(folder: Path, command: Command) -> None:
    path = write(folder / "small.json", 100)
    out, err = command("report", "summary", path, "--sample", "--format", "json")
    found = json.loads(out)
    assert (found["form"], found["version"], found["exact"], err) == ("traceconv-sample", 1, True, "")
    row = next(row for row in found["rows"] if row["item"] == "gemm" and row["section"] == "kernel")
    assert (row["count_low"], row["count"], row["count_high"]) == (50, 50, 50)
    assert row["time_low_ns"] == row["time_high_ns"] == 200_000
    assert row["low_percent"] == row["high_percent"] == 50


@pytest.mark.parametrize("report", ["summary", "kernels", "op-statistic"])
def test_an_exact_answer_has_the_values_of_the_report(report: str, command: Command) -> None:
    path = Path(__file__).parents[2] / "sample_traces" / "pytorch" / "resnet18.pt.trace.json.gz"
    with traceconv.open_store(path, cache=False) as store:
        exact = [row for row in store.report(report) if row.get("section") not in ("memory", "losses")]
    answer = sample(path, report)
    assert answer.exact
    rows = list(answer)
    assert len(rows) == len(exact)
    for row, expected in zip(rows, exact, strict=True):
        limits = {name: value for name, value in row.items() if name not in expected}
        assert {name: row[name] for name in row.keys() - limits} == {
            name: expected[name] for name in row.keys() - limits
        }
        for name, value in limits.items():
            assert value == row[name.replace("low_", "").replace("high_", "").replace("_low", "").replace("_high", "")]
    assert "not yet" not in command("report", report, path, "--sample").out


@pytest.mark.parametrize(("kernels", "section"), [(1, "host op"), (0, "range")])
def test_ranges_that_occur_equally_often_are_in_order_of_name(tmp_path: Path, kernels: int, section: str) -> None:
    """Forty names, the last first: the order of the rows, of the file or of a hash table, is another."""
    names = [f"aten::op_{number:02}" for number in reversed(range(40))]
    operator = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 4}
    events = [operator | {"name": name, "ts": 10 * number} for number, name in enumerate(names)]
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [kernel(0)][:kernels] + events})
    )
    found = [row["item"] for row in sample(path, "summary") if row["section"] == section]
    assert found == sorted(names)[:5]


def test_a_compressed_file_gives_lower_limits(folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "FIRST_TEXT_BYTES", 1 << 20)
    path = folder / "t.json.gz"
    path.write_bytes(gzip.compress(write(folder / "t.json", 20_000).read_bytes(), 1))
    out, err = command("report", "op-statistic", path, "--sample", "--format", "csv")
    assert err.startswith("traceconv: op-statistic: read so far, ")
    header, first, *_ = (line.split(",") for line in out.splitlines())
    row = dict(zip(header, first, strict=True))
    assert 0 < int(row["count_low"]) < 10_000
    assert int(row["total_low_ns"]) == 4000 * int(row["count_low"])
    assert row["count"] == row["count_high"] == row["total_high_ns"] == row["ratio_percent"] == ""


def test_the_sample_of_a_large_file_in_a_table(large: Path, command: Command) -> None:
    out, err = command("report", "summary", large, "--sample")
    title, heading, *_, not_yet, _ = out.splitlines()
    assert title.startswith("summary: 95 % intervals from 2,000 blocks (")
    assert heading.split() == ["section", "item", "count", "time", "percent"]
    assert not_yet.startswith("not yet: span, times of steps, ")
    assert err == ""


def test_names_of_processes_in_the_middle_of_a_file_are_found(tmp_path: Path) -> None:
    """As torch_npu writes: events of the host, names, then tasks of the device, which are known by its name."""
    lines = [
        f'{{"ph": "X", "name": "aten::add", "pid": 5, "tid": 5, "ts": "{number}.000", "dur": 0.5, "cat": "cpu_op"}}'
        for number in range(40_000)
    ]
    named = [("process", 5, 0, "Python"), ("process", 7, 0, "Ascend Hardware")]
    for what, pid, tid, name in (*named, ("thread", 5, 5, "main"), ("thread", 7, 2, "Stream 2")):
        lines.append(f'{{"ph": "M", "name": "{what}_name", "pid": {pid}, "tid": {tid}, "args": {{"name": "{name}"}}}}')
    for number in range(40_000):
        name = "Add" if number % 4 else "MatMul"
        args = f'{{"Task Type": "AI_CORE", "Stream Id": 2, "Task Id": {number}}}'
        lines.append(
            f'{{"name": "{name}", "pid": 7, "tid": 2, "ts": "{number}.250", "dur": 0.5, "args": {args}, "ph": "X"}}'
        )
    path = tmp_path / "trace_view.json"
    path.write_text("[" + ", ".join(lines) + "]")
    found = sample(path, "kernels", blocks=200)
    assert found.blocks == 200
    rows = {row["label"]: row for row in found}
    for name, count in (("Add", 30_000), ("MatMul", 10_000)):
        assert rows[name]["count_low"] <= count <= rows[name]["count_high"] <= 1.5 * count
        assert rows[name]["total_low_ns"] <= 500 * count <= rows[name]["total_high_ns"]


def test_a_table_fits_80_columns_and_tells_rows_apart(tmp_path: Path, command: Command) -> None:
    """Limits are rounded away from the interval, so that the shown one contains the other."""
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::a_long_name_{}_of_a_functor>(int)"
    events = [kernel(number) | {"name": name.format(number % 12), "pid": number % 2} for number in range(240)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    for report in ("summary", "kernels", "op-statistic"):
        lines = command("report", report, path, "--sample").out.splitlines()
        assert max(map(len, lines)) <= 80
        table = [line for line in lines if "elementwise" in line]
        assert len({line.split("  ")[1 if report == "summary" else 0] for line in table}) >= 2
        assert len(set(table)) == len(table)


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        ((20_336, 20_336, 21_999), "20,336–21,999"),
        ((1_234_567, 1_300_000, 1_345_678), "1.23–1.35 M"),
        ((130_751_999, None, 846_652_001), "130–847 ms"),
        ((544_535_000, None, 1_219_000_001), "0.54–1.22 s"),
        ((999, None, 1000), "0.99–1.00 µs"),
        ((2_999_999_999, None, None), "≥ 3.000 s"),
        ((0, None, 2**63 - 1), "0–9,223,372,037 s"),
        ((5, None, 5), "5"),
    ],
)
def test_limits_are_rounded_away(interval: tuple[int, int | None, int | None], shown: str) -> None:
    unit = _COUNTS if "M" in shown or ("," in shown and "s" not in shown) or shown == "5" else _TIMES
    text = "{:,}".format if unit is _COUNTS else human_duration
    assert _range(Interval(*interval), text, unit) == shown


def damaged(path: Path) -> Path:
    """A file with a stray quote in every tenth event, after a sound part."""
    text = write(path, 10_000).read_bytes()
    half = len(text) // 2
    path.write_bytes(text[:half] + text[half:].replace(b'"relu"', b'"re"lu"'))
    return path


def test_a_damaged_file_is_not_sampled_in_blocks(tmp_path: Path) -> None:
    path = damaged(tmp_path / "damaged.json")
    with pytest.raises(NotSampled):
        sampled_text(path, blocks=50)
    answer = sample(path, "kernels", blocks=50)
    assert answer.blocks == 0


def test_blocks_are_decoded_together_as_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some_malformed.json"
    events = [json.dumps(kernel(number)) for number in range(20_000)]
    for number in range(3000, 18_000, 150):
        events[number] = events[number].replace('"dur": 4', '"dur": 4,')
    path.write_text('{"traceEvents": [' + ", ".join(events) + "]}")
    found = []
    for together in (1, 5, 64):
        monkeypatch.setattr(block_text, "_TOGETHER", together)
        found.append(sampled_text(path, blocks=300, block_bytes=1000))
    assert found[0].missing > 0
    for other in found[1:]:
        assert other.missing == found[0].missing
        assert other.texts == found[0].texts
        assert other.block_of.tolist() == found[0].block_of.tolist()
        assert other.is_complete.tolist() == found[0].is_complete.tolist()


def test_begins_and_ends_give_no_estimates(tmp_path: Path) -> None:
    events = [
        {**kernel(number), "ph": ph, "ts": 10 * number + 5 * end}
        for number in range(10_000)
        for end, ph in enumerate("BE")
    ]
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    answer = sample(path, "kernels", blocks=50)
    assert answer.exact  # all of it is read instead
    part = sampling._answer(first_text(path, 1 << 20), "kernels", "its tasks are recorded as begins and ends")
    assert (part.blocks, part.exact) == (0, False)
    assert part.title().endswith("; the values are lower limits, since its tasks are recorded as begins and ends")


def test_why_there_are_no_estimates(tmp_path: Path) -> None:
    """Of a compressed file, the beginning is read, which has no events here."""
    path = tmp_path / "late.json.gz"
    note, events = "x" * (20 << 20), [kernel(0)]
    path.write_bytes(gzip.compress(json.dumps({"note": note, "traceEvents": events}).encode(), 1))
    reasons: SimpleQueue[str] = SimpleQueue()
    with first_answers(path, "kernels", lambda answer: reasons.put(answer.title()), reasons.put):
        assert reasons.get(timeout=60) == "the part that was read has no usable events"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["task-time", "{file}", "--sample"],
            "--sample has no estimates for task-time; reports with estimates: summary",
        ),
        (["summary", "--sample"], "--sample needs one trace file: traceconv report NAME FILE --sample"),
        (["summary", "{file}", "--sample", "--run", "1"], "--sample is for all events of a file: omit options"),
        (["kernels", "{file}", "--sample", "-o", "a.parquet"], "--sample can't be written as parquet; use csv or json"),
        (["summary", "{folder}", "--sample"], "--sample needs one trace file in JSON, which "),
        (["task-time", "{file}", "--first-answers"], "--first-answers has no estimates for task-time"),
    ],
)
def test_usage_errors(folder: Path, command: Command, arguments: list[str], message: str) -> None:
    path = write(folder / "usage.json", 3)
    given = [one.format(file=path, folder=folder) for one in arguments]
    out, err = command("report", *given, code=2)
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "[]", "nothing"])
def test_files_without_events_are_errors_of_a_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with_sample = run_command(["report", "summary", str(path), "--sample"]), capfd.readouterr().err
    plain = run_command(["report", "summary", str(path), "--no-cache"]), capfd.readouterr().err
    if text == "[]":
        assert with_sample[0] == plain[0] == 0
    else:
        assert with_sample == plain
        assert with_sample[1].count("\n") == 1


def test_losses_of_a_file_that_was_read_are_reported(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path / "cut.json", 100)
    path.write_bytes(path.read_bytes()[:-40])
    with_sample = command("report", "kernels", path, "--sample", code=3).err
    assert with_sample == command("report", "kernels", path, "--no-cache", code=3).err


def test_events_whose_kind_depends_on_names_elsewhere_give_no_intervals(tmp_path: Path) -> None:
    """As in torch_npu's traces, where the names of processes are in the middle."""
    names = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CANN"}},
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "Ascend Hardware"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "Stream 7"}},
    ]
    events = [kernel(number) for number in range(10_000)]
    path = tmp_path / "npu.json"
    for place, blocks in ((0, 50), (5000, 0)):
        path.write_text(json.dumps(events[:place] + names + events[place:]))
        assert sample(path, "op-statistic", blocks=50).blocks == blocks


def test_hostile_names_and_durations(tmp_path: Path, command: Command) -> None:
    events = [kernel(number) for number in range(6000)]
    for number, event in enumerate(events):
        event["name"] = ("\x1b[31mred", f"own {number}", "'; DROP TABLE task")[number % 3]
        if number % 3 == 0:
            event["dur"] = 9 * 10**15  # 2^63 ns are 9.2 * 10^15 µs
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    rows = {row["kernel"]: row for row in sample(path, "kernels", blocks=50)}
    assert len(rows) == 500
    red, drop = rows["\x1b[31mred"], rows["'; DROP TABLE task"]
    assert red["total_ns"] is red["total_low_ns"] is red["total_high_ns"] is None
    assert red["count_low"] <= 2000 <= red["count_high"]
    assert drop["count_low"] <= 2000 <= drop["count_high"]
    assert drop["total_low_ns"] <= 4000 * 2000
    assert "\x1b" not in command("report", "kernels", path, "--sample", "--top", "600").out


# -- while the file is ingested --


def test_a_pipe_gets_the_exact_answer_and_stderr_the_first_ones(large: Path, command: Command) -> None:
    arguments = ["report", "kernels", str(large), "--no-cache", "--format", "csv"]
    plain = command(*arguments)
    assert plain.err == ""
    with_first = command(*arguments, "--first-answers")
    assert with_first.out == plain.out
    if with_first.err:  # there may be none on a busy machine
        assert "kernels: 95 % intervals from " in with_first.err


def test_first_answers_in_python(large: Path, folder: Path) -> None:
    *first, exact = traceconv.first_answers(large, "kernels", cache=False)
    assert all(isinstance(answer, SampledAnswer) for answer in first)
    assert isinstance(exact, ReportRows)
    (one,) = traceconv.first_answers(large, sample=True)
    assert isinstance(one, SampledAnswer)
    assert one.report == "summary"
    assert repr(one).startswith("summary: 95 % intervals from")
    with pytest.raises(traceconv.UsageError, match="no estimates for task-time"):
        traceconv.first_answers(large, "task-time")
    with pytest.raises(traceconv.InputError, match="does not exist"):
        next(traceconv.first_answers(folder / "nothing.json", sample=True))


@pytest.mark.usefixtures("_any_size")
def test_first_answers_are_the_default_for_large_files_on_a_terminal(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(path: Path = large, **options: Any) -> bool:
        given = {"is_plain": True, "wanted": None, "sample": False} | options
        return command_part.first_answers_of("kernels", [path], None, **given) is not None

    assert not shown()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert shown()
    assert not shown(is_plain=False)
    assert not shown(wanted=False)
    assert command_part.first_answers_of("task_time", [large], None, is_plain=True, wanted=None, sample=False) is None
    traceconv.ingest(write(tmp_path / "t.json", 3), db=tmp_path / "s.duckdb")
    assert not shown(path=tmp_path / "s.duckdb")


#: Runs the command line; the ingest waits for the first answer, or for ever, as that of a large file would.
WAITING = """
import sys, threading, time
from traceconv.cli.app import run
from traceconv.cli.first_answers import FirstAnswers
from traceconv.pipeline import ingest as part
taken, ingest, take = threading.Event(), part.ingest, FirstAnswers._take
def note(self, answer):
    take(self, answer)
    taken.set()
def wait(*given, **options):
    assert taken.wait(60)
    {then}
    return ingest(*given, **options)
FirstAnswers._take, part.ingest = note, wait
sys.exit(run(sys.argv[1:]))
"""


def waiting(large: Path, then: str) -> list[str]:
    program = WAITING.format(then=then)
    return [sys.executable, "-c", program, "report", "kernels", str(large), "--no-cache", "--first-answers"]


def test_a_terminal_shows_estimates_until_the_exact_answer(large: Path) -> None:
    shown = in_terminal(waiting(large, "time.sleep(0.5)  # until it is drawn"), width=100)
    assert "kernels: 95 % intervals from 2,000 blocks" in shown
    assert "35000" in shown.rsplit("not yet:", 1)[1]


def test_an_interrupt_leaves_the_last_estimate_on_the_terminal(large: Path) -> None:
    shown = in_terminal(waiting(large, "raise KeyboardInterrupt"))
    *_, answer = shown.split("kernels: 95 % intervals from 2,000 blocks")
    for name in (*KERNELS, "not yet: "):
        assert name in answer
    assert "\x1b" not in answer  # it is not erased
    assert "\ntraceconv: ended before the exact answer: these are estimates\n" in answer
    assert max(map(len, answer.splitlines())) <= 80


def test_an_interrupt_at_the_start_ends_the_process(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), first_answers(large, "summary", lambda _: None):
        pytest.fail("the block is not entered")
    (process,) = started
    assert process.returncode is not None


def test_an_interrupt_ends_the_command_and_its_process(large: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        waiting(large, "time.sleep(60)  # until it is interrupted"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=heed_interrupts,
    ) as process:
        wait_until(process, lambda: len(list(tmp_path.iterdir())) > 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_without_an_interpreter_there_are_no_first_answers(
    large: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    arguments = ["report", "kernels", str(large), "--no-cache", "--format", "csv", "--first-answers"]
    assert command(*arguments).err == ""


def test_the_process_gives_way_to_the_ingest_after_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr("traceconv.sampling.sample.samples", lambda path, report: iter(["first", "second"]))
    monkeypatch.setattr(process, "_send", done.append)
    monkeypatch.setattr(process, "_end_with_parent", lambda: None)
    monkeypatch.setattr("os.nice", lambda by: done.append(by > 0))
    question = io.BytesIO(pickle.dumps((Path("trace.json"), "summary")))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=question))
    process.main()
    assert done == ["first", True, "second"]
