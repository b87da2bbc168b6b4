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
    assert command("advise", SAMPLE, "--run", 1).out == command("advise", SAMPLE).out
    assert "exclude each other" in command("advise", 1, "--run", 1, "--db", store, code=2).err


def test_the_findings_of_all_runs_are_added_up(command: Command, tmp_path: Path) -> None:
    """Three ranks that wait for the host, the second one for longest and with a lost task, and one without tasks."""
    for rank, gap_us in enumerate((2_000, 6_000, 2_000, None)):
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 1_000}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "dur": 5}
        events: list[object] = [{**call, "name": "work", "cat": "cpu_op", "ts": 0}]
        for number, start_us in enumerate((0, 1_000 + (gap_us or 0)) if gap_us else ()):
            arguments = {"device": 0, "stream": 7, "correlation": number}
            events += [{**call, "ts": start_us, "args": arguments}, {**kernel, "ts": start_us + 9, "args": arguments}]
        if rank == 1:
            events.append({**call, "ts": 7_020, "args": {"correlation": 2}})
        path = tmp_path / f"job/rank{rank}/trace.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))
    store = tmp_path / "job.duckdb"
    command("ingest", tmp_path / "job", "--db", store)
    with traceconv.open_store(store) as opened:
        advice = opened.advise("all")
        single = [opened.advise(f"rank={rank}") for rank in range(4)]
        assert advice.to_dict() == {"version": 1, "runs": [one.to_dict() for one in single]}
        lost = [one.findings[0].caveats[1:] for one in single[:3]]
        assert lost == [(), ("lost_tasks: 1 of 3",), ()]
        (found,) = advice.findings
        savings = [one.findings[0].saving_ns for one in single[:3]]
        assert (found.rule, found.saving_ns, found.run_ids) == ("host-bound", sum(savings), (2, 1, 3))
        assert found.saving_percent == 100 * sum(savings) / sum(one.devices[0] for one in single[:3])
        assert found.largest == single[1].findings[0] and found.evidence == found.largest.evidence
        assert opened.advise("all", top=1, least_percent=0).findings[0].rule == "host-bound"
        text = command("advise", "--run", "all", "--db", store).out
        assert repr(advice).splitlines()[:-1] == text.splitlines()[:-1]
        assert found.largest.title in advice._repr_html_()
    lines = repr(advice).splitlines()
    assert lines[:2] == ["4 runs, 1 finding", "1 run without tasks with start times: all rules are about devices"]
    assert "2 (rank 1)" in lines[4] and "   In 3 runs: 2, 1, 3" in lines
    csv = command("advise", tmp_path / "job", "--run", "all", "--format", "csv", "--no-cache").out.splitlines()
    assert [line[:12] for line in csv[1:]] == [f"{run_id},host-bound" for run_id in (1, 2, 3)]
    markdown = command("advise", "--run", "all", "--db", store, "--format", "markdown").out
    assert f"`{found.largest.evidence}`" in markdown
    assert json.loads(command("advise", "--run", "all", "--db", store, "--format", "json").out) == advice.to_dict()
