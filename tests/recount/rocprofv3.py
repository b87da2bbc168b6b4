"""JSON results of rocprofv3, record by record, by its documented schema."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from recount.tally import Tally

_CALLS = {"hip": "runtime", "hsa": "driver", "rccl": "communication", "rocdecode": "media", "rocjpeg": "media"}
_COLLECTIVE = ("nccl", "rccl", "Nccl", "ncclDev", "mscclpp")
_GPU = 2


def add_up(path: Path) -> Tally:
    """Sum up the results: device work, calls and ranges."""
    tally = Tally()
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    for process in document["rocprofiler-sdk-tool"]:
        gpus = {
            agent["id"]["handle"]: agent["logical_node_type_id"] for agent in process["agents"] if agent["type"] == _GPU
        }
        symbols = {symbol["kernel_id"]: symbol for symbol in process["kernel_symbols"]}
        kinds = process["strings"]["buffer_records"]
        messages = {one["key"]: one["value"] for one in process["strings"].get("marker_api", ())}
        calls: dict[int, int] = {}
        work: list[tuple[int, int]] = []
        for what, records in process["buffer_records"].items():
            for record in records:
                start, end = record["start_timestamp"], record["end_timestamp"]
                number = record["correlation_id"]["internal"]
                key: tuple[Any, ...]
                if what == "kernel_dispatch":
                    info = record["dispatch_info"]
                    symbol = symbols[info["kernel_id"]]
                    name = symbol["formatted_kernel_name"] or symbol["kernel_name"]
                    kind = "collective" if name.removeprefix("void ").startswith(_COLLECTIVE) else "compute"
                    key = ("task", kind, gpus.get(info["agent_id"]["handle"]), info["queue_id"]["handle"], name)
                    work.append((number, start))
                else:
                    operations = kinds[record["kind"]]["operations"]
                    name = operations[record["operation"]] if operations else kinds[record["kind"]]["kind"]
                    if what == "memory_copy":
                        agents = (record["dst_agent_id"]["handle"], record["src_agent_id"]["handle"])
                        key = ("task", "copy", next((gpus[one] for one in agents if one in gpus), None), None, name)
                        work.append((number, start))
                    elif what == "marker_api":
                        key = ("range", "annotation", None, None, messages.get(number, name))
                    elif what.endswith("_api"):
                        key = ("api", _CALLS.get(what.split("_")[0]), None, None, name)
                        calls.setdefault(number, start)
                    else:
                        key = ("range", "annotation", None, None, name)
                tally.slice(key, start, end - start)
        for number, start in work:
            if number in calls:
                tally.arrow("launch", None, start - calls[number])
    return tally
