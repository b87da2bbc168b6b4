"""A full disk while spilling: a one-line error with advice, and an unchanged store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from commands import Command

from traceconv.base.errors import OutputError
from traceconv.normalize.sort import spool
from traceconv.normalize.trace import spill

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.is_char_device(), reason="this system has no device that is always full")
DTYPE = np.dtype([("value", "<i8")])


def full() -> BinaryIO:
    return FULL.open("r+b")


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_rows_that_do_not_fit(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "spill_file", full)
    rows = spool.Spool(DTYPE)
    with pytest.raises(OutputError, match="free disk space, or set TMPDIR"):
        rows.append(np.zeros(count, DTYPE))
    rows.close()


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_values_that_do_not_fit(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spool.Spool(DTYPE)
    rows.append(np.zeros(count, DTYPE))
    with full() as file:
        monkeypatch.setattr(rows, "_file", file)
        with pytest.raises(OutputError, match="free disk space, or set TMPDIR"):
            rows.put(np.arange(count), "value", np.arange(count))
        rows.close()


@pytest.mark.parametrize("count", [10_000, 100_000])
def test_an_ingest_prints_advice(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    for module in (spool, spill):
        monkeypatch.setattr(module, "spill_file", full)
    trace, store = tmp_path / "t.json", tmp_path / "t.duckdb"
    trace.write_text(json.dumps([{"ph": "X", "name": f"{n}", "pid": 1, "ts": n, "dur": 1} for n in range(count)]))
    lines = command("ingest", trace, "--db", store, code=1).err.splitlines()
    assert len(lines) == 1
    assert "cannot spill to" in lines[0]
    assert "free disk space, or set TMPDIR" in lines[0]
    assert [file.name for file in tmp_path.iterdir()] == ["t.json"]
