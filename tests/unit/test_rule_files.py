"""Rule files: what they must be, and that the first rule that fits counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from traceconv.errors import InputError
from traceconv.normalize.trace_json.classify import Classifier, built_in, parse_rules

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


def test_the_files_of_the_package_are_sound_and_tried_in_order() -> None:
    titles = [rules.title for rules in built_in()]
    assert len(titles) == len(set(titles)) >= 7
    assert [rules.priority for rules in built_in()] == sorted(rules.priority for rules in built_in())


def test_the_first_rule_that_fits_counts() -> None:
    rules = parse_rules(GOOD, "good.toml")
    assert rules.knows({"categories": {"kernel"}})
    assert not rules.knows({"categories": {"other"}, "keys": {"kernel"}})
    classifier = Classifier(rules.rules, {1: (None, "stream 7"), 2: (None, "main")})
    codes = classifier.codes(
        np.array([1, 1, 2, 1, 2], np.int32),
        pa.array(["kernel", "kernel", "kernel", None, "kernel"]).dictionary_encode(),
        pa.array(["copy a", "gemm", "gemm", "gemm", "copy b"]).dictionary_encode(),
    )
    assert codes.tolist() == [0, 1, -1, -1, 0]
    assert rules.rules[1].named(None, "stream 7") == {"stream_id": "7"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title = ", "not a rule file"),
        ("priority = 1", "title"),
        (GOOD.replace('table = "task"', 'table = "op"'), "table must be one of"),
        (GOOD.replace("device_id =", "no_such ="), "has no no_such"),
        (GOOD.replace('name = "copy.*"', 'name = "("'), "not a rule file"),
        (GOOD.replace('name = "copy.*"', 'name = "[[a]b]"'), "nested set.*backslash"),
        (GOOD.replace('["k.*"]', '["[a--b]k"]'), "set difference.*backslash"),
        (GOOD.replace("op = true", "operator = true"), "unknown key operator"),
        (GOOD.replace("set = { kind", "set = { id"), "has no id"),
        ("title = 'x'\nrule = 3", "not a rule file"),
        ("title = 'x'\nlaunch_flows = 'ac2g'", "launch_flows: it takes a list"),
        ("title = 'x'\nlaunch_flows = [1]", "launch_flows: it takes a list"),
    ],
)
def test_a_file_that_is_none_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules(text, "bad.toml")
