"""Write the trace of a ResNet-18 training in the format of PyTorch's profiler (Kineto), without PyTorch and a GPU.

    python sample_traces/pytorch_trace.py OUTPUT.pt.trace.json.gz

Three steps of a batch of 64 images in TF32 on one GPU, profiled with record_shapes, profile_memory and with_stack. The
structure, the keys and the kernel names are those of real traces; the times are modelled: a kernel takes as long as its
arithmetic or its memory traffic, whichever is longer, and the data loader is too slow. All times are integer ns, and
the same file is written each time.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

PID, AUTOGRAD_THREAD, STREAM, BATCH, FIRST_STEP, STEPS = 41872, 41935, 7, 64, 2, 3
#: Wall clock time of `ts` 0, and the first `ts`, in ns.
BASE_NS, START_NS = 1_759_276_800_000_000_000, 845_203_117_904_000
#: Rates that the kernels reach: FLOP per us, bytes per us.
TF32_RATE, MEMORY_RATE, PINNED_RATE = 52_000_000, 1_250_000, 24_500
LOADER_NS = 14_000_000

_NATIVE = "at::native::(anonymous namespace)::"
_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, {0}, std::array<char*, {1}ul> >"
    "(int, {0}, std::array<char*, {1}ul>)"
)
_MULTI_TENSOR = (
    f"void {_NATIVE}multi_tensor_apply_kernel<{_NATIVE}TensorListMetadata<{{1}}>, {_NATIVE}{{0}}, {{2}}>"
    f"({_NATIVE}TensorListMetadata<{{1}}>, {_NATIVE}{{0}}, {{2}})"
)
_CLAMP = (
    f"{_NATIVE}launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, at::native::detail::ClampLimits)"
    "::{lambda()#1}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}"
)
_THRESHOLD = (
    f"at::native::BinaryFunctor<float, float, float, {_NATIVE}threshold_kernel_impl<float>"
    "(at::TensorIteratorBase&, float, float)::{lambda(float, float)#1}>"
)
_ADD, _COUNT = "at::native::CUDAFunctor_add<float>", "at::native::CUDAFunctorOnSelf_add<long>"
_SCALE = "at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
_CONV = (
    "sm80_xmma_{0}_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize{1}_stage4_warpsize2x2x1_g1"
    "_tensor16x8x8_execute_kernel_{2}"
)
_NORM = (
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*, "
    "cudnnTensorStruct, float*, float const*, float const*, float, float, float*, float*, float*, float*, float, float)"
)
_NORM_BACKWARD = (
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, float, float, "
    "cudnnTensorStruct, float const*, cudnnTensorStruct, float const*, cudnnTensorStruct, float*, float const*, "
    "float*, float*, float const*, float const*, float)"
)
_POOL = f"void {_NATIVE}max_pool_{{0}}_nchw<float, float>(int, float const*, long, long, long, int, int, float*, long*)"
_REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{0}<float, float, float, float>, "
    "unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::{0}<float, float, float, float>, unsigned int, "
    "float, 4>)"
)
_GEMM = "ampere_sgemm_{0}"
_SOFTMAX = (
    f"void {_NATIVE}cunn_SoftMax{{0}}<4, float, float, float, {_NATIVE}LogSoftMax{{0}}Epilogue>"
    "(float*, float const*, int)"
)
_LOSS = (
    f"void {_NATIVE}nll_loss_{{0}}_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*)"
)


class Tensor(NamedTuple):
    address: int
    size_bytes: int
    shape: tuple[int, ...]


class Recorder:
    """The host's clock, one stream, a caching allocator, and the events that a profiler would write."""

    def __init__(self) -> None:
        self.now, self.thread, self.stream_end = START_NS, PID, 0
        self.host: list[dict[str, Any]] = []
        self.python: list[dict[str, Any]] = []
        self.device: list[dict[str, Any]] = []
        self.ops, self.frames = [0], [0]
        self.op_count = self.frame_count = self.correlation = self.sequence = self.index = 0
        self.allocated = self.reserved = 0
        self.next_address, self.unused = 0x7F1A_4000_0000, defaultdict[int, list[int]](list)
        self.references: dict[int, int] = {}
        self._random = random.Random(18)

    def vary(self, ns: int) -> int:
        """A time within 10% of `ns`."""
        return ns * (900 + self._random.getrandbits(12) % 201) // 1000

    def _span(self, to: list[dict[str, Any]], category: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": PID,
            "tid": self.thread,
            "ts": self.now,
            "dur": 0,
            "args": args,
        }
        to.append(event)
        return event

    def _indexed(self, args: dict[str, Any]) -> dict[str, Any]:
        self.index += 1
        return {**args, "Ev Idx": self.index - 1}

    @contextmanager
    def op(
        self, name: str, *shapes: Sequence[int], category: str = "cpu_op", self_ns: int = 2400, **more: int
    ) -> Iterator[None]:
        """A host operator; what happens inside the context is nested in it."""
        self.op_count += 1
        args: dict[str, Any] = {"External id": self.op_count, "Record function id": 0, **more}
        if shapes:
            args["Input type"] = ["float" if shape else "Scalar" for shape in shapes]
            args["Input Dims"] = [list(shape) for shape in shapes]
        event = self._span(self.host, category, name, self._indexed(args))
        self.ops.append(self.op_count)
        self.now += self.vary(2 * self_ns)
        yield
        self.now += self.vary(2 * self_ns)
        self.ops.pop()
        event["dur"] = self.now - event["ts"]

    @contextmanager
    def frame(self, name: str, module_id: int | None = None) -> Iterator[None]:
        """A Python function, or a call of a module."""
        self.frame_count += 1
        args = {"Python parent id": self.frames[-1], "Python id": self.frame_count}
        if module_id is not None:
            args["Python module id"] = module_id
        event = self._span(self.python, "python_function", name, self._indexed(args))
        self.frames.append(self.frame_count)
        self.now += self.vary(3000)
        yield
        self.now += self.vary(2000)
        self.frames.pop()
        event["dur"] = self.now - event["ts"]

    def call(self, name: str, cbid: int, duration_ns: int) -> dict[str, Any]:
        """A call of the CUDA runtime."""
        self.correlation += 1
        args = {"External id": self.ops[-1], "cbid": cbid, "correlation": self.correlation}
        event = self._span(self.device, "cuda_runtime", name, args)
        event["dur"] = self.vary(duration_ns)
        self.now += event["dur"]
        return event

    def wait(self, name: str, cbid: int) -> None:
        """A call that returns when the stream is idle."""
        event = self.call(name, cbid, 5000)
        event["dur"] += max(0, self.stream_end + self.vary(3000) - self.now)
        self.now = event["ts"] + event["dur"]

    def _launch(self, call: dict[str, Any], category: str, name: str, duration_ns: int, args: dict[str, Any]) -> None:
        start = max(call["ts"] + self.vary(5200), self.stream_end + self.vary(1100))
        head = {
            "External id": self.ops[-1],
            "device": 0,
            "context": 1,
            "stream": STREAM,
            "correlation": self.correlation,
        }
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 0,
            "tid": STREAM,
            "ts": start,
            "dur": self.vary(duration_ns),
        }
        flow = {"id": self.correlation, "cat": "ac2g", "name": "ac2g"}
        self.device += [
            event | {"args": head | args},
            {"ph": "s", **flow, "pid": PID, "tid": call["tid"], "ts": call["ts"]},
            {"ph": "f", **flow, "pid": 0, "tid": STREAM, "ts": start, "bp": "e"},
        ]
        self.stream_end = start + event["dur"]

    def kernel(self, name: str, flops: int, size_bytes: int, threads: int = 256, registers: int = 32) -> None:
        duration_ns = 1800 + max(flops * 1000 // TF32_RATE, size_bytes * 1000 // MEMORY_RATE)
        blocks = max(1, min(size_bytes // (4 * threads * 4), 65535))
        warps = blocks * threads // 32
        args = {
            "queued": 0, "registers per thread": registers, "shared memory": 49152 if flops else 0,
            "blocks per SM": round(blocks / 108, 6), "warps per SM": round(warps / 108, 6), "grid": [blocks, 1, 1],
            "block": [threads, 1, 1], "est. achieved occupancy %": min(100, warps * 100 // (108 * 64)),
        }  # fmt: skip
        self._launch(self.call("cudaLaunchKernel", 211, 6200), "kernel", name, duration_ns, args)

    def copy(self, name: str, size_bytes: int, rate: int) -> None:
        duration_ns = 1200 + size_bytes * 1000 // rate
        args = {"bytes": size_bytes, "memory bandwidth (GB/s)": round(size_bytes / duration_ns, 6)}
        self._launch(self.call("cudaMemcpyAsync", 41, 9800), "gpu_memcpy", name, duration_ns, args)

    def _memory(self, address: int, size_bytes: int) -> None:
        self.allocated += size_bytes
        args = {
            "Total Reserved": self.reserved, "Total Allocated": self.allocated, "Bytes": size_bytes, "Addr": address,
            "Device Id": 0, "Device Type": 1,
        }  # fmt: skip
        self.host.append({
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": self.thread,
            "ts": self.now, "args": self._indexed(args),
        })  # fmt: skip
        self.now += self.vary(500)

    def allocate(self, *shape: int) -> Tensor:
        size_bytes = -(-prod(shape) * 4 // 512) * 512
        if self.unused[size_bytes]:
            address = self.unused[size_bytes].pop()
        else:
            address, self.next_address = self.next_address, self.next_address + size_bytes
            self.reserved = max(self.reserved, -(-(self.next_address - 0x7F1A_4000_0000) // 2**21) * 2**21)
        self._memory(address, size_bytes)
        self.references[address] = 1
        return Tensor(address, size_bytes, shape)

    def hold(self, tensor: Tensor) -> Tensor:
        """Keep a tensor until it is released once more."""
        self.references[tensor.address] += 1
        return tensor

    def release(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            self.references[tensor.address] -= 1
            assert self.references[tensor.address] >= 0
            if not self.references[tensor.address]:
                self.unused[tensor.size_bytes].append(tensor.address)
                self._memory(tensor.address, -tensor.size_bytes)

    def next_sequence(self) -> int:
        """Number the operator that was just begun, and begin its flow to the backward pass."""
        self.sequence += 1
        event = self.host[-1]
        event["args"] |= {"Sequence number": self.sequence, "Fwd thread id": 0}
        flow = {"ph": "s", "id": self.sequence, "cat": "fwdbwd", "name": "fwdbwd"}
        self.host.append({**flow, "pid": PID, "tid": PID, "ts": event["ts"]})
        return self.sequence

    @contextmanager
    def node(self, name: str, sequence: int, gradient: Tensor) -> Iterator[None]:
        """A node of the autograd graph."""
        numbers: dict[str, Any] = {"Sequence number": sequence, "Fwd thread id": 1}
        with self.op(f"autograd::engine::evaluate_function: {name}", self_ns=1800, **numbers):
            flow = {"ph": "f", "id": sequence, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"}
            self.host.append({**flow, "pid": PID, "tid": self.thread, "ts": self.host[-1]["ts"]})
            with self.op(name, gradient.shape, **numbers):
                yield

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """A range of the program, on the host and, around the work that it launches, on the device."""
        first = len(self.device)
        with self.op(name, category="user_annotation"):
            external = self.op_count
            yield
        work = [event for event in self.device[first:] if event["pid"] == 0 and event["ph"] == "X"]
        if work:
            start, end = work[0]["ts"], work[-1]["ts"] + work[-1]["dur"]
            self.device.append({
                "ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": 0, "tid": STREAM, "ts": start,
                "dur": end - start, "args": {"External id": external},
            })  # fmt: skip


class Training(Recorder):
    """ResNet-18. Each layer runs forward and appends its backward pass: the output's gradient → the input's."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters: dict[str, Tensor] = {}
        self.gradients: dict[str, Tensor] = {}
        self.backward: list[Callable[[Tensor], Tensor]] = []
        self.modules: dict[str, tuple[int, str]] = {}

    def parameter(self, name: str, *shape: int) -> Tensor:
        """A parameter; its momentum is a second tensor. Both are allocated in the first step."""
        if name not in self.parameters:
            self.parameters[name] = self.allocate(*shape)
            self.allocate(*shape)
        return self.parameters[name]

    def accumulate(self, name: str, gradient: Tensor) -> None:
        self.gradients[name] = gradient
        node = "torch::autograd::AccumulateGrad"
        evaluate = self.op(f"autograd::engine::evaluate_function: {node}", self_ns=1200)
        with (
            evaluate,
            self.op(node, gradient.shape, self_ns=1200),
            self.op("aten::detach", gradient.shape, self_ns=700),
        ):
            pass

    @contextmanager
    def module(self, path: str, kind: str, forward: str) -> Iterator[None]:
        """The frames of a module: its `__call__` and its `forward`."""
        if path not in self.modules:
            same = sum(name.startswith(f"{kind}_") for _, name in self.modules.values())
            self.modules[path] = len(self.modules), f"{kind}_{same}"
        number, name = self.modules[path]
        with self.frame(f"nn.Module: {name}", number), self.frame(forward):
            yield

    def conv(self, x: Tensor, path: str, channels: int, kernel: int, stride: int) -> Tensor:
        n, inputs, height, _ = x.shape
        size = height // stride
        w = self.parameter(f"{path}.weight", channels, inputs, kernel, kernel)
        flops = 2 * n * channels * size * size * inputs * kernel * kernel
        tile = "128x128x16" if channels > 64 else "64x64x16"
        module = self.module(path, "Conv2d", "torch/nn/modules/conv.py(553): forward")
        with module, self.op("aten::conv2d", x.shape, w.shape), self.op("aten::convolution", x.shape, w.shape):
            sequence = self.next_sequence()
            inner = (
                self.op("aten::_convolution", x.shape, w.shape),
                self.op("aten::cudnn_convolution", x.shape, w.shape),
            )
            with inner[0], inner[1]:
                y = self.allocate(n, channels, size, size)
                traffic = x.size_bytes + w.size_bytes + y.size_bytes
                self.kernel(_CONV.format("fprop", tile, "cudnn_infer"), flops, traffic, 256, 218)
        self.hold(x)

        def backward(g: Tensor) -> Tensor:
            with self.node("ConvolutionBackward0", sequence, g):
                with self.op("aten::convolution_backward", g.shape, x.shape, w.shape, self_ns=9000):
                    dx = g
                    if inputs > 3:
                        dx = self.allocate(*x.shape)
                        self.kernel(_CONV.format("dgrad", tile, "cudnn_infer"), flops * 11 // 10, traffic, 256, 222)
                    dw = self.allocate(*w.shape)
                    self.kernel(_CONV.format("wgrad", tile, "cudnn_train"), flops * 14 // 10, traffic, 256, 238)
                self.release(g, x)
            self.accumulate(f"{path}.weight", dw)
            return dx

        self.backward.append(backward)
        return y

    def batch_norm(self, x: Tensor, path: str) -> Tensor:
        channels = x.shape[1]
        for name in ("weight", "bias"):
            self.parameter(f"{path}.{name}", channels)
        shapes = x.shape, *[(channels,)] * 4
        with self.module(path, "BatchNorm2d", "torch/nn/modules/batchnorm.py(173): forward"):
            with self.op("aten::add_", (), (1,)):
                self.kernel(_ELEMENTWISE.format(_COUNT, 2), 0, 16, 128)
            with self.op("aten::batch_norm", *shapes), self.op("aten::_batch_norm_impl_index", *shapes):
                sequence = self.next_sequence()
                with self.op("aten::cudnn_batch_norm", *shapes, self_ns=5600):
                    y, *saved = self.allocate(*x.shape), self.allocate(channels), self.allocate(channels)
                    self.kernel(_NORM, 0, 3 * x.size_bytes, 512, 40)
        saved.append(self.hold(x))

        def backward(g: Tensor) -> Tensor:
            with self.node("CudnnBatchNormBackward0", sequence, g):
                with self.op("aten::cudnn_batch_norm_backward", x.shape, g.shape, (channels,), self_ns=5600):
                    dx, dw, db = self.allocate(*x.shape), self.allocate(channels), self.allocate(channels)
                    self.kernel(_NORM_BACKWARD, 0, 5 * x.size_bytes, 512, 48)
                self.release(g, *saved)
            self.accumulate(f"{path}.weight", dw)
            self.accumulate(f"{path}.bias", db)
            return dx

        self.backward.append(backward)
        return y

    def relu(self, x: Tensor, path: str) -> Tensor:
        """In place."""
        with self.module(path, "ReLU", "torch/nn/modules/activation.py(143): forward"), self.op("aten::relu_", x.shape):
            sequence = self.next_sequence()
            with self.op("aten::clamp_min_", x.shape, ()):
                self.kernel(_ELEMENTWISE.format(_CLAMP, 2), 0, 2 * x.size_bytes, 128)
        self.hold(x)

        def backward(g: Tensor) -> Tensor:
            with self.node("ReluBackward0", sequence, g):
                with self.op("aten::threshold_backward", g.shape, x.shape, ()):
                    dx = self.allocate(*g.shape)
                    self.kernel(_ELEMENTWISE.format(_THRESHOLD, 3), 0, 3 * g.size_bytes, 128)
                self.release(g, x)
            return dx

        self.backward.append(backward)
        return x

    def layer(
        self, x: Tensor, shape: tuple[int, ...], ops: str, kernel: str, node: str,
        backward_ops: Sequence[tuple[str, str]], parameters: Sequence[str] = (),
    ) -> Tensor:  # fmt: skip
        """A layer with one kernel forward and some backward, which read its input again."""
        weights = [self.parameters[name] for name in parameters]
        flops = 2 * prod(shape) * x.shape[-1] if weights else 0
        traffic = x.size_bytes + sum(w.size_bytes for w in weights)
        with ExitStack() as stack:
            for op in ops.split():
                stack.enter_context(self.op(f"aten::{op}", x.shape, *(w.shape for w in weights)))
            sequence = self.next_sequence()
            y = self.allocate(*shape)
            self.kernel(kernel, flops, traffic + y.size_bytes)
        self.hold(x)

        def backward(g: Tensor) -> Tensor:
            outputs = [x, *weights]
            gradients: list[Tensor] = []
            with self.node(node, sequence, g):
                for op, kernel in backward_ops:
                    with self.op(f"aten::{op}", g.shape, x.shape):
                        gradients.append(self.allocate(*outputs[len(gradients)].shape))
                        self.kernel(kernel, flops, traffic + gradients[-1].size_bytes)
                self.release(g, x)
            for name, gradient in zip(parameters, gradients[1:], strict=True):
                self.accumulate(name, gradient)
            return gradients[0]

        self.backward.append(backward)
        return y

    def run(self, passes: list[Callable[[Tensor], Tensor]], gradient: Tensor) -> Tensor:
        for backward in reversed(passes):
            gradient = backward(gradient)
        return gradient

    def cut(self, mark: int) -> list[Callable[[Tensor], Tensor]]:
        """Take the backward passes appended since `mark`."""
        passes = self.backward[mark:]
        del self.backward[mark:]
        return passes

    def normalised(self, x: Tensor, conv: str, norm: str, channels: int, kernel: int, stride: int) -> Tensor:
        y = self.conv(x, conv, channels, kernel, stride)
        z = self.batch_norm(y, norm)
        self.release(y)
        return z

    def block(self, x: Tensor, path: str, channels: int, stride: int) -> Tensor:
        """Two convolutions and the residual sum."""
        mark = len(self.backward)
        with self.module(path, "BasicBlock", "torchvision/models/resnet.py(89): forward"):
            inner = self.relu(self.normalised(x, f"{path}.conv1", f"{path}.bn1", channels, 3, stride), f"{path}.relu")
            y = self.normalised(inner, f"{path}.conv2", f"{path}.bn2", channels, 3, 1)
            self.release(inner)
            main = self.cut(mark)
            identity = x
            if stride != 1:
                with self.module(f"{path}.downsample", "Sequential", "torch/nn/modules/container.py(248): forward"):
                    names = f"{path}.downsample.0", f"{path}.downsample.1"
                    identity = self.normalised(x, *names, channels, 1, stride)
            side = self.cut(mark)
            with self.op("aten::add_", y.shape, y.shape, ()):
                sequence = self.next_sequence()
                self.kernel(_ELEMENTWISE.format(_ADD, 3), 0, 3 * y.size_bytes, 128)
            if stride != 1:
                self.release(identity)

            def backward(g: Tensor) -> Tensor:
                with self.node("AddBackward0", sequence, g):
                    self.hold(g)
                dx = self.run(main, g)
                other = self.run(side, g)
                with self.op("aten::add_", dx.shape, dx.shape, ()):
                    self.kernel(_ELEMENTWISE.format(_ADD, 3), 0, 3 * dx.size_bytes, 128)
                self.release(other)
                return dx

            self.backward.append(backward)
            return self.relu(y, f"{path}.relu")

    def network(self, x: Tensor) -> Tensor:
        with self.module("", "ResNet", "torchvision/models/resnet.py(266): _forward_impl"):
            y = self.relu(self.normalised(x, "conv1", "bn1", 64, 7, 2), "relu")
            with self.module("maxpool", "MaxPool2d", "torch/nn/modules/pooling.py(213): forward"):
                shape = BATCH, 64, 56, 56
                node, ops = "MaxPool2DWithIndicesBackward0", "max_pool2d max_pool2d_with_indices"
                names = (("max_pool2d_with_indices_backward", _POOL.format("backward")),)
                z = self.layer(y, shape, ops, _POOL.format("forward"), node, names)
            self.release(y)
            for number, channels in enumerate((64, 128, 256, 512), 1):
                with self.module(f"layer{number}", "Sequential", "torch/nn/modules/container.py(248): forward"):
                    for index in (0, 1):
                        y, stride = z, 2 if number > 1 and index == 0 else 1
                        z = self.block(y, f"layer{number}.{index}", channels, stride)
                        self.release(y)
            with self.module("avgpool", "AdaptiveAvgPool2d", "torch/nn/modules/pooling.py(1458): forward"):
                divide = (("div", _ELEMENTWISE.format(_SCALE, 2)),)
                kernel = _REDUCE.format("MeanOps")
                y = self.layer(z, (BATCH, 512), "adaptive_avg_pool2d mean", kernel, "MeanBackward1", divide)
            self.release(z)
            with self.module("fc", "Linear", "torch/nn/modules/linear.py(124): forward"):
                self.parameter("fc.weight", 1000, 512)
                self.parameter("fc.bias", 1000)
                kernels = _GEMM.format("32x128_nn"), _GEMM.format("128x64_nt"), _REDUCE.format("func_wrapper_t")
                products = tuple(zip(("mm", "mm", "sum"), kernels, strict=True))
                parameters = "fc.weight", "fc.bias"
                z = self.layer(
                    y, (BATCH, 1000), "linear addmm", _GEMM.format("64x32_tn"), "AddmmBackward0", products, parameters
                )
            self.release(y)
        return z

    def loss(self, x: Tensor) -> Tensor:
        module = self.module("loss", "CrossEntropyLoss", "torch/nn/modules/loss.py(1293): forward")
        with module, self.op("aten::cross_entropy_loss", x.shape, (BATCH,)):
            names = (("_log_softmax_backward_data", _SOFTMAX.format("Backward")),)
            kernel = _SOFTMAX.format("Forward")
            y = self.layer(x, x.shape, "log_softmax _log_softmax", kernel, "LogSoftmaxBackward0", names)
            names = (("nll_loss_backward", _LOSS.format("backward")),)
            kernel, ops = _LOSS.format("forward"), "nll_loss_nd nll_loss nll_loss_forward"
            z = self.layer(y, (1,), ops, kernel, "NllLossBackward0", names)
        self.release(x, y)
        return z

    def to_device(self, *shape: int) -> Tensor:
        with self.op("aten::to", shape), self.op("aten::_to_copy", shape):
            with self.op("aten::empty_strided", ()):
                x = self.allocate(*shape)
            with self.op("aten::copy_", shape, shape, ()):
                self.copy("Memcpy HtoD (Pinned -> Device)", x.size_bytes, PINNED_RATE)
        return x

    def update(self) -> None:
        tensors = list(self.parameters.values())
        shapes = [tensor.shape for tensor in tensors[:1]]
        size_bytes = sum(tensor.size_bytes for tensor in tensors)
        functors = (
            ("mul_", "BinaryOpScalarFunctor<float, 1, 1, 0>", "std::multiplies<float>, float", 1, 2),
            ("add_", "BinaryOpListAlphaFunctor<float, 2, 2, 0>", "std::plus<float>, float", 2, 3),
            ("add_", "BinaryOpListAlphaFunctor<float, 2, 2, 0>", "std::plus<float>, float", 2, 3),
        )
        with self.frame("torch/optim/sgd.py(99): step"), self.annotation("Optimizer.step#SGD.step"):
            for op, functor, arithmetic, lists, passes in functors:
                with self.op(f"aten::_foreach_{op}", *shapes, self_ns=18_000):
                    for part in range(2):
                        name = _MULTI_TENSOR.format(functor, lists, arithmetic)
                        self.kernel(name, 0, passes * size_bytes * (3, 1)[part] // 4, 512)

    def step(self, number: int) -> None:
        with self.annotation(f"ProfilerStep#{number}"), self.frame("train.py(27): train_step"):
            loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            with self.frame("torch/utils/data/dataloader.py(708): __next__"), self.annotation(loader):
                self.now += self.vary(LOADER_NS)
            x, labels = self.to_device(BATCH, 3, 224, 224), self.to_device(BATCH, 2)
            y = self.network(x)
            loss = self.loss(y)
            with (
                self.frame("torch/optim/optimizer.py(969): zero_grad"),
                self.annotation("Optimizer.zero_grad#SGD.zero_grad"),
            ):
                self.release(*self.gradients.values())
            with (
                self.frame("torch/_tensor.py(570): backward"),
                self.frame("torch/autograd/graph.py(815): _engine_run_backward"),
            ):
                with self.op("aten::ones_like", (1,)):
                    gradient = self.allocate(1)
                    self.kernel(_ELEMENTWISE.format("at::native::FillFunctor<float>", 1), 0, 4, 128)
                self.thread = AUTOGRAD_THREAD
                self.now += self.vary(20_000)
                self.run(self.cut(0), gradient)
                self.thread = PID
                self.now += self.vary(20_000)
            self.update()
            with self.op("aten::item", (1,)), self.op("aten::_local_scalar_dense", (1,)):
                self.copy("Memcpy DtoH (Device -> Pageable)", 4, PINNED_RATE)
                self.wait("cudaStreamSynchronize", 131)
            self.release(x, labels, loss)


def _metadata(start: int) -> Iterator[dict[str, Any]]:
    threads = [(0, STREAM, f"stream {STREAM} "), (PID, PID, f"thread {PID} (python)")]
    threads.append((PID, AUTOGRAD_THREAD, f"thread {AUTOGRAD_THREAD} (pt_autograd_0)"))
    for pid, label, order in ((PID, "CPU", PID), (0, "GPU 0", 16_777_216)):
        for name, args in (
            ("name", {"name": "python"}),
            ("labels", {"labels": label}),
            ("sort_index", {"sort_index": order}),
        ):
            yield {"name": f"process_{name}", "ph": "M", "ts": start, "pid": pid, "tid": 0, "args": args}
    for pid, tid, text in threads:
        yield {"name": "thread_name", "ph": "M", "ts": start, "pid": pid, "tid": tid, "args": {"name": text}}
        yield {"name": "thread_sort_index", "ph": "M", "ts": start, "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def events() -> list[dict[str, Any]]:
    """The events of the trace; `ts` and `dur` are in ns."""
    training = Training()
    training.step(FIRST_STEP - 1)  # The warm-up: its events are dropped, its memory and gradients stay.
    for kept in (training.host, training.python, training.device):
        kept.clear()
    start = training.now
    for number in range(FIRST_STEP, FIRST_STEP + STEPS):
        training.step(number)
    training.wait("cudaDeviceSynchronize", 165)
    duration = training.now - start
    span = {"name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": start, "dur": duration}
    mark = {"ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler"}
    return [
        *training.host, *training.python, *training.device, *_metadata(start),
        {"ph": "X", "cat": "Trace", **span, "args": {"Op count": 0}},
        {"name": "Iteration Start: PyTorch Profiler", **mark, "ts": start},
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": training.now},
    ]  # fmt: skip


def trace() -> str:
    """The text of the file."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{
            "id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_298_834_944, "computeMajor": 8,
            "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
            "regsPerBlock": 65536, "warpSize": 32,
            "sharedMemPerBlock": 49152, "numSms": 108, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 166912,
            "sharedMemPerMultiprocessor": 167936,
        }],
        "cupti_version": 24, "cuda_runtime_version": 12040, "cuda_driver_version": 12040,
        "record_shapes": 1, "with_stack": 1, "profile_memory": 1,
        "trace_id": "5F2A9C0E7B6D4E1FA0C3D58E91B74262", "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS,
    }  # fmt: skip

    def text(key: str, value: object) -> str:
        if key in ("ts", "dur") and isinstance(value, int):
            return f"{value // 1000}.{value % 1000:03d}"
        return json.dumps(value)

    lines = [
        "{" + ", ".join(f'"{key}": {text(key, value)}' for key, value in event.items()) + "}" for event in events()
    ]
    first = json.dumps(head, indent=1)[:-2]
    return (
        f'{first},\n "traceEvents": [\n' + ",\n".join(lines) + '\n ],\n "traceName": "/tmp/resnet18.pt.trace.json"\n}\n'
    )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: python {sys.argv[0]} OUTPUT.pt.trace.json.gz", file=sys.stderr)
        return 2
    output = Path(arguments[0])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(gzip.compress(trace().encode(), mtime=0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
