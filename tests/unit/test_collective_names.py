"""Kernel names that identify collectives; each kind below was taken from the source code of the kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from traceconv.normalize.trace.kernel_names import COLLECTIVE
from traceconv.normalize.trace.rule_files import built_in

COLLECTIVES = """
ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)
ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)
ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)
ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)
void ncclKernel_Generic<1, false>(ncclDevComm*, ncclWork*)
mcclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(mcclWorkElem)
ecclKernel_Broadcast_RING_DIRECT_SIMPLE_Sum_bfloat(ecclWorkElem)
mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)
void mscclpp::allreduce::kernel<float>(float*, int)
void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)
void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)
void sglang::cross_device_reduce_1stage<__half, 8>(sglang::RankData*, sglang::RankSignals, sglang::Signal*)
void aiter::cross_device_reduce_2stage_naive<__hip_bfloat16, 8>(aiter::RankData*, aiter::RankSignals)
_ZN4vllm26cross_device_reduce_1stageI6__halfLi8EEEvPNS_8RankDataENS_11RankSignalsE
void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)
void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(c10::BFloat16*, unsigned long)
void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**, c10::BFloat16*)
void c10d::symmetric_memory::(anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 8>(float**, unsigned long)
void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, false>(tensorrt_llm::kernels::AllReduceParams)
void tensorrt_llm::kernels::mnnvl::oneshotAllreduceFusionKernel<8, float>(float*, float**)
void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<3, __half, 8>(int)
void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot>(__half const*)
void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*, int*)
void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*, float*)
void dlslime::intranode_alltoall_kernel<8>(void*)
void tensorrt_llm::kernels::moeAllToAllKernel(tensorrt_llm::kernels::MoeCommWorkspace)
void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8, false>(int const*)
void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16, false>(mori::moe::EpDispatchCombineArgs<__hip_bfloat16>)
EpCombineInterNodeV1Kernel_bf16
void hybrid_ep::dispatch_kernel<hybrid_ep::inter_node_warp_group>(hybrid_ep::dispatch_kernel_param_t<unsigned short>)
void allReduceKernel(float*, unsigned long)
userbuffers_fp16_sum_inplace_gpu_rr_rs_oop(int, int, int)
void kuserbuffers_pushsend(int*, int*, int4*)
multimem_all_reduce_kernel
oneapi::ccl::v1::allreduce_small_kernel
hccl::broadcast
""".strip().splitlines()

COMPUTE = """
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, float, 4> >
void splitKreduce_kernel<32, 16, int, float, float, float, float, true, true, false>(cublasSplitKParams<float>)
void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)
void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)
void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<true>>
void cub::CUB_200400_NS::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<int>::Policy600, int*, int*>
void cutlass::Kernel2<cutlass::epilogue::AllReduce<float>>(cutlass::Params)
triton_poi_fused_add_all_reduce_wait_tensor_3
triton_red_fused_all_gather_into_tensor_mul_0
void hybrid_ep::scan<256, 4>(bool const*, hybrid_ep::tmp_state_t*)
moeA2ASanitizeExpertIdsKernel
void deep_ep::layout::get_dispatch_layout<256, 4, 2>(long const*, int*, int*)
void softmax_warpAllReduce_kernel<float>(float*)
blockAllReduce
small_reduce_kernel
void firstall_gather(int)
void reduce_1Block_kernel<float, 128, 7, cublasGemvTensorStridedBatched<float>>(float const*)
broadcast_to
void tensorflow::BroadcastKernel<float>(float*)
void indexing_backward_kernel_many_indices<float, 4>(long const*)
nvjet_hsh_128x128_64x6_2x1_v_bz_TNT
void scatter_reduce_kernel<float>(float*)
fused_moe_kernel
""".strip().splitlines()


def test_only_names_of_kernels_that_exchange_data_with_other_devices_match() -> None:
    assert [name for name in (*COLLECTIVES, *COMPUTE) if re.fullmatch(COLLECTIVE, name)] == COLLECTIVES


def test_all_rules_for_gpu_kernels_use_the_shared_pattern() -> None:
    sharing = {
        rules.title
        for rules in built_in()
        for rule in rules.rules
        if rule.name is not None and rule.name.pattern == COLLECTIVE
    }
    assert sharing == {
        "APEX",
        "DFTracer",
        "JAX, TensorFlow (XLA profiler)",
        "Nsight Compute",
        "Nsight Systems",
        "ONNX Runtime",
        "Perfetto",
        "Proton",
        "PyTorch profiler (Kineto)",
        "mcTracer",
        "nsys2json",
        "rocmProfileData",
        "rocprof",
        "rocprof-sys",
        "rocprofv3",
        "rpd2tracing",
    }


@pytest.mark.parametrize(
    ("title", "where", "collectives", "others"),
    [
        ("MegEngine", ("Kernel", None, "gpu0:0"), ("CollectiveComm", "RemoteSend"), ("Reduce", "Broadcast", "conv")),
        (
            "TensorFlow timeline",
            ("Op", "/device:GPU:0/stream:14 Compute", None),
            ("NcclAllReduce", "CollectiveReduceV2"),
            ("BroadcastTo", "Sum", "GatherV2", "Collect"),
        ),
        (
            "RAF",
            ("Stream 1", None, "Stream 1"),
            ("raf_op_nccl__allreduce_4", "raf_op__allgather_2"),
            ("raf_op_tvm_broadcast_to_3", "raf_op_tvm_reduce_sum_1"),
        ),
        (
            "Ascend (torch_npu, msprof)",
            (None, "Communication", "Group 10.0.0.1%1_60000_0_1 Communication"),
            ("hcom_allReduce__586_0_1", "hcom_send__1"),
            (),
        ),
        (
            "Ascend (torch_npu, msprof)",
            (None, "Communication", "Group all\nranks Communication"),
            ("hcom_allReduce__586_0_1",),
            (),
        ),
    ],
)
def test_collectives_of_writers_with_their_own_names(
    title: str, where: tuple[str | None, str | None, str | None], collectives: Sequence[str], others: Sequence[str]
) -> None:
    (rules,) = (rules for rules in built_in() if rules.title == title)

    def kind(name: str) -> object:
        fitting = (rule for rule in rules.rules if rule.matches_track(*where))
        return next(rule.set["kind"] for rule in fitting if rule.name is None or rule.name.fullmatch(name))

    assert [kind(name) for name in collectives] == ["collective"] * len(collectives)
    assert [kind(name) for name in others] == ["compute"] * len(others)
