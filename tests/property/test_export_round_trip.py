"""Any trace, ingested, exported and ingested again, yields the same rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from round_trip import differences

from traceconv.base.errors import InputError
from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.export.registry import Writer
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store

TEXT = st.sampled_from(["a", "b", 'say "hi"', "層\n", "\\", "(no name)", "op", "", "\ud7ff\u0001"])
NUMBERS = st.sampled_from([0, 1, -1, 2**53 + 1, 2**63 - 1, 1e22, 0.1, -2.5e-7])
TIMES = st.one_of(st.integers(-50, 50), st.sampled_from([0.001, 1.5, "12.345", 1.7e15, 1_720_000_000_123_456.789]))
ARGS = st.one_of(
    st.just({}),
    st.dictionaries(
        TEXT, st.one_of(NUMBERS, TEXT, st.none(), st.just([1, {"x": "\n"}]), st.just({"id": 3})), max_size=3
    ),
    st.fixed_dictionaries({"device": st.integers(0, 1), "stream": st.integers(0, 2), "correlation": st.integers(0, 3)}),
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "X", "B", "E", "i", "C", "s", "t", "f", "M", "b", "e", "n", "N", "v"])},
        optional={
            "name": st.one_of(TEXT, st.sampled_from(["process_name", "thread_name", "ProfilerStep#2"])),
            "cat": st.sampled_from(["kernel", "cuda_runtime", "cpu_op", "user_annotation", "gpu_memcpy", "x"]),
            "pid": st.sampled_from([1, "p", 2]),
            "tid": st.integers(0, 2),
            "ts": TIMES,
            "dur": st.one_of(st.integers(0, 20), st.just("no"), st.just(0.25)),
            "tts": st.integers(0, 9),
            "tdur": st.integers(0, 9),
            "id": st.sampled_from([1, "0x1"]),
            "id2": st.sampled_from([{"local": 1}, {"global": "g"}]),
            "s": st.sampled_from(["g", "p", "t", "z"]),
            "bp": st.just("e"),
            "args": ARGS,
            "more": NUMBERS,
        },
    ),
    max_size=14,
)


@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
@pytest.mark.parametrize(("export", "suffix"), [(export_chrome, ".json"), (export_perfetto, ".pftrace")])
@given(st.lists(EVENTS, min_size=3, max_size=3), st.booleans())
def test_export_and_ingest_restore_all_rows(
    export: Writer, suffix: str, traces: list[list[dict[str, Any]]], kineto: bool
) -> None:
    """Several traces share a store, because creating a store is slow."""
    around = {"deviceProperties": [{"id": 0, "name": "GPU"}]} if kineto else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        there, back = [], []
        for number, events in enumerate(traces):
            (folder / f"{number}.json").write_text(json.dumps({**around, "traceEvents": events, "nr": number}))
            there.append(folder / f"{number}.json")
            back.append(folder / f"{number}-back{suffix}")
        usable = []
        for path in there:
            try:
                ingest([path], folder / "first.duckdb")
                usable.append(path)
            except InputError:  # contains no usable events
                continue
        if not usable:
            return
        for number in range(1, len(usable) + 1):
            with open_store(folder / "first.duckdb") as connection:
                export(connection, number, back[number - 1])
        runs = ingest(back[: len(usable)], folder / "second.duckdb")
        assert [run.log for run in runs] == [()] * len(usable)
        assert differences(folder / "first.duckdb", folder / "second.duckdb") == []


MODIFICATIONS: list[Callable[[Any], object]] = [
    lambda d: d["traceEvents"].append({"ph": "X", "name": "mine", "pid": 9, "tid": 9, "ts": 1, "dur": 1}),
    lambda d: d["traceEvents"][-1].pop("args"),
    lambda d: d["traceEvents"][-1]["args"].update(stranger=1),
    lambda d: d["traceEvents"][-1]["args"].update(depth="deep"),
    lambda d: d["traceEvents"][-1]["args"].update(id=None),
    lambda d: d["traceEvents"][-1].update(ts=0.00001),
    lambda d: d["traceEvents"][-1].update(ts="x"),
    lambda d: d["traceEvents"][-1].update(ph="Q"),
    lambda d: d["otherData"].update(base_ns="9" * 30),
    lambda d: d["otherData"].update(track=[{"stranger": 1}]),
    lambda d: d["otherData"].update(track=[{"track_id": []}]),
    lambda d: d["otherData"].update(run=[]),
    lambda d: d["otherData"].update(form=99),
    lambda d: d.pop("otherData"),
]


def test_a_modified_export_is_read_like_any_trace(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]')
    ingest([tmp_path / "one.json"], tmp_path / "one.duckdb")
    with open_store(tmp_path / "one.duckdb") as connection:
        export_chrome(connection, 1, tmp_path / "export.json")
    paths = [tmp_path / f"{number}.json" for number in range(len(MODIFICATIONS))]
    for path, change in zip(paths, MODIFICATIONS, strict=True):
        document = json.loads((tmp_path / "export.json").read_text())
        change(document)
        path.write_text(json.dumps(document))
    runs = ingest(paths, tmp_path / "two.duckdb")
    assert all(account.balanced for run in runs for account in run.accounts.by_record.values())
    with open_store(tmp_path / "two.duckdb") as connection:
        connection.execute("SELECT track_id, json_extract(args, '$.run_id') FROM marker").fetchall()
        formats = connection.execute("SELECT source_format FROM run").fetchall()
    assert formats == [("chrome_json",)] * len(paths)


def test_a_truncated_export_yields_the_remaining_rows(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": f"n{n}", "pid": 1, "tid": 1, "ts": n, "dur": 100 - 2 * n} for n in range(40)]
    (tmp_path / "one.json").write_text(json.dumps(events))
    ingest([tmp_path / "one.json"], tmp_path / "one.duckdb")
    with open_store(tmp_path / "one.duckdb") as connection:
        export_chrome(connection, 1, tmp_path / "export.json")
    lines = (tmp_path / "export.json").read_text().splitlines()
    broken = next(number for number, line in enumerate(lines) if '"n7"' in line)
    lines[broken] = lines[broken].replace('"args":', '"args"')
    (tmp_path / "export.json").write_text("\n".join(lines)[:-400])
    [run] = ingest([tmp_path / "export.json"], tmp_path / "two.duckdb")
    assert run.lossy
    with open_store(tmp_path / "two.duckdb") as connection:
        rows = connection.execute("SELECT name, depth, parent_id IS NULL FROM slice ORDER BY start_ns").fetchall()
        assert ("n6", 6, False) in rows
        assert "n7" not in [row[0] for row in rows]
        assert ("n8", 8, True) in rows  # its parent was lost
        assert connection.execute(
            "SELECT count(*) FROM slice WHERE parent_id NOT IN (SELECT id FROM slice)"
        ).fetchone() == (0,)
