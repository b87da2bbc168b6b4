"""examples/fleet finds exactly the planted faults in a lake."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

import traceconv
from benchmarks.fleet import Fleet

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet" / "find_faults.py"


def expected_lines(truth: Path) -> list[str]:
    """What the example has to print, without the speeds of links and the clock's exact offset."""
    lines = []
    for fault in json.loads(truth.read_text()):
        if fault["rank"] is not None:
            lines.append(
                f"step {fault['step']}: rank {fault['rank']} is {fault['late_ns']} ns late, in {fault['kind']}"
            )
        if fault["kind"] == "compute":
            lines.append(f"  28 ops take {fault['late_ns']} ns longer than on rank {fault['rank'] ^ 1}")
        if fault["kind"] == "link":
            lines.append(f"group {fault['comm_group']}: its link")
        if fault["kind"] == "clock":
            first = 8 * int(fault["host"].removeprefix("node"))
            lines.append(f"ranks {first} to {first + 7}: their clock is about {fault['late_ns'] / 1e6:.1f} ms ahead")
    return lines


@pytest.mark.long
def test_it_finds_exactly_the_planted_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Fleet(16, 8, seed=2).write(tmp_path / "traces")
    traceconv.lake_ingest(tmp_path / "traces", into=tmp_path / "lake", jobs=1)
    capsys.readouterr()
    runpy.run_path(str(EXAMPLE))["find_faults"](str(tmp_path / "lake"))
    found = [line.partition(" has ")[0] for line in capsys.readouterr().out.splitlines()]
    assert found == expected_lines(tmp_path / "traces" / "truth.json")
