"""`traceconv info` of trace files and vendors' folders: what an ingest would find in them; nothing is stored."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import perfetto_builder as pb
import pytest
from commands import Command, described
from stores import query
from trace_files import write_trace

from traceconv.base.diagnostics import Severity
from traceconv.base.errors import InputError
from traceconv.export.chrome import export_chrome
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.inspect import inspect_trace
from traceconv.store.database import open_store

A = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1.5,"dur":2}'


def test_pytorch_trace(command: Command, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "worker0.pt.trace.json.gz", rank=3)
    out, err = command("info", trace)
    assert err == ""
    assert out.splitlines() == [
        "worker0.pt.trace.json.gz",
        f"  a trace in Chrome's JSON, {trace.stat().st_size:,} bytes, gzip: intact",
        "  writer    PyTorch profiler (Kineto)",
        "  time      2023-11-14 22:13:20.000000000 UTC, 0.003990000 s long",
        "  processes 2",
        "  keys      schemaVersion, distributedInfo",
        "  events    12: X 12",
    ]
    assert list(tmp_path.iterdir()) == [trace]


def test_times_are_those_of_the_run(command: Command, tmp_path: Path) -> None:
    """Objects, samples and marks have times too."""
    trace = tmp_path / "t.json"
    trace.write_text(f'[{{"ph":"N","name":"o","id":1,"pid":1,"ts":1}},{A},{{"ph":"P","name":"s","pid":1,"ts":9}}]')
    one = described(command, trace)
    assert (one["first_ns"], one["last_ns"]) == (1000, 9000)
    ingest([trace], tmp_path / "s.duckdb")
    assert query(tmp_path / "s.duckdb", "SELECT start_ns, end_ns FROM run") == [(1000, 9000)]


def test_losses_are_those_of_an_ingest(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    wrong = ['"ph":"X","ts":NaN', '"ph":"X","dur":1', '"ph":"X","ts":1,"dur":"x"', '"ph":"Z","ts":1', '"ts":1']
    args = ['{"v":1,"w":"x","x":[]}', "[1]", '{"v":null}', '{"v":2}']
    wrong += [f'"ph":"C","ts":1,"args":{values}' for values in args]
    texts = ",".join(f'{{"name":"a","pid":1,{keys}}}' for keys in wrong)
    trace.write_text(f'[{A},{texts},{{"ph":"t","name":"f","pid":1,"id":1,"ts":1,"dur":99}},{{}}]')
    one = described(command, trace, code=3)
    assert (one["intact"], one["last_ns"]) == (False, 3500)
    losses = {entry["code"]: entry["event_count"] for entry in one["log"] if entry["severity"] != "info"}
    assert losses == {"no_time": 2, "bad_duration": 1, "unknown_phase": 1, "no_phase": 1, "bad_number": 3}
    (run,) = ingest([trace], tmp_path / "s.duckdb")
    ingested = Counter[str]()
    for entry in run.log:
        ingested[entry.code.text] += 0 if entry.severity is Severity.INFO else entry.event_count or 0
    assert +ingested == losses


def test_as_json(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text(f'[{A},{{"ph":"X" 1}},{{"ph":"C","name":"c","pid":1,"ts":"0.25","args":{{"v":1}}}}]')
    one = described(command, trace, code=3)
    [entry] = one.pop("log")
    assert (entry["code"], entry["byte_offset"]) == ("damaged_event", trace.read_text().index('{"ph":"X" 1'))
    assert one == {
        "kind": "trace",
        "path": str(trace),
        "format": "chrome_json",
        "container": "plain",
        "size_bytes": trace.stat().st_size,
        "intact": False,
        "closed": True,
        "usable": True,
        "scanned": True,
        "writer": None,
        "keys": [],
        "event_count": 2,
        "events": {"C": 1, "X": 1},
        "first_ns": 250,
        "last_ns": 3500,
        "epoch_known": False,
        "process_count": 1,
    }


def test_quick_reads_only_the_first_events(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    trace.write_text("[" + ",".join([A] * 200_000) + ',{"ph":"X" 1}]')
    out = command("info", trace, "--quick").out
    assert f"{trace.stat().st_size:,} bytes: no problems found" in out
    assert out.endswith("  (--quick: only the first events were read)\n")
    assert 0 < described(command, trace, "--quick")["event_count"] < 200_000
    assert described(command, trace, code=3)["event_count"] == 200_000


@pytest.mark.parametrize(
    ("name", "text", "format_name", "writer"),
    [
        (
            "a.speedscope.json",
            b'{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"f"}]},"profiles":'
            b'[{"type":"sampled","name":"t","unit":"seconds","startValue":0,"endValue":1,"samples":[[0]],"weights":[1]}]}',
            "speedscope",
            "speedscope",
        ),
        (
            "a.pftrace",
            pb.process(1, 7, "app") + pb.begin(1000, 1, "s") + pb.end(3000, 1),
            "perfetto_proto",
            "Perfetto",
        ),
    ],
)
def test_other_formats(name: str, text: bytes, format_name: str, writer: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    one = described(command, tmp_path / name)
    assert (one["format"], one["writer"], one["intact"]) == (format_name, writer, True)
    assert one["last_ns"] is not None


def test_traceconv_export(command: Command, tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json")
    ingest([tmp_path / "t.json"], tmp_path / "s.duckdb")
    with open_store(tmp_path / "s.duckdb") as connection:
        export_chrome(connection, 1, tmp_path / "own.json")
    one = described(command, tmp_path / "own.json")
    assert one["writer"].startswith("traceconv ")


def test_a_folder_of_traces(command: Command, tmp_path: Path) -> None:
    for rank in range(3):
        write_trace(tmp_path / f"rank{rank}.json", rank=rank)
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "settings.json").write_text('{"a": 1}')
    out, err = command("info", tmp_path)
    assert err == ""
    assert [line for line in out.splitlines() if not line.startswith(" ")] == ["rank0.json", "rank1.json", "rank2.json"]


def test_a_folder_of_torch_npu(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    write_trace(folder / "trace_view.json")
    (folder / "op_statistic.csv").write_text("Device_id,OP Type\n")
    out = command("info", folder).out
    assert "  an output folder of msprof or torch_npu" in out
    assert "  timeline  trace_view.json" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert described(command, folder)["timelines"] == [str(folder / "trace_view.json")]


def test_documents_that_follow_each_other_without_events_are_not_a_trace(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"name":"a","st_ms":0}\n{"name":"b","st_ms":1}\n')
    for read in (lambda: inspect_trace(lines, "chrome_json"), lambda: ingest([lines], tmp_path / "trace.duckdb")):
        with pytest.raises(InputError, match="no array of events"):
            read()


def test_one_of_two_files_is_not_a_trace(command: Command, tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.json")
    (tmp_path / "u.json").write_text('{"traceEvents": 1}')
    out, err = command("info", trace, tmp_path / "u.json", code=3)
    assert out.startswith("t.json\n")
    assert err.count("\n") == 1
    assert "u.json contains no usable events (it has no array of events)" in err
    out, err = command("info", tmp_path / "u.json", code=1)
    assert (out, err.count("\n")) == ("", 1)


def test_control_characters_in_traces_are_escaped(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t\x1b[2J.json.gz"
    keys = json.dumps({"\x1b[31mkey": 1, "k" * 500: 2, "traceEvents": [json.loads(A)]}, ensure_ascii=False)
    trace.write_bytes(gzip.compress(keys.encode()))
    out = command("info", trace).out
    assert all(line.isprintable() and len(line) <= 80 for line in out.splitlines())
