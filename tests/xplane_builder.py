"""Profiles of JAX in protobuf (XSpace), built from the published field numbers."""

from __future__ import annotations

from collections.abc import Sequence

from perfetto_builder import message

Field = tuple[int, object]
DOUBLE, UNSIGNED, SIGNED, TEXT, BYTES, REFERENCE = 2, 3, 4, 5, 6, 7


def space(*planes: bytes, host: str | None = None) -> bytes:
    """A file."""
    return message(*((1, plane) for plane in planes), *([(4, host)] if host is not None else []))


def plane(name: str, *lines: bytes, events: Sequence[bytes] = (), stats: Sequence[bytes] = (), id: int = 0) -> bytes:
    """A plane. `events`, `stats`: entries of the maps of names."""
    head: list[Field] = [(1, id)] if id else []
    body: list[Field] = [(3, one) for one in lines]
    maps: list[Field] = [*((4, one) for one in events), *((5, one) for one in stats)]
    return message(*head, (2, name), *body, *maps)


def line(id: int, name: str, start_ns: int, *events: bytes) -> bytes:
    """A line of a plane."""
    return message((1, id), (2, name), (3, start_ns), *((4, one) for one in events))


def event(kind: int, offset_ps: int, dur_ps: int, *stats: bytes) -> bytes:
    """An event of a line."""
    return message((1, kind), (2, offset_ps), (3, dur_ps), *((4, one) for one in stats))


def stat(key: int, kind: int, value: object) -> bytes:
    """A statistic, with a value of one kind."""
    return message((1, key), (kind, value))


def named(id: int, name: str, *more: Field) -> bytes:
    """An entry of a map of names."""
    return message((1, id), (2, message((1, id), (2, name), *more)))


def names(*texts: str) -> list[bytes]:
    """Entries with the IDs 1, 2 …"""
    return [named(number, text) for number, text in enumerate(texts, 1)]


def small_space() -> bytes:
    """A recording with a GPU, a thread that launches its work, and steps: every kind of field."""
    keys = names(
        "correlation_id", "step_num", "flops", "text", "number", "bytes", "tf_op", "a name", "_src", "gpu_device_name"
    )
    gpu = plane(
        "/device:GPU:0",
        line(
            7,
            "Stream #7(Compute)",
            1_000,
            event(1, 500_400, 2_000_300, stat(1, UNSIGNED, 41), stat(7, REFERENCE, 8)),
            event(2, 2_500_700, 1_000_000, stat(1, UNSIGNED, 42), stat(3, UNSIGNED, 2**64 - 1)),
        ),
        line(8, "XLA Ops", 1_000, event(3, 500_000, 3_000_000)),
        events=[*names("gemm", "MemcpyH2D"), named(3, "%fusion.1 = f32[]", (4, "fusion.1"), (5, stat(3, DOUBLE, 2.5)))],
        stats=keys,
    )
    gpu += message((6, stat(10, TEXT, "NVIDIA H100 PCIe")))
    host = plane(
        "/host:CPU",
        line(
            1 << 40,
            "python",
            0,
            event(1, 100_000, 9_000_000, stat(2, SIGNED, 3), stat(9, TEXT, "a"), stat(9, TEXT, 'é"\n')),
            event(2, 1_000_000, 100_000, stat(1, UNSIGNED, 41)),
            event(2, 1_100_000, 200_000, stat(1, UNSIGNED, 42), stat(6, BYTES, b"\x00\xff")),
            event(3, 1_500_500, 0, stat(5, DOUBLE, float("nan")), stat(4, SIGNED, -3)),
        ),
        events=names("train", "cuLaunchKernel", "$f.py:1 g"),
        stats=keys,
    )
    programs = plane("/host:metadata", events=[named(1, "jit_f", (5, stat(6, BYTES, bytes(100))))])
    about = message((2, "Task Environment"), *((5, one) for one in names("profile_start_time")))
    about += message((6, stat(1, UNSIGNED, 1_790_000_000_000_000_000)))
    return space(programs, gpu, host, about, host="h1") + message((2, "an error"), (3, "a warning"))
