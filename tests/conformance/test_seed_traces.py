"""Timelines of MegEngine, RAF and Furiosa give the facts that plain json and decimal find in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from shared_data import shared

from traceconv.errors import InputError
from traceconv.pipeline import ingest

FOLDER = shared("seed_systems")
FACTS: dict[str, dict[str, Any]] = json.loads((FOLDER / "facts.json").read_text())
WHOLE = sorted(name for name, facts in FACTS.items() if "by_ph" in facts)
CUT = sorted(name for name, facts in FACTS.items() if "of_complete_records" in facts)
EMPTY = sorted(name for name, facts in FACTS.items() if facts.get("bytes") == 0)


def sums(store: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Of each name the total of its slices in ns, and their number."""
    rows = store.execute(
        "SELECT coalesce(name, ''), sum(dur_ns)::BIGINT, count(*) FROM slice WHERE dur_ns IS NOT NULL GROUP BY ALL"
    ).fetchall()
    return {name: (total, count) for name, total, count in rows}


@pytest.mark.parametrize("name", WHOLE)
def test_a_timeline_gives_its_facts(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name], tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    books = run.accounts.by_record
    assert {ph: books[f"{ph} events"].records for ph in facts["by_ph"]} == facts["by_ph"]
    assert not run.lossy
    with duckdb.connect(str(path), read_only=True) as store:
        found = sums(store)
        assert sum(count for _, count in found.values()) == facts["slices"]
        assert sum(total for total, _ in found.values()) == facts["total_ns_of_all_slices"]
        for one, total, count in facts["top5_total_ns"]:
            assert found[one] == (total, count)
        open_names = store.execute("SELECT coalesce(name, '') FROM slice WHERE dur_ns IS NULL ORDER BY 1").fetchall()
        assert [one for (one,) in open_names] == facts["B_never_closed"]
        assert books["E events"].consumed == facts["E_without_B"] if "E events" in books else not facts["E_without_B"]
        assert store.execute("SELECT count(*) FROM flow").fetchone() == (facts["flow_arrows"],)
        zero = store.execute("SELECT count(*) FROM slice WHERE dur_ns = 0").fetchone()
        assert zero == (facts["slices_of_zero_ns"],)
        first = store.execute("SELECT start_ns, end_ns FROM run").fetchone()
        assert first == (facts["first_ts_ns"], facts["last_end_ns"])
        assert run.accounts["C events"].records == facts["counter_events"]
        per_tid = dict(
            store.execute(
                "SELECT tid_text, count(*) FROM slice JOIN track USING (run_id, track_id) "
                "WHERE dur_ns IS NOT NULL GROUP BY ALL"
            ).fetchall()
        )
        assert per_tid == facts["per_tid_slices"]


@pytest.mark.parametrize("name", CUT)
def test_a_damaged_timeline_gives_at_least_what_stands_before_the_damage(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name]["of_complete_records"], tmp_path / "trace.duckdb"
    ingest([FOLDER / name], path)
    with duckdb.connect(str(path), read_only=True) as store:
        found = sums(store)
    assert sum(count for _, count in found.values()) >= facts["slices"]
    for one, total, count in facts["top5_total_ns"]:
        assert found[one][0] >= total
        assert found[one][1] >= count


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        ingest([FOLDER / name], tmp_path / "trace.duckdb")
