"""Simulate a training on many ranks, and write a PyTorch trace per rank and the planted faults.

python -m benchmarks.fleet -o DIR --ranks 256 --steps 20

Hosts have eight ranks. The ranks of a host form a tensor-parallel group, which exchanges activations while all wait;
those with the same place on each host form a data-parallel group, which exchanges gradients while the backward pass
goes on. Kernels last as long as the ops of a model of the reference NPU, and all-reduces as its cost model says.

Planted: ranks that compute slower, load data late or are held up by their host in some steps, the link of one
data-parallel group, which is slow, and the clock of one host, which is ahead. `truth.json` names them. The same seed
gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from traceconv.runtime.spec import reference_npu
from traceconv.runtime.static_profile import static_profile
from traceconv.runtime.training.backward import all_reduce_cost

RANKS_PER_HOST = 8
_EPOCH_NS = 1_760_000_000_000_000_000
_LOAD_NS, _LAUNCH_NS, _LAUNCH_DELAY_NS = 300_000, 3_000, 4_000
_ACTIVATION_BYTES, _BUCKET_BYTES = 8 << 20, 25 << 20
#: Forward kernels between two exchanges of activations, and backward kernels between two of gradients.
_EVERY = 8
#: Kernels of a collective end within this time of each other.
_SPREAD_NS = 400

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is planted: `kind` is compute, data_loading or host for a rank in a step; link; clock.

    late_ns  by which the rank is late; for a clock, by which it is ahead
    """

    kind: str
    late_ns: int = 0
    rank: int | None = None
    step: int | None = None
    comm_group: str | None = None
    slower_times: int | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    """Work on a track of all ranks; the times of some ranks may differ."""

    name: str
    category: str
    track: int
    start_ns: Int64
    dur_ns: Int64
    correlation: int | None = None
    elements: int | None = None


class Fleet:
    """The simulated job."""

    def __init__(self, ranks: int, steps: int, seed: int = 1) -> None:
        self.ranks, self.steps, self._draw = ranks, steps, Random(seed)
        self._spread = np.random.default_rng(seed)
        self.hosts = -(-ranks // RANKS_PER_HOST)
        spec = reference_npu()
        # Durations of the reference NPU's ops, each for 64 requests.
        ops = static_profile("mini_transformer").ops
        self._kernels = [(one.op.name, max(20_000, 64 * one.dur_ns)) for one in ops[:64]]
        self._transfer = {
            (size, count): all_reduce_cost(spec, size, count).cycles * 1_000_000_000 // spec.core_clock_hz
            for size in (_ACTIVATION_BYTES, _BUCKET_BYTES)
            for count in {len(self.members(rank, tensor=tensor)) for rank in range(ranks) for tensor in (True, False)}
            if count > 1
        }
        self.faults = list(self._plant())

    def members(self, rank: int, *, tensor: bool) -> range:
        """Return the ranks of the tensor- or data-parallel group of a rank."""
        first = rank - rank % RANKS_PER_HOST
        if tensor:
            return range(first, min(self.ranks, first + RANKS_PER_HOST))
        return range(rank % RANKS_PER_HOST, self.ranks, RANKS_PER_HOST)

    def group(self, rank: int, *, tensor: bool) -> str:
        return f"tp{rank // RANKS_PER_HOST}" if tensor else f"dp{rank % RANKS_PER_HOST}"

    def host(self, rank: int) -> str:
        return f"node{rank // RANKS_PER_HOST:03d}"

    def _plant(self) -> Iterator[Fault]:
        """Yield the faults: one in three steps has one rank that is late, each kind in turn."""
        kinds = ("compute", "data_loading", "host")
        for number, step in enumerate(range(1, self.steps, 3)):
            kind, rank = kinds[number % len(kinds)], self._draw.randrange(self.ranks)
            late = 2_000_000 + self._draw.randrange(1_000_000)
            yield Fault(kind, late - late % len(self._kernels), rank, step)
        if self.hosts > 1:
            place = self._draw.randrange(min(RANKS_PER_HOST, self.ranks))
            yield Fault("link", comm_group=f"dp{place}", slower_times=3)
            host = self._draw.randrange(1, self.hosts)
            ahead = 1_000_000 + self._draw.randrange(5_000_000)
            yield Fault("clock", ahead, host=self.host(host * RANKS_PER_HOST))

    def spans(self) -> Iterator[list[_Span]]:
        """Yield the spans of each step."""
        ready = np.zeros(self.ranks, np.int64)
        for step in range(self.steps):
            spans = list(self._step(step, ready))
            ready = spans[0].start_ns + spans[0].dur_ns + 50_000
            yield spans

    def _late(self, kind: str, step: int) -> Int64:
        late = np.zeros(self.ranks, np.int64)
        for fault in self.faults:
            if fault.kind == kind and fault.step == step:
                late[fault.rank] += fault.late_ns
        return late

    def _step(self, step: int, start: Int64) -> Iterator[_Span]:
        loading = _LOAD_NS + self._late("data_loading", step)
        host = start + loading + 10_000
        slow = self._late("compute", step) // len(self._kernels)
        held = self._late("host", step)
        spans = [_Span("enumerate(DataLoader)#Loader.__next__", "user_annotation", 1, start + 5_000, loading)]
        if held.any():
            spans.append(_Span("gc.collect", "user_annotation", 1, host, held))
            host = host + held
        # Streams: 7 computes, 20 exchanges gradients.
        device, exchanged, number = host.copy(), start.copy(), step * 1_000_000

        def launch(name: str, category: str, at: Int64, dur: Int64, track: int, elements: int | None = None) -> None:
            nonlocal host, number
            number += 1
            spans.append(_Span("cudaLaunchKernel", "cuda_runtime", 1, host, np.full_like(host, _LAUNCH_NS), number))
            spans.append(_Span(name, category, track, at, dur, number, elements))
            host = host + _LAUNCH_NS

        def exchange(size_bytes: int, ready: Int64, *, tensor: bool) -> Int64:
            began: Int64 = np.maximum(ready, host + _LAUNCH_DELAY_NS)
            end: Int64 = began.copy()
            for rank in range(self.ranks) if not tensor else range(0, self.ranks, RANKS_PER_HOST):
                members = self.members(rank, tensor=tensor)
                if members[0] != rank or len(members) < 2:
                    continue
                times = next(
                    (f.slower_times for f in self.faults if f.comm_group == self.group(rank, tensor=tensor)), 1
                )
                took = self._transfer[size_bytes, len(members)] * (times or 1)
                end[members] = began[members].max() + took + self._spread.integers(0, _SPREAD_NS, len(members))
            launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "tp" if tensor else "dp", began, end - began,
                   7 if tensor else 20, size_bytes // 2)  # fmt: skip
            return end

        for place, (name, dur) in enumerate(self._kernels):
            began = np.maximum(device, host + _LAUNCH_DELAY_NS)
            launch(name, "kernel", began, dur + slow, 7)
            device = began + dur + slow
            if place % _EVERY == _EVERY - 1:
                if place < len(self._kernels) // 2:
                    device = exchange(_ACTIVATION_BYTES, device, tensor=True)
                else:
                    exchanged = exchange(_BUCKET_BYTES, np.maximum(device, exchanged), tensor=False)
        began = np.maximum(np.maximum(device, exchanged), host + _LAUNCH_DELAY_NS)
        launch("multi_tensor_apply_kernel<AdamFunctor>", "kernel", began, np.full_like(began, 100_000), 7)
        end = began + 100_000
        spans.append(_Span("cudaDeviceSynchronize", "cuda_runtime", 1, host, end - host + 2_000))
        yield _Span(f"ProfilerStep#{step}", "user_annotation", 1, start, end + 10_000 - start)
        yield from spans

    def write(self, folder: Path) -> None:
        """Write a trace per rank, and truth.json."""
        folder.mkdir(parents=True, exist_ok=True)
        ahead = {fault.host: fault.late_ns for fault in self.faults if fault.kind == "clock"}
        files = []
        try:
            for rank in range(self.ranks):
                file = (folder / f"rank{rank}.json").open("w")
                files.append(file)
                head = {
                    "schemaVersion": 1,
                    "deviceProperties": [],
                    "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.ranks},
                    "host_name": self.host(rank),
                }
                file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
                file.write(json.dumps({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}))
            ends = np.zeros(self.ranks, np.int64)
            for spans in self.spans():
                for rank, file in enumerate(files):
                    base = _EPOCH_NS + ahead.get(self.host(rank), 0)
                    file.writelines([text for span in spans if (text := self._text(span, rank, base))])
                ends = spans[0].start_ns + spans[0].dur_ns
            # As Kineto does last: without it, a trace counts as cut.
            for rank, file in enumerate(files):
                start = _EPOCH_NS + ahead.get(self.host(rank), 0)
                place = f'"pid":"Spans","tid":"PyTorch Profiler","ts":{_us(start)},"dur":{_us(int(ends[rank]))}'
                file.write(f',\n{{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)",{place}}}\n]}}\n')
        finally:
            for file in files:
                file.close()
        (folder / "truth.json").write_text(json.dumps([asdict(fault) for fault in self.faults], indent=1))

    def _text(self, span: _Span, rank: int, base_ns: int) -> str | None:
        start, dur = base_ns + int(span.start_ns[rank]), int(span.dur_ns[rank])
        args: dict[str, object] = {} if span.correlation is None else {"correlation": span.correlation}
        category, pid = span.category, 1
        if span.track != 1:
            pid = 0
            args |= {"device": rank % RANKS_PER_HOST, "stream": span.track}
        if span.elements is not None:
            tensor, category = category == "tp", "kernel"
            members = self.members(rank, tensor=tensor)
            args |= {
                "Collective name": "allreduce", "In msg nelems": span.elements, "Out msg nelems": span.elements,
                "Group size": len(members), "dtype": "BFloat16", "Process Group Name": self.group(rank, tensor=tensor),
                "Process Group Ranks": str(list(members)),
            }  # fmt: skip
            if len(members) < 2:
                return None
        place = f'"pid":{pid},"tid":{span.track},"ts":{_us(start)}'
        text = json.dumps(args, separators=(",", ":"))
        name = json.dumps(span.name)
        written = f',\n{{"ph":"X","cat":"{category}","name":{name},{place},"dur":{_us(dur)},"args":{text}}}'
        if span.correlation is not None:
            phase = '"s"' if span.track == 1 else '"f","bp":"e"'
            written += f',\n{{"ph":{phase},"id":{span.correlation},"cat":"ac2g","name":"ac2g",{place}}}'
        return written


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def main() -> None:
    """Write a fleet's traces."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    Fleet(given.ranks, given.steps, given.seed).write(given.output)


if __name__ == "__main__":
    main()
