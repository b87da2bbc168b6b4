"""The text of a small Chrome trace, to the letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceconv import __version__
from traceconv.export.chrome import export_chrome
from traceconv.store.database import open_store

BASE = 1_720_000_000_123_456_789

EXPECTED = """\
{"displayTimeUnit":"ns","otherData":{"writer":"traceconv VERSION","base_ns":"1720000000123456789",\
"form":2,"run":[{"run_id":1,"label":"tiny","start_ns":"1720000000123456789"}],\
"device":[{"run_id":1,"device_id":0,"name":"Toy"}],\
"process":[{"run_id":1,"process_id":1,"pid_text":"42","name":"python"}],\
"track":[{"run_id":1,"track_id":1,"kind":"thread","process_id":1,"tid_text":"43","name":"main"},\
{"run_id":1,"track_id":2,"kind":"stream","device_id":0,"stream_id":3},\
{"run_id":1,"track_id":3,"kind":"counter","device_id":0,"name":"AI Core Freq","unit":"MHz"}]},
"traceEvents":[
{"pid":1,"ph":"M","name":"process_name","args":{"name":"Application: python (42)","layer":"application"}},
{"pid":1,"ph":"M","name":"process_sort_index","args":{"sort_index":1}},
{"pid":2,"ph":"M","name":"process_name","args":{"name":"Runtime API: python (42)","layer":"runtime"}},
{"pid":2,"ph":"M","name":"process_sort_index","args":{"sort_index":2}},
{"pid":3,"ph":"M","name":"process_name","args":{"name":"Device 0: Toy","layer":"device"}},
{"pid":3,"ph":"M","name":"process_sort_index","args":{"sort_index":3}},
{"pid":1,"tid":5,"ph":"M","name":"thread_name","args":{"name":"main","table":"range","track_id":1,"lane":0}},
{"pid":1,"tid":5,"ph":"M","name":"thread_sort_index","args":{"sort_index":5}},
{"pid":2,"tid":6,"ph":"M","name":"thread_name","args":{"name":"main","table":"api","track_id":1,"lane":0}},
{"pid":2,"tid":6,"ph":"M","name":"thread_sort_index","args":{"sort_index":6}},
{"pid":3,"tid":7,"ph":"M","name":"thread_name","args":{"name":"Step Trace","table":"step","lane":0,"device_id":0}},
{"pid":3,"tid":7,"ph":"M","name":"thread_sort_index","args":{"sort_index":7}},
{"pid":3,"tid":8,"ph":"M","name":"thread_name","args":{"name":"Stream 3","table":"task","track_id":2,"lane":0}},
{"pid":3,"tid":8,"ph":"M","name":"thread_sort_index","args":{"sort_index":8}},
{"pid":3,"tid":9,"ph":"M","name":"thread_name",\
"args":{"name":"AI Core Freq (MHz)","table":"counter","track_id":3,"lane":0}},
{"pid":3,"tid":9,"ph":"M","name":"thread_sort_index","args":{"sort_index":9}},
{"pid":3,"tid":10,"ph":"M","name":"thread_name","args":{"name":"Memory","table":"memory","lane":0,"device_id":0}},
{"pid":3,"tid":10,"ph":"M","name":"thread_sort_index","args":{"sort_index":10}},
{"pid":1,"ph":"M","name":"op","args":{"run_id":1,"op_id":1,"name":"conv1","op_type":"Conv2D","input_shapes":"1,3;4"}},
{"pid":1,"tid":5,"ph":"B","ts":0.001,"name":"epoch \\"1\\"","args":{"run_id":1,"id":21,"args":{"lr": 0.1}}},
{"pid":2,"tid":6,"ph":"X","ts":0.000,"dur":1.500,"name":"Launch","cat":"runtime","args":{"run_id":1,\
"category":null,"id":11,"depth":0,"level":"runtime","correlation_id":"9007199254740993","op_id":1,"op_name":"conv1"}},
{"pid":3,"tid":8,"ph":"X","ts":1.000,"dur":0.250,"name":"conv1","cat":"kernel","args":{"run_id":1,"id":1,\
"device_id":0,"op_id":1,"task_type":"AI_CORE","depth":0,"op_name":"conv1","op_type":"Conv2D","input_shapes":"1,3;4"}},
{"pid":3,"tid":8,"ph":"X","ts":1.250,"dur":1000.001,"name":"copy","cat":"SDMA","args":{"run_id":1,\
"category":null,"id":2,"device_id":0,"task_type":"SDMA","depth":0,"size_bytes":4096}},
{"pid":3,"tid":7,"ph":"X","ts":0.010,"dur":2.000,"name":"Iteration 1","cat":"step","args":{"run_id":1,"step_id":1,\
"iteration":1,"start_ns":"1720000000123456799","end_ns":"1720000000123458799"}},
{"pid":3,"tid":8,"ph":"i","s":"t","ts":1.100,"name":"here","args":{"run_id":1,"id":31}},
{"pid":3,"tid":9,"ph":"C","ts":0.000,"name":"AI Core Freq (MHz)","args":{"value":1200}},
{"pid":3,"tid":9,"ph":"C","ts":0.500,"name":"AI Core Freq (MHz)","args":{"value":0.1}},
{"pid":3,"tid":10,"ph":"i","s":"t","ts":0.020,"name":"alloc","cat":"memory","args":{"run_id":1,"block_id":1,\
"kind":"block","address":"18446744073709551615","size_bytes":64,"free_ns":"1720000000123456819"}},
{"pid":3,"tid":10,"ph":"i","s":"t","ts":0.030,"name":"free","cat":"memory","args":{"run_id":1,"block_id":1}},
{"pid":3,"tid":10,"ph":"C","ts":0.020,"name":"Memory (byte)","args":{"used":64}},
{"pid":3,"tid":10,"ph":"C","ts":0.030,"name":"Memory (byte)","args":{"used":0}},
{"pid":2,"tid":6,"ph":"s","ts":0.000,"cat":"launch","name":"launch","id":1,"args":{"run_id":1,"flow_id":1,\
"kind":"launch","src_id":11,"dst_id":1}},
{"pid":3,"tid":8,"ph":"f","bp":"e","ts":1.000,"cat":"launch","name":"launch","id":1}
]}
"""


def test_the_text_of_a_trace(make_store: Callable[..., Path], tmp_path: Path) -> None:
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
    assert output.read_text("utf-8") == EXPECTED.replace("VERSION", __version__)
