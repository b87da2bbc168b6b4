"""The PyTorch sample has the categories and keys of real traces."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

from shared_data import shared

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "pytorch" / "resnet18.pt.trace.json.gz"
REAL = ("ns_resolution_rank0.pt.trace.json.gz", "b200_eager_trace.json.gz", "nccl_metadata.json.gz")


def test_the_sample_has_no_category_or_key_that_real_traces_lack() -> None:
    """Events of memory are not compared: none of the real traces has them in the current form."""
    known: dict[str, set[str]] = defaultdict(set)
    for name in REAL:
        for event in json.loads(gzip.decompress((shared("real") / "torch" / name).read_bytes()))["traceEvents"]:
            known[event.get("cat", event["ph"])].update(event.get("args", ()))
    for event in json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]:
        if event["name"] != "[memory]":
            assert set(event.get("args", ())) <= known[event.get("cat", event["ph"])], event
