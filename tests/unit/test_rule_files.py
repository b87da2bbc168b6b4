"""Rule files: which are valid, and that the first matching rule applies."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from stores import query

from traceconv.base.errors import InputError
from traceconv.normalize.trace.classify import Classifier, identifying_words, rules_of
from traceconv.normalize.trace.rule_files import built_in, parse_rules
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.inspect import inspect_trace
from traceconv.pipeline.trace_file import TraceOptions

GOOD = """
title = "One"
[detect]
categories = ["k.*"]
[[rule]]
categories = ["kernel"]
name = "copy.*"
table = "task"
set = { kind = "copy" }
[[rule]]
categories = ["kernel"]
thread = 'stream (?P<stream_id>\\d+)'
table = "task"
op = true
args = { device_id = ["device", "Device"] }
"""

ITEMS = """
title = "One"
[items]
prefix = "a.item"
unit = "us"
name = "op"
start = "begin"
end = "finish"
"""

HOST = """
title = "One"
[detect]
categories = ["kernel"]
[[host]]
table = "range"
arg = 'a."b'
name = "boot"
[[host]]
table = "range"
arg = "where"
"""

_ONE = ITEMS.split("[items]")[1]
TWO = f"title = 'Two'\n[[items]]{_ONE}[[items]]{_ONE.replace('a.item', 'b.item')}"


def test_the_built_in_files_are_valid_and_in_order_of_priority() -> None:
    titles = [rules.title for rules in built_in()]
    assert len(titles) == len(set(titles)) >= 7
    assert [rules.priority for rules in built_in()] == sorted(rules.priority for rules in built_in())
    files = (resources.files("traceconv.normalize") / "rules").iterdir()
    assert sorted(parse_rules(file.read_text("utf-8"), file.name).title for file in files) == sorted(titles)


def test_the_first_matching_rule_applies() -> None:
    rules = parse_rules(GOOD, "good.toml")
    assert rules.knows({"categories": {"kernel"}})
    assert not rules.knows({"categories": {"other"}, "keys": {"kernel"}})
    classifier = Classifier(rules.rules, {1: (None, "stream 7"), 2: (None, "main")}.__getitem__)
    codes = classifier.codes(
        np.array([1, 1, 2, 1, 2], np.int32),
        pa.array(["kernel", "kernel", "kernel", None, "kernel"]).dictionary_encode(),
        pa.array(["copy a", "gemm", "gemm", "gemm", "copy b"]).dictionary_encode(),
        pytest.fail,
    )
    assert codes.tolist() == [0, 1, -1, -1, 0]
    assert rules.rules[1].named(None, "stream 7") == {"stream_id": "7"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "not a rule file"),
        ("priority = 1", "title is missing"),
        ("title = 'x'\npriority = true", "priority must be a 64-bit integer"),
        ("title = 'x'\n[detect]\nkeys = 'simulator'", "detect: keys must be a list of strings"),
        ("title = 'x'\n[memory]\nname = 'm'", "memory: size_bytes is missing"),
        (ITEMS.replace("prefix", "prefx"), "items: unknown key 'prefx'. Did you mean 'prefix'?"),
        (ITEMS.replace('"us"', '"µs"'), "items: unit must be one of ns, us, ms, s"),
        (ITEMS.replace('"us"', "1000"), "items: unit must be a string"),
        (ITEMS.replace("name =", "# "), "items: name is missing"),
        (ITEMS.replace("end =", "# "), "items: an item needs either end or duration"),
        (ITEMS + 'duration = "d"', "items: an item needs either end or duration"),
        (ITEMS + 'duration_unit = "s"', "items: duration_unit needs duration"),
        (ITEMS + 'args = "grid"', "items: args must be a list of strings"),
        (ITEMS + 'category = "c"\nfixed_category = "c"', "items: an item has either category or fixed_category"),
        (TWO.replace("end =", "# "), "items 1: an item needs either end or duration"),
        (TWO.replace("b.item", "a.item"), "items: prefix 'a.item' is 'a.item' or inside it"),
        (TWO.replace("b.item", "a.item.b.item"), "items: prefix 'a.item.b.item' is 'a.item' or inside it"),
        (TWO.replace("b.item", ""), "items: prefix 'a.item' is '' or inside it"),
        ("title = 'x'\nitems = []", "items must be a table or a list of tables"),
        (ITEMS.replace("a.item", "$.a[*]"), "items: prefix must be like result.kernels.item"),
        (GOOD.replace('["kernel"]', '"kernel"', 1), "rule 1: categories must be a list of strings"),
        (GOOD.replace('["device", "Device"]', '"device"'), "rule 2: args: device_id must be a list of strings"),
        (GOOD.replace('["device", "Device"]', '["device", 3]'), "rule 2: args: device_id must be a list of strings"),
        (GOOD.replace('{ kind = "copy" }', '{ device_id = "one" }'), "rule 1: set: device_id must be a 64-bit integer"),
        (GOOD.replace('{ kind = "copy" }', f"{{ device_id = {2**63} }}"), "device_id must be a 64-bit integer"),
        (GOOD.replace("op = true", "step = true"), "rule 2: step needs a name pattern"),
        (GOOD.replace("op = true", "step = true\nname = 'x'"), "rule 2: step needs a name pattern"),
        (GOOD.replace("op = true", "step_arg = 'step'"), "rule 2: step_arg needs step = true"),
        (GOOD.replace('{ kind = "copy" }', "{ kind = 3 }"), "rule 1: set: kind must be a string"),
        (GOOD.replace('name = "copy.*"', "name = 3"), "rule 1: name must be a string"),
        (GOOD.replace("op = true", "op = 1"), "rule 2: op must be true or false"),
        (GOOD.replace('table = "task"', 'table = "op"'), "table must be one of"),
        (GOOD.replace("device_id =", "no_such ="), "has no column 'no_such'"),
        (GOOD.replace('name = "copy.*"', 'name = "("'), "not a rule file"),
        (GOOD.replace('name = "copy.*"', 'name = "[[a]b]"'), "nested set.*backslash"),
        (GOOD.replace('["k.*"]', '["[a--b]k"]'), "set difference.*backslash"),
        (GOOD.replace("op = true", "operator = true"), "rule 2: unknown key 'operator'"),
        (GOOD.replace("title", "titel"), "bad.toml: unknown key 'titel'. Did you mean 'title'"),
        (GOOD.replace("set = { kind", "set = { id"), "has no column 'id'"),
        ("title = 'x'\nrule = 3", "rule must be a list of tables"),
        ("title = 'x'\nlaunch_flows = 'ac2g'", "launch_flows must be a list of strings"),
        (HOST.replace('"range"', '"run"'), "host 1: table must be one of"),
        (HOST.replace('arg = "where"', ""), "host 2: arg is missing"),
        (GOOD.replace("op = true", "launches = true"), "rule 2: launches needs table = 'range'"),
        (GOOD.replace("set = {", "set_if_no_args = { pid = 1, "), "rule 1: task has no column 'pid'"),
        ("title = 'x'\n[step_ends]\nname = 'x'", "step_ends: thread is missing"),
        ("title = 'x'\nlaunch_flows = [1]", "launch_flows must be a list of strings"),
        ("title = 'x'\nlaunch_flows = ['(']", "not a rule file"),
    ],
)
def test_an_invalid_file_is_reported_with_the_error_and_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules(text, "bad.toml")


@pytest.mark.parametrize(
    ("rows", "host"),
    [
        ([("boot", 'a."b', "n1"), ("run", 'a."b', "n2"), ("run", "where", "n3")], "n1"),
        ([("boot", 'a."b', "n1"), ("boot", 'a."b', "n2")], None),
        ([("run", "where", "n3"), ("run", "where", "n3")], "n3"),
        ([("run", "elsewhere", "n3")], None),
    ],
)
def test_the_host_is_in_the_first_arg_that_any_row_has(
    rows: list[tuple[str, str, str]], host: str | None, tmp_path: Path
) -> None:
    trace = tmp_path / "one.json"
    event = {"ph": "X", "cat": "kernel", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    trace.write_text(json.dumps([{**event, "name": name, "args": {key: value}} for name, key, value in rows]))
    options = TraceOptions(rules=(parse_rules(HOST, "host.toml"),))
    [run] = ingest([trace], tmp_path / "trace.duckdb", trace_options=options)
    assert run.host == host


@pytest.mark.parametrize(("count", "missing"), [(2, False), (3, True), (4, False), (6, True)])
def test_a_trace_with_as_many_events_as_its_writer_keeps_is_incomplete(
    count: int, missing: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "one.json"
    events = [{"ph": "X", "cat": "kernel", "name": "a", "pid": 1, "tid": 1, "ts": ts, "dur": 1} for ts in range(count)]
    trace.write_text(json.dumps([*events, {"ph": "i", "name": "b", "pid": 1, "tid": 1, "ts": 1}]))
    rules = (parse_rules(f"event_limit = 3\n{GOOD}", "limit.toml"),)
    [run] = ingest([trace], tmp_path / "trace.duckdb", trace_options=TraceOptions(rules=rules))
    codes = ["missing_records"] if missing else []
    assert [entry.code.text for entry in run.log] == codes
    assert [entry.code.text for entry in inspect_trace(trace, "chrome_json", rules=rules).log] == codes
    with pytest.raises(InputError, match="event_limit must be 1 or more"):
        parse_rules("title = 'One'\nevent_limit = 0", "zero.toml")


def test_starts_that_the_writer_rounds_down(tmp_path: Path) -> None:
    """From 0.9 to 30.9, and inside, from 5.1 to 30.8, which seems to end later."""
    trace = tmp_path / "one.json"
    one = {"ph": "X", "cat": "kernel", "name": "a", "pid": 1, "tid": 1}
    trace.write_text(json.dumps([{**one, "ts": 0, "dur": 30}, {**one, "ts": 5, "dur": 25.7}]))
    own_times = []
    for step in ("", "start_step_ns = 1000\n"):
        rules = (parse_rules(step + GOOD, "step.toml"),)
        store = tmp_path / f"trace{len(own_times)}.duckdb"
        ingest([trace], store, trace_options=TraceOptions(rules=rules))
        own_times.append(query(store, "SELECT depth, self_ns FROM range ORDER BY id"))
    assert own_times == [[(0, 30_000), (0, 25_700)], [(0, 5000), (1, 25_700)]]
    for given, problem in ((0, "must be 1 or more"), (2 * 10**9, "must be 1,000,000,000 or less")):
        with pytest.raises(InputError, match=f"start_step_ns {problem}"):
            parse_rules(f"title = 'One'\nstart_step_ns = {given}", "zero.toml")


_FULL = {"ph": "M", "cat": "__metadata", "name": "trace_buffer_overflowed", "pid": 1, "tid": 1, "ts": 0}


@pytest.mark.parametrize(
    ("more", "key", "missing"),
    [
        ([], {"viztracer_metadata": {"overflow": True}}, True),
        ([], {"viztracer_metadata": {"overflow": True}, "trace_id": "A"}, True),  # with --log_torch
        ([], {"viztracer_metadata": {"overflow": False}}, False),
        ([], {"viztracer_metadata": {"overflow": "no"}}, False),
        ([], {"metadata": {"trace_processor_stats": {"traced_buf": [{"chunks_discarded": 0}]}}}, False),
        ([], {"metadata": {"trace_processor_stats": {"traced_buf": [{}, {"chunks_discarded": 2}]}}}, True),
        ([], {"viztracer_metadata": [True]}, False),
        ([{**_FULL, "args": {"overflowed_at_ts": 1}}], {}, True),
        ([{**_FULL, "ph": "i"}], {}, False),
    ],
)
def test_a_trace_whose_writer_dropped_events_is_incomplete(
    more: list[object], key: dict[str, object], missing: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "one.json"
    event = {"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    trace.write_text(json.dumps({"traceEvents": [event, *more], **key}))
    [run] = ingest([trace], tmp_path / "trace.duckdb")
    codes = ["missing_records"] if missing else []
    assert [entry.code.text for entry in run.log] == codes
    assert [entry.code.text for entry in inspect_trace(trace, "chrome_json").log] == codes


def test_common_thread_names_identify_no_writer() -> None:
    words = {"threads": ["main", "worker"], "categories": ["app"], "keys": ["perfetto"]}
    assert rules_of(words, built_in()).title == "Perfetto"
    assert rules_of({**words, "keys": ["perfetto", "traceconv"]}, built_in()).title == "traceconv"
    assert rules_of({**words, "categories": ["TensorLink"]}, built_in()).title == "MegEngine"


def test_of_many_words_those_that_choose_rules_are_kept() -> None:
    words = [f"word {number}" for number in range(10_000)]
    chosen = ["cpu_op", "node.fs", "MsTx"]  # a word, a match of a pattern, the category that a rule requires
    found = identifying_words([*words[:9000], *chosen, *words[9000:]], "categories", built_in())
    assert found == set(chosen)
    assert identifying_words(words[:50], "categories", built_in()) == set(words[:50])
