"""Perfetto traces in protobuf → rows: slices, markers, counters, flows, args and clocks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import ingest_checks
import pytest
import zstandard
from perfetto_builder import (
    BEGIN,
    COUNTER,
    END,
    INSTANT,
    NESTED,
    Fixed64,
    begin,
    clocks,
    end,
    event,
    message,
    packed,
    packet,
    process,
    small_trace,
    thread,
    track,
)
from stores import query

from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.result import IngestedRun

RANGES = "SELECT name, start_ns, dur_ns, depth, category, args FROM range ORDER BY start_ns, id"
BIG = 1_720_000_000_123_456_789


def taken(data: bytes, tmp_path: Path, name: str = "trace.pftrace") -> tuple[IngestedRun, Path]:
    run, store = ingest_checks.taken(data, tmp_path, name, reader="perfetto_proto")
    accounts = run.accounts.by_record
    assert all(min(account.rows, account.paired, account.used, account.lost) >= 0 for account in accounts.values())
    slices = sum(accounts[f"{ph} events"].rows for ph in "XBbS" if f"{ph} events" in accounts)
    [(count,)] = query(store, f"SELECT count(*) FROM slice WHERE run_id = {run.run_id}")
    assert count == slices
    lost = """SELECT count(*) FROM (SELECT id FROM range UNION ALL SELECT id FROM marker) AS e WHERE 1 <>
        (SELECT count(*) FROM source_block AS b WHERE e.id >= b.first_id AND e.id < b.first_id + b.event_count)"""
    assert query(store, lost) == [(0,)]
    return run, store


def codes(run: IngestedRun) -> set[str]:
    return {entry.code.text for entry in run.log}


def args_of(store: Path, name: str) -> Any:
    [(text,)] = query(store, f"SELECT args FROM range WHERE name = '{name}'")
    return json.loads(text)


def test_the_small_trace(tmp_path: Path) -> None:
    run, store = taken(small_trace(), tmp_path)
    assert choose_reader(tmp_path / "trace.pftrace") == "perfetto_proto"
    assert run.complete and not run.log
    assert query(store, RANGES) == [
        ("outer", 1000, 300, 0, "cat", None),
        ("inner", 1100, 100, 1, None, '{"n":-5}'),
    ]
    assert query(store, "SELECT name, ts_ns FROM marker") == [("mark", 1150)]
    assert query(store, "SELECT ts_ns, value, value_int FROM counter ORDER BY ts_ns") == [
        (1250, 42.0, 42),
        (1400, 0.5, None),
    ]
    tracks = (
        "SELECT t.kind, p.name, t.tid_text, t.name, t.unit FROM track AS t LEFT JOIN process AS p USING (process_id)"
    )
    assert sorted(query(store, tracks)) == [
        ("counter", "app", None, "queue", "count"),
        ("thread", "app", "8", "main", None),
    ]
    assert query(store, "SELECT writer, source_format, start_ns, end_ns FROM run") == [
        ("Perfetto", "perfetto_proto", 1000, 1400)
    ]


@pytest.mark.parametrize(
    "pack", [gzip.compress, zstandard.compress, lambda data: packed(data)], ids=["gz", "zst", "packets"]
)
def test_compressed_traces_are_equal(pack: Any, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    _, plain = taken(small_trace(), tmp_path / "plain")
    _, other = taken(pack(small_trace()), tmp_path)
    for table in ("range", "marker", "counter", "track", "process"):
        assert query(other, f"FROM {table}") == query(plain, f"FROM {table}")
    assert choose_reader(tmp_path / "trace.pftrace") == "perfetto_proto"


def test_descriptors_may_follow_the_events(tmp_path: Path) -> None:
    run, store = taken(begin(BIG, 2, "a") + end(BIG + 1, 2) + thread(2, 7, 8, "late"), tmp_path)
    assert query(store, "SELECT start_ns, dur_ns, name FROM range") == [(BIG, 1, "a")]
    assert query(store, "SELECT kind, name, tid_text FROM track") == [("thread", "late", "8")]
    assert run.complete


def test_interned_strings_are_valid_until_their_sequence_is_cleared(tmp_path: Path) -> None:
    def interned(seq: int, name: str, category: str) -> bytes:
        names = message((2, message((1, 1), (2, name))), (1, message((1, 1), (2, category))))
        return packet((10, seq), (13, 1), (12, names))

    def slice_(ts: int, seq: int) -> bytes:
        return event(ts, (9, BEGIN), (11, 2), (10, 1), (3, 1), seq=seq, flags=2) + end(ts + 1, 2, seq=seq)

    data = thread(2, 1, 2, "t") + interned(1, "one", "x") + interned(2, "two", "y") + slice_(10, 1) + slice_(20, 2)
    run, store = taken(data + interned(1, "three", "z") + slice_(30, 1), tmp_path)
    assert query(store, "SELECT name, category FROM range ORDER BY start_ns") == [
        ("one", "x"),
        ("two", "y"),
        ("three", "z"),
    ]
    assert run.complete


def test_events_of_a_sequence_with_lost_state(tmp_path: Path) -> None:
    """Their interned strings and incremental timestamps are unknown: they are dropped and counted."""
    good = packet((10, 1), (13, 1)) + begin(5, 2, "kept") + end(6, 2)
    lost = packet((10, 1), (42, 1)) + event(7, (9, BEGIN), (11, 2), (10, 9), flags=2)
    run, store = taken(good + lost, tmp_path)
    assert query(store, "SELECT name FROM range") == [("kept",)]
    assert run.accounts.by_record["lost track events"].lost == 1
    assert "missing_records" in codes(run) and not run.complete


def test_an_unknown_interned_id(tmp_path: Path) -> None:
    run, store = taken(event(7, (9, BEGIN), (11, 2), (10, 9)) + end(8, 2), tmp_path)
    assert query(store, "SELECT name, dur_ns FROM range") == [(None, 1)]
    assert {"missing_text", "no_name"} <= codes(run)


def test_all_kinds_of_annotations(tmp_path: Path) -> None:
    def note(name: str, *fields: tuple[int, object]) -> tuple[int, bytes]:
        return 4, message((10, name), *fields)

    fields = [
        note("bool", (2, 1)),
        note("uint", (3, 2**64 - 1)),
        note("int", (4, -(2**63))),
        note("double", (5, 0.1)),
        note("nan", (5, float("nan"))),
        note("string", (6, 'a "quote" \n é')),
        note("pointer", (7, 0xDEADBEEF)),
        note("json", (9, '{"x":[1,2.50]}')),
        note("not json", (9, "{oops")),
        note("dict", (11, message((10, "k"), (4, 1))), (11, message((10, "l"), (12, message((4, 2)))))),
        note("array", (12, message((4, 1))), (12, message((6, "two")))),
        NESTED,
        note("twice", (4, 1)),
        note("twice", (4, 2)),
    ]
    # C makes the args of the second slice.
    data = begin(1, 2, "s", *fields) + end(2, 2, note("at end", (4, 3))) + begin(3, 2, "t", NESTED) + end(4, 2)
    _, store = taken(data, tmp_path)
    [(text,), (of_c,)] = query(store, "SELECT args FROM range ORDER BY start_ns")
    assert '"uint":18446744073709551615' in text and '"x":[1,2.50]' in text
    assert json.loads(text) == {
        "bool": True,
        "uint": 2**64 - 1,
        "int": -(2**63),
        "double": 0.1,
        "nan": "nan",
        "string": 'a "quote" \n é',
        "pointer": "0xdeadbeef",
        "json": {"x": [1, 2.5]},
        "not json": "{oops",
        "dict": {"k": 1, "l": [2]},
        "array": [1, "two"],
        "nested": {"a": [-7, 0.5, True, "text"], "b": None},
        "twice": [1, 2],
        "at end": 3,
        "track_event": {"pointers": ["pointer"]},
    }
    assert of_c == '{"nested":{"a":[-7,0.5,true,"text"],"b":null}}'


def test_fields_of_events_other_than_annotations(tmp_path: Path) -> None:
    interned = message(
        (4, message((1, 3), (2, "a.cc"), (3, "Run"), (4, 12))),
        (20, message((1, 5), (2, "hello"))),
        (29, message((1, 6), (2, "value"))),
        (3, message((1, 7), (2, "key"))),
    )
    data = packet((10, 1), (13, 1), (12, interned))
    data += begin(1, 2, "s", (34, 3), (21, message((2, 5))), (52, 77), (4, message((1, 7), (17, 6))), (99, b"\x01"))
    _, store = taken(data + end(2, 2), tmp_path)
    assert args_of(store, "s") == {
        "key": "value",
        "track_event": {
            "source": {"file_name": "a.cc", "function_name": "Run", "line_number": 12},
            "source_location_iid": 3,
            "log_message": {"message": "hello"},
            "correlation_id": 77,
            "field_99": "01",
        },
    }


def test_tracks_of_their_own(tmp_path: Path) -> None:
    data = process(1, 7, "app") + track(10, "GPU", (5, 1)) + track(11, "Queue", (5, 10)) + track(12, "global")
    for uuid in (1, 11, 12):
        data += begin(uuid, uuid, f"on {uuid}") + end(uuid + 1, uuid)
    _, store = taken(data, tmp_path)
    found = query(
        store,
        "SELECT r.name, t.kind, p.name, t.name, t.scope FROM range AS r JOIN track AS t USING (track_id) "
        "LEFT JOIN process AS p ON p.process_id = t.process_id ORDER BY r.id",
    )
    assert found == [
        ("on 1", "process", "app", None, None),
        ("on 11", "async", "app", "Queue", "GPU"),
        ("on 12", "async", None, "global", None),
    ]


def test_the_thread_of_events_without_a_track(tmp_path: Path) -> None:
    """It is the first thread that their sequence describes; another sequence has its own or none."""
    data = thread(2, 7, 8, "first", seq=1) + thread(3, 7, 9, "second", seq=1) + thread(4, 7, 10, "other", seq=2)
    for seq in (1, 2, 3):
        data += event(10 * seq, (9, INSTANT), (23, f"on {seq}"), seq=seq)
    _, store = taken(data, tmp_path)
    names = "SELECT m.name, t.tid_text, t.name FROM marker AS m JOIN track AS t USING (track_id) ORDER BY ts_ns"
    assert query(store, names) == [("on 1", "8", "first"), ("on 2", "10", "other"), ("on 3", "0", "Default Track")]


def test_ranks_of_processes_and_threads_are_their_sort_order(tmp_path: Path) -> None:
    data = track(1, "", (3, message((1, 7), (6, "app"))), (12, 5)) + track(
        2, "", (4, message((1, 7), (2, 8))), (12, 2**64 - 3)
    )
    _, store = taken(data + begin(1, 2, "s") + end(2, 2), tmp_path)
    assert query(store, "SELECT sort_index FROM process UNION ALL SELECT sort_index FROM track") == [(5,), (-3,)]


def test_counters_with_units_multipliers_and_differences(tmp_path: Path) -> None:
    data = track(3, "bytes", (8, message((3, 3), (4, 1024)))) + track(4, "sum", (8, message((5, 1), (6, "hits"))))
    data += track(5, "bytes", (8, message((3, 3))))
    for ts, uuid, value in ((1, 3, 2), (2, 4, 5), (3, 4, -2), (4, 5, 2**62)):
        data += event(ts, (9, COUNTER), (11, uuid), (30, value))
    _, store = taken(data, tmp_path)
    rows = "SELECT t.name, t.unit, c.value_int FROM counter AS c JOIN track AS t USING (track_id) ORDER BY ts_ns"
    assert query(store, rows) == [
        ("bytes", "bytes", 2048),
        ("sum", "hits", 5),
        ("sum", "hits", 3),
        ("bytes", "bytes", 2**62),
    ]


def test_counter_values_in_events(tmp_path: Path) -> None:
    data = thread(2, 7, 8, "t") + track(20, "time", (5, 2), (8, message((1, 1), (4, 1000), (5, 1))))
    data += track(21, "cache", (8, message((3, 2))))
    data += packet((10, 1), (13, 1), (59, message((11, message((11, 2), (31, 20))))))
    data += event(10, (9, BEGIN), (23, "a"), (12, 3)) + event(30, (9, END), (12, 4))
    data += event(40, (9, BEGIN), (23, "b"), (31, 21), (12, 9)) + event(41, (9, END))
    _, store = taken(data, tmp_path)
    assert query(store, "SELECT name, thread_start_ns, thread_dur_ns FROM range ORDER BY start_ns") == [
        ("a", 3000, 4000),
        ("b", None, None),
    ]
    counters = "SELECT t.name, ts_ns, value_int FROM counter JOIN track AS t USING (track_id) ORDER BY ts_ns"
    assert query(store, counters) == [
        ("time", 10, 3000),
        ("time", 30, 7000),
        ("cache", 40, 9),
    ]


def test_flows_connect_the_events_with_their_id(tmp_path: Path) -> None:
    """An ID can be reused after its end; an event may have several; IDs are unsigned 64-bit numbers."""
    high = 2**64 - 1
    data = begin(10, 2, "a", (47, Fixed64(high)), (47, Fixed64(5))) + end(20, 2)
    data += begin(30, 3, "b", (47, Fixed64(high))) + end(40, 3)
    data += begin(50, 2, "c", (48, Fixed64(high)), (48, Fixed64(5))) + end(60, 2)
    data += begin(70, 2, "d", (36, high)) + end(80, 2)
    data += event(90, (9, INSTANT), (11, 2), (23, "e"), (42, high))
    _, store = taken(data, tmp_path)
    names = "SELECT id, name FROM range UNION ALL SELECT id, name FROM marker"
    arrows = f"""WITH n AS ({names}) SELECT a.name, b.name, f.external_id, f.src_ns, f.dst_ns FROM flow AS f
        JOIN n AS a ON a.id = f.src_id JOIN n AS b ON b.id = f.dst_id ORDER BY f.dst_ns, f.src_ns, f.external_id"""
    assert query(store, arrows) == [
        ("a", "b", str(high), 10, 30),
        ("a", "c", "5", 10, 50),
        ("b", "c", str(high), 30, 50),
        ("d", "e", str(high), 70, 90),
    ]


class TestClocks:
    def test_incremental_microseconds_of_a_sequence(self, tmp_path: Path) -> None:
        data = clocks((64, 500, 1, 1000), (6, BIG)) + packet((10, 1), (13, 1), (59, message((58, 64))))
        data += begin(3, 2, "a") + end(4, 2) + begin(0, 2, "b") + end(1, 2)
        run, store = taken(data, tmp_path)
        assert query(store, "SELECT name, start_ns, dur_ns FROM range ORDER BY id") == [
            ("a", BIG + 3000, 4000),
            ("b", BIG + 7000, 1000),
        ]
        assert run.complete

    def test_clock_conversion_through_another_clock(self, tmp_path: Path) -> None:
        """Snapshots relate the sequence's clock to MONOTONIC, and others relate that to BOOTTIME, repeatedly."""
        data = clocks((3, 1000), (6, 5000), seq=9) + clocks((3, 2000), (6, 6500), seq=9)
        data += clocks((64, 0, 1, 1), (3, 1500), seq=1) + packet((10, 1), (13, 1), (59, message((58, 64))))
        data += begin(100, 2, "a") + end(500, 2)
        _, store = taken(data, tmp_path)
        # MONOTONIC 1600 is 5600; 2100 is after the second snapshot: 6600.
        assert query(store, "SELECT start_ns, dur_ns FROM range") == [(5600, 1000)]

    def test_an_unrelated_clock(self, tmp_path: Path) -> None:
        run, store = taken(
            event(5, (9, BEGIN), (11, 2), (23, "a"), clock=3) + event(9, (9, END), (11, 2), clock=3), tmp_path
        )
        assert query(store, "SELECT start_ns, dur_ns FROM range") == [(5, 4)]
        assert "no_clock_sync" in codes(run)

    def test_timestamps_of_a_sequence_clock_without_snapshot_are_unknown(self, tmp_path: Path) -> None:
        run, store = taken(begin(1, 2, "kept") + end(2, 2) + event(5, (9, INSTANT), (11, 2), clock=64), tmp_path)
        assert query(store, "SELECT count(*) FROM marker") == [(0,)]
        assert run.accounts.by_record["lost track events"].lost == 1 and "no_time" in codes(run)

    def test_a_trace_with_its_own_primary_clock(self, tmp_path: Path) -> None:
        data = clocks((3, 10), (6, 1010), primary=3) + begin(50, 2, "a") + end(60, 2)
        data += event(2000, (9, INSTANT), (11, 2), clock=6)
        _, store = taken(data, tmp_path)
        assert query(store, "SELECT start_ns FROM range") == [(50,)]
        assert query(store, "SELECT ts_ns FROM marker") == [(1000,)]

    def test_times_of_another_machine_are_those_of_the_host(self, tmp_path: Path) -> None:
        """Two round trips between the machines, as trace processor averages them: 3990 and 4000 ns apart."""
        rounds = [((5000, 4990), (1060, 1040)), ((5100, 5090), (1140, 1120))]
        readings = [
            [message(*((1, message((1, clock), (2, ns))) for clock, ns in zip((6, 3), one, strict=True)))
             for one in pair]
            for pair in rounds
        ]  # fmt: skip
        sync = message(*((1, message((2, client), (3, host))) for client, host in readings))
        data = clocks((3, 900), (6, 1000), seq=1) + packet((10, 1), (98, 7), (107, sync))
        data += packet((10, 2), (98, 7), (60, message((1, 9), (4, message((1, 5), (2, 6))))))
        data += begin(1500, 2, "host", seq=3) + end(1600, 2, seq=3)
        for ts, clock in ((5500, 6), (5690, 3)):
            data += packet((8, ts), (58, clock), (10, 2), (98, 7), (11, message((9, INSTANT), (11, 9))))
        data += packet((8, 5500), (10, 4), (98, 8), (11, message((9, INSTANT), (11, 9))))
        run, store = taken(data, tmp_path)
        assert query(store, "SELECT start_ns, dur_ns FROM range") == [(1500, 100)]
        assert query(store, "SELECT ts_ns FROM marker ORDER BY ts_ns") == [(1505,), (1705,), (5500,)]
        [entry] = [entry for entry in run.log if entry.code.text == "no_clock_sync"]
        assert entry.event_count == 1 and "BOOTTIME of machine 8" in entry.message


class TestLegacyEvents:
    """Chrome events in the legacy form of trace JSON."""

    @staticmethod
    def legacy(ts: int, *fields: tuple[int, object], outer: tuple[tuple[int, object], ...] = ()) -> bytes:
        return event(ts, (23, "e"), (22, "c"), *outer, (6, message(*fields)))

    def test_phases(self, tmp_path: Path) -> None:
        def ph(letter: str) -> tuple[int, object]:
            return 2, ord(letter)

        both = (18, 7), (19, 8)
        data = self.legacy(1000, ph("X"), (3, 5), (4, 2), *both, outer=((17, 9),))
        data += self.legacy(10_000, ph("B"), *both) + self.legacy(11_000, ph("E"), *both)
        data += self.legacy(20_000, ph("b"), (10, 255), *both) + self.legacy(21_000, ph("e"), (10, 255), *both)
        data += self.legacy(30_000, ph("S"), (6, 1), *both) + self.legacy(31_000, ph("F"), (6, 1), *both)
        data += self.legacy(40_000, ph("I"), (14, 2), *both)
        data += event(50_000, (23, "cnt"), (4, message((10, "v"), (4, 3))), (6, message(ph("C"), *both)))
        data += event(0, (23, "thread_name"), (4, message((10, "name"), (6, "Main"))), (6, message(ph("M"), *both)))
        run, store = taken(data, tmp_path)
        assert query(
            store,
            "SELECT start_ns, dur_ns, thread_start_ns, thread_dur_ns, t.kind, t.tid_text, t.name FROM range "
            "JOIN track AS t USING (track_id) ORDER BY start_ns",
        ) == [
            (1000, 5000, 9000, 2000, "thread", "8", "Main"),
            (10_000, 1000, None, None, "thread", "8", "Main"),
            (20_000, 1000, None, None, "async", "0xff", "e"),
            (30_000, 1000, None, None, "async", "0x1", "e"),
        ]
        assert query(store, "SELECT ts_ns, scope FROM marker") == [(40_000, "process")]
        counters = "SELECT t.name, ts_ns, series, value_int FROM counter JOIN track AS t USING (track_id) ORDER BY 2"
        assert query(store, counters) == [("thread_time", 1000, "value", 9000), ("cnt", 50_000, "v", 3)]
        assert run.complete

    def test_flows(self, tmp_path: Path) -> None:
        def ph(letter: str) -> tuple[int, object]:
            return 2, ord(letter)

        data = b"".join(
            (
                self.legacy(1000, ph("X"), (3, 5), (19, 1)),
                self.legacy(2000, ph("s"), (6, 77), (19, 1)),
                self.legacy(9000, ph("X"), (3, 5), (19, 2)),
                self.legacy(9500, ph("f"), (6, 77), (12, 1), (19, 2)),
                self.legacy(20_000, ph("X"), (3, 5), (8, 9), (13, 2), (19, 1)),
                self.legacy(30_000, ph("X"), (3, 5), (8, 9), (13, 1), (19, 1)),
            )
        )
        _, store = taken(data, tmp_path)
        assert query(
            store,
            "SELECT a.start_ns, b.start_ns FROM flow AS f JOIN range AS a ON a.id = src_id "
            "JOIN range AS b ON b.id = dst_id ORDER BY 1",
        ) == [(1000, 9000), (20_000, 30_000)]

    def test_threads_and_times_of_the_legacy_form(self, tmp_path: Path) -> None:
        descriptor = message((1, 7), (2, 8), (5, "old"), (6, 100), (7, 50))
        data = packet((10, 1), (13, 1), (44, descriptor), (43, message((1, 7), (6, "proc"))))
        data += packet((10, 1), (11, message((1, 5), (2, 1), (23, "a"), (6, message((2, ord("B")))))))
        data += packet((10, 1), (11, message((1, 10), (2, 2), (6, message((2, ord("E")))))))
        _, store = taken(data, tmp_path)
        assert query(
            store,
            "SELECT r.start_ns, r.dur_ns, r.thread_start_ns, r.thread_dur_ns, t.name, p.name FROM range AS r "
            "JOIN track AS t USING (track_id) JOIN process AS p USING (process_id)",
        ) == [(105_000, 10_000, 51_000, 2000, "old", "proc")]


def test_other_data_sources_are_counted(tmp_path: Path) -> None:
    data = small_trace() + packet((8, 5), (10, 1), (1, b"\x08\x01")) * 3 + packet((10, 1), (33, b"\x08\x01"))
    run, _ = taken(data, tmp_path)
    accounts = run.accounts.by_record
    assert accounts["packets: ftrace events"].lost == 3 and accounts["packets: trace config"].used == 1
    assert {(e.code.text, e.event_count) for e in run.log} == {("unknown_record", 3), ("not_read", 1)}


def test_a_trace_without_supported_packets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        taken(packet((8, 5), (10, 1), (1, b"\x08\x01")), tmp_path)


def test_unmatched_begins_and_ends(tmp_path: Path) -> None:
    run, store = taken(end(1, 2) + begin(5, 2, "open"), tmp_path)
    assert query(store, "SELECT name, dur_ns FROM range") == [("open", None)]
    assert {"end_without_begin", "unfinished"} <= codes(run)


def test_an_end_closes_the_last_begin_in_time_whatever_its_place_in_the_file(tmp_path: Path) -> None:
    """Sequences are written in turns: the begin before an end in the file may be of an outer slice."""
    data = begin(1, 1, "outer") + end(9, 1) + begin(3, 1, "inner") + end(12, 1)
    _, store = taken(data, tmp_path)
    assert query(store, "SELECT name, start_ns, dur_ns, depth FROM range ORDER BY start_ns") == [
        ("outer", 1, 11, 0),
        ("inner", 3, 6, 1),
    ]


def test_an_event_of_an_unknown_type(tmp_path: Path) -> None:
    run, _ = taken(small_trace() + event(9, (9, 77), (11, 2)), tmp_path)
    assert run.accounts.by_record["other events"].lost == 1 and "unknown_phase" in codes(run)
    assert END == 2
