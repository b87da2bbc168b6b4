"""MegEngine's profiles of static graphs: each operator on each computing node, on the device and at its dispatch."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

from recount.tally import Tally, nanoseconds

_NS_OF_S = Decimal(10**9)


def add_up(path: Path) -> Tally:
    """Sum up a task per time on the device, named by its operator in the graph, and a range per time on the host."""
    tally = Tally()
    document = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    operators = document["graph_exec"]["operator"]
    for side in ("device", "host"):
        for number, nodes in document["profiler"][side].items():
            for node, times in nodes.items():
                start_ns, end_ns = (nanoseconds(times[key], _NS_OF_S) for key in ("start", "end"))
                device = re.search(r'"[a-z]+(\d+|x):', node)
                key: tuple[object, ...] = ("range", "host_op", None, None)
                if side == "device":
                    key = ("task", "compute", int(device[1]) if device and device[1] != "x" else None, None)
                name = operators[number]["name"] if number in operators else number
                tally.slice((*key, name), start_ns, end_ns - start_ns)
    return tally
