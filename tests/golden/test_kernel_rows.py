"""The report kernels: rows worked out by hand, and the categories and labels of names."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from importlib import resources
from pathlib import Path

import pytest
import tomli
from stores import query as ask

from traceconv.store.database import open_store

MakeStore = Callable[..., Path]

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, array<char*, 3ul> >(int)"
ADD_HALF = ADD.replace("float", "c10::Half")


def tasks(kind: str, name: str, op_id: int | None, *durations: int | None) -> list[dict[str, object]]:
    first = sum(map(ord, name)) * 1000
    return [
        {"id": first + n, "start_ns": n, "name": name, "kind": kind, "op_id": op_id, "dur_ns": dur_ns}
        for n, dur_ns in enumerate(durations)
    ]


def test_rows_by_kernel_with_exact_percentiles(make_store: MakeStore) -> None:
    """A C++ function keeps its name, ops of a model count by type and shapes, waits don't count."""
    store = make_store(
        op=[
            {"op_id": 1, "name": ADD, "op_type": "vectorized_elementwise_kernel"},
            {"op_id": 2, "name": "/layer0/conv", "op_type": "Conv2D", "input_shapes": "1,3"},
            {"op_id": 3, "name": "/layer1/conv", "op_type": "Conv2D", "input_shapes": "1,3"},
            {"op_id": 4, "name": "/layer2/conv", "op_type": "Conv2D", "input_shapes": "1,4"},
            {"op_id": 5, "name": "/loop", "op_type": "MatMul", "executions_per_task": 10},
        ],
        task=[
            *tasks("compute", ADD, 1, *range(1, 102)),
            *tasks("compute", "/layer0/conv", 2, 7, 3, None),
            *tasks("compute", "/layer1/conv", 3, 5),
            *tasks("compute", "/layer2/conv", 4, 4),
            *tasks("compute", "/loop", 5, 4000, 5000),
            *tasks("copy", "Memcpy HtoD", None, 6, 6),
            *tasks("collective", "ncclDevKernel_AllReduce", None, 1),
            *tasks("sync", "Stream Wait Event", None, 1_000_000),
        ],
    )
    columns = "label, category, input_shapes, op_count, count, unfinished_count, total_ns"
    assert ask(store, f"SELECT {columns}, min_ns, avg_ns, p50_ns, p90_ns, p99_ns, max_ns FROM kernels") == [
        ("MatMul", "gemm", None, 1, 20, 0, 9000, None, Decimal(450), None, None, None, None),
        ("vectorized_elementwise_kernel<CUDAFunctor_add>", "elementwise", None, 1, 101, 0, 5151, 1, Decimal(51), 51, 91,
         100, 101),
        ("Conv2D", "conv", "1,3", 2, 3, 1, 15, 3, Decimal(5), 5, 7, 7, 7),
        ("Memcpy HtoD", "memory", None, 0, 2, 0, 12, 6, Decimal(6), 6, 6, 6, 6),
        ("Conv2D", "conv", "1,4", 1, 1, 0, 4, 4, Decimal(4), 4, 4, 4, 4),
        ("ncclDevKernel_AllReduce", "communication", None, 0, 1, 0, 1, 1, Decimal(1), 1, 1, 1, 1),
    ]  # fmt: skip
    assert ask(store, "SELECT sum(ratio_percent), sum(total_ns) FROM kernels") == [(pytest.approx(100), 14183)]
    assert ask(store, "SELECT total_ns FROM kernels(from_ns := 100) WHERE kernel = 'MatMul'") == []


def test_kernels_with_the_same_label_show_their_template_arguments(make_store: MakeStore) -> None:
    store = make_store(task=[*tasks("compute", ADD, None, 2), *tasks("compute", ADD_HALF, None, 1)])
    assert ask(store, "SELECT label FROM kernels") == [
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul> >",),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<Half>, array<char*, 3ul> >",),
    ]
    tensile = f"Cijk_Ailk_Bjlk_{'A1_' * 40}WS64_WG32_8_1"
    store = make_store(task=tasks("compute", tensile, None, 2))
    assert ask(store, "SELECT label, kernel FROM kernels") == [(f"{tensile[:48]}…{tensile[-31:]}", tensile)]
    names = [f"{'a' * 48}{tile}{'z' * 31}" for tile in ("x" * 9, "y" * 9)]
    task = [{"id": n, "device_id": n // 3, "dur_ns": 1, "name": names[n % 2]} for n in range(4)]
    store = make_store(task=[{"start_ns": n, **one} for n, one in enumerate(task)])
    assert ask(store, "SELECT device_id, label, kernel FROM kernels ORDER BY ALL") == [
        (0, f"{'a' * 48}…{'z' * 31}#1", names[0]),
        (0, f"{'a' * 48}…{'z' * 31}#2", names[1]),
        (1, f"{'a' * 48}…{'z' * 31}", names[1]),
    ]


#: Names, one per line.
CATEGORIES = {
    "attention": """
        flash_fwd_splitkv_kernel
        fmhaSm100aKernel_QkvE4m3
        attn_fwd
        bwd_kernel_fuse
        FlashAttentionScore
        void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<int>>>(P)
        kernel_unified_attention_2d
    """,
    "gemm": """
        ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn
        nvjet_tst_64x8_64x16_4x1_v_bz_TNT
        gemv2T_kernel_val
        Cijk_Ailk_Bljk_SB_MT64x64
        MatMulV2
        BatchMatMul
        splitKreduce_kernel
        bmm_Bfloat16_MxE2m1
        fused_moe_kernel
        void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(P)
        triton_tem_fused_mm_3
        Gemm
    """,
    "conv": """
        volta_scudnn_128x64_relu_interior_nn_v1
        sm80_xmma_fprop_implicit_gemm_tf32f32
        dgrad_engine
        Conv2D
        im2col4d_kernel
        Conv2DBackpropFilter
        implicit_convolve_sgemm
        winogradForwardData4x4
        miopenSp3AsmConv_v21_1_2_gfx9
        LowLevelDepthwiseConv2d
    """,
    "normalization": """
        batch_norm_backward_reduce_kernel
        vectorized_layer_norm_kernel
        rms_norm_kernel
        LayerNormV3
        BatchNorm
        bn_bw_1C11_kernel_new
        triton_per_fused_native_layer_norm_2
        MIOpenBatchNormFwdTrainSpatial
    """,
    "softmax": """
        softmax_warp_forward
        cunn_SoftMaxBackward
        LogSoftmaxV2
        SoftmaxV2
    """,
    "elementwise": """
        vectorized_elementwise_kernel
        triton_poi_fused_add_layer_norm_0
        fused_dropout_kernel_vec
        ReluGrad
        Mul
        SigmoidGrad
        act_and_mul_kernel
        rotary_embedding_kernel
        _C::rotary_embedding
        upsample_bilinear2d_out_frame
        ResizeNearestNeighborV2
        FusionOp_BiasAdd_ReluV2
    """,
    "reduction": """
        reduce_kernel
        ReduceSum
        ReduceMeanD
        triton_red_fused_sum_1
        BiasAddGrad
    """,
    "memory": """
        CatArrayBatchedCopy
        nchwToNhwcKernel
        TransData
        Cast
        Transpose
        __amd_rocclr_copyBuffer
        void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::T&)::{lambda()#3}>(int)
    """,
    "indexing": """
        vectorized_gather_kernel
        GatherV2
        index_elementwise_kernel
        embedding_dense_backward_kernel
    """,
    "sort": """
        radix_sort_block_sort_kernel
        TopKV2
        ArgMaxV2
        lookback_scan_kernel
    """,
    "pooling": """
        max_pool_forward_nchw
        MaxPoolWithArgmaxV1
        adaptive_average_pool
        GlobalAveragePool
    """,
    "loss": """
        nll_loss_forward_reduce_cuda_kernel_2d
        SoftmaxCrossEntropyWithLogits
        NLLLoss
    """,
    "optimizer": """
        FusedMulApplyMomentum
        ApplyAdam
        ApplyGradientDescent
    """,
    "random": """
        distribution_elementwise_grid_stride_kernel
        DSAGenBitMask
    """,
    "quantization": """
        scaled_fp8_quant_kernel_strided
        quantize_with_block_size
    """,
    "moe": """
        moe_align_block_size_kernel
        routingIndicesHistogramKernel
    """,
    "communication": """
        ncclDevKernel_AllReduce_Sum_f32_RING_LL
        hcom_allReduce__586_0_1
        multimem_all_reduce_kernel
    """,
}


def test_categories_of_names(make_store: MakeStore) -> None:
    unknown = ["my_kernel", "", "void f(int)", "convert_things_unknown", "InputCallback", "k" * 5000, "カーネル"]
    with open_store(make_store()) as connection:
        for category, text in CATEGORIES.items():
            names = [line.strip() for line in text.strip().splitlines()]
            found = connection.execute(
                "SELECT name, kernel_category(name) FROM unnest(?) AS n(name)", [names]
            ).fetchall()
            assert found == [(name, category) for name in names]
        found = connection.execute("SELECT kernel_category(name) FROM unnest(?) AS n(name)", [unknown]).fetchall()
        assert found == [(None,)] * len(unknown)
        assert connection.execute("SELECT kernel_category(NULL), kernel_label(NULL)").fetchall() == [(None, None)]


def test_labels_of_names(make_store: MakeStore) -> None:
    functor = "at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
    mangled = (
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblockEEEvNT_6ParamsE"
    )
    gemm = "Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"
    names = {
        f"void cutlass::{gemm}(P)": gemm,
        mangled: "Kernel<ImplicitGemmConvolution>",
        f"void at::native::unrolled_elementwise_kernel<4, {functor} >(int)": "unrolled_elementwise_kernel<MulFunctor>",
        "void (anonymous namespace)::softmax_warp_forward<float, float, 10>(float*)": "softmax_warp_forward",
        "volta_sgemm_64x64_nt": "volta_sgemm_64x64_nt",
        "attn_fwd.kd": "attn_fwd.kd",
    }
    with open_store(make_store()) as connection:
        found = connection.execute(
            "SELECT name, kernel_label(name) FROM unnest(?) AS n(name)", [list(names)]
        ).fetchall()
    assert dict(found) == names


def test_rules_are_valid_and_documented() -> None:
    text = (resources.files("traceconv.normalize") / "kernel_categories.toml").read_text("utf-8")
    rules = tomli.loads(text)["rule"]
    assert {rule["category"] for rule in rules} == set(CATEGORIES)
    for rule in rules:
        assert rule.keys() <= {"category", "doc", "function", "name"} and rule.keys() & {"function", "name"}
        for key in ("function", "name"):
            re.compile(rule.get(key, ""))
