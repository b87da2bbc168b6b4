"""A Chrome trace has every row of its run, exactly, and obeys the rules of the format."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from chrome_reader import ChromeReader, Event, Row, load
from store_builder import build_store

from traceconv.cli.app import run
from traceconv.export import chrome, windows
from traceconv.export.chrome import export_chrome
from traceconv.export.excerpt import Excerpt
from traceconv.pipeline.ingest import ingest
from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]

BASE = 1_720_000_000_123_456_789
TABLES = ("task", "api", "range", "step", "marker", "counter", "memory", "flow", "op", "fusion", "task_pmu")
TABLES += ("event_wait",)
HOSTILE = 'a"b\\c\x00\x01\x1f\x7f\u2028</script>\n\té😀' + "x" * 5000


def exported(store: Path, run_id: int = 1, device: int | None = None) -> Event:
    output = store.with_suffix(".json")
    with open_store(store) as connection:
        export_chrome(connection, run_id, output, device=device)
    return load(output.read_bytes())


def stored(store: Path, name: str, run_id: int = 1) -> list[Row]:
    columns = [column.name for column in table(name).columns if column.name != "run_id"]
    chosen = ", ".join(map(quote_identifier, columns))
    with open_store(store) as connection:
        rows = connection.execute(
            f"SELECT {chosen} FROM {quote_identifier(name)} WHERE run_id = ?", [run_id]
        ).fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def comparable(rows: list[Row]) -> list[str]:
    """Rows as sorted text; JSON text by its value, since a trace has it as JSON."""
    return sorted(repr(sorted((key, _value(key, value)) for key, value in row.items())) for row in rows)


def _value(key: str, value: object) -> object:
    if key == "args" and value is not None:
        return json.dumps(_parsed(value), sort_keys=True, default=float)
    return repr(value)


def _parsed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return load(value)
    except ValueError:
        return value


def assert_all_rows(store: Path, document: Event, run_id: int = 1) -> None:
    reader = ChromeReader(document)
    for name in TABLES:
        assert comparable(reader.rows[name]) == comparable(stored(store, name, run_id)), name


def assert_wellformed(document: Event) -> None:
    """The rules of the Trace Event Format that viewers rely on."""
    events = document["traceEvents"]
    named = {(e["pid"], e.get("tid")) for e in events if e["ph"] == "M"}
    starts: dict[object, Event] = {}
    open_ends: dict[tuple[int, int], list[Decimal]] = defaultdict(list)
    last: dict[tuple[int, int, str], Decimal] = {}
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ph"] in "XBiCsf"
        assert (event["pid"], event["tid"]) in named
        assert (event["pid"], None) in named
        assert event["pid"] != event["tid"]
        assert event["ts"] >= 0
        assert isinstance(event["name"], str)
        place = (event["pid"], event["tid"])
        if event["ph"] in "XB":
            assert event["ts"] >= last.get((*place, "X"), 0)
            last[(*place, "X")] = event["ts"]
        if event["ph"] == "X":
            ends = open_ends[place]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1], "slices of a thread overlap without nesting"
            ends.append(end)
        elif event["ph"] == "s":
            assert event["id"] not in starts
            starts[event["id"]] = event
        elif event["ph"] == "f":
            start = starts[event["id"]]
            assert event["bp"] == "e"
            assert (start["cat"], start["name"]) == (event["cat"], event["name"])


def thread_names(document: Event) -> list[str]:
    return [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something odd in every table."""
    return build_store(
        tmp_path_factory.mktemp("store") / "trace.duckdb",
        run=[{"run_id": 1, "label": HOSTILE, "start_ns": BASE, "options": "{}"}, {"run_id": 2, "start_ns": 5}],
        process=[{"process_id": 1, "pid_text": "42", "name": HOSTILE}, {"process_id": 2, "pid_text": "x"}],
        device=[{"device_id": 0, "name": HOSTILE}, {"device_id": 1}],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "7", "name": HOSTILE},
            {"track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 0},
            {"track_id": 3, "kind": "stream", "device_id": 1, "stream_id": 9, "name": "copy"},
            {"track_id": 4, "kind": "counter", "device_id": 0, "name": "Freq", "unit": "MHz"},
            {"track_id": 5, "kind": "counter", "device_id": 0, "name": "Freq", "unit": "MHz"},
            {"track_id": 6, "kind": "thread", "process_id": 2, "device_id": None},
            {"track_id": 7, "kind": "counter", "device_id": None, "process_id": 2},
        ],
        op=[{"op_id": 1, "name": HOSTILE, "op_type": "Conv2D", "input_shapes": "1,3;2"}, {"op_id": 2}],
        task=[
            {"id": 1, "track_id": 2, "name": "a", "start_ns": BASE, "dur_ns": 100, "op_id": 1, "depth": 0},
            {"id": 2, "track_id": 2, "name": HOSTILE, "start_ns": BASE + 50, "dur_ns": 100, "depth": 0},
            {"id": 3, "track_id": 2, "name": None, "start_ns": BASE + 60, "dur_ns": 200, "op_id": 2, "depth": 0},
            {"id": 4, "track_id": 2, "name": "", "start_ns": BASE + 150, "dur_ns": None, "task_type": "AI_CORE"},
            {"id": 2**60, "track_id": 3, "device_id": 1, "name": "b", "start_ns": BASE + 1, "dur_ns": 0}
            | {"hf32_eligible": True, "size_bytes": 2**62, "wait_ns": -5, "submit_ns": -1, "comm_group": '"'},
        ],
        event_wait=[{"id": 2, "event_id": 1}, {"id": 2**60, "event_id": 4}],
        api=[
            {"id": 11, "track_id": 1, "name": "x", "level": "acl", "start_ns": BASE, "dur_ns": 100, "depth": 0},
            {"id": 12, "track_id": 1, "name": "y", "level": HOSTILE, "start_ns": BASE, "dur_ns": 50, "depth": 1}
            | {"parent_id": 11, "thread_start_ns": BASE, "correlation_id": 2**63 - 1, "op_id": 1},
        ],
        range=[
            {"id": 21, "track_id": 1, "name": "r", "start_ns": BASE + 1, "dur_ns": None, "args": '{"k": [1, "v"]}'},
            {"id": 22, "track_id": 6, "name": "r", "start_ns": BASE + 1, "dur_ns": 2, "args": '{"k": NaN}'},
            {"id": 23, "track_id": 6, "name": "r", "start_ns": BASE + 9, "dur_ns": 2, "args": "no JSON \x01"},
            {"id": 24, "track_id": 6, "name": "r", "start_ns": BASE + 19, "dur_ns": 2, "args": '{"k": [1,]}'},
            {"id": 25, "track_id": 3, "name": "on a stream", "start_ns": BASE + 2, "dur_ns": 3, "trace_id": HOSTILE},
        ],
        step=[
            {"step_id": 1, "iteration": 1, "start_ns": BASE, "end_ns": BASE + 90, "fp_start_ns": BASE + 1},
            {"step_id": 2, "iteration": 2, "start_ns": BASE + 50, "end_ns": BASE + 120},
            {"step_id": 3, "iteration": 3, "start_ns": BASE + 200, "end_ns": None},
            {"step_id": 4, "iteration": 4, "end_ns": BASE + 300, "device_id": 1},
            {"step_id": 5, "iteration": None, "device_id": 1},
            {"step_id": 6, "iteration": 6, "fp_start_ns": BASE + 400, "end_ns": BASE + 350},
        ],
        marker=[
            {"id": 31, "track_id": 1, "ts_ns": BASE + 3, "name": HOSTILE, "scope": "global", "category": "c"},
            {"id": 32, "track_id": 2, "ts_ns": BASE + 4, "name": None, "scope": None, "args": "[]"},
        ],
        counter=[
            {"track_id": 4, "ts_ns": BASE, "value": 1200.0, "value_int": 1200},
            {"track_id": 4, "ts_ns": BASE + 1, "value": 0.1},
            {"track_id": 4, "ts_ns": BASE + 2, "value": 1.5, "value_int": 3, "series": HOSTILE},
            {"track_id": 5, "ts_ns": BASE + 3, "value": float(2**63), "value_int": 2**63 - 1, "series": "value"},
            {"track_id": 5, "ts_ns": BASE + 4, "value": math.nan},
            {"track_id": 5, "ts_ns": BASE + 5, "value": -math.inf},
            {"track_id": 7, "ts_ns": BASE + 6, "value": 5e-324},
            {"track_id": 7, "ts_ns": BASE + 7, "value": None, "value_int": 4},
            {"track_id": 7, "ts_ns": BASE + 8, "value": None},
        ],
        memory=[
            {"block_id": 1, "kind": "segment", "size_bytes": 1000, "alloc_ns": BASE, "address": 2**64 - 1},
            {"block_id": 2, "kind": "block", "size_bytes": 10, "alloc_ns": None, "free_ns": BASE + 20},
            {"block_id": 3, "kind": "block", "size_bytes": 30, "alloc_ns": BASE + 10, "free_ns": BASE + 20},
            {"block_id": 4, "kind": "block", "size_bytes": 5, "alloc_ns": BASE + 20, "tensor_name": HOSTILE},
            {"block_id": 5, "device_id": 1, "kind": "block", "size_bytes": 7},
        ],
        flow=[
            {"flow_id": 1, "kind": "launch", "src_id": 11, "src_ns": BASE, "dst_id": 2, "dst_ns": BASE + 50},
            {"flow_id": 2, "kind": "other", "category": HOSTILE, "name": HOSTILE, "external_id": "0x1"}
            | {"src_id": None, "src_ns": BASE + 5, "dst_id": 2**60, "dst_ns": BASE + 1},
            {"flow_id": 3, "kind": "other", "src_id": 12, "src_ns": BASE + 5},
            {"flow_id": 4, "kind": None, "src_id": 777, "src_ns": BASE + 5, "dst_ns": BASE + 6},
        ],
    )


def test_every_row_can_be_read_back(everything: Path) -> None:
    assert_all_rows(everything, exported(everything))


def test_trace_follows_the_format(everything: Path) -> None:
    assert_wellformed(exported(everything))


def test_time_windows_change_only_the_order(everything: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported(everything)
    monkeypatch.setattr(windows.time_windows, "__defaults__", (2,))
    cut = exported(everything)
    assert_all_rows(everything, cut)
    assert_wellformed(cut)
    assert sorted(map(repr, cut["traceEvents"])) == sorted(map(repr, whole["traceEvents"]))


def test_a_lake_gives_the_same_trace(everything: Path, tmp_path: Path) -> None:
    """The tables of a lake are views, whose rows have no positions."""
    assert run(["export", "parquet", "--db", str(everything), "-o", str(tmp_path / "lake")]) == 0
    traces = [tmp_path / "of-store.json", tmp_path / "of-lake.json"]
    for source, trace in zip((everything, tmp_path / "lake"), traces, strict=True):
        assert run(["export", "chrome", "--db", str(source), "-o", str(trace)]) == 0
    assert traces[0].read_bytes() == traces[1].read_bytes()


def test_timestamps_are_exact_as_doubles(everything: Path) -> None:
    document = exported(everything)
    reader = ChromeReader(document)
    for event in reader.events:
        if event["ph"] != "M":
            assert round(float(event["ts"]) * 1000) + reader.base_ns == reader.ns(event["ts"])


def test_processes_are_the_layers(everything: Path) -> None:
    events = exported(everything)["traceEvents"]
    layers = [e["args"]["layer"] for e in events if e["name"] == "process_name"]
    assert layers == ["application", "application", "runtime", "device", "device", "counter", "unbound"]
    order = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert order == sorted(order)


def test_threads_of_a_device_are_its_streams(make_store: MakeStore) -> None:
    store = make_store(
        track=[
            {"track_id": 1, "kind": "stream", "stream_id": 3},
            {"track_id": 2, "kind": "stream", "stream_id": 4, "name": "copy"},
            {"track_id": 3, "kind": "counter", "name": "AI Core Freq", "unit": "MHz"},
        ],
        task=[{"id": n, "track_id": n, "start_ns": n, "dur_ns": 1, "name": "k", "depth": 0} for n in (1, 2)],
        step=[{"step_id": 1, "start_ns": 1, "end_ns": 2}],
        counter=[{"track_id": 3, "ts_ns": 1, "value": 1.0}],
    )
    assert thread_names(exported(store)) == ["Step Trace", "Stream 3", "Stream 4 (copy)", "AI Core Freq (MHz)"]


def test_overlapping_slices_get_separate_tracks(everything: Path) -> None:
    names = thread_names(exported(everything))
    assert "Stream 0 (overlap 1)" in names
    assert "Stream 0 (overlap 2)" in names
    assert "Step Trace (overlap 1)" in names


def test_slices_that_overlap_at_different_depths(make_store: MakeStore) -> None:
    """The second range is inside a task that overlaps the first one. The steps are of no known device."""
    store = make_store(
        track=[{"track_id": 1, "kind": "stream", "stream_id": 3}],
        range=[
            {"id": 1, "track_id": 1, "name": "first", "start_ns": 0, "dur_ns": 100, "depth": 0},
            {"id": 3, "track_id": 1, "name": "second", "start_ns": 60, "dur_ns": 80, "depth": 1, "parent_id": 2},
        ],
        task=[{"id": 2, "track_id": 1, "name": "k", "start_ns": 50, "dur_ns": 100, "depth": 0}],
        step=[{"step_id": n, "device_id": None, "start_ns": 50 * n, "end_ns": 50 * n + 70} for n in (1, 2)],
    )
    names = thread_names(exported(store))
    assert sorted(names) == [
        "Step Trace", "Step Trace (overlap 1)", "Stream 3", "Stream 3", "Stream 3 (overlap 1)",
    ]  # fmt: skip


def test_a_flow_begins_and_ends_inside_its_slices(make_store: MakeStore) -> None:
    store = make_store(
        track=[{"track_id": 1, "kind": "thread", "device_id": None}, {"track_id": 2, "kind": "stream"}],
        api=[{"id": 1, "track_id": 1, "name": "Launch", "start_ns": 1000, "dur_ns": 500, "depth": 0}],
        task=[{"id": 2, "track_id": 2, "name": "k", "start_ns": 2000, "dur_ns": 10, "depth": 0}],
        flow=[{"flow_id": 7, "kind": "launch", "src_id": 1, "src_ns": 1000, "dst_id": 2, "dst_ns": 2000}],
    )
    events = exported(store)["traceEvents"]
    [launch, task] = [e for e in events if e["ph"] == "X"]
    [start] = [e for e in events if e["ph"] == "s"]
    [finish] = [e for e in events if e["ph"] == "f"]
    assert (start["pid"], start["tid"], start["ts"]) == (launch["pid"], launch["tid"], launch["ts"])
    assert (finish["pid"], finish["tid"], finish["ts"]) == (task["pid"], task["tid"], task["ts"])
    assert not any(e["name"] == "process_name" and e["args"]["layer"] == "unbound" for e in events)


def test_memory_counters_follow_the_blocks(everything: Path) -> None:
    events = exported(everything)["traceEvents"]
    found = [(e["ts"], e["args"]) for e in events if e["ph"] == "C" and e["name"] == "Memory (byte)"]
    assert found == [
        (Decimal("0.000"), {"used": 10, "reserved": 1000}),
        (Decimal("0.010"), {"used": 40, "reserved": 1000}),
        (Decimal("0.020"), {"used": 5, "reserved": 1000}),
        (Decimal("0.000"), {"used": 7}),
    ]


def test_memory_counters_of_the_source_are_not_duplicated(make_store: MakeStore) -> None:
    store = make_store(
        track=[{"track_id": 1, "kind": "counter", "name": "Memory used"}],
        counter=[{"track_id": 1, "ts_ns": 1, "value": 5.0, "value_int": 5}],
        memory=[{"block_id": 1, "kind": "block", "size_bytes": 5, "alloc_ns": 1}],
    )
    names = [e["name"] for e in exported(store)["traceEvents"] if e["ph"] == "C"]
    assert names == ["Memory used"]


def test_device_option_omits_other_devices(everything: Path) -> None:
    document = exported(everything, device=0)
    reader = ChromeReader(document)
    assert {row["device_id"] for row in reader.rows["task"]} == {0}
    assert reader.rows["event_wait"] == [{"id": 2, "event_id": 1}]
    assert {row["id"] for row in reader.rows["range"]} == {21, 22, 23, 24}
    assert {row["flow_id"] for row in reader.rows["flow"]} == {1, 3}
    assert len(reader.rows["api"]) == 2
    assert_wellformed(document)


def test_without_args_events_are_the_same_otherwise(everything: Path, tmp_path: Path) -> None:
    with open_store(everything) as connection:
        export_chrome(connection, 1, tmp_path / "full.json")
        written = export_chrome(connection, 1, tmp_path / "small.json", args=False)
    full, small = (json.loads((tmp_path / name).read_text()) for name in ("full.json", "small.json"))
    kept = ("thread_name", "thread_sort_index", "process_name", "process_sort_index")
    expected = [
        {key: value for key, value in event.items() if key != "args" or event["ph"] in "MC"}
        for event in full["traceEvents"]
        if event["ph"] != "M" or event["name"] in kept
    ]
    # Rows and computed events are written in turn, so that their order differs.
    assert sorted(small["traceEvents"], key=json.dumps) == sorted(expected, key=json.dumps)
    assert set(small["otherData"]) == {"writer", "base_ns"} and written.rows["task"]
    [run] = ingest([tmp_path / "small.json"], tmp_path / "small.duckdb")
    codes = {entry.code.text for entry in run.log}
    assert "for_viewers" in codes and "changed_export" not in codes


def test_other_runs_are_omitted(make_store: MakeStore) -> None:
    tasks = [{"run_id": n, "id": 1, "track_id": 1, "name": f"k{n}", "start_ns": n, "dur_ns": 1} for n in (1, 2)]
    tracks = [{"run_id": n, "track_id": 1, "kind": "stream", "stream_id": n} for n in (1, 2)]
    document = exported(make_store(task=tasks, track=tracks), run_id=2)
    assert [e["name"] for e in document["traceEvents"] if e["ph"] == "X"] == ["k2"]


def test_a_run_without_rows_is_an_empty_trace(make_store: MakeStore) -> None:
    assert exported(make_store(run=[{"run_id": 1}]))["traceEvents"] == []


class Counted:
    """A connection that counts the statements that are executed, and the rows of those with several."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.count = connection, 0

    def execute(self, *arguments: Any) -> duckdb.DuckDBPyConnection:
        self.count += 1
        return self.connection.execute(*arguments)

    def executemany(self, statement: str, rows: list[Any]) -> duckdb.DuckDBPyConnection:
        self.count += len(rows)
        return self.connection.executemany(statement, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def test_threads_are_inserted_at_once(make_store: MakeStore) -> None:
    counts = []
    for tracks in (2, 500):
        tasks = [{"id": n, "track_id": n or None, "start_ns": n, "dur_ns": 5} for n in range(tracks)]
        tasks += [{"id": tracks, "track_id": 1, "start_ns": 3, "dur_ns": 9}]  # in another lane
        with open_store(make_store(task=tasks)) as connection:
            counted = Counted(connection)
            trace = chrome._prepare(counted, 1, None, Excerpt(), args=True)  # type: ignore[arg-type]
            found = connection.execute("SELECT source, track_id, lane, tid FROM export_thread ORDER BY tid").fetchall()
        threads = sorted(trace.layout.threads, key=lambda thread: thread.tid)
        assert found == [(one.source, one.track_id, one.lane, one.tid) for one in threads]
        assert len(found) == tracks + 2  # the lane, and the thread of flows
        counts.append(counted.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("span_ns", [10**15 - 1, 10**15, 2**63 - 1 - BASE])
def test_long_runs_are_exact(make_store: MakeStore, span_ns: int) -> None:
    store = make_store(
        run=[{"run_id": 1, "start_ns": BASE}],
        track=[{"track_id": 1, "kind": "stream"}],
        task=[
            {"id": 1, "track_id": 1, "name": "k", "start_ns": BASE, "dur_ns": span_ns, "depth": 0},
            {"id": 2, "track_id": 1, "name": "k", "start_ns": BASE + span_ns, "dur_ns": 0, "depth": 1},
        ],
    )
    assert_all_rows(store, exported(store))


def test_the_earliest_time_is_the_base_even_before_the_run(make_store: MakeStore) -> None:
    store = make_store(
        run=[{"run_id": 1, "start_ns": 100}],
        track=[{"track_id": 1, "kind": "stream"}],
        task=[
            {"id": 1, "track_id": 1, "name": "k", "start_ns": -(2**62), "dur_ns": 5, "depth": 0},
            {"id": 2, "track_id": 1, "name": "k", "start_ns": 2**62 - 1, "dur_ns": 0, "depth": 0},
        ],
    )
    document = exported(store)
    assert document["otherData"]["base_ns"] == str(-(2**62))
    assert_all_rows(store, document)


def test_gz_has_the_same_content_and_is_reproducible(everything: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "a.json.gz", tmp_path / "b.json.gz", tmp_path / "c.json"]
    for output in outputs:
        with open_store(everything) as connection:
            export_chrome(connection, 1, output)
    first, second, plain = (output.read_bytes() for output in outputs)
    assert first == second
    assert gzip.decompress(first) == plain


@pytest.mark.parametrize("direction", ["rising", "falling"])
def test_many_rows_are_sorted_from_any_order(make_store: MakeStore, tmp_path: Path, direction: str) -> None:
    """More rows than DuckDB gives to one thread: as they lie, or sorted in windows, the same bytes each time."""
    count = 130_000
    place = "i" if direction == "rising" else f"{count - 1} - i"
    store = make_store(
        run=[{"run_id": 1, "start_ns": 0}],
        track=[{"track_id": n, "kind": "thread", "device_id": None} for n in (1, 2)],
    )
    with open_store(store, read_only=False) as connection:
        connection.execute(
            "INSERT INTO api BY NAME SELECT 1 AS run_id, n AS id, 1 + n % 2 AS track_id, 'x' AS name, "
            f"n * 10 AS start_ns, 5 AS dur_ns, 0 AS depth FROM (SELECT {place} AS n FROM range({count}) AS t(i))"
        )
        connection.execute(
            "INSERT INTO flow BY NAME SELECT 1 AS run_id, n AS flow_id, 'launch' AS kind, n AS src_id, "
            f"n * 10 AS src_ns, {count} - 1 - n AS dst_id, ({count} - 1 - n) * 10 AS dst_ns "
            f"FROM (SELECT {place} AS n FROM range({count}) AS t(i))"
        )
    outputs = [tmp_path / "first.json", tmp_path / "second.json"]
    for output in outputs:
        with open_store(store) as connection:
            summary = export_chrome(connection, 1, output)
    assert (summary.rows["api"], summary.rows["flow"]) == (count, count)
    text = outputs[0].read_text()
    assert text == outputs[1].read_text()
    times = re.findall(r'"tid":(\d+),"ph":"X","ts":(\d+)\.(\d\d\d)', text)
    by_thread: dict[str, list[int]] = defaultdict(list)
    for thread, whole, rest in times:
        by_thread[thread].append(int(whole + rest))
    assert sorted(map(len, by_thread.values())) == [count // 2, count // 2]
    assert all(found == sorted(found) for found in by_thread.values())
    starts = [int(whole + rest) for whole, rest in re.findall(r'"ph":"s","ts":(\d+)\.(\d\d\d)', text)]
    assert sorted(starts) == sorted(10 * min(n, count - 1 - n) for n in range(count))  # half of the arrows lead back


def test_samples_are_written_as_they_are_stored(make_store: MakeStore, tmp_path: Path) -> None:
    """DuckDB's threads return the rows of joins in any order."""
    count = 300_000
    store = make_store(
        run=[{"run_id": 1, "start_ns": 0}],
        track=[{"track_id": n, "kind": "counter", "device_id": None, "name": f"c{n}"} for n in (1, 2)],
    )
    with open_store(store, read_only=False) as connection:
        connection.execute(
            "INSERT INTO counter BY NAME SELECT 1 AS run_id, 1 + n % 2 AS track_id, n * 1000 AS ts_ns, "
            f"n AS value_int, n AS value FROM range({count}) AS t(n)"
        )
    with open_store(store) as connection:
        connection.execute("SET threads = 4")
        export_chrome(connection, 1, tmp_path / "t.json")
        assert connection.execute("SELECT current_setting('threads')").fetchall() == [(4,)]
    times = re.findall(r'"ph":"C","ts":(\d+)\.000', (tmp_path / "t.json").read_text())
    assert list(map(int, times)) == list(range(count))
