"""Tracks and typed fields of Perfetto traces: what descriptors say of them, wherever they are in the trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest_checks import taken
from perfetto_builder import BEGIN, END, INSTANT, Fixed64, begin, end, event, message, packet, process, thread, track
from stores import query

STATE = 5
RANGES = (
    "SELECT e.name, start_ns, dur_ns, t.name FROM range AS e JOIN track AS t USING (track_id) ORDER BY start_ns, id"
)


def store_of(data: bytes, tmp_path: Path) -> Path:
    return taken(data, tmp_path, "trace.pftrace", reader="perfetto_proto")[1]


def typed(store: Path, name: str) -> Any:
    [(text,)] = query(store, f"SELECT args FROM range WHERE name = '{name}'")
    return json.loads(text)["track_event"]


def test_a_flow_at_the_end_of_a_slice_is_its_slices(tmp_path: Path) -> None:
    """One end names two flows, another one has no begin; the view turns the flow to the slice that began first."""
    one, two = (47, Fixed64(1)), (47, Fixed64(2))
    data = track(1, "a") + track(2, "b") + begin(100, 1, "early") + begin(200, 2, "late", one)
    data += end(300, 2, two) + end(400, 1, one, two) + end(500, 1, two)
    store = store_of(data, tmp_path)
    flows = "SELECT f.external_id, a.name, b.name, src_ns, dst_ns FROM flow AS f LEFT JOIN range AS a ON a.id = src_id "
    assert query(store, flows + "LEFT JOIN range AS b ON b.id = dst_id ORDER BY ALL") == [
        ("1", "late", "early", 200, 400),
        ("2", "early", None, 400, 500),
        ("2", "late", "early", 300, 400),
    ]
    shown = "SELECT trace_id, a.name, b.name FROM perfetto.flow JOIN perfetto.slice AS a ON a.id = slice_out "
    assert query(store, shown + "JOIN perfetto.slice AS b ON b.id = slice_in ORDER BY ALL") == [
        (1, "early", "late"),
        (2, "early", "late"),
    ]


def test_at_one_time_the_order_of_the_file_tells_which_flow_ends(tmp_path: Path) -> None:
    """An event ends a flow, and at the same time another one begins the next flow with its ID."""
    flow, last = (47, Fixed64(1)), (48, Fixed64(1))
    data = track(1, "t") + track(2, "u") + begin(100, 1, "a", flow) + begin(200, 1, "b", last)
    data += begin(200, 2, "c", flow) + begin(300, 2, "d", last)
    flows = (
        "SELECT a.name, b.name FROM flow JOIN range AS a ON a.id = src_id JOIN range AS b ON b.id = dst_id ORDER BY ALL"
    )
    assert query(store_of(data, tmp_path), flows) == [("a", "b"), ("c", "d")]


def test_callstacks_are_interned_or_in_the_event(tmp_path: Path) -> None:
    """An end has a callstack of its own, which does not replace that of the begin."""
    interned = message(
        (5, message((1, 1), (2, "main"))),
        (5, message((1, 2), (2, "leaf"))),
        (6, message((1, 1), (2, 1), (4, 16))),
        (6, message((1, 2), (2, 2), (4, 32))),
        (7, message((1, 1), (2, 1), (2, 2))),
    )
    inline = message((1, message((1, "main"), (2, "a.cc"), (3, 10))))
    data = (
        track(1, "t") + packet((10, 1), (13, 1), (12, interned)) + begin(1, 1, "a", (56, 1)) + end(2, 1, (55, inline))
    )
    data += begin(3, 1, "b", (55, inline)) + end(4, 1)
    store = store_of(data, tmp_path)
    assert typed(store, "a") == {
        "callstack": {"frames": [{"function_name": "main", "rel_pc": 16}, {"function_name": "leaf", "rel_pc": 32}]},
        "end_callstack": {"frames": [{"function_name": "main", "source_file": "a.cc", "line_number": 10}]},
    }
    stacks = "SELECT s.name, f.name, f.rel_pc, y.source_file FROM perfetto.__intrinsic_track_event_callstacks AS k "
    stacks += (
        "JOIN perfetto.slice AS s USING (slice_id) JOIN perfetto.stack_profile_callsite AS c ON c.id = callsite_id "
    )
    stacks += "JOIN perfetto.stack_profile_frame AS f ON f.id = frame_id "
    stacks += "LEFT JOIN perfetto.stack_profile_symbol AS y USING (symbol_set_id) ORDER BY ALL"
    assert query(store, stacks) == [("a", "leaf", 32, None), ("b", "main", None, "a.cc")]


def test_a_pid_that_another_track_has_is_another_process(tmp_path: Path) -> None:
    data = process(1, 7, "old") + thread(2, 7, 8, "first") + begin(10, 2, "a") + end(11, 2)
    data += process(3, 7, "new") + thread(4, 7, 8, "second") + begin(20, 4, "b") + end(21, 4)
    data += thread(5, 7, 8, "third") + begin(30, 5, "c") + end(31, 5) + process(1, 7, "old")
    store = store_of(data, tmp_path)
    names = "SELECT e.name, p.pid_text, p.name, t.tid_text, t.name FROM range AS e JOIN track AS t USING (track_id) "
    assert query(store, names + "JOIN process AS p USING (process_id) ORDER BY start_ns") == [
        ("a", "7", "old", "8", "first"),
        ("b", "7", "new", "8", "second"),
        ("c", "7", "new", "8", "third"),
    ]
    assert query(store, "SELECT count(*) FROM process") == [(2,)]
    assert query(store, "SELECT name, pid FROM perfetto.process WHERE pid = 7 ORDER BY upid") == [
        ("old", 7),
        ("new", 7),
    ]


def test_thread_time_and_instructions_are_counters(tmp_path: Path) -> None:
    data = thread(1, 7, 8, "t") + begin(10, 1, "s", (17, 5), (20, 100)) + end(20, 1, (17, 9), (20, 150))
    store = store_of(data, tmp_path)
    samples = "SELECT t.name, c.ts_ns, c.value_int, o.name FROM counter AS c JOIN track AS t USING (track_id) "
    assert query(store, samples + "JOIN track AS o ON o.track_id = t.parent_track_id ORDER BY ALL") == [
        ("thread_instruction_count", 10, 100, "t"),
        ("thread_instruction_count", 20, 150, "t"),
        ("thread_time", 10, 5000, "t"),
        ("thread_time", 20, 9000, "t"),
    ]
    counters = (
        "SELECT k.name, thread.tid FROM perfetto.thread_counter_track AS k JOIN perfetto.thread USING (utid) ORDER BY 1"
    )
    assert query(store, counters) == [("thread_instruction_count", 8), ("thread_time", 8)]


def test_a_state_ends_the_one_before_it(tmp_path: Path) -> None:
    data = track(1, "power", (18, b"")) + event(10, (9, STATE), (11, 1), (23, "on"))
    data += event(30, (9, STATE), (11, 1), (23, "off")) + event(40, (9, STATE), (11, 1))
    data += event(50, (9, STATE), (11, 1), (23, "on"))
    store = store_of(data, tmp_path)
    assert query(store, RANGES) == [("on", 10, 20, "power"), ("off", 30, 10, "power"), ("on", 50, None, "power")]
    assert query(store, "SELECT kind FROM track") == [("state",)]
    assert query(store, "SELECT value, ts, dur FROM perfetto.state ORDER BY ts") == [
        ("on", 10, 20),
        ("off", 30, 10),
        ("on", 50, -1),
    ]
    assert query(store, "SELECT count(*) FROM perfetto.slice") == [(0,)]


def test_a_track_has_its_last_name_before_its_first_event(tmp_path: Path) -> None:
    data = track(1, "first") + track(1, "second") + begin(10, 1, "a") + end(11, 1) + track(1, "third")
    data += packet((10, 1), (60, message((1, 2)))) + begin(30, 2, "later") + end(31, 2) + begin(20, 2, "b") + end(21, 2)
    assert query(store_of(data, tmp_path), RANGES) == [
        ("a", 10, 1, "second"),
        ("b", 20, 1, "b"),
        ("later", 30, 1, "b"),
    ]


def test_a_descriptor_that_comes_again_counts_unless_nothing_changed(tmp_path: Path) -> None:
    data = track(1, "first") * 2 + track(1, "second") + track(1, "first") + begin(10, 1, "a") + end(11, 1)
    described = thread(2, 7, 8, "main", seq=2)
    store = store_of(data + thread(2, 7, 8, "main") + packet((10, 2), (87, 1)) + described * 2, tmp_path)
    assert query(store, RANGES) == [("a", 10, 1, "first")]
    [(properties,)] = query(store, "SELECT properties FROM track WHERE name = 'main'")
    assert json.loads(properties) == {"has_first_packet_on_sequence": True}


def test_descriptions_of_tracks_and_processes(tmp_path: Path) -> None:
    data = packet((10, 1), (87, 1)) + track(1, "", (3, message((1, 7), (6, "app"))), (6, message((4, "host"))))
    data += track(2, "group", (5, 1), (14, "all of it"), (11, 3)) + track(3, "part", (5, 2), (12, -4))
    data += track(4, "loop", (5, 4), seq=2) + begin(10, 3, "a") + end(11, 3)
    store = store_of(data, tmp_path)
    tracks = "SELECT t.name, p.name, t.properties FROM track AS t "
    tracks += "LEFT JOIN track AS p ON p.track_id = t.parent_track_id"
    first = '"has_first_packet_on_sequence": true'
    assert sorted(query(store, tracks)) == [
        ("group", None, f'{{"description": "all of it", "child_ordering": "explicit", {first}}}'),
        ("loop", None, None),
        ("part", "group", f"{{{first}}}"),
    ]
    assert query(store, "SELECT properties FROM process") == [('{"chrome": {"host_app_package_name": "host"}}',)]
    shown = "SELECT name, perfetto.extract_arg(source_arg_set_id, 'sibling_order_rank')::VARCHAR FROM perfetto.track"
    assert sorted(query(store, shown), key=str) == [("group", None), ("loop", None), ("part", "-4")]


def extension_descriptor() -> bytes:
    """Extensions 9900 (text), 9901 (repeated int) and 9902 (message with an enum and annotations)."""

    def field(name: str, number: int, kind: int, label: int = 1, of: str = "") -> bytes:
        typed_by = [(6, f".test.{of}")] if of else []
        return message((1, name), (2, ".perfetto.protos.TrackEvent"), (3, number), (4, label), (5, kind), *typed_by)

    notes = message((1, "notes"), (3, 99), (4, 3), (5, 11), (6, ".perfetto.protos.DebugAnnotation"))
    inner = message((1, "Inner"), (2, field("level", 1, 14, of="Level")), (2, notes))
    level = message((1, "Level"), (2, message((1, "HIGH"), (2, 2))))
    extensions = [
        (7, field("text", 9900, 9)),
        (7, field("numbers", 9901, 5, 3)),
        (7, field("inner", 9902, 11, of="Inner")),
    ]
    file = message((1, "test.proto"), (2, "test"), (4, inner), (5, level), *extensions)
    return packet((72, message((1, message((1, file))))))


def test_typed_fields_have_names_that_the_trace_describes(tmp_path: Path) -> None:
    """Descriptors may follow the events. A begin and its end are merged in depth; unknown fields keep their numbers."""
    inner = message((1, 2), (99, message((10, "note"), (4, 5))))
    data = track(1, "t") + begin(10, 1, "s", (9900, "begin"), (9901, 1), (25, message((2, 10))), (9950, 3))
    data += end(20, 1, (9900, "end"), (9901, 2), (9901, 3), (9902, inner)) + extension_descriptor()
    data += packet((82, message((2, message((1, message((1, 10), (2, "pressed"))))))))
    store = store_of(data, tmp_path)
    assert typed(store, "s") == {
        "chrome_user_event": {"action_hash": 10, "action": "pressed"},
        "text": "end",
        "numbers": [1, 2, 3],
        "inner": {"level": "HIGH", "note": 5},
        "field_9950": 3,
    }
    keys = "SELECT key, display_value FROM perfetto.args WHERE key NOT LIKE 'chrome%' ORDER BY key"
    assert query(store, keys) == [
        ("inner.level", "HIGH"),
        ("inner.note", "5"),
        ("numbers[0]", "1"),
        ("numbers[1]", "2"),
        ("numbers[2]", "3"),
        ("text", "end"),
    ]


def test_malformed_typed_fields_are_counted(tmp_path: Path) -> None:
    """Messages that contain themselves, wrong kinds and truncated lists give what can be read."""
    data = track(1, "t") + begin(10, 1, "s", (25, b"\xff"), (49, b"\x08\xff"), (24, 5), (28, message((1, b"x"))))
    store = store_of(data + end(20, 1) + packet((72, b"\x0a\x03\x0a\x05x")), tmp_path)
    assert query(store, RANGES) == [("s", 10, 10, "t")]
    assert query(store, "SELECT event_count FROM import_log WHERE code = 'damaged_text'") >= [(1,)]


def test_log_messages_are_listed(tmp_path: Path) -> None:
    place = (4, message((1, 3), (2, "a.cc"), (4, 12)))
    interned = packet((10, 1), (13, 1), (12, message(place, (20, message((1, 5), (2, "hello"))))))
    data = thread(1, 7, 8, "t") + interned + event(10, (9, INSTANT), (11, 1), (21, message((1, 3), (2, 5), (3, 6))))
    store = store_of(data, tmp_path)
    assert query(store, "SELECT ts, prio, tag, msg FROM perfetto.android_logs") == [(10, 6, "a.cc:12", "hello")]


def test_an_event_that_names_track_0_is_not_on_its_writers_thread(tmp_path: Path) -> None:
    data = thread(1, 7, 8, "t") + event(10, (9, BEGIN), (23, "on")) + event(20, (9, END))
    data += event(30, (9, BEGIN), (11, 0), (23, "off")) + event(40, (9, END), (11, 0))
    assert query(store_of(data, tmp_path), RANGES) == [("on", 10, 10, "t"), ("off", 30, 10, "Default Track")]
