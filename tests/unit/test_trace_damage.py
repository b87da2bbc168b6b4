"""Damaged and unusual trace files, one line each: what is read, and what is reported."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from ingest_checks import rows_of, taken
from stores import query

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.limits import Limits

A = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1.5,"dur":2}'
B = '{"ph":"X","name":"b","pid":1,"tid":1,"ts":"4.0001","dur":1e1}'


def codes(text: bytes | str, tmp_path: Path, name: str = "trace.json") -> tuple[list[str], list[str]]:
    """Return the names of the slices and the codes in the import log."""
    (tmp_path / name).mkdir(exist_ok=True)
    run, store = taken(text, tmp_path / name, name)
    names = [row[0] for row in query(store, "SELECT name FROM slice ORDER BY start_ns")]
    return names, [entry.code.text for entry in run.log]


@pytest.mark.parametrize(
    ("text", "names", "logged"),
    [
        (f'{{"traceEvents":[{A},{B}]}}', ["a", "b"], ["fine_time"]),
        (f"[{A},{A}", ["a", "a"], ["no_end"]),
        (f'{{"traceEvents":[{A},', ["a"], ["cut_off"]),
        (f'[{A},{{"ph":"X","na', ["a"], ["cut_event", "no_end"]),
        (f'[{A},{{"ph":"X" "name":"x"}},{A}]', ["a", "a"], ["damaged_event"]),
        (f"[{A},null,{A}]", ["a", "a"], ["not_an_event"]),
        (f"{A}\n{A}\n", ["a", "a"], []),
        (f"[{A},{{}}]", ["a"], []),
        (f'[{A},{{"args":null}}]', ["a"], ["no_phase"]),
        (f"[{A}][{A}]", ["a", "a"], ["several_arrays"]),
        (f"[{A.replace('2}', 'NaN}')}]", ["a"], ["odd_json", "bad_duration"]),
        (f"[{A.replace('2}', '-2}')}]", ["a"], ["backward"]),
        (f"[{A.replace('1.5', '1e300')},{A}]", ["a"], ["no_time"]),
        ('[{"ph":"B","name":"a","ts":1},{"ph":"E","name":"z","ts":2}]', ["a"], ["end_without_begin", "unfinished"]),
        ('[{"ph":"B","name":"a","ts":1},{"ph":"E","name":"","ts":2}]', ["a"], []),
        (f"\ufeff[{A}]\0\0", ["a"], ["padding"]),
        (f"[{A},{B.replace('X', 'XX')}]", ["a", "b"], ["fine_time", "long_phase"]),
        (
            '[{"ph":"BEGIN","name":"a","ts":1},{"ph":"end","name":"a","ts":2},{"ph":"End","name":"a","ts":2}]',
            ["a"],
            ["long_phase"] * 3 + ["end_without_begin"],
        ),
        (f"[{A},{A.replace('X', '?X')}]", ["a"], ["unknown_phase"]),
        ('{"traceEvents":[]}', [], []),
        (f'{{"samples":[],"systemTraceEvents":"","traceEvents":[{A}]}}', ["a"], []),
        (f'{{"samples":[1],"traceEvents":[{A}],"systemTraceEvents":"#"}}', ["a"], ["unknown_record"] * 2),
    ],
)
def test_malformed_text_is_read_and_reported(text: str, names: list[str], logged: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path) == (names, logged)


#: As torch 2.14.1 writes it: keys added by the program, whose backslashes became slashes, and names of source files.
KINETO = """{
    "schemaVersion": 1,
      "quoted": "say /"hi/" {/"a/": [1, /"b/"]}, /", ",
      "json": {"a": "b /"q/" x", "path": "C://dir//"},
      "event": "a/", /"b/": {/"ph/": /"X/", /"ts/": 1}, /"c/": /"",
      "slash": "/tmp/",
    "baseTimeNanoseconds": 0,
    "traceEvents": [
  {
    "ph": "X",
    "name": "{"device": "cpu", "dtype": "f32"}(12): run",
    "pid": 1, "tid": 1, "ts": 1.5, "dur": 2
    ,
    "args": {
      "CallFrom": "{"a": "b", "c": "d"}:4", "Python id": 306, "Call stack": "{"a": "b"}(2): f;We"ird(1): g", "Ev Idx": 7
    }
  },
  {
    "ph": "X",
    "name": "odd"",
    "pid": 1, "tid": 1, "ts": 4, "dur": 2
    ,
    "args": {
      "Ev Idx": 8, "Call stack": "We"ird(1): g"
    }
  },
  {
    "ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9
  }
  ],"traceName": "a.json" }"""
QUOTED = '{"device": "cpu", "dtype": "f32"}(12): run'


def test_quotes_that_kineto_does_not_escape_are_repaired(tmp_path: Path) -> None:
    run, store = taken(KINETO, tmp_path)
    rows = query(store, "SELECT name, start_ns, dur_ns, args::VARCHAR FROM range ORDER BY start_ns")
    assert [row[:3] for row in rows] == [(QUOTED, 1500, 2000), ('odd"', 4000, 2000)]
    assert [json.loads(row[3]) for row in rows] == [
        {
            "CallFrom": '{"a": "b", "c": "d"}:4',
            "Python id": 306,
            "Call stack": '{"a": "b"}(2): f;We"ird(1): g',
            "Ev Idx": 7,
        },
        {"Ev Idx": 8, "Call stack": 'We"ird(1): g'},
    ]
    options = json.loads(query(store, "SELECT options::VARCHAR FROM run")[0][0])
    assert {key: options[key] for key in ("quoted", "json", "event", "slash")} == {
        "quoted": 'say "hi" {"a": [1, "b"]}, ", ',
        "json": {"a": 'b "q" x', "path": "C://dir//"},
        "event": 'a", "b": {"ph": "X", "ts": 1}, "c": "',
        "slash": "/tmp/",
    }
    assert [entry.code for entry in run.log] == [Code.ODD_JSON] * 5
    assert {entry.message for entry in run.log} == {"quote in a string without a backslash"}


def test_quotes_that_onnxruntime_does_not_escape_are_repaired(tmp_path: Path) -> None:
    node = (
        '{"cat" : "Node","pid" :7,"tid" :7,"dur" :%d,"ts" :%d,"ph" : "X","name" :"%s_kernel_time",'
        '"args" : {"op_name" : "%s","provider" : "CPUExecutionProvider","node_index" : "0"}}'
    )
    nodes = [node % row for row in ((2, 1, 'then/"Relu"', "Relu"), (3, 5, '"', "Exp"), (4, 9, "sum", "Sum"))]
    run, store = taken("[\n" + ",\n".join(nodes) + "\n]\n", tmp_path)
    rows = query(store, "SELECT op.name, start_ns, dur_ns FROM task JOIN op USING (run_id, op_id) ORDER BY 2")
    assert rows == [
        ('then/"Relu"_kernel_time', 1000, 2000),
        ('"_kernel_time', 5000, 3000),
        ("sum_kernel_time", 9000, 4000),
    ]
    assert {(entry.code, entry.message) for entry in run.log} == {
        (Code.ODD_JSON, "quote in a string without a backslash")
    }


@pytest.mark.parametrize(
    ("sound", "damaged", "names", "code"),
    [
        ('"slash": "/tmp/"', '"slash": "tmp"x"', [QUOTED, 'odd"'], Code.DAMAGED_TEXT),
        ('1.5, "dur": 2', '1.5, "dur" 2', ['odd"'], Code.DAMAGED_EVENT),
    ],
)
def test_other_damage_next_to_quotes_without_a_backslash_is_reported(
    sound: str, damaged: str, names: list[str], code: Code, tmp_path: Path
) -> None:
    run, store = taken(KINETO.replace(sound, damaged), tmp_path)
    assert [row[0] for row in query(store, "SELECT name FROM slice ORDER BY start_ns")] == names
    assert code in [entry.code for entry in run.log]


@pytest.mark.parametrize("after", [', "cat": "k", "args": {"x": "y"\n}', ',\n "cat": "k",\n "args": {"x": "y"\n}'])
def test_quotes_in_names_of_other_writers_lose_the_event(after: str, tmp_path: Path) -> None:
    """Where the name ends is unknown: it could take up the keys after it."""
    event = '{"ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "name": "conv "fused""' + after + "}"
    run, store = taken(f'[{event},{{"ph": "X", "ts": 9, "dur": 2, "pid": 1, "tid": 1, "name": "sound"}}]', tmp_path)
    assert query(store, "SELECT name FROM slice") == [("sound",)]
    assert [entry.event_count for entry in run.log if entry.code is Code.DAMAGED_EVENT] == [1]


def test_counter_events_with_bad_values_only_are_lost(tmp_path: Path) -> None:
    """An event with several bad values counts once; one without values is used, as it says nothing."""
    args = ['{"v":null,"w":"x","n":7}', '{"v":NaN,"w":[]}', "{}", '{"v":8}']
    account, bad = counted(args, tmp_path)
    assert account == (4, 2, 1, 1)
    assert bad == ["counter value is not a number"] * 2


def test_counter_events_with_args_that_are_no_object_are_lost(tmp_path: Path) -> None:
    """Unlike those without args or with null, they contain something that no sample has."""
    account, bad = counted(["5", '"8"', "[1]", "null", " null", " {}", '{"v":8}'], tmp_path)
    assert account == (7, 1, 3, 3)
    assert bad == ["counter args are not an object"] * 3


def counted(args: list[str], tmp_path: Path) -> tuple[tuple[int, ...], list[str]]:
    """Records, rows, used and lost counter events with these args, and the messages about single bad ones."""
    events = [f'{{"ph":"C","name":"c","pid":1,"ts":5,"args":{one}}}' for one in args]
    run, _ = taken(f"[{','.join(events)}]", tmp_path)
    account = run.accounts["C events"]
    bad = [entry for entry in run.log if entry.code is Code.BAD_NUMBER]
    assert all(entry.event_count == 1 and entry.byte_offset is not None for entry in bad)
    return (account.records, account.rows, account.used, account.lost), [entry.message for entry in bad]


@pytest.mark.parametrize("text", ["", "   ", "<html>", '{"a":1}', "[1,2]", "42"])
def test_other_files_are_rejected_and_store_nothing(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        taken(text, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_compressed_files(tmp_path: Path) -> None:
    text = f"[{A}]".encode()
    two = gzip.compress(text[:10]) + gzip.compress(text[10:])
    assert codes(two, tmp_path, "a.json.gz") == (["a"], [])
    assert codes(zstandard.ZstdCompressor().compress(text), tmp_path, "b.json.zst") == (["a"], [])
    many = f"[{','.join([A] * 5000)}]".encode()
    names, logged = codes(zstandard.ZstdCompressor().compress(many)[:-9], tmp_path, "c.json.zst")
    assert "bad_container" in logged
    assert len(names) < 5000


def test_rounded_timestamps_are_reported_once(tmp_path: Path) -> None:
    names, logged = codes(
        '[{"ph":"B","name":"a","pid":1,"tid":1,"ts":1,"tts":1.00001},{"ph":"B","name":"b","pid":1,"tid":1,"ts":2},'
        '{"ph":"E","name":"b","pid":1,"tid":1,"ts":3,"tts":3},{"ph":"E","name":"a","pid":1,"tid":1,"ts":4}]',
        tmp_path,
    )
    assert (names, logged) == (["a", "b"], ["fine_time"])


@pytest.mark.parametrize("name_count", [1, 1000])
def test_extra_keys_stay_with_their_event_among_many_categories(name_count: int, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": f"n{number % name_count}", "cat": f"c{number * 7 % 9}", "pid": 1, "tid": 1, "ts": number}
        | ({"dur": 0.5, "args": {"number": number}} if number % 50 else {"dur": f"bad {number}"})
        for number in range(1000)
    ]
    rows = rows_of(events, tmp_path, "SELECT name, category, dur_ns, args FROM range ORDER BY start_ns")
    for number, (row, event) in enumerate(zip(rows, events, strict=True)):
        beside = {"trace_event": {"ph": "X", "dur": event["dur"]}}
        dur_ns, args = (500, event["args"]) if number % 50 else (None, beside)
        assert (*row[:3], json.loads(row[3])) == (event["name"], event["cat"], dur_ns, args)


@pytest.mark.parametrize("opening", ["", "[", '{"traceEvents":['])
@pytest.mark.parametrize("separator", ["\n\ufeff", "\x1e", "\n\x1e", "\f", "\0\0\n", "\u2028", "\u00a0", "\n\u2028"])
def test_characters_between_events_lose_no_event(separator: str, opening: str, tmp_path: Path) -> None:
    """Byte order marks of concatenated files, record separators of RFC 7464, and characters outside JSON's grammar."""
    events = [json.dumps({"ph": "X", "name": f"n{i}", "ts": i * 3, "dur": 2, "pid": 1, "tid": 1}) for i in range(200)]
    text = opening + ("," * bool(opening) + separator).join(events) + {"": "", "[": "]"}.get(opening, "]}")
    run, store = taken(text, tmp_path)
    names = {name for (name,) in query(store, "SELECT name FROM range")}
    assert names == {f"n{i}" for i in range(200)}
    # NULs may have overwritten events.
    assert run.lossy == (separator not in ("\n\ufeff", "\x1e", "\n\x1e", "\f"))


def test_a_key_that_many_documents_repeat_counts_once_against_the_limit() -> None:
    log = ImportLog()
    parser = TraceParser(log, Limits(event_bytes=20_000))
    text = '{"traceEvents":[],"machine":"' + "x" * 9000 + '"}\n'
    batches = [*parser.feed(text.encode() * 10), *parser.finish()]
    assert not batches and {entry.code for entry in log} == {Code.SEVERAL_ARRAYS}
