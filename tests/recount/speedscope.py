"""speedscope profiles: the frames that are open from one event or sample to the next."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

from recount.tally import Tally, nanoseconds

_UNITS = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}


def add_up(path: Path) -> Tally:
    """Sum up the profiles: a slice for each time that a frame was entered."""
    tally = Tally()
    document = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    for profile in document["profiles"]:
        unit = Decimal(_UNITS[profile["unit"]])
        stack: list[tuple[int, int]] = []

        def leave(to: int, at_ns: int, stack: list[tuple[int, int]] = stack) -> None:
            while len(stack) > to:
                frame, since_ns = stack.pop()
                tally.slice(("range", "frame", None, None, frames[frame]), since_ns, at_ns - since_ns)

        if profile["type"] == "evented":
            for event in profile["events"]:
                at_ns = nanoseconds(event["at"], unit)
                if event["type"] == "O":
                    stack.append((event["frame"], at_ns))
                else:
                    leave(len(stack) - 1, at_ns)
            continue
        # A time is the start plus the sum of weights up to it, each rounded once.
        start_ns, passed = nanoseconds(profile["startValue"], unit), Decimal(0)
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
            at_ns = start_ns + nanoseconds(passed, unit)
            same = 0
            while same < min(len(sample), len(stack)) and stack[same][0] == sample[same]:
                same += 1
            leave(same, at_ns)
            stack += [(frame, at_ns) for frame in sample[same:]]
            passed += Decimal(weight)
        leave(0, start_ns + nanoseconds(passed, unit))
    return tally
