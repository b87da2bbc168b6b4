"""Inferences, executions and the host's work on tensors: the log of each run, and the resulting store."""

from __future__ import annotations

from pathlib import Path

import pytest
import runtime_invariants
from ingest_checks import ingested
from runtime_reader import Capture
from stores import query

from traceconv.base.errors import InputError
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.compiled import compile_model
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import CaptureIds, EventLog, EventStore
from traceconv.runtime.host import THREADS, modelled_host
from traceconv.runtime.inputs import random_inputs
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.session import Session


def test_the_store_has_inferences_executions_and_host_operators(tmp_path: Path) -> None:
    options = RecordOptions("mini_quantized", tmp_path / "raw", iterations=3, warmup=1, devices=2, deterministic=True)
    folder = record(options).folder
    for device_id in (0, 1):
        runtime_invariants.check(Capture(folder, device_id))
    store = tmp_path / "t.duckdb"
    ingested(store, folder)
    ranges = "SELECT {} FROM range WHERE kind = '{}'"
    assert query(store, ranges.format("count(*), count(DISTINCT trace_id), count(DISTINCT span_id)", "inference")) == [
        (8, 8, 8)
    ]
    # A processing element for each device; one execution in each inference, whose tasks carry its number.
    sql = """SELECT e.pe_index, e.item_index, count(*), count(DISTINCT e.correlation_id),
            bool_and(i.trace_id = e.trace_id)
        FROM range AS e JOIN range AS i ON i.span_id = e.parent_span_id AND i.kind = 'inference'
        WHERE e.kind = 'execution' GROUP BY ALL ORDER BY 1"""
    assert query(store, sql) == [(0, 0, 4, 4, True), (1, 0, 4, 4, True)]
    sql = """SELECT e.correlation_id, e.pe_index = any_value(t.device_id), count(*) FILTER (t.name = 'Load'),
        count(*) FILTER (t.name = 'Store'), any_value(e.dur_ns) >= max(t.dur_ns)
        FROM range AS e JOIN task AS t ON t.execution_id = e.correlation_id WHERE e.kind = 'execution'
        GROUP BY e.correlation_id, e.pe_index"""
    rows = query(store, sql)
    assert len(rows) == 8 and {row[1:] for row in rows} == {(True, 1, 1, True)}
    sql = (
        "SELECT trace_id, list((item_index, name) ORDER BY item_index) FROM range WHERE kind = 'external_op' GROUP BY 1"
    )
    work = [(0, "Quantize"), (1, "Lower"), (2, "Unlower"), (3, "Dequantize")]
    found = query(store, sql)
    assert len(found) == 8 and all(names == work for _, names in found)
    sql = "SELECT count(*) FROM range WHERE kind <> 'execution' AND pe_index IS NOT NULL"
    assert query(store, sql) == [(0,)]


def test_run_and_wait_add_up_for_one_stream(tmp_path: Path) -> None:
    """IoWait = Total − Run: what the device waits for; no less than nothing where tasks don't overlap."""
    options = RecordOptions("mini_transformer", tmp_path / "raw", iterations=3, streams=1, deterministic=True)
    store = tmp_path / "t.duckdb"
    ingested(store, record(options).folder)
    sql = """SELECT e.dur_ns AS total, sum(t.dur_ns) FILTER (t.kind = 'compute') AS run, total - run
        FROM range AS e JOIN task AS t ON t.execution_id = e.correlation_id
        WHERE e.kind = 'execution' GROUP BY e.id, e.dur_ns"""
    rows = query(store, sql)
    assert len(rows) == 3 and all(total > run > 0 and wait == total - run for total, run, wait in rows)


@pytest.mark.parametrize("prefetch", [True, False])
def test_inputs_are_copied_while_the_run_before_computes(prefetch: bool, tmp_path: Path) -> None:
    options = RecordOptions("resnet50", tmp_path, iterations=2, warmup=1, deterministic=True, prefetch=prefetch)
    capture = Capture(record(options).folder)
    runtime_invariants.check(capture)
    begins, ends = capture.pairs("task", "task_id")
    loads = [name == "Load" for name in capture.text(begins["name"])]
    overlapping = 0
    for begin in begins[loads]:
        before = begins["execution_id"] == begin["execution_id"] - 1
        overlapping += int(before.any() and begin["ticks"] < ends["ticks"][before].max())
    assert overlapping == (2 if prefetch else 0)


def test_the_next_run_must_be_the_one_that_was_announced() -> None:
    model = compile_model("mini_resnet")
    ids, log = CaptureIds(), EventLog(EventStore())
    host = modelled_host(log, range(1, 4), THREADS, 10**9, 5, ids.correlations)
    device = Device(model.spec, DeviceClock(10**9, 7, model.spec.clock_hz, 0))
    first, second = random_inputs(model, 1), random_inputs(model, 2)
    with Session(model, host, device, ids=ids) as session:
        one = session.run(first, then=second)
        with pytest.raises(InputError, match="announced"):
            session.run(first)
        two = session.run(second)
        assert any((one[name] != two[name]).any() for name in one)
        again = session.run(first)
        assert all((one[name] == again[name]).all() for name in one)
