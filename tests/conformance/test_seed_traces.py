"""Files of MegEngine, RAF and Furiosa give the facts that plain json, csv and decimal code finds in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from shared_data import shared

from traceconv.base.errors import InputError
from traceconv.pipeline.ingest import ingest

FOLDER = shared("seed_systems")
FACTS: dict[str, dict[str, Any]] = json.loads((FOLDER / "facts.json").read_text())
WHOLE = sorted(name for name, facts in FACTS.items() if "by_ph" in facts)
CUT = sorted(name for name, facts in FACTS.items() if "of_complete_records" in facts)
DOUBLE = sorted(name for name, facts in FACTS.items() if "all_records" in facts)
TABLES = sorted(name for name in FACTS if name.endswith(".csv"))
STATIC = sorted(name for name in FACTS if name.endswith(".profiling.json"))
#: Facts that are not in a profile: pictures and other files.
NO_TRACES = sorted(name for name in FACTS if name.endswith(".svg"))
EMPTY = sorted(name for name, facts in FACTS.items() if facts.get("bytes") == 0)


def sums(store: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Total duration (ns) and number of the slices of each name."""
    rows = store.execute(
        "SELECT coalesce(name, ''), sum(dur_ns)::BIGINT, count(*) FROM slice WHERE dur_ns IS NOT NULL GROUP BY ALL"
    ).fetchall()
    return {name: (total, count) for name, total, count in rows}


@pytest.mark.parametrize("name", WHOLE)
def test_facts_of_a_timeline(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name], tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    accounts = run.accounts.by_record
    assert {ph: accounts[f"{ph} events"].records for ph in facts["by_ph"]} == facts["by_ph"]
    assert not run.lossy
    with duckdb.connect(str(path), read_only=True) as store:
        found = sums(store)
        assert sum(count for _, count in found.values()) == facts["slices"]
        assert sum(total for total, _ in found.values()) == facts["total_ns_of_all_slices"]
        for one, total, count in facts["top5_total_ns"]:
            assert found[one] == (total, count)
        open_names = store.execute("SELECT coalesce(name, '') FROM slice WHERE dur_ns IS NULL ORDER BY 1").fetchall()
        assert [one for (one,) in open_names] == facts["B_never_closed"]
        assert accounts["E events"].used == facts["E_without_B"] if "E events" in accounts else not facts["E_without_B"]
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
def test_a_damaged_timeline_keeps_at_least_the_events_before_the_damage(name: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", DOUBLE)
def test_two_arrays_in_one_file_are_one_trace(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name]["all_records"], tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    assert {ph: run.accounts[f"{ph} events"].records for ph in facts["by_ph"]} == facts["by_ph"]
    with duckdb.connect(str(path), read_only=True) as store:
        found = sums(store)
    assert sum(count for _, count in found.values()) == facts["slices"]
    assert [[one, *found[one]] for one, _, _ in facts["top5_total_ns"]] == facts["top5_total_ns"]


@pytest.mark.parametrize("name", TABLES)
def test_facts_of_a_table_of_spans(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name], tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    assert not run.lossy
    accounts = {record: account for record, account in run.accounts.by_record.items() if record != "M events"}
    assert sum(account.records for account in accounts.values()) == facts["rows"]
    assert sum(account.rows for account in accounts.values()) == facts["rows_with_start_and_end"]
    with duckdb.connect(str(path), read_only=True) as store:
        found = sums(store)
        top = sorted(((one, *sums_) for one, sums_ in found.items()), key=lambda entry: (-entry[1], entry[0]))
        assert [list(entry) for entry in top[:5]] == facts["top5_total_ns"]
        # Tasks have no category: slices on a processing element have the category NPU.
        categories = dict(
            store.execute(
                "SELECT category, count(*) FROM (SELECT coalesce(category, '') AS category FROM range "
                "UNION ALL SELECT 'NPU' FROM task) GROUP BY 1"
            ).fetchall()
        )
        assert categories == facts["by_cat"]
        columns = set(facts["columns"]) - {"start", "end", "dur", "cat", "name"}
        kept = store.execute("SELECT DISTINCT unnest(json_keys(args)) FROM (SELECT args FROM task)").fetchall()
        assert {key for (key,) in kept} <= columns


def test_unquoted_names_are_complete(tmp_path: Path) -> None:
    for name, wanted in (("comma", "a, b"), ("newline", "a\nb"), ("quote", None)):
        path = tmp_path / f"{name}.duckdb"
        ingest([FOLDER / f"furiosa/df_{name}.native_raw.csv"], path)
        with duckdb.connect(str(path), read_only=True) as store:
            rows = store.execute("SELECT args FROM range WHERE name <> 'Inference'").fetchall()
            assert [json.loads(args).get("unquoted_name") for (args,) in rows] == [wanted]
            assert store.execute("SELECT count(*) FROM track").fetchone() == (1,)  # the following cells are right


@pytest.mark.parametrize("name", STATIC)
def test_facts_of_a_static_profile(name: str, tmp_path: Path) -> None:
    facts, path = FACTS[name], tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    assert not run.lossy
    with duckdb.connect(str(path), read_only=True) as store:
        options = json.loads(store.execute("SELECT options FROM run").fetchall()[0][0])
        assert {key: options[key] for key in ("operators", "vars", "comp_seq", "footprints")} == {
            key: facts[key] for key in ("operators", "vars", "comp_seq", "footprints")
        }
        for side, table in (("device", "task"), ("host", "range")):
            rows = store.execute(
                f"SELECT args->>'opr_id', any_value(name), any_value(args->>'type'), max(dur_ns), "
                f"max((args->>'kern_ns')::BIGINT) FROM {table} GROUP BY 1"
            ).fetchall()
            assert len(rows) == facts[f"{side}_entries"]
            assert sum(row[3] for row in rows) == facts[f"{side}_end_total_us"] * 1000
            assert sum(row[4] for row in rows) == facts[f"{side}_kern_total_us"] * 1000
            assert sum(1 for row in rows if row[3] == 0) == facts[f"{side}_zero_time_oprs"]
            top = sorted(rows, key=lambda row: (-row[3], int(row[0])))[:5]
            assert [list(row[:4]) for row in top] == facts[f"{side}_top5_oprs_ns"]
            types: dict[str, list[int]] = {}
            for row in rows:
                types.setdefault(row[2], []).append(row[3])
            sums_ = sorted(([one, sum(all_), len(all_)] for one, all_ in types.items()), key=lambda s: (-s[1], s[0]))
            assert sums_[:5] == facts[f"{side}_top5_types_ns"]
            nodes = dict(
                store.execute(
                    f"SELECT tid_text, count(*) FROM {table} JOIN track USING (run_id, track_id) GROUP BY 1"
                ).fetchall()
            )
            assert nodes == facts[f"{side}_comp_nodes"]
        each = store.execute(
            "SELECT sum(memory)::BIGINT, sum(computation)::BIGINT, sum((computation IS NULL)::INT)::BIGINT FROM ("
            "SELECT any_value((args->>'memory')::BIGINT) AS memory, any_value((args->>'computation')::BIGINT) "
            "AS computation FROM task GROUP BY args->>'opr_id')"
        ).fetchone()
        assert each == (facts["memory_total_bytes"], facts["computation_total"], facts["computation_null"])


def test_every_fact_is_tested() -> None:
    tested = {*WHOLE, *CUT, *DOUBLE, *TABLES, *STATIC, *EMPTY, *NO_TRACES}
    assert set(FACTS) - tested == set()
