"""The schema `perfetto`: objects, columns and functions for track events, over a trace as in Perfetto's guide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from ingest_checks import taken
from perfetto_builder import BEGIN, COUNTER, INSTANT, Fixed64, begin, end, event, message, process, thread, track
from stores import query

from traceconv.pipeline.ingest import ingest

Ask = Callable[[str], list[tuple[object, ...]]]


def note(name: str, *fields: tuple[int, object]) -> tuple[int, bytes]:
    return 4, message((10, name), *fields)


def guide_trace() -> bytes:
    """Slices, an instant, nested and asynchronous slices, a counter, flows, tracks in groups and annotations."""
    data = track(1, "Custom") + begin(1000, 1, "Task A") + end(1500, 1)
    data += event(1900, (9, INSTANT), (11, 1), (23, "Milestone"))
    data += track(2, "Nested") + begin(2000, 2, "Alpha") + begin(2050, 2, "Load") + end(2150, 2) + end(3000, 2)
    data += track(3, "HTTP", (5, 30)) + process(30, 7, "app") + begin(3000, 3, "GET /a") + end(3300, 3)
    data += track(4, "Requests", (8, b""))
    data += event(1000, (9, COUNTER), (11, 4), (30, 0)) + event(1100, (9, COUNTER), (11, 4), (30, 3))
    data += track(5, "Sender") + track(6, "Receiver")
    data += begin(4000, 5, "Dispatch", (47, Fixed64(99))) + end(4050, 5)
    data += begin(4100, 6, "Process", (47, Fixed64(99)), (47, Fixed64(98))) + end(4200, 6)
    data += begin(4300, 5, "Acknowledge", (47, Fixed64(98))) + end(4400, 5)
    data += track(7, "System") + track(8, "Part", (5, 7)) + begin(4800, 7, "Init") + begin(5000, 8, "Activity")
    data += end(5500, 8) + end(7000, 7)
    data += track(9, "Annotated")
    data += begin(8000, 9, "Query", note("query_id", (4, 12345)), note("table", (6, "users")), note("cached", (2, 0)))
    data += end(8200, 9)
    database = 11, message((10, "database"), (6, "postgres"))
    servers = (12, message((6, "server-1"))), (12, message((6, "server-2")))
    data += begin(8500, 9, "Complex", note("config", database), note("servers", *servers)) + end(8700, 9)
    return data + thread(31, 7, 8, "worker") + event(9000, (9, BEGIN), (11, 31), (23, "open"))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    path = tmp_path_factory.mktemp("guide") / "trace.pftrace"
    path.write_bytes(guide_trace())
    store = path.with_suffix(".duckdb")
    ingest([path], store)

    def asked(query: str) -> list[tuple[object, ...]]:
        with duckdb.connect(str(store), read_only=True) as connection:
            return connection.execute("USE perfetto").execute(query).fetchall()

    return asked


ON_TRACK = "FROM slice JOIN track ON slice.track_id = track.id WHERE track.name = "


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"SELECT ts, dur, slice.name {ON_TRACK} 'Custom' ORDER BY ts",
         [(1000, 500, "Task A"), (1900, 0, "Milestone")]),
        (f"SELECT ts, dur, slice.name, depth {ON_TRACK} 'Nested' ORDER BY ts",
         [(2000, 1000, "Alpha", 0), (2050, 100, "Load", 1)]),
        (f"SELECT ts, dur, slice.name {ON_TRACK} 'HTTP' ORDER BY ts", [(3000, 300, "GET /a")]),
        ("SELECT ts, value FROM counter JOIN track ON counter.track_id = track.id WHERE track.name = 'Requests' "
         "ORDER BY ts", [(1000, 0.0), (1100, 3.0)]),
        ("SELECT slice_out.name, slice_in.name FROM flow JOIN slice AS slice_out ON flow.slice_out = slice_out.id "
         "JOIN slice AS slice_in ON flow.slice_in = slice_in.id ORDER BY flow.id",
         [("Dispatch", "Process"), ("Process", "Acknowledge")]),
        ("SELECT slice.ts, slice.dur, slice.name, track.name FROM slice JOIN track ON slice.track_id = track.id "
         "WHERE track.name IN ('System', 'Part') ORDER BY slice.ts",
         [(4800, 2200, "Init", "System"), (5000, 500, "Activity", "Part")]),
        ("SELECT slice.name, track.name AS service FROM slice JOIN track ON slice.track_id = track.id "
         "WHERE track.name LIKE '%Sys%' ORDER BY slice.ts", [("Init", "System")]),
        (f"SELECT slice.name, EXTRACT_ARG(slice.arg_set_id, 'debug.query_id')::VARCHAR {ON_TRACK} 'Annotated' "
         "ORDER BY ts", [("Query", "12345"), ("Complex", None)]),
        ("SELECT EXTRACT_ARG(slice.arg_set_id, 'debug.config.database')::VARCHAR, "
         f"EXTRACT_ARG(arg_set_id, 'debug.servers[0]')::VARCHAR {ON_TRACK} 'Annotated' AND slice.name = 'Complex'",
         [("postgres", "server-1")]),
    ],
)  # fmt: skip
def test_the_queries_of_the_guide(ask: Ask, query: str, expected: list[tuple[object, ...]]) -> None:
    assert ask(query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT t.name, p.name, t.type FROM process_track AS t JOIN process AS p USING (upid)",
         [("HTTP", "app", "process_track_event")]),
        ("SELECT name, type FROM counter_track", [("Requests", "global_counter_track_event")]),
        ("SELECT count(*) FROM process_counter_track UNION ALL SELECT count(*) FROM thread_counter_track",
         [(0,), (0,)]),
        ("SELECT name, value FROM counters ORDER BY ts", [("Requests", 0.0), ("Requests", 3.0)]),
        ("SELECT ts, name FROM instant", [(1900, "Milestone")]),
        ("SELECT * FROM trace_bounds", [(1000, 9000)]),
        ("SELECT trace_start(), trace_end(), trace_dur(), time_to_us(trace_dur()), time_to_ms(2999999), time_from_s(2)",
         [(1000, 9000, 8000, 8, 2, 2_000_000_000)]),
        ("SELECT name, thread_name, tid, process_name, pid, is_main_thread, dur FROM thread_slice",
         [("open", "worker", 8, "app", 7, 0, -1)]),
        ("SELECT name, track_name, process_name, pid FROM process_slice", [("GET /a", "HTTP", "app", 7)]),
        ("SELECT name FROM thread_or_process_slice ORDER BY ts", [("GET /a",), ("open",)]),
        ("SELECT count(*) = (SELECT count(*) FROM slice) FROM slices", [(True,)]),
        ("SELECT s.name, a.name FROM slice AS s, ancestor_slice(s.id) AS a", [("Load", "Alpha")]),
        ("SELECT name, (SELECT count(*) FROM descendant_slice(id)) FROM slice WHERE name IN ('Alpha', 'Load') "
         "ORDER BY ts",
         [("Alpha", 1), ("Load", 0)]),
        ("SELECT count(*) FROM following_flow((SELECT id FROM slice WHERE name = 'Dispatch'))", [(2,)]),
        ("SELECT trace_id FROM preceding_flow((SELECT id FROM slice WHERE name = 'Process'))", [(99,)]),
        ("SELECT key, value_type, display_value FROM slice JOIN args USING (arg_set_id) WHERE slice.name = 'Query' "
         "ORDER BY key",
         [("debug.cached", "bool", "false"), ("debug.query_id", "int", "12345"), ("debug.table", "string", "users")]),
        ("SELECT cat IS NULL, id = slice_id FROM slice WHERE name = 'Load'", [(True, True)]),
        ("SELECT name, upid = id, start_ts, end_ts FROM process WHERE pid = 7", [("app", True, None, None)]),
        ("SELECT name, value, severity FROM stats WHERE name = 'track_event_parser_errors'",
         [("track_event_parser_errors", 0, "info")]),
        ("SELECT __intrinsic_arg_set_to_json(arg_set_id)::VARCHAR FROM slice WHERE name = 'Complex'",
         [('{"debug":{"config":{"database":"postgres"},"servers":["server-1","server-2"]}}',)]),
    ],
)  # fmt: skip
def test_objects_and_functions(ask: Ask, query: str, expected: list[tuple[object, ...]]) -> None:
    assert ask(query) == expected


def test_process_names_get_numbers_that_no_other_process_has(tmp_path: Path) -> None:
    """A text in place of a process or thread ID gets a number after the largest ID of the trace."""
    pairs = (("gpu", "copy"), (1, 1), (2, 2), (2, "io"))
    _, store = taken(
        [{"ph": "X", "name": "n", "ts": 1, "dur": 1, "pid": pid, "tid": tid} for pid, tid in pairs], tmp_path
    )
    with duckdb.connect(str(store), read_only=True) as connection:
        pids = connection.execute("SELECT name, pid FROM perfetto.process WHERE pid > 0 ORDER BY upid").fetchall()
        tids = connection.execute("SELECT name, tid FROM perfetto.thread WHERE utid > 0 ORDER BY utid").fetchall()
    assert dict(pids)["gpu"] > 2 and sorted(pid for _, pid in pids if pid <= 2) == [1, 2]
    assert min(dict(tids)[name] for name in ("copy", "io")) > 2 and len({tid for _, tid in tids}) == 4


def test_instants_are_in_the_innermost_slice_that_is_open(tmp_path: Path) -> None:
    """One at the start of a slice is in it if it follows in the file; one at its end is not."""

    def instant(ts: int, name: str) -> bytes:
        return event(ts, (9, INSTANT), (11, 1), (23, name))

    data = (
        track(1, "t") + track(2, "u") + instant(5, "before") + instant(10, "at start, earlier") + begin(10, 1, "outer")
    )
    data += instant(10, "at start") + begin(20, 1, "inner") + instant(25, "inside") + end(30, 1) + instant(30, "after")
    data += end(40, 1) + instant(40, "at end") + begin(50, 1, "open") + instant(60, "last")
    _, store = taken(data + event(25, (9, INSTANT), (11, 2), (23, "elsewhere")), tmp_path, "trace.pftrace")
    rows = query(
        store,
        "SELECT i.name, i.depth, p.name FROM perfetto.slice AS i "
        "LEFT JOIN perfetto.slice AS p ON p.id = i.parent_id WHERE i.dur = 0 ORDER BY i.track_id, i.id",
    )
    assert rows == [
        ("before", 0, None), ("at start, earlier", 0, None), ("at start", 1, "outer"), ("inside", 2, "inner"),
        ("after", 1, "outer"), ("at end", 0, None), ("last", 1, "open"), ("elsewhere", 0, None),
    ]  # fmt: skip


def test_an_instant_is_not_in_a_slice_that_is_not_shown(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": "no dur", "ts": 1}, {"ph": "i", "name": "instant", "ts": 2}]
    _, store = taken([{"pid": 1, "tid": 1, **one} for one in events], tmp_path)
    rows = query(store, "SELECT name, depth, parent_id FROM perfetto.slice")
    assert rows == [("instant", 0, None)]


def test_series_with_the_same_hash_have_tracks_of_their_own(make_store: Callable[..., Path]) -> None:
    names = "aten::conv2d", "h+YVV:TNedq:"
    store = make_store(
        track=[{"track_id": number, "kind": "counter", "name": f"c{number}"} for number in (1, 2)],
        counter=[{"track_id": 1, "series": name, "ts_ns": n, "value": n} for n, name in enumerate((*names, None))],
    )
    with duckdb.connect(str(store), read_only=True) as connection:
        [(same,)] = connection.execute("SELECT hash(1, ?) = hash(1, ?)", names).fetchall()
        assert same
        tracks = connection.execute("SELECT id, name FROM perfetto.counter_track ORDER BY name").fetchall()
        assert tracks == [(5, "c1"), (3, "c1 aten::conv2d"), (4, "c1 h+YVV:TNedq:"), (6, "c2")]
        samples = connection.execute("SELECT ts, track_id, name FROM perfetto.counters").fetchall()
        assert samples == [(0, 3, "c1 aten::conv2d"), (1, 4, "c1 h+YVV:TNedq:"), (2, 5, "c1")]


def test_stacks_of_names_with_the_same_hash_differ(make_store: Callable[..., Path]) -> None:
    names = ("aten::conv2d", "h+YVV:TNedq:")
    rows = [
        {"id": 2 * n + m + 1, "parent_id": 2 * n + 1 if m else None, "track_id": 1, "depth": m,
         "name": names[n % 2 if m else n // 2], "start_ns": 10 * n + m, "dur_ns": 5 - m}
        for n in range(4) for m in (0, 1)
    ]  # fmt: skip
    store = make_store(track=[{"track_id": 1, "kind": "thread"}], range=[*rows, {**rows[0], "id": 9, "start_ns": 90}])
    stacks = "SELECT stack_id, parent_stack_id, list(id ORDER BY id) FROM perfetto.slice_with_stack_id GROUP BY ALL"
    assert sorted(query(store, stacks)) == [
        (1, 0, [1, 3, 9]),
        (2, 1, [2]),
        (4, 1, [4]),
        (5, 0, [5, 7]),
        (6, 5, [6]),
        (8, 5, [8]),
    ]


def test_each_arg_has_an_id_of_its_own(make_store: Callable[..., Path]) -> None:
    store = make_store(
        process=[{"process_id": 1, "sort_index": 5, "properties": '{"a": 1, "b": [2, 3]}'}],
        track=[{"track_id": 1, "kind": "thread", "process_id": 1, "sort_index": 2},
               {"track_id": 2, "kind": "async", "sort_index": 3, "properties": '{"a": 1, "b": [2, 3]}'}],
        range=[{"id": n, "track_id": 1, "start_ns": 3 * n, "dur_ns": 5, "args": '{"x": 1}'} for n in (1, 2)],
    )  # fmt: skip
    counts = "SELECT count(*) > 10, count(*) - count(DISTINCT id) FROM perfetto.args"
    assert query(store, counts) == [(True, 0)]
