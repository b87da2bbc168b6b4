"""Op types derived from names, for writers without types, and the shapes that RAF writes as one text."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingest_checks import taken
from stores import query

from traceconv.normalize.trace.rule_files import built_in
from traceconv.normalize.trace.signature import signature

RAF = next(rules for rules in built_in() if rules.title == "RAF")
ASCEND = next(rules for rules in built_in() if rules.title.startswith("Ascend"))
KINETO = next(rules for rules in built_in() if rules.title.startswith("PyTorch"))


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("raf_op_tvm_cast_76", "cast"),
        ("raf_op_tvm_broadcast_to_12", "broadcast_to"),
        ("raf_op_cudnn_conv2d_3", "conv2d"),
        ("raf_op_cudnn_conv2d", "conv2d"),
        ("raf_op_tvm_log2_5", "log2"),
        ("raf_op_tvm_cast_int8", "cast_int8"),
        ("raf_op_nccl__allreduce_9", "allreduce"),
        ("raf_op__allgather_1", "allgather"),
        ("raf.op.dense", "dense"),
        ("raf.op._allreduce", "allreduce"),
        ("a stream called 1", "a stream called 1"),
    ],
)
def test_types_in_names_of_raf_ops(name: str, op_type: str) -> None:
    assert RAF.type_in(name) == op_type


@pytest.mark.parametrize(
    ("name", "op_type"),
    [
        ("Default/network-WithLossCell/_backbone-AlexNet/conv1-Conv2d/Cast-op240", "Cast"),
        ("Default/FusionOp_BiasAdd_ReluV2-op532", "FusionOp_BiasAdd_ReluV2"),
        ("aclnnMm_MatMulCommon_MatMulV2", "MatMulV2"),
        ("trans_Cast_12", "Cast"),
        ("trans_TransData_16_MemSet", "MemSet"),
        ("ReduceSum7_MemSet", "MemSet"),
        ("Conv2D3", "Conv2D"),
        ("Conv2D", "Conv2D"),
        ("MatMulV2", "MatMulV2"),
        ("MaxPoolGradWithArgmaxV14", "MaxPoolGradWithArgmaxV1"),
        ("Atan2", "Atan2"),
        ("Atan25", "Atan2"),
        ("MatMul_8", "MatMul"),
        ("hcom_allReduce__586_0_1", "hcom_allReduce_"),
        ("scope/res2a_relu_4", "res2a_relu"),
        ("log2", "log2"),
    ],
)
def test_types_in_names_of_ascend_kernels(name: str, op_type: str) -> None:
    assert ASCEND.type_in(name) == op_type


def test_a_long_name_is_matched_in_one_pass() -> None:
    """Quadratic time would be an hour."""
    name = "raf_op_" + "_" * 500_000 + "\n"
    assert RAF.type_in(name) in (None, name)


def test_the_type_of_a_gpu_kernel_is_its_name() -> None:
    assert KINETO.type_in("void gemm<float, 3>(float*)_12") == "void gemm<float, 3>(float*)_12"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("T<768xf32>,|T<768xf16>", ("768", "f32", "768", "f16")),
        (
            "T<16x3x5xf32>,T<3x3xi64>,|T<16xbool>;padding: [0, 0]|x",
            ("16,3,5;3,3", "f32;i64", "16", "bool"),
        ),
        ("(T<2xf32>,T<f32>),|(T<2xbf16>,T<i8>),", ("2;", "f32;f32", "2;", "bf16;i8")),
        ("T<f32>,|T<?x3xf32>", ("", "f32", "?,3", "f32")),
        ("|T<3xf32>", (None, None, "3", "f32")),
        ("", (None,) * 4),
        ("T<768xf32>", (None,) * 4),
        ("T<768xf32>,|T<768f16", (None,) * 4),
        ("T<-1xf32>,|T<1xf32>", (None,) * 4),
        ("(T<1xf32>,|T<1xf32>)", (None,) * 4),
        ("float x,|T<1xf32>", (None,) * 4),
    ],
)
def test_signatures(text: str, columns: tuple[str | None, ...]) -> None:
    found = signature(text)
    assert (
        tuple(found.get(f"{side}_{what}") for side in ("input", "output") for what in ("shapes", "dtypes")) == columns
    )


def test_raf_streams_collectives_and_shapes(tmp_path: Path) -> None:
    tasks = [
        ("Default Stream", "raf_op_tvm_cast_76", "T<768xf32>,|T<768xf16>"),
        ("Default Stream", "raf_op_tvm_cast_77", "T<768xf32>,|T<768xf16>"),
        ("Stream 1", "raf_op_tvm_broadcast_to_3", "T<1xf32>,|T<768xf32>"),
        ("Stream 2", "raf_op_nccl__allreduce_9", "no types"),
        ("1", "custom", ""),
    ]
    events = []
    for number, (stream, name, args) in enumerate(tasks):
        for ph, ts in (("B", 10 * number), ("E", 10 * number + 4)):
            where = {"cat": stream, "tid": stream, "pid": 1, "ts": ts}
            events.append({"ph": ph, "name": name, **where, "args": {"args_string": args}})
    _, store = taken({"traceEvents": events}, tmp_path, "raf.json")
    rows = query(
        store,
        "SELECT t.stream_id, t.kind, t.kind_source, o.op_type, o.op_type_source, o.input_shapes, o.output_dtypes, "
        "json_extract_string(t.args, 'args_string') FROM task AS t JOIN op AS o USING (run_id, op_id) "
        "ORDER BY t.start_ns",
    )
    streams = query(store, "SELECT stream_id, busy_ns FROM stream_utilisation")
    types = query(store, "SELECT op_type, count, op_type_source FROM op_statistic WHERE count > 1")
    assert rows == [
        (0, "compute", "recorded", "cast", "name", "768", "f16", tasks[0][2]),
        (0, "compute", "recorded", "cast", "name", "768", "f16", tasks[1][2]),
        (1, "compute", "recorded", "broadcast_to", "name", "1", "f32", tasks[2][2]),
        (2, "collective", "name", "allreduce", "name", None, None, tasks[3][2]),
        (None, "compute", "recorded", "custom", "name", None, None, tasks[4][2]),
    ]
    assert streams == [(0, 8000), (1, 4000), (2, 4000), (None, 4000)]
    assert types == [("cast", 2, "name")]


@pytest.mark.parametrize(
    ("streams", "kinds"),
    [
        (["ComputationOperator", "VMInstruction"], [("compute", 4000)]),
        (["SchedulingCommunication", "WorkspaceRequest", "StreamRequest", "CUDA_CALL"], [("compute", 4000)]),
        (["Default Stream", "StreamRequest", "CUDA_CALL"], [("compute", 4000)]),
    ],
)
def test_raf_ops_that_the_host_times(tmp_path: Path, streams: list[str], kinds: list[tuple[str, int]]) -> None:
    """On a CPU, and of the interpreter, whose requests for a stream aren't kernels of a stream."""
    events = [
        {
            "ph": ph,
            "name": "raf.op.dense",
            "cat": stream,
            "tid": stream,
            "pid": 1,
            "ts": ts,
            "args": {"args_string": ""},
        }
        for stream in streams
        for ph, ts in (("B", 10), ("E", 14))
    ]
    _, store = taken({"traceEvents": events}, tmp_path, "raf.json")
    assert query(store, "SELECT kind, dur_ns FROM task") == kinds
    assert query(store, "SELECT count(*) FROM range WHERE kind = 'host_op'") == [(len(streams) - 1,)]


CALLS = [
    ("AscendCL@aclrtSynchronizeStream", {"level": "acl"}, "acl", "aclrtSynchronizeStream"),
    ("Node@launch", {"level": "node"}, "node", "launch"),
    ("Runtime@KernelLaunch", {}, "runtime", "KernelLaunch"),
    ("GE@Infer", {}, "model", "Infer"),
    ("Hccl@Launch_Ffts", {"level": "hccl"}, "hccl", "Launch_Ffts"),
    ("Other@a@b", {}, None, "a@b"),
    ("no layer", {}, None, "no layer"),
]


def test_names_of_cann_calls_omit_the_layer(tmp_path: Path) -> None:
    events: list[object] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CANN"}}]
    for ts, (name, args, _, _) in enumerate(CALLS):
        events.append({"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts * 10, "dur": 5, "args": args})
    _, store = taken(events, tmp_path, "msprof.json")
    rows = query(store, "SELECT level, name, source_name FROM api ORDER BY start_ns")
    names = query(store, "SELECT name FROM api_statistic ORDER BY name")
    assert rows == [(level, name, None if own == name else own) for own, _, level, name in CALLS]
    assert names == sorted((name,) for _, _, _, name in CALLS)
