"""Write a profile of JAX (an XSpace in protobuf) as the trace JSON that JAX writes next to it.

    python -m benchmarks.xplane_json PROFILE.xplane.pb -o trace.json

The shape `jax` is that of such a file. Like JAX's own: no blanks; metadata, then events, plane by plane and line by
line; times in µs with digits down to ps; args in the order of their keys, all as strings.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Mapping
from pathlib import Path

from traceconv.formats.perfetto_proto.message import Message
from traceconv.wire.protobuf import signed

_HOST, _HOST_PID = b"/host:CPU", 701
_PS_PER_US = 10**6
#: JAX keeps the low half of a thread's ID.
_TID_BITS = 2**32 - 1


def convert(profile: bytes) -> str:
    """Return the trace JSON of a profile."""
    metadata: list[str] = []
    events: list[tuple[int, int, int, str]] = []  # start and duration in ps, number of the track, the other text
    tracks: list[str] = []
    for number, plane in enumerate(Message(profile, 0, len(profile)).messages(1), start=1):
        name, lines = plane.text(2) or b"", plane.messages(3)
        pid = _HOST_PID if name == _HOST else number
        if lines:
            metadata.append(_text({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name.decode()}}))
        names, keys = _names(plane, 4), _names(plane, 5)
        for line in lines:
            own = {"pid": pid, "tid": (line.number(1) or 0) & _TID_BITS}
            label = (line.text(11) or line.text(2) or b"").decode()
            metadata.append(_text({"ph": "M", **own, "name": "thread_name", "args": {"name": label}}))
            base_ps = (line.number(3) or 0) * 1000
            for event in line.messages(4):
                start, dur = base_ps + (event.number(2) or 0), max(1, event.number(3) or 0)
                args = {keys[stat.number(1) or 0]: _value(stat, keys) for stat in event.messages(4)}
                rest = {"name": names[event.number(1) or 0], **({"args": dict(sorted(args.items()))} if args else {})}
                events.append((start, dur, len(tracks), _text(rest)[1:]))
            tracks.append(_text({"ph": "X", **own})[:-1])
    first = min(event[0] for event in events)
    texts = [f'{tracks[track]},"ts":{_us(start - first)},"dur":{_us(dur)},{rest}' for start, dur, track, rest in events]
    return (
        '{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":['
        + ",".join([*metadata, *texts])
        + "]}\n"
    )


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _us(ps: int) -> str:
    """Return a time in µs without trailing zeros."""
    whole, rest = divmod(ps, _PS_PER_US)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def _names(plane: Message, field: int) -> dict[int, str]:
    """Return the names of a plane's events or keys, by ID."""
    found = {}
    for entry in plane.messages(field):
        (described,) = entry.messages(2)
        found[entry.number(1) or 0] = (described.text(2) or b"").decode()
    return found


def _value(stat: Message, keys: dict[int, str]) -> str:
    """Return the value of an arg as text."""
    if 2 in stat:
        (number,) = struct.unpack("<d", struct.pack("<Q", stat.number(2) or 0))
        return repr(number)
    if 3 in stat:
        return str(stat.number(3))
    if 4 in stat:
        return str(signed(stat.number(4) or 0))
    if 7 in stat:
        return keys[stat.number(7) or 0]
    return (stat.text(5) or stat.text(6) or b"").decode(errors="replace")


def main() -> None:
    """Write the trace JSON of a profile."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("profile", type=Path)
    arguments.add_argument("-o", "--output", type=Path, required=True)
    options = arguments.parse_args()
    options.output.write_text(convert(options.profile.read_bytes()))


if __name__ == "__main__":
    main()
