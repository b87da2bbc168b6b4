"""Damaged and unusual variants of a valid trace: each yields the rows that its generator expects."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount import damaged
from recount.compare import disagreements
from shared_data import shared

from traceconv.base.diagnostics import Severity
from traceconv.base.errors import InputError
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun

MAKER = shared("malformed") / "make_malformed.py"


@cache
def variants() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="traceconv-malformed-"))
    atexit.register(shutil.rmtree, folder)
    # tests/faults/test_large_texts.py has a string of 50 MB.
    subprocess.run([sys.executable, MAKER, folder, "--skip-big"], check=True)
    return folder


@cache
def expected() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((variants() / "expected.json").read_text())
    return found


@pytest.mark.parametrize("case", expected(), ids=lambda case: case["file"])
def test_intact_content_of_a_variant_is_ingested(case: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    if case["severity"] == "error":
        with pytest.raises(InputError):
            ingest([variants() / case["file"]], store)
        assert not store.exists()
        return
    run = ingest([variants() / case["file"]], store)[0]
    delivered = sum(account.records - account.lost for account in run.accounts.by_record.values())
    assert delivered >= case.get("recoverable_min", case["recoverable"])
    assert delivered <= case["events"]
    loss = [entry for entry in run.log if entry.severity is not Severity.INFO]
    if case["severity"] in ("ok", "info"):
        assert not loss
    else:
        assert loss
        assert sum(entry.event_count or 0 for entry in loss) >= case["lost_seen"]
    if case["lossless"]:
        assert delivered == case["events"]
    if case["severity"] == "data_loss":
        start = case["offset"]
        places = [(entry.byte_offset, max(1, entry.byte_count or 0)) for entry in loss if entry.byte_offset is not None]
        assert any(offset <= start < offset + size for offset, size in places), (start, loss)
    check_values(case, run, store)


def check_values(case: dict[str, Any], run: IngestedRun, path: Path) -> None:
    """The exact values that the generator expects."""
    check = case.get("check", {})
    with duckdb.connect(str(path), read_only=True) as store:
        times = "SELECT start_ns FROM slice UNION ALL SELECT ts_ns FROM marker UNION ALL SELECT ts_ns FROM counter"
        tables = " UNION ALL ".join(f"SELECT args FROM {name}" for name in ("range", "task", "api"))
        store.execute(f"CREATE TEMP VIEW all_args AS {tables}")
        if "name" in check:
            assert store.execute("SELECT count(*) FROM slice WHERE name = ?", [check["name"]]).fetchone() == (1,)
        if "dur" in check:
            assert store.execute("SELECT count(*) FROM slice WHERE dur_ns = ?", [check["dur"] * 1000]).fetchone() == (
                1,
            )
        if "x" in check:
            found = store.execute("SELECT args FROM all_args WHERE args LIKE '%\"x\":%'").fetchall()
            assert [json.loads(args)["x"] for (args,) in found] == [int(check["x"])]
        if "keys" in check:
            (options,) = store.execute("SELECT options FROM run").fetchall()[0]
            assert sorted(json.loads(options)) == sorted(check["keys"])
        if "length" in check:
            found = store.execute("SELECT args FROM all_args WHERE length(args) > 1000000").fetchall()
            assert [len(json.loads(args)[check["arg"]]) for (args,) in found] == [check["length"]]
        if "ts_ns_first" in check:
            (first,) = store.execute(f"SELECT min(t) FROM ({times}) AS all_times(t)").fetchall()[0]
            assert first == check["ts_ns_first"]
        if case["file"].startswith("dur_"):
            assert store.execute("SELECT count(*) FROM slice WHERE dur_ns IS NULL").fetchone() == (1,)
            assert store.execute("SELECT count(*) FROM slice WHERE dur_ns = 0 OR dur_ns < 0").fetchone() == (0,)
        if case["file"] in ("pid_tid_numeric_strings.json", "pid_tid_names.json", "good.json"):
            assert store.execute(
                "SELECT count(*) FROM thread WHERE track_id IN (SELECT track_id FROM slice)"
            ).fetchone() == (5,)
            assert store.execute("SELECT count(*) FROM process").fetchone() == (1,)
        if case["file"] == "begin_without_end.json":
            assert store.execute("SELECT dur_ns FROM slice WHERE name = 'open'").fetchall() == [(None,)]
        (balanced,) = store.execute(
            "SELECT bool_and(record_count = row_count + paired_count + used_count + lost_count) FROM import_account"
        ).fetchall()[0]
        assert balanced


def test_recount_of_intact_lines(tmp_path: Path) -> None:
    """Each intact line gives exactly one event with its times."""
    names = [case["file"] for case in expected() if case["severity"] != "error" and not case["file"].endswith(".zst")]
    counted = {variants() / name: damaged.add_up(variants() / name) for name in names}
    ingest(list(counted), tmp_path / "trace.duckdb")
    assert len(counted) > 40
    assert disagreements(tmp_path / "trace.duckdb", counted, variants()) == []
