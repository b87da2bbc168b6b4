"""advise on the command line and in Python, on a recording of the NPU and on a trace file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command

import traceconv

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces/pytorch/resnet18.pt.trace.json.gz"


def test_all_formats_have_the_same_findings(command: Command) -> None:
    advice = traceconv.open_store(SAMPLE).advise()
    rules = [one.rule for one in advice.findings]
    assert rules[0] == "data-loading"
    document = json.loads(command("advise", SAMPLE, "--format", "json").out)
    assert document == json.loads(json.dumps(advice.to_dict()))
    assert document["version"] == 1
    assert [one["rule"] for one in document["findings"]] == rules
    text = command("advise", SAMPLE).out.splitlines()
    assert text[:-1] == repr(advice).splitlines()[:-1]
    assert max(map(len, text)) <= 80
    csv = command("advise", SAMPLE, "--format", "csv").out.splitlines()
    assert [line.split(",")[0] for line in csv[1:]] == rules
    markdown = command("advise", SAMPLE, "--format", "markdown").out
    for one in advice.findings:
        assert f"`{one.evidence}`" in markdown
        assert one.title in advice._repr_html_()


def test_queries_of_the_evidence_run(command: Command) -> None:
    findings = json.loads(command("advise", SAMPLE, "--least-percent", "0", "--format", "json").out)["findings"]
    assert len(findings) >= 4
    for one in findings:
        assert command("query", one["evidence"], SAMPLE).out


def test_options_select_findings_by_saving(command: Command) -> None:
    with traceconv.open_store(SAMPLE) as store:
        every = store.advise(least_percent=0).findings
        assert [one.saving_ns for one in every] == sorted((one.saving_ns for one in every), reverse=True)
        assert store.advise(least_percent=0, top=1).findings == every[:1]
        assert store.advise(device=0, least_percent=every[0].saving_percent).findings == every[:1]
        with pytest.raises(traceconv.UsageError, match=r"no tasks on device 5\. Devices with tasks: 0"):
            store.advise(device=5)
    assert "has no tasks on device 5" in command("advise", SAMPLE, "--device", 5, code=2).err


def test_a_run_without_tasks_has_no_findings(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text('[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":2,"name":"a"}]')
    advice = traceconv.open_store(path, cache=False).advise()
    assert (advice.devices, advice.findings) == ({}, ())
    assert "no device has tasks" in repr(advice)


def test_a_run_is_an_argument_or_an_option(command: Command, tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    command("ingest", SAMPLE, "--db", store)
    assert command("advise", "--run", 1, "--db", store).out == command("advise", 1, "--db", store).out
    assert "exclude each other" in command("advise", SAMPLE, "--run", 1, code=2).err
