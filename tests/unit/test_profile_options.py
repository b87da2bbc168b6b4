"""Options of a profile, from arguments and from Ascend's JSON, and the errors for invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Command

import traceconv
from traceconv.base.errors import InputError, UsageError
from traceconv.runtime.profile_options import parse_options

ASCEND = {
    "output": "out", "training_trace": "on", "task_trace": "on", "fp_point": "", "bp_point": "",
    "aic_metrics": "PipeUtilization",
}  # fmt: skip


def test_ascends_options_equal_the_arguments(tmp_path: Path) -> None:
    plain = parse_options({"output": "out"})
    file = tmp_path / "options.json"
    file.write_text(json.dumps(ASCEND))
    for options in (ASCEND, json.dumps(ASCEND), file, str(file)):
        assert parse_options({}, options) == plain
    off = parse_options({}, {"task_trace": "off", "training_trace": "off", "aic_metrics": "Memory"})
    assert off == parse_options({"task_trace": False, "training_trace": False, "aic_metrics": "Memory"})
    assert not off.selection.tasks and not off.selection.steps
    for on in (True, "true", "on"):
        assert parse_options({}, {**ASCEND, "profiling_mode": on}) == plain
    with pytest.raises(UsageError, match="profiling_mode is off"):
        parse_options({}, {"profiling_mode": False})
    with pytest.raises(UsageError, match="must be JSON text, the path of a JSON file or a mapping, not list"):
        parse_options({}, [1])  # type: ignore[arg-type]  # what a user may write


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": 3}, "level 3: must be 1"),
        ({"level": "two"}, "must be an integer"),
        ({"sample_rate": -1}, "sample_rate -1"),
        ({"sample_rate": True}, "sample_rate .True.: must be an integer"),
        ({"resource": "hosts"}, "Did you mean 'host'"),
        ({"resource": 5}, "resource must be a name"),
        ({"resource": "pmu"}, "add npu"),
        ({"aic_metrics": "Memori"}, "Did you mean 'Memory'"),
        ({"format": "chrome_timelin.json"}, "Did you mean 'chrome_timeline.json'"),
        ({"format": "raw", "formats": ["raw"]}, "exclude each other"),
        ({"output": "a", "path": "b"}, "mean the same"),
        ({"output": 5}, "output must be a path"),
        ({"output": "x.json", "formats": ["raw"]}, "only one format"),
        ({"output": "x.json", "formats": ["chrome", "memory_flow.svg"]}, "only one format"),
        ({"task_trace": "maybe"}, "must be on or off"),
        ({"fp_point": 5}, "fp_point must be a string"),
    ],
)
def test_a_wrong_option_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_options(given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"a": ' * 100_000, "is not JSON"),
        ('{"outptu": "x"}', "Did you mean 'output'"),
        ('{"level": 2, "task_trace": []}', "must be on or off"),
    ],
)
def test_wrong_json_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        parse_options({}, text)
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_one_without_an_object(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't read"):
        parse_options({}, tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(UsageError, match="must be a JSON object"):
        parse_options({}, tmp_path / "list.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        parse_options({}, tmp_path / "bytes.json")


def test_a_duplicate_option() -> None:
    with pytest.raises(UsageError, match="level is given both"):
        traceconv.profile(level=1, profiling_options={"level": 2})


def test_a_file_name_determines_its_format() -> None:
    for name, wanted in (
        ("t.json", "chrome_timeline.json"), ("t.json.gz", "chrome_timeline.json"), ("m.svg", "memory_flow.svg"),
        ("s.duckdb", "store"), ("t.pftrace", "perfetto"), ("t.pftrace.gz", "perfetto"),
        ("t.perfetto-trace", "perfetto"),
    ):  # fmt: skip
        options = parse_options({"output": name})
        assert (options.formats, options.file) == ((wanted,), Path(name))
    assert parse_options({"format": "chrome_timeline.json"}).output == Path("profile")
    assert parse_options({}).output is None


def test_errors_write_options_as_their_user_does(tmp_path: Path, command: Command) -> None:

    with pytest.raises(UsageError, match=r"^batch -1: must be an integer, at least 1"):
        traceconv.record("mini_resnet", tmp_path, batch=-1)
    done = command("record", "mini_resnet", "-o", tmp_path, "--batch", "-1", code=2)
    assert "--batch -1: must be an integer, at least 1" in done.err


def test_the_optimizer_of_a_session_is_a_name_or_an_optimizer() -> None:
    from traceconv.runtime.training.optimizers import Optimizer

    with pytest.raises(UsageError, match="optimizer must be a name or"):
        traceconv.TrainingSession("mini_resnet", {}, optimizer=5)  # type: ignore[arg-type]  # what a user may write
    with pytest.raises(UsageError, match=r"^lr -1: must be above 0"):
        traceconv.TrainingSession("mini_resnet", {}, optimizer=Optimizer("adam", -1))
    with pytest.raises(UsageError, match="has a learning rate already"):
        traceconv.TrainingSession("mini_resnet", {}, optimizer=Optimizer("adam"), lr=0.1)
