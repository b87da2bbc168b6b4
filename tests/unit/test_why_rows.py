"""`why` shows bytes of the source file that match the row, for every reader."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from ascend_db_builder import database
from ascend_raw_builder import example
from ingest_checks import taken
from rocpd_builder import database_of_rocprof_sys
from rpd_builder import recording
from small_sources import EVENTS, nsys_report, speedscope
from torch_memory_builder import small_snapshot
from vendor_folders import msprof_folder, torch_npu_folder
from why_checks import check_store, values_in

from traceconv.pipeline.ingest import ingest
from traceconv.provenance.answer import Answer
from traceconv.provenance.find import why
from traceconv.store.database import open_store

ROOT = Path(__file__).parents[2]


def trace(folder: Path) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, "other": 1}))
    return path


def packed(folder: Path) -> Path:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(trace(folder).read_bytes()))
    return path


def lines(folder: Path) -> Path:
    path = folder / "trace.jsonl.zst"
    path.write_bytes(zstandard.compress("\n".join(map(json.dumps, EVENTS)).encode()))
    return path


def damaged(folder: Path) -> Path:
    """A trace with a malformed event, so events must be located as ingest located them."""
    path = folder / "damaged.json"
    texts = [json.dumps(event) for event in EVENTS]
    texts.insert(4, '{"ph": "X", "name": "brok\x01en", "pid": 1, "tid": 2, "ts": 12.5, "dur": nonsense oh')
    path.write_text("[" + ",\n".join(texts))
    return path


def profile(folder: Path) -> Path:
    path = folder / "profile.speedscope.json"
    path.write_text(json.dumps(speedscope()))
    return path


def rocpd(folder: Path) -> Path:
    path = folder / "results.db"
    database_of_rocprof_sys(path)
    return path


def rpd(folder: Path) -> Path:
    path = folder / "trace.rpd"
    recording(path)
    return path


def snapshot(folder: Path) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(small_snapshot()))
    return path


SOURCES: dict[str, Callable[[Path], Path]] = {
    "npulog": lambda folder: ROOT / "sample_traces" / "mini_resnet",
    "msprof tables": msprof_folder,
    "torch_npu": lambda folder: torch_npu_folder(folder, damaged=False),
    "torch_npu damaged": lambda folder: torch_npu_folder(folder, damaged=True),
    "nsys": nsys_report,
    "rocpd": rocpd,
    "rpd": rpd,
    "ascend_db": lambda folder: database(folder / "ascend_pytorch_profiler_3.db"),
    "ascend_raw": lambda folder: example().write(folder),
    "torch_memory": snapshot,
    "trace": trace,
    "gzip": packed,
    "zstd": lines,
    "damaged": damaged,
    "speedscope": profile,
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_rows_of_every_table_are_traced_to_their_bytes(name: str, tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    ingest([SOURCES[name](tmp_path)], store)
    asked = check_store(store, 2)
    assert sum(asked.values()) > 6


def answer_of(store: Path, sql: str, table: str) -> Answer:
    with open_store(store) as connection:
        ((row_id,),) = connection.execute(sql).fetchall()
        return why(connection, store, table, str(row_id))


@pytest.mark.parametrize("make", [trace, lines, damaged])
def test_a_slice_is_shown_with_its_own_end(make: Callable[[Path], Path], tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    ingest([make(tmp_path)], store)
    for name in ("outer", "inner", "elsewhere", "sequence"):
        found = answer_of(store, f"SELECT id FROM slice WHERE name = '{name}'", "slice")
        begin, end = found.evidence
        assert (begin.role, end.role) == ("its event", "its end")
        assert name in values_in(begin)
        assert name in values_in(end)  # the end has its name in args


def test_a_task_is_shown_with_the_table_that_completed_it(tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    ingest([torch_npu_folder(tmp_path, damaged=False)], store)
    found = answer_of(store, "SELECT min(id) FROM task WHERE block_count IS NOT NULL", "task")
    (table,) = [piece for piece in found.evidence if piece.source.format == "kernel_details"]
    assert table.fields["Name"] == found.rows[0]["name"]
    assert table.where.startswith("line ")


def test_an_operator_of_a_static_profile_is_shown_with_its_times(tmp_path: Path) -> None:
    times = {"start": 0.001, "kern": 0.0015, "end": 0.002}
    document = {
        "graph_exec": {"operator": {"7": {"name": "conv", "type": "Conv"}}, "var": {}, "comp_seq": []},
        "profiler": {"device": {"7": {"gpu0:0": times}}, "opr_footprint": {"7": {"memory": 12}}},
    }
    _, store = taken(document, tmp_path, "profile.json", reader="megengine_static")
    found = answer_of(store, "SELECT min(id) FROM slice", "slice")
    assert [piece.where for piece in found.evidence] == [
        "profiler/device/7/gpu0:0", "profiler/opr_footprint/7", "graph_exec/operator/7",
    ]  # fmt: skip
    assert json.loads(found.evidence[0].data) == times


def test_fractional_weights_are_traced_to_their_sample(tmp_path: Path) -> None:
    scope = speedscope()
    scope["profiles"] = [
        {
            "type": "sampled",
            "name": "thread 1",
            "unit": "nanoseconds",
            "samples": [*([[0]] * 5), [1], [0]],
            "weights": [1.4] * 7,
        }
    ]
    _, store = taken(scope, tmp_path, "profile.speedscope.json")
    # Five times 1.4 is 7. If each weight were rounded, the slice would begin at 5, and no sample begins at 7.
    answer = answer_of(store, "SELECT id FROM slice WHERE name = 'f' AND start_ns = 7", "slice")
    assert [(piece.where, piece.data) for piece in answer.evidence] == [
        ("profiles/0/samples, number 5", b"[1]"),
        ("profiles/0/weights, number 5", b"1.4"),
    ]


def test_samples_shorter_than_a_nanosecond_are_distinguished(tmp_path: Path) -> None:
    scope = speedscope()
    samples = [[0], [1], [0, 1], [1], [0], [0], [1]]
    scope["profiles"] = [
        {"type": "sampled", "name": "a", "unit": "nanoseconds", "startValue": 5, "endValue": 9,
         "samples": [[1]] * 3, "weights": [0.25] * 3},
        {"type": "sampled", "name": "b", "unit": "nanoseconds", "startValue": 5, "endValue": 9,
         "samples": samples, "weights": [0.1] * 6 + [2]},
    ]  # fmt: skip
    _, store = taken(scope, tmp_path, "profile.speedscope.json")
    with open_store(store) as connection:
        sql = "SELECT s.id, s.name FROM slice s JOIN track t USING (run_id, track_id) WHERE t.name = 'b' ORDER BY s.id"
        rows = connection.execute(sql).fetchall()
        found = [why(connection, store, "slice", str(id_)).evidence[0] for id_, _ in rows]
    # In the order in which the slices begin. All but the last begin and end at 5 or 6 ns.
    firsts = [("main", 0), ("f", 1), ("main", 2), ("f", 2), ("f", 3), ("main", 4), ("f", 6)]
    assert [name for _, name in rows] == [name for name, _ in firsts]
    assert [piece.where for piece in found] == [f"profiles/1/samples, number {first}" for _, first in firsts]
    assert [json.loads(piece.data) for piece in found] == [samples[first] for _, first in firsts]
