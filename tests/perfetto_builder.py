"""Perfetto traces in protobuf, built from the published field numbers: packets of a few lines each."""

from __future__ import annotations

import struct
import zlib

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
#: Categories of stages of a GPU.
OTHER, GRAPHICS, COMPUTE = 0, 1, 2


def varint(value: int) -> bytes:
    """A number of up to 64 bits; a negative one as its two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields: tuple[int, object]) -> bytes:
    """A message of (number, value): an int is a varint, a float a double, text and bytes have a length."""
    out = b""
    for number, value in fields:
        if isinstance(value, (bool, int)):
            out += varint(number << 3) + varint(int(value))
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, Fixed64):
            out += varint(number << 3 | 1) + struct.pack("<Q", value.value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


class Fixed64:
    """A number of eight bytes, as flow ids are."""

    def __init__(self, value: int) -> None:
        self.value = value


def packet(*fields: tuple[int, object]) -> bytes:
    """A TracePacket in a Trace."""
    data = message(*fields)
    return b"\x0a" + varint(len(data)) + data


def event(ts: int, *fields: tuple[int, object], seq: int = 1, flags: int = 0, clock: int | None = None) -> bytes:
    """A packet with a TrackEvent of these fields."""
    head: list[tuple[int, object]] = [(8, ts), (10, seq)]
    if flags:
        head.append((13, flags))
    if clock is not None:
        head.append((58, clock))
    return packet(*head, (11, message(*fields)))


def begin(ts: int, track: int, name: str, *fields: tuple[int, object], seq: int = 1) -> bytes:
    """The begin of a slice."""
    return event(ts, (9, BEGIN), (11, track), (23, name), *fields, seq=seq)


def end(ts: int, track: int, *fields: tuple[int, object], seq: int = 1) -> bytes:
    """The end of a slice."""
    return event(ts, (9, END), (11, track), *fields, seq=seq)


def process(uuid: int, pid: int, name: str, seq: int = 1) -> bytes:
    """A packet that describes a process."""
    return packet((10, seq), (60, message((1, uuid), (3, message((1, pid), (6, name))))))


def thread(uuid: int, pid: int, tid: int, name: str, seq: int = 1) -> bytes:
    """A packet that describes a thread."""
    return packet((10, seq), (60, message((1, uuid), (4, message((1, pid), (2, tid), (5, name))))))


def track(uuid: int, name: str, *fields: tuple[int, object], seq: int = 1) -> bytes:
    """A packet that describes another track."""
    return packet((10, seq), (60, message((1, uuid), (2, name), *fields)))


def clocks(*readings: tuple[int, ...], seq: int = 1, primary: int | None = None) -> bytes:
    """A packet with a ClockSnapshot of (clock, time) or (clock, time, is incremental, unit in ns)."""
    listed = [(1, message(*zip((1, 2, 3, 4), reading, strict=False))) for reading in readings]
    return packet((10, seq), (6, message(*listed, *([(2, primary)] if primary is not None else []))))


def packed(*packets: bytes) -> bytes:
    """Packets as one that holds them compressed."""
    return packet((50, zlib.compress(b"".join(packets))))


def _nested() -> tuple[int, bytes]:
    values = [(4, message(field)) for field in ((5, -7), (6, 0.5), (7, True), (8, "text"))]
    listed = message((1, 2), *values)
    return 4, message((10, "nested"), (8, message((1, 1), (2, "a"), (2, "b"), (3, listed), (3, message()))))


#: A legacy nested annotation: an object with a list of all kinds of values, and null.
NESTED = _nested()


def small_trace() -> bytes:
    """A process, a thread, two nested slices, a moment, a counter: one of each, in ten packets."""
    return b"".join(
        (
            process(1, 7, "app"),
            thread(2, 7, 8, "main"),
            track(3, "queue", (5, 1), (8, message((3, 2)))),
            begin(1000, 2, "outer", (22, "cat")),
            begin(1100, 2, "inner", (4, message((10, "n"), (4, -5)))),
            event(1150, (9, INSTANT), (11, 2), (23, "mark")),
            end(1200, 2),
            event(1250, (9, COUNTER), (11, 3), (30, 42)),
            end(1300, 2),
            event(1400, (9, COUNTER), (11, 3), (44, 0.5)),
        )
    )


def interned(*lists: tuple[int, bytes], seq: int = 1, clear: bool = True) -> bytes:
    """A packet that interns messages of lists."""
    return packet((10, seq), (13, 1 if clear else 2), (12, message(*lists)))


def stage(ts: int, *fields: tuple[int, object], seq: int = 1) -> bytes:
    """A render stage of a GPU."""
    return packet((8, ts), (10, seq), (13, 2), (53, message(*fields)))


def specification(iid: int, name: str, category: int, description: str = "") -> tuple[int, bytes]:
    """An interned description of a queue or stage."""
    described = [(3, description)] if description else []
    return 24, message((1, iid), (2, name), *described, (4, category))


def gpu_trace() -> bytes:
    """A kernel, a copy and an annotation of a GPU, with the calls that launched the former and waited for them."""
    size, block = message((1, 256), (2, 1), (3, 1)), message((1, 128), (2, 1), (3, 1))
    parts = (
        interned(
            (23, message((1, 7), (2, 100), (3, 4))),
            specification(1, "Channel #1", COMPUTE),
            specification(2, "Kernel", COMPUTE),
            specification(3, "MemoryTransfer", OTHER),
            specification(4, "Annotation", OTHER),
            (2, message((1, 1), (2, "vectorAdd"))),
            (1001, message((1, 1), (2, "registers_per_thread"))),
            (
                1000,
                message((1, 1), (2, "_Z9vectorAddPfS_S_i"), (3, "vectorAdd(float*, float*, float*, int)"), (4, "sm_80"),
                        (5, message((1, 1), (4, 32)))),
            ),
        ),
        process(1, 100, "python"),
        thread(2, 100, 101, "main"),
        begin(20, 2, "cuLaunchKernel", (3000, message((1, 5), (1, 6))), (3001, 4)),
        end(25, 2),
        stage(100, (1, 5), (2, 50), (11, 1), (13, 1), (14, 2), (5, 7), (19, 1), (20, 1),
              (21, message((1, size), (2, block), (3, message((2, "shared_mem"), (4, 4096)))))),
        stage(160, (1, 6), (2, 10), (11, 1), (13, 1), (14, 3), (5, 7), (18, 5),
              (6, message((1, "bytes"), (2, "4096")))),
        stage(90, (1, 8), (2, 100), (11, 1), (13, 1), (14, 4), (17, "step 1")),
        begin(170, 2, "cuEventSynchronize", (3000, message((2, 6))), (3001, 4)),
        end(180, 2),
        packet((8, 0), (128, message((1, message((1, "AMD Radeon"))), (1, message((1, "NVIDIA A100-SXM4-80GB")))))),
    )  # fmt: skip
    return b"".join(parts)
