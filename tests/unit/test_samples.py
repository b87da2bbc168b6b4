"""The samples are what their commands write, byte for byte, and small."""

from __future__ import annotations

import gzip
import json
import pickle
import shlex
import subprocess
import sys
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import runtime_invariants
import tomli
from runtime_reader import Capture

from traceconv.cli.app import run

FOLDER = Path(__file__).parents[2] / "sample_traces"
PYTORCH = FOLDER / "pytorch" / "resnet18.pt.trace.json.gz"
SAMPLES: list[dict[str, Any]] = tomli.loads((FOLDER / "MANIFEST.toml").read_text(encoding="utf-8"))["samples"]


def digests(folder: Path) -> dict[str, str]:
    import hashlib

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["folder"])
def test_the_files_are_those_of_the_manifest(sample: dict[str, Any]) -> None:
    assert digests(FOLDER / sample["folder"]) == sample["sha256"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["folder"])
def test_the_command_writes_the_same_bytes(
    sample: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(sample["command"])
    if program == "python":
        subprocess.run([sys.executable, FOLDER.parent / arguments[0], *arguments[1:]], check=True)
        new, kept = (folder.joinpath(arguments[1]).read_bytes() for folder in (tmp_path, FOLDER.parent))
        # The bytes depend on the version of zlib, and of pickle on that of Python, the content doesn't.
        read = pickle.loads if arguments[1].endswith(".pickle") else gzip.decompress
        assert read(new) == read(kept)
        return
    assert program == "traceconv"
    assert run(arguments) == 0
    made = digests(tmp_path / "sample_traces" / sample["folder"])
    assert made == sample["sha256"], "the runtime or the format has changed: python sample_traces/remake.py"


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if "record" in s["command"]], ids=lambda sample: sample["folder"]
)
def test_a_sample_keeps_the_invariants(sample: dict[str, Any]) -> None:
    (folder,) = (FOLDER / sample["folder"]).iterdir()
    runtime_invariants.check(Capture(folder))


def test_the_pytorch_sample_is_shaped_like_a_trace_of_the_profiler() -> None:
    """Host slices nest, kernels follow their launches on the stream, and memory adds up."""
    events = json.loads(gzip.decompress(PYTORCH.read_bytes()), parse_float=Decimal)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["cat"] != "Trace"]
    by_thread: dict[object, list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in slices:
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for thread in by_thread.values():
        open_ends: list[Decimal] = []
        for start, end in sorted(thread, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)

    calls = {event["args"]["correlation"]: event for event in slices if event["cat"] == "cuda_runtime"}
    work = [event for event in slices if event["cat"] in ("kernel", "gpu_memcpy")]
    flows = {(event["ph"], event["id"]): event["ts"] for event in events if event.get("cat") == "ac2g"}
    assert len(work) > 500
    assert len(flows) == 2 * len(work)
    for event in work:
        call = calls[event["args"]["correlation"]]
        assert call["ts"] < event["ts"]
        assert call["args"]["External id"] == event["args"]["External id"] != 0
        assert flows["s", event["args"]["correlation"]] == call["ts"]
        assert flows["f", event["args"]["correlation"]] == event["ts"]
    work.sort(key=lambda event: event["ts"])
    assert all(one["ts"] + one["dur"] < two["ts"] for one, two in pairwise(work))

    memory = [event["args"] for event in events if event["name"] == "[memory]"]
    assert len(memory) > 1000
    assert all(one["Total Allocated"] + two["Bytes"] == two["Total Allocated"] for one, two in pairwise(memory))
    assert all(0 < args["Total Allocated"] <= args["Total Reserved"] for args in memory)


def test_samples_are_small() -> None:
    assert len(SAMPLES) >= 2
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 2_000_000
