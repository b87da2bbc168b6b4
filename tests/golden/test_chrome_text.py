"""The exact text of a small Chrome trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceconv import __version__
from traceconv.export.chrome import export_chrome
from traceconv.store.database import open_store

BASE = 1_720_000_000_123_456_789


def test_the_text_of_a_trace(
    make_store: Callable[..., Path], tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    store = make_store(
        run=[{"run_id": 1, "label": "tiny", "start_ns": BASE}],
        process=[{"process_id": 1, "pid_text": "42", "name": "python"}],
        device=[{"device_id": 0, "name": "Toy"}],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "43", "name": "main"},
            {"track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 3},
            {"track_id": 3, "kind": "counter", "device_id": 0, "name": "AI Core Freq", "unit": "MHz"},
        ],
        op=[{"op_id": 1, "name": "conv1", "op_type": "Conv2D", "input_shapes": "1,3;4"}],
        range=[{"id": 21, "track_id": 1, "name": 'epoch "1"', "start_ns": BASE + 1, "args": '{"lr": 0.1}'}],
        api=[
            {"id": 11, "track_id": 1, "name": "Launch", "level": "runtime", "start_ns": BASE, "dur_ns": 1500}
            | {"depth": 0, "correlation_id": 2**53 + 1, "op_id": 1}
        ],
        task=[
            {"id": 2, "track_id": 2, "name": "copy", "task_type": "SDMA", "start_ns": BASE + 1250, "dur_ns": 1_000_001}
            | {"depth": 0, "size_bytes": 4096},
            {"id": 1, "track_id": 2, "name": "conv1", "task_type": "AI_CORE", "start_ns": BASE + 1000, "dur_ns": 250}
            | {"depth": 0, "op_id": 1, "category": "kernel"},
        ],
        step=[{"step_id": 1, "iteration": 1, "start_ns": BASE + 10, "end_ns": BASE + 2010}],
        marker=[{"id": 31, "track_id": 2, "ts_ns": BASE + 1100, "name": "here"}],
        counter=[
            {"track_id": 3, "ts_ns": BASE, "value": 1200.0, "value_int": 1200},
            {"track_id": 3, "ts_ns": BASE + 500, "value": 0.1},
        ],
        memory=[
            {"block_id": 1, "kind": "block", "address": 2**64 - 1, "size_bytes": 64}
            | {"alloc_ns": BASE + 20, "free_ns": BASE + 30}
        ],
        flow=[{"flow_id": 1, "kind": "launch", "src_id": 11, "src_ns": BASE, "dst_id": 1, "dst_ns": BASE + 1000}],
    )
    output = tmp_path / "trace.json"
    with open_store(store) as connection:
        export_chrome(connection, 1, output)
    golden("chrome_trace.json", output.read_text("utf-8").replace(f'"traceconv {__version__}"', '"traceconv VERSION"'))
