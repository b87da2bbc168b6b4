"""Small versions of the benchmark inputs give the right rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from recount import chrome, npu_log, writers
from recount import perfetto as packets
from recount.compare import disagreements, statistic, sums
from recount.stored import tallies
from recount.tally import differences

from benchmarks import chrome_json, generate, perfetto
from traceconv.pipeline.ingest import ingest


@pytest.mark.parametrize("kind", ["compact", "indented", "flows", "rarer", "wrecked"])
def test_trace_json(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    chrome_json.write(path, kind, 300_000)
    ingest([path], tmp_path / "trace.duckdb")
    counted = chrome.add_up(chrome.events_of(chrome.read(path)), writers.kineto)
    assert disagreements(tmp_path / "trace.duckdb", {path: counted}, tmp_path) == []


def test_packets(tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    perfetto.write(path, 3000)
    ingest([path], tmp_path / "trace.duckdb")
    assert disagreements(tmp_path / "trace.duckdb", {path: packets.add_up(path)}, tmp_path) == []


def test_a_raw_log(tmp_path: Path) -> None:
    capture, _ = generate.generate(tmp_path, 5000)
    store = tmp_path / "trace.duckdb"
    ingest([capture], store)
    tally, operators = npu_log.add_up(capture)
    assert differences(tally, tallies(store)[1]) == []
    assert statistic(store, "op_type, core_type", "op_statistic") == sums(operators)
