"""Write a memory snapshot of a training, as `torch.cuda.memory._dump_snapshot` does, without PyTorch and a GPU.

    python sample_traces/memory_snapshot.py OUTPUT.pickle

Two steps of a perceptron with Adam, recorded after the model was built, so that its weights were allocated before. The
structure is that of real snapshots; the allocator is modelled on PyTorch's: it rounds sizes up, splits blocks and
caches segments. The last allocation runs out of memory. The same file is written each time.
"""

from __future__ import annotations

import pickle
import sys
from bisect import insort
from itertools import pairwise
from pathlib import Path
from typing import Any

BATCH, WIDTHS, STEPS = 4096, (784, 2048, 2048, 10), 2
BASE_US = 1_759_276_800_000_000
_LARGE, _SMALL = 20 << 20, 2 << 20
_FLOAT = 4

Frames = list[dict[str, Any]]
_MAIN = {"name": "<module>", "filename": "/home/me/mnist/train.py", "line": 61}
_STEP = {"name": "train_step", "filename": "/home/me/mnist/train.py", "line": 38}
_TORCH = "/opt/conda/lib/python3.12/site-packages/torch"


def frame(name: str, path: str, line: int) -> dict[str, Any]:
    """A function of PyTorch."""
    return {"name": name, "filename": f"{_TORCH}/{path}", "line": line}


_MALLOC = {
    "name": "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc",
    "filename": "??",
    "line": 0,
}
_BUILD: Frames = [_MALLOC, frame("__init__", "nn/modules/linear.py", 106), _MAIN]
_INPUT: Frames = [_MALLOC, {**_STEP, "line": 33}, _MAIN]
_FORWARD: Frames = [_MALLOC, frame("forward", "nn/modules/linear.py", 125), _STEP, _MAIN]
_RELU: Frames = [_MALLOC, frame("relu", "nn/functional.py", 1701), _STEP, _MAIN]
_LOSS: Frames = [_MALLOC, frame("cross_entropy", "nn/functional.py", 3458), {**_STEP, "line": 39}, _MAIN]
_BACKWARD: Frames = [
    _MALLOC,
    {"name": "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", "filename": "??", "line": 0},
    {"name": "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "filename": "??", "line": 0},
    {"name": "torch::autograd::Engine::thread_main", "filename": "??", "line": 0},
]
_ADAM: Frames = [_MALLOC, frame("_init_group", "optim/adam.py", 179), {**_STEP, "line": 43}, _MAIN]
_EVALUATE: Frames = [_MALLOC, {"name": "evaluate", "filename": "/home/me/mnist/train.py", "line": 52}, _MAIN]


class Allocator:
    """PyTorch's caching allocator, without streams and pools."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.us = BASE_US
        self.trace: list[dict[str, Any]] | None = None
        self.segments: dict[int, int] = {}
        self.blocks: dict[int, dict[str, Any]] = {}
        self._free: list[tuple[int, int]] = []  # size, address

    def record(self, action: str, place: str, address: int, size: int, frames: Frames) -> None:
        self.us += 7 if action == "alloc" else 2
        if self.trace is not None:
            times = {"stream": 0, "time_us": self.us, "compile_context": "N/A", "user_metadata": ""}
            self.trace.append({"action": action, place: address, "size": size, **times, "frames": frames})

    def alloc(self, requested: int, frames: Frames) -> int:
        """Allocate; returns the address. MemoryError if the device has no room."""
        size = -(-requested // 512) * 512
        fitting = [one for one in self._free if one[0] >= size]
        if fitting:
            length, address = fitting[0]
            self._free.remove(fitting[0])
        else:
            length = _SMALL if size < 1 << 20 else _LARGE if size < _LARGE // 2 else -(-size // _SMALL) * _SMALL
            reserved = sum(self.segments.values())
            if reserved + length > self.capacity:
                self.record("oom", "device_free", self.capacity - reserved, size, frames)
                raise MemoryError
            address = max((start + size for start, size in self.segments.items()), default=0x7F40_0000_0000)
            self.segments[address] = length
            self.record("segment_alloc", "addr", address, length, frames)
        if length > size:
            insort(self._free, (length - size, address + size))
        self.blocks[address] = {
            "address": address,
            "size": size,
            "requested_size": requested,
            "state": "active_allocated",
            "frames": frames,
        }
        self.record("alloc", "addr", address, requested, frames)
        return address

    def free(self, address: int) -> None:
        block = self.blocks.pop(address)
        for action in ("free_requested", "free_completed"):
            self.record(action, "addr", address, block["requested_size"], block["frames"])
        insort(self._free, (block["size"], address))
        self._merge()

    def _merge(self) -> None:
        merged: list[list[int]] = []
        for address, size in sorted((address, size) for size, address in self._free):
            if merged and sum(merged[-1]) == address and address not in self.segments:
                merged[-1][1] += size
            else:
                merged.append([address, size])
        self._free = sorted((size, address) for address, size in merged)

    def snapshot(self) -> dict[str, Any]:
        """What `torch.cuda.memory._snapshot` returns."""
        free = {
            address: {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
            for size, address in self._free
        }
        segments = []
        for start, size in self.segments.items():
            blocks = [block for at, block in sorted({**self.blocks, **free}.items()) if start <= at < start + size]
            active = sum(block["size"] for block in blocks if block["state"] != "inactive")
            requested = sum(block["requested_size"] for block in blocks)
            sizes = {"total_size": size, "allocated_size": active, "active_size": active, "requested_size": requested}
            kind = {"stream": 0, "segment_type": "small" if size == _SMALL else "large", "segment_pool_id": (0, 0)}
            extra = {"is_expandable": False, "frames": blocks[0]["frames"], "blocks": blocks}
            segments.append({"device": 0, "address": start, **sizes, **kind, **extra})
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        traces = [self.trace or []]
        return {
            "segments": segments,
            "device_traces": traces,
            "allocator_settings": settings,
            "external_annotations": [],
        }


def train_step(device: Allocator, states: list[int]) -> None:
    """Forward, backward and update; the states of the optimizer are allocated in the first step."""
    kept = [device.alloc(BATCH * WIDTHS[0] * _FLOAT, _INPUT)]
    for outputs in WIDTHS[1:]:
        kept.append(device.alloc(BATCH * outputs * _FLOAT, _FORWARD))
        if outputs != WIDTHS[-1]:
            kept.append(device.alloc(BATCH * outputs * _FLOAT, _RELU))
    kept.append(device.alloc(BATCH * WIDTHS[-1] * _FLOAT, _LOSS))
    gradients = []
    for inputs, outputs in reversed(list(pairwise(WIDTHS))):
        gradients.append(device.alloc(inputs * outputs * _FLOAT, _BACKWARD))
        if inputs != WIDTHS[0]:
            kept.append(device.alloc(BATCH * inputs * _FLOAT, _BACKWARD))
        device.free(kept.pop(0))
    for address in kept:
        device.free(address)
    if not states:
        for inputs, outputs in pairwise(WIDTHS):
            states += [device.alloc(inputs * outputs * _FLOAT, _ADAM) for _ in range(2)]
    for address in gradients:
        device.free(address)


def main(output: Path) -> None:
    """Train, evaluate with too large a batch, and write the snapshot."""
    device = Allocator(512 << 20)
    for inputs, outputs in pairwise(WIDTHS):
        device.alloc(inputs * outputs * _FLOAT, _BUILD)
    device.trace = []
    states: list[int] = []
    for _ in range(STEPS):
        train_step(device, states)
        device.us += 4_000
    try:
        device.alloc(16 * BATCH * WIDTHS[1] * _FLOAT, _EVALUATE)
    except MemoryError:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_bytes(pickle.dumps(device.snapshot(), 4))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
