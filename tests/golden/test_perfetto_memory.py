"""Packets about the memory of processes: counters as trace processor names them, and markers with all else."""

from __future__ import annotations

import json
from pathlib import Path

import perfetto_builder as pb
from ingest_checks import taken
from stores import query

HEAD = ((8, 5000), (10, 1))


def statistics(*processes: bytes) -> bytes:
    return pb.packet(*HEAD, (9, pb.message(*((1, process) for process in processes), (2, 6000))))


def test_statistics_of_processes(tmp_path: Path) -> None:
    browser = pb.message((1, 7), (2, 10), (3, 2**40), (10, -900), (13, 3), (21, 4), (24, 0))
    other = pb.message((1, 8), (3, 1), (12, True), (15, pb.message((1, 3), (2, "/dev/null"))), (99, 5))
    run, store = taken(pb.process(1, 7, "Browser") + statistics(browser, other), tmp_path)
    assert not run.log
    samples = query(
        store,
        "SELECT p.pid_text, p.name, k.name, c.ts_ns, c.value FROM counter AS c "
        "JOIN track AS k USING (run_id, track_id) JOIN process AS p USING (run_id, process_id) ORDER BY ALL",
    )
    assert samples == [
        ("7", "Browser", "chrome.private_footprint_kb", 5000, 3 * 1024),
        ("7", "Browser", "mem.dmabuf_rss", 5000, 0),
        ("7", "Browser", "mem.rss", 5000, 2**50),
        ("7", "Browser", "mem.virt", 5000, 10 * 1024),
        ("7", "Browser", "oom_score_adj", 5000, -900),
        ("7", "Browser", "runtime.user_ns", 5000, 4),
        ("8", None, "mem.rss", 5000, 1024),
    ]
    [(name, ns, args)] = query(store, "SELECT name, ts_ns, args FROM marker")
    assert (name, ns) == ("process stats", 5000)
    assert json.loads(args) == {
        "is_peak_rss_resettable": True,
        "fds": [{"fd": 3, "path": "/dev/null"}],
        "field_99": 5,
    }


def test_maps_of_memory_and_allocators(tmp_path: Path) -> None:
    entries = [pb.message((1, "libc.so"), (2, 4), (6, 65536)), pb.message((2, 8), (77, b"\xff"))]
    maps = pb.packet(*HEAD, (68, pb.message((1, 7), *((2, entry) for entry in entries))))
    packed = pb.packet(*HEAD, (68, pb.message((1, 7), (3, pb.message((1, "a"), (1, "b"), (4, bytes((1, 2))))))))
    number = pb.message((1, "objects"), (2, 2), (3, 5))
    node = pb.message((1, 1 << 63), (2, "malloc"), (4, 64), (5, number))
    process = pb.message((1, 7), (2, node), (3, pb.message((1, 1), (2, 2), (3, 9))))
    snapshot = pb.packet(*HEAD, (73, pb.message((1, 12), (2, 1), (3, process), (3, pb.message((1, 8))))))
    run, store = taken(pb.process(1, 7, "Browser") + maps + packed + snapshot, tmp_path)
    assert not run.log
    markers = query(
        store,
        "SELECT m.name, p.pid_text, args FROM marker AS m JOIN track AS k USING (run_id, track_id) "
        "JOIN process AS p USING (run_id, process_id) ORDER BY id",
    )
    about = {"global_dump_id": 12, "level_of_detail": "DETAIL_LIGHT"}
    dump = {"id": 1 << 63, "absolute_name": "malloc", "size_bytes": 64}
    objects = {"name": "objects", "units": "COUNT", "value_uint64": 5}
    edge = {"source_id": 1, "target_id": 2, "importance": 9}
    assert [(name, pid, json.loads(args)) for name, pid, args in markers] == [
        (
            "smaps",
            "7",
            {"entries": [{"path": "libc.so", "size_kb": 4, "start_address": 65536}, {"size_kb": 8, "field_77": "ff"}]},
        ),
        ("smaps", "7", {"packed_entries": {"string_table": ["a", "b"], "size_kb": [1, 2]}}),
        (
            "memory snapshot",
            "7",
            {**about, "allocator_dumps": [{**dump, "entries": [objects]}], "memory_edges": [edge]},
        ),
        ("memory snapshot", "8", about),
    ]


def test_packets_without_time_and_malformed_ones_are_lost(tmp_path: Path) -> None:
    broken = pb.packet(*HEAD, (9, b"\x0a\x7f"))
    timeless = pb.packet((10, 1), (68, pb.message((1, 7))))
    odd = pb.packet(*HEAD, (9, pb.message((2, 6000), (23, "x")))) + pb.packet(*HEAD, (73, pb.message((1, 4))))
    run, store = taken(
        pb.process(1, 7, "a") + statistics(pb.message((1, 7), (3, 1))) + broken + timeless + odd, tmp_path
    )
    assert run.accounts["lost track events"].lost == 2
    assert query(store, "SELECT name, args FROM marker ORDER BY name") == [
        ("memory snapshot", '{"global_dump_id":4}'),
        ("process stats", '{"field_23":"78"}'),
    ]
