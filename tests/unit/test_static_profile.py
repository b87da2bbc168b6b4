"""The static cost estimate of a model agrees with its recorded cost."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Command
from onnx import TensorProto, helper, numpy_helper

import traceconv
from traceconv.base.errors import ModelError
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.static_profile import measured_memory, store_static_profile
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.spec import reference_npu, spec_of
from traceconv.runtime.static_profile import by_core, static_profile
from traceconv.runtime.zoo import FoundModel
from traceconv.store.database import open_store


def test_a_product_by_hand() -> None:
    weight = numpy_helper.from_array(np.ones((64, 32), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="block/product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16, 32])],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    profile = static_profile(FoundModel("one", proto))
    [estimate] = profile.ops
    op = estimate.op
    assert (op.name, op.op_type, op.core, op.scope_path) == ("block/product", "MatMulV2", "AI_CORE", "block")
    assert op.flops == profile.flops == 2 * 16 * 64 * 32
    assert (op.param_count, op.weight_bytes, op.input_bytes, op.output_bytes) == (2048, 8192, 4096, 2048)
    assert estimate.memory_bytes == 8192 + 4096 + 2048 + op.cost.workspace_bytes
    assert estimate.arithmetic_intensity == op.flops / (8192 + 4096 + 2048)
    assert (op.describe_operands()[0], op.describe_results()[0]) == ("16,64;64,32", "16,32")
    assert profile.memory.weight_bytes == 8192
    # Two inputs at a time, since the next one is copied while this one is worked on.
    assert profile.memory.peak_tensor_bytes == 8192 + 2 * 4096 + 2048
    assert static_profile(FoundModel("one", proto), prefetch=False).memory.peak_tensor_bytes == 8192 + 4096 + 2048
    assert profile.fits


@pytest.mark.parametrize(
    ("model", "batch", "streams", "prefetch"),
    [("mini_resnet", None, 1, True), ("mini_transformer", 3, 4, True), ("mini_quantized", None, 2, False),
     ("mini_lstm", None, 1, True), ("mini_half", 2, 3, True)],
)  # fmt: skip
def test_memory_is_that_of_a_recorded_run(
    model: str, batch: int | None, streams: int, prefetch: bool, tmp_path: Path
) -> None:
    options = RecordOptions(
        model, tmp_path / "raw", iterations=3, batch=batch, streams=streams, prefetch=prefetch, deterministic=True
    )
    record(options)
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path / "raw"], store)
    profile = static_profile(
        model, batch, spec=replace(reference_npu(), compute_stream_count=streams), prefetch=prefetch
    )
    with open_store(store) as connection:
        peaks = measured_memory(connection, 1)
        assert peaks == {0: (profile.memory.peak_used_bytes, profile.memory.peak_reserved_bytes)}
        ops = connection.execute(
            "SELECT name, op_type, flops, input_bytes, weight_bytes, output_bytes, workspace_bytes, input_shapes "
            "FROM op ORDER BY op_id"
        ).fetchall()
        assert ops == [
            (
                op.name,
                op.op_type,
                op.flops,
                op.input_bytes,
                op.weight_bytes,
                op.output_bytes,
                op.cost.workspace_bytes,
                op.describe_operands()[0],
            )
            for op in (estimate.op for estimate in profile.ops)
        ]
        # Alone on its stream and without rivals for the memory, an op takes the estimated time, but for
        # the drift of the counter and the error of the clocks' alignment.
        rows = connection.execute("SELECT op_id, min(dur_ns) FROM task WHERE op_id >= 0 GROUP BY 1").fetchall()
        spec = reference_npu()
        for op, dur_ns in rows:
            expected = profile.ops[op].dur_ns
            off = 5 * 10**9 // spec.clock_hz + expected * spec.drift_ppb // 10**9 + 1
            assert dur_ns >= expected - off
            assert streams > 1 or dur_ns <= expected + off
        streams_of = dict(connection.execute("SELECT DISTINCT op_id, stream_id FROM task WHERE op_id >= 0").fetchall())
        assert streams_of == {one.op.index: one.stream_id for one in profile.ops}
    assert profile.memory.weight_bytes <= profile.memory.peak_tensor_bytes <= profile.memory.peak_used_bytes
    assert profile.memory.peak_used_bytes <= profile.memory.peak_reserved_bytes


def test_cores_add_up_and_missing_memory_is_reported() -> None:
    profile = static_profile("resnet50")
    cores = by_core(profile.ops)
    assert sum(count for count, _, _ in cores.values()) == len(profile.ops) == 57
    assert sum(total for _, total, _ in cores.values()) == profile.total_ns
    assert sum(flops for _, _, flops in cores.values()) == profile.flops
    # Without the normalisations, which are folded into the weights: 25.5 million parameters, 4.1 billion products.
    assert 25_400_000 < profile.param_count < 25_700_000
    assert 8.0e9 < profile.flops < 8.4e9
    small = static_profile("mini_resnet", spec=replace(reference_npu(), memory_bytes=1 << 20))
    assert not small.fits
    with pytest.raises(ModelError, match="neither a file nor"):
        static_profile("resnet51")


def test_tables_in_a_store(tmp_path: Path) -> None:
    profile = static_profile("mini_resnet")
    store = tmp_path / "static.duckdb"
    assert store_static_profile(profile, store) == 1
    assert store_static_profile(static_profile("mini_half", 2), store, batch=2) == 2
    with open_store(store) as connection:
        ask = lambda sql: connection.execute(sql).fetchall()  # noqa: E731 - asked many times below
        assert ask("SELECT run_id, label, source_format, options->>'$.batch' FROM run ORDER BY 1") == [
            (1, "static mini_resnet", "static", None),
            (2, "static mini_half", "static", "2"),
        ]
        assert ask("SELECT count(*), count(start_ns), sum(dur_ns) FROM task WHERE run_id = 1") == [
            (len(profile.ops), 0, profile.total_ns)
        ]
        assert ask("SELECT sum(total_ns), sum(count) FROM op_statistic(run := 1)") == [
            (profile.total_ns, len(profile.ops))
        ]
        assert ask("SELECT count(*), count(start_ns), count(wait_ns) FROM op_summary(run := 1)") == [
            (len(profile.ops), 0, 0)
        ]
        assert ask("SELECT count(*) FROM fusion_op(run := 1)") == [(len({row[0] for row in profile.fusions}),)]
        assert ask("SELECT count(DISTINCT id) = count(*) FROM task WHERE run_id = 1") == [(True,)]


def test_the_command(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    shown = command("model", "mini_resnet", "--format", "csv", "--order-by", "flops", "--top", "3")
    rows = list(csv.DictReader(shown.out.splitlines()))
    flops = [int(row["flops"]) for row in rows]
    assert len(rows) == 3
    assert flops == sorted(flops, reverse=True)
    assert int(rows[0]["flops_per_s"]) == int(rows[0]["flops"]) * 10**9 // int(rows[0]["dur_ns"])
    assert "14 ops, 13.823 MFLOP, 44,906 parameters" in shown.err
    assert not list(tmp_path.iterdir())
    done = command("model", "mini_resnet", "--show", "cores", "-o", "cores.json", "--db", "s.duckdb")
    cores = json.loads((tmp_path / "cores.json").read_text())
    assert sum(core["share_percent"] for core in cores) == pytest.approx(100)
    assert "added to s.duckdb as run 1" in done.err
    # msprof's tables of what has no times, and a measured peak of what was not measured, are refused.
    assert "static profile" in command("export", "msprof", "-o", "t", "--db", "s.duckdb", code=1).err
    assert "no memory log" in command("model", "mini_resnet", "--run", "1", "--db", "s.duckdb", code=2).err
    assert not (tmp_path / "t").exists()
    assert command("model", "mini_resnet", "--dump-only-opr", "--order-by", "flops", "--top", "2").out.splitlines() == [
        f"{row['op_name']} {row['op_type']} {row['op_id']}" for row in rows[:2]
    ]


@pytest.mark.parametrize("model", ["mini_resnet", "mini_transformer"])
def test_a_timeline_has_the_estimated_ops_one_after_another(model: str, tmp_path: Path) -> None:
    profile = traceconv.get_profile(model, streams=3)
    store = tmp_path / "static.duckdb"
    store_static_profile(static_profile(model, spec=spec_of(None, 3)), store)
    with traceconv.open_store(store) as opened:
        opened.export_chrome(tmp_path / "trace.json")
        opened.export_perfetto(tmp_path / "trace.pftrace")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    ops = profile["ops"]
    assert isinstance(ops, list)
    wanted, start_ns = [], 0
    for op in ops:
        wanted.append((op["op_name"], start_ns, op["dur_ns"]))
        start_ns += op["dur_ns"]
    in_ns = lambda us: round(us * 1000)  # noqa: E731 - small numbers
    assert [(one["name"], in_ns(one["ts"]), in_ns(one["dur"])) for one in slices] == wanted
    assert start_ns == profile["total_ns"]
    threads = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert threads == ["Estimated ops, one after another"]
    traceconv.ingest(tmp_path / "trace.pftrace", db=tmp_path / "again.duckdb")
    with traceconv.open_store(tmp_path / "again.duckdb") as again:
        rows = again.query("SELECT name, start_ns, dur_ns FROM slice ORDER BY start_ns").fetchall()
    assert rows == wanted


def test_get_profile_has_the_tables_of_the_command(tmp_path: Path, command: Command) -> None:
    profile = json.loads(json.dumps(traceconv.get_profile("mini_lstm", batch=2)))
    for table in ("ops", "cores", "memory"):
        done = command("model", "mini_lstm", "--batch", "2", "--show", table, "--format", "json")
        assert profile[table] == json.loads(done.out)
    assert profile["flops"] == sum(op["flops"] for op in profile["ops"])
    with traceconv.Session("mini_lstm", batch=2) as session:
        loaded = session.get_profile()
    assert loaded["ops"] == profile["ops"]
    assert loaded["peak_used_bytes"] <= profile["peak_used_bytes"]  # without the inputs of a next run
