"""Memory snapshots of PyTorch from a modelled allocator, and what is in them, counted in plain Python."""

from __future__ import annotations

import pickle
import random
import struct
from collections import Counter
from typing import Any

BASE_US = 1_700_000_000_000_000
_GRAIN = 2 << 20
_CHANGES = ("alloc", "free_completed", "segment_alloc", "segment_map", "segment_free", "segment_unmap")

#: Functions of a program, innermost first, as PyTorch has them: with frames in C++ around those in Python.
_CPP = [
    {"name": "torch::CapturedTraceback::gather(bool, bool, bool)", "filename": "??", "line": 0},
    {"name": "c10::cuda::CUDACachingAllocator::Native::malloc(void**, int)", "filename": "??", "line": 0},
    {"name": "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", "filename": "??", "line": 0},
    {"name": "at::_ops::convolution_backward::call(at::Tensor const&)", "filename": "??", "line": 0},
]
_MAIN = {"name": "main", "filename": "/home/me/train.py", "line": 90}
_LAYERS = [
    {"name": "forward", "filename": f"/usr/lib/python3/site-packages/torch/nn/modules/{name}.py", "line": line}
    for name, line in (("linear", 125), ("conv", 554), ("activation", 133))
]
STACKS: list[list[dict[str, Any]]] = [[*_CPP[:3], layer, _MAIN] for layer in _LAYERS]
STACKS += [_CPP, [_MAIN], []]
#: What the stacks are named by.
NAMES = [f"torch/nn/modules/{name}: forward" for name in ("linear.py(125)", "conv.py(554)", "activation.py(133)")]
NAMES += ["aten::convolution_backward", "/home/me/train.py(90): main", ""]


class Allocator:
    """A device whose allocator is recorded. Entries beyond `most_entries` replace the oldest."""

    def __init__(self, device: int = 0, most_entries: int | None = None, first: int = 0x7F00_0000_0000) -> None:
        self.device, self.most_entries, self.next_address = device, most_entries, first
        self.us = BASE_US
        self.trace: list[dict[str, Any]] = []
        self.segments: dict[int, int] = {}
        self.blocks: dict[int, dict[str, Any]] = {}

    def record(self, action: str, address: int, size: int, frames: list[dict[str, Any]] | None, **more: Any) -> None:
        """Add an entry, with the frames last, as PyTorch does."""
        place = "device_free" if action == "oom" else "addr"
        entry = {"action": action, place: address, "size": size, "stream": 0, "time_us": self.us, **more}
        self.trace.append(entry if frames is None else {**entry, "frames": frames})
        if self.most_entries is not None:
            del self.trace[: -self.most_entries]

    def segment(self, size: int, action: str = "segment_alloc") -> int:
        """Reserve memory. The action segment_map extends the range before, without a gap."""
        address = self.next_address
        self.next_address += size + (0 if action == "segment_map" else _GRAIN)
        self.segments[address] = size
        self.record(action, address, size, STACKS[0])
        return address

    def alloc(self, address: int, size: int, requested: int, stack: int) -> None:
        """Allocate a block of a size that was rounded up."""
        self.blocks[address] = {
            "address": address,
            "size": size,
            "requested_size": requested,
            "state": "active_allocated",
            "frames": STACKS[stack],
        }
        self.record("alloc", address, requested, STACKS[stack])

    def free(self, address: int, *, is_pending: bool = False) -> None:
        """Free a block: at once, or, if another stream uses it, later by `complete`."""
        block = self.blocks[address]
        self.record("free_requested", address, block["requested_size"], block["frames"])
        block["state"] = "active_pending_free"
        if not is_pending:
            self.complete(address)

    def complete(self, address: int) -> None:
        """End the free of a block."""
        block = self.blocks.pop(address)
        self.record("free_completed", address, block["requested_size"], block["frames"])

    def unmap(self, address: int, size: int) -> None:
        """Return a part of what was mapped."""
        self.record("segment_unmap", address, size, [])
        for start, length in list(self.segments.items()):
            end = start + length
            if start < address + size and address < end:
                del self.segments[start]
                if start < address:
                    self.segments[start] = address - start
                if address + size < end:
                    self.segments[address + size] = end - address - size

    def snapshot_segments(self) -> list[dict[str, Any]]:
        """Segments with their blocks and what is free between them."""
        found = []
        for start, size in sorted(self.segments.items()):
            blocks, at = [], start
            for address, block in sorted(self.blocks.items()):
                if start <= address < start + size:
                    if at < address:
                        blocks.append(_inactive(at, address - at))
                    blocks.append(block)
                    at = address + block["size"]
            if at < start + size:
                blocks.append(_inactive(at, start + size - at))
            active = sum(block["size"] for block in blocks if block["state"] != "inactive")
            found.append(
                {
                    "device": self.device,
                    "address": start,
                    "total_size": size,
                    "allocated_size": active,
                    "active_size": active,
                    "requested_size": active,
                    "stream": 0,
                    "segment_type": "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": STACKS[0],
                    "blocks": blocks,
                }
            )
        return found


def _inactive(address: int, size: int) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": 0, "state": "inactive", "frames": []}


def random_allocator(seed: int, steps: int = 600, most_entries: int | None = None, device: int = 0) -> Allocator:
    """An allocator after many random steps, several in each microsecond."""
    rng = random.Random(seed)
    one = Allocator(device, most_entries)
    free: list[tuple[int, int]] = []
    pending: list[int] = []
    for _ in range(steps):
        one.us += rng.choice((0, 0, 0, 1, 1, 7))
        live = [address for address in one.blocks if address not in pending]
        chance = rng.random()
        if not free or chance < 0.05:
            address = one.segment(4 * _GRAIN, rng.choice(("segment_alloc", "segment_map")))
            free += [(address + place * (_GRAIN // 2), _GRAIN // 2) for place in range(8)]
        elif chance < 0.5:
            address, size = free.pop(rng.randrange(len(free)))
            one.alloc(address, size, size - rng.randrange(600), rng.randrange(len(STACKS)))
        elif chance < 0.9 and live:
            address = rng.choice(live)
            size = one.blocks[address]["size"]
            is_pending = rng.random() < 0.2
            one.free(address, is_pending=is_pending)
            if is_pending:
                pending.append(address)
            else:
                free.append((address, size))
        elif chance < 0.95 and pending:
            address = pending.pop(rng.randrange(len(pending)))
            free.append((address, one.blocks[address]["size"]))
            one.complete(address)
        elif chance < 0.97:
            one.record("oom", 12345, 1 << 40, STACKS[4])
        elif (whole := _whole_grain(one, free)) is not None:
            free = [(address, size) for address, size in free if not whole <= address < whole + _GRAIN]
            one.unmap(whole, _GRAIN)
    return one


def _whole_grain(one: Allocator, free: list[tuple[int, int]]) -> int | None:
    """A range of 2 MiB without blocks."""
    addresses = {address for address, _ in free}
    return next(
        (start for start in sorted(addresses) if start % _GRAIN == 0 and start + _GRAIN // 2 in addresses), None
    )


def snapshot(*allocators: Allocator) -> dict[str, Any]:
    """The snapshot of all devices, as `torch.cuda.memory._snapshot` returns it."""
    return {
        "segments": [segment for one in allocators for segment in one.snapshot_segments()],
        "device_traces": [one.trace for one in allocators],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "roundup_power2_divisions": {"1": 0},
        },
        "external_annotations": [
            {"name": "step", "stage": stage, "device": 0, "time_us": BASE_US + us}
            for us, stage in ((2, "START"), (90, "END"))
        ],
    }


def dumps(value: object, protocol: int | None) -> bytes:
    """The pickle of a snapshot; protocol None: as PyTorch's pickler in C++ writes it."""
    return _LikeCpp().pickled(value) if protocol is None else pickle.dumps(value, protocol)


class _LikeCpp:
    """All items of a list or dict at once, and containers in the memo once they are complete."""

    def __init__(self) -> None:
        self._memo: dict[object, int] = {}

    def pickled(self, value: object) -> bytes:
        return b"\x80\x02" + self._push(value) + b"."

    def _push(self, value: Any) -> bytes:
        if value is None or isinstance(value, (int, float)):
            return self._number(value)
        key = value if isinstance(value, str) else id(value)
        if key in self._memo:
            place = self._memo[key]
            return b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place)
        if isinstance(value, str):
            text = b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        elif isinstance(value, dict):
            text = b"}(" + b"".join(self._push(one) for pair in value.items() for one in pair) + b"u"
        elif isinstance(value, list):
            text = b"](" + b"".join(map(self._push, value)) + b"e"
        else:
            return b"".join(map(self._push, value)) + bytes([0x84 + len(value)])
        place = self._memo[key] = len(self._memo)
        return text + (b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place))

    def _number(self, value: float | None) -> bytes:
        if value is None or isinstance(value, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        for opcode, form, last in ((b"K", "<B", 255), (b"M", "<H", 65535), (b"J", "<i", 2**31 - 1)):
            if 0 <= value <= last:
                return opcode + struct.pack(form, value)
        return b"\x8a\x08" + struct.pack("<q", value)


class Usage:
    """What memory_viz shows of a device: the peak of blocks in use, which these are, and the peak of segments.

    Unlike there, it may also be before the first change.
    """

    def __init__(self, found: dict[str, Any], device: int) -> None:
        trace = found["device_traces"][device]
        segments = [one for one in found["segments"] if one["device"] == device]
        live: dict[int, tuple[int, str | None]] = {}
        # Backwards from the end: what is in use when the snapshot is taken, and then before each entry.
        for segment in segments:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    live[block["address"]] = (block["requested_size"], _name(block["frames"]))
        reserved = sum(one["total_size"] for one in segments)
        allocated_by = {}
        for entry in trace:
            if entry["action"] == "alloc":
                allocated_by[entry["addr"]] = _name(entry["frames"])
            elif entry["action"] == "free_completed":
                entry["name"] = allocated_by.pop(entry["addr"], None)
        states = []
        for entry in reversed(trace):
            action, address, size = entry["action"], entry.get("addr"), entry["size"]
            if action in _CHANGES:
                states.append((dict(live), reserved))
            if action == "alloc":
                del live[address]
            elif action == "free_completed":
                live[address] = (size, entry.pop("name"))
            elif action in ("segment_alloc", "segment_map"):
                reserved -= size
            elif action in ("segment_free", "segment_unmap"):
                reserved += size
        states.append((live, reserved))
        sums = [sum(size for size, _ in blocks.values()) for blocks, _ in reversed(states)]
        self.peak_bytes = max(sums)
        at_peak = states[len(states) - 1 - sums.index(self.peak_bytes)][0]
        self.live = Counter((address, size, name) for address, (size, name) in at_peak.items())
        self.peak_reserved_bytes = max(bytes_reserved for _, bytes_reserved in states)


def _name(frames: list[dict[str, Any]]) -> str | None:
    return NAMES[STACKS.index(frames)] or None


def small_snapshot() -> dict[str, Any]:
    """Two devices: one that was recorded from its start, one whose first entries were overwritten."""
    return snapshot(random_allocator(1, 60), random_allocator(2, 200, 40, device=1))
