"""Memory blocks from PyTorch's markers of allocations and frees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import rows_of
from stores import query

from traceconv.base.errors import InputError
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.pipeline.ingest import ingest

BASE_US = 1_700_000_000_000_000
BASE_NS = BASE_US * 1000
CPU, CUDA = 0, 1


def moment(
    us: int, size: Any, address: Any = None, *, kind: Any = CUDA, device: int = 0, pid: int = 1, **args: Any
) -> dict[str, Any]:
    fields = {"Device Type": kind, "Device Id": device, "Bytes": size, **args}
    if address is not None:
        fields["Addr"] = address
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": pid, "tid": 1, "ts": BASE_US + us, "args": fields}


def blocks(
    folder: Path,
    *moments: dict[str, Any],
    want: str = "device_id, address, size_bytes, alloc_ns - {base}, free_ns - {base}",
) -> list[Any]:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1, "tid": 1, "ts": BASE_US, "dur": 1000}
    trace = {"schemaVersion": 1, "traceEvents": [op, *moments]}
    return rows_of(trace, folder, f"SELECT {want.format(base=BASE_NS)} FROM memory ORDER BY block_id")


def test_an_allocation_and_the_next_free_of_its_address_are_one_block(tmp_path: Path) -> None:
    found = blocks(
        tmp_path,
        moment(1, 512, 4096),
        moment(2, 64, 8192),
        moment(3, -512, 4096),
        moment(4, 256, 4096),
        moment(5, -256, 4096),
    )
    assert found == [(0, 4096, 512, 1000, 3000), (0, 8192, 64, 2000, None), (0, 4096, 256, 4000, 5000)]


def test_allocations_written_as_slices_are_instants(tmp_path: Path) -> None:
    """The exporter in Python of PyTorch 2.13 gives them the time until the end of the recording."""
    slices = [
        {**{key: value for key, value in one.items() if key != "s"}, "ph": "X", "cat": "cpu_instant_event", "dur": 900}
        for one in (moment(1, 512, 4096), moment(3, -512, 4096), moment(5, 64, 8192))
    ]
    assert blocks(tmp_path, *slices) == [(0, 4096, 512, 1000, 3000), (0, 8192, 64, 5000, None)]
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert store.execute("SELECT name, self_ns FROM range").fetchall() == [("aten::empty", 1_000_000)]
        assert store.execute("SELECT name, count(*) FROM marker GROUP BY 1").fetchall() == [("[memory]", 3)]
        accounts = "SELECT record, record_count, row_count, lost_count FROM import_account WHERE record_count > 0"
        assert store.execute(accounts).fetchall() == [("X events", 4, 4, 0)]


def test_the_order_in_the_file_matters_only_at_equal_timestamps(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(9, -8, 64), moment(5, -8, 64), moment(5, 8, 64), moment(1, 8, 64))
    assert sorted(found) == [(0, 64, 8, 1000, 5000), (0, 64, 8, 5000, 9000)]


def test_blocks_allocated_before_the_recording_have_no_start(tmp_path: Path) -> None:
    assert blocks(tmp_path, moment(3, -512, 4096)) == [(0, 4096, 512, None, 3000)]


def test_nothing_is_before_a_free_at_the_earliest_possible_time(tmp_path: Path) -> None:
    first = {**moment(0, -512, 4096), "ts": "-9223372036854775.807"}
    assert blocks(tmp_path, first, want="size_bytes, alloc_ns, free_ns") == [(512, None, -(2**63) + 1)]
    for usage in ("start_ns, used_bytes FROM memory_interval", "ts_ns, used_bytes FROM memory_usage"):
        sql = f"SELECT {usage} WHERE level = 'device'"
        assert query(tmp_path / "trace.duckdb", sql) == [(-(2**63) + 1, 0)]


def test_a_block_whose_free_was_lost_is_not_freed(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 512, 4096), moment(2, 512, 4096), moment(3, -512, 4096))
    assert found == [(0, 4096, 512, 1000, None), (0, 4096, 512, 2000, 3000)]


def test_without_addresses_frees_are_matched_by_size(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 512), moment(2, 512), moment(3, 64), moment(4, -512), moment(5, -64))
    assert found == [(0, None, 512, 1000, None), (0, None, 512, 2000, 4000), (0, None, 64, 3000, 5000)]


@pytest.mark.parametrize("size", ["many", None, 2**70])
def test_events_whose_size_can_not_be_read_are_a_loss(tmp_path: Path, size: object) -> None:
    found = blocks(tmp_path, moment(1, 512, 4096), moment(2, size, 4096), moment(3, 0, 4096), moment(4, -512, 4096))
    assert found == [(0, 4096, 512, 1000, 4000)]
    logged = query(tmp_path / "trace.duckdb", "SELECT code, severity, event_count FROM import_log")
    assert logged == [("bad_number", "data_loss", 1)]


def test_the_host_is_device_minus_1(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 8, 64, kind=CPU, device=0), moment(2, 8, 64), moment(3, -8, 64))
    assert found == [(-1, 64, 8, 1000, None), (0, 64, 8, 2000, 3000)]
    assert query(tmp_path / "trace.duckdb", "SELECT device_id, kind FROM device ORDER BY 1") == [(-1, "CPU"), (0, None)]


def test_equal_addresses_in_two_processes_are_different_blocks(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 8, 64, pid=1), moment(2, 8, 64, pid=2), moment(3, -8, 64, pid=1))
    assert found == [(0, 64, 8, 1000, 3000), (0, 64, 8, 2000, None)]


def test_memory_in_use_agrees_with_the_totals_of_the_writer(tmp_path: Path) -> None:
    """300 of 1000 bytes allocated before the recording are freed; the other 700 are a block without timestamps."""
    events = [
        moment(1, 100, 64, **{"Total Allocated": 1100}),
        moment(2, -300, 128, **{"Total Allocated": 800}),
        moment(3, 50, 256, **{"Total Allocated": 850}),
        moment(4, -100, 64, **{"Total Allocated": 750}),
    ]
    assert (0, None, 700, None, None) in blocks(tmp_path, *events)
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        used = dict(
            store.execute(f"SELECT ts_ns - {BASE_NS}, used_bytes FROM memory_usage WHERE level = 'device'").fetchall()
        )
        peak = store.execute("SELECT peak_used_bytes FROM memory_peak WHERE level = 'device'").fetchall()
        kept = store.execute("SELECT count(*) FROM marker WHERE name = '[memory]'").fetchall()
    assert {us: used[us * 1000] for us in (1, 2, 3, 4)} == {1: 1100, 2: 800, 3: 850, 4: 750}
    assert peak == [(1100,)]
    assert kept == [(4,)]


def total(us: int, size: int, address: int, total_bytes: int) -> dict[str, Any]:
    return moment(us, size, address, kind=CPU, device=-1, **{"Total Allocated": total_bytes})


def test_mapped_memory_is_not_part_of_what_the_allocator_held(tmp_path: Path) -> None:
    """Of 1000 bytes from before the recording, 300 are freed. One tensor is mapped meanwhile, others were before."""
    mapped = [total(1, 4000, 4096, 0), total(4, -98304, 8192, 0), total(5, -64, 12288, 0), total(7, -4000, 4096, 0)]
    counted = [total(2, 100, 64, 1100), total(3, -300, 128, 800), total(6, -100, 64, 700), total(8, 8, 256, 708)]
    assert blocks(tmp_path, *mapped, *counted) == [
        (-1, None, 700, None, None),
        (-1, 4096, 4000, 1000, 7000),
        (-1, 8192, 98304, None, 4000),
        (-1, 12288, 64, None, 5000),
        (-1, 64, 100, 2000, 6000),
        (-1, 128, 300, None, 3000),
        (-1, 256, 8, 8000, None),
    ]
    sql = "SELECT ts_ns, used_bytes FROM memory_usage WHERE level = 'device'"
    used = {(ns - BASE_NS) // 1000: size for ns, size in query(tmp_path / "trace.duckdb", sql) if ns > BASE_NS}
    before = 98304 + 64
    assert used == {1: 5000 + before, 2: 5100 + before, 3: 4800 + before, 4: 4864, 5: 4800, 6: 4700, 7: 700, 8: 708}


@pytest.mark.parametrize("first", [True, False])
def test_a_free_of_all_that_the_allocator_held_is_a_block(first: bool, tmp_path: Path) -> None:
    """Its total of 0 is the allocator's, since the changes around it agree."""
    before = [] if first else [total(1, -300, 64, 200)]
    found = blocks(tmp_path, *before, total(2, -200, 128, 0), total(3, 8, 256, 8), total(4, -8, 256, 0))
    expected = [(300, None, 1000), (200, None, 2000), (8, 3000, 4000)]
    assert [block[2:] for block in found] == expected[first:]


def test_what_the_allocator_reserves_is_segments(tmp_path: Path) -> None:
    reserved = [
        (1, 8, 64, 100),
        (2, 16, 128, 100),
        (3, 200, 256, 300),
        (4, -16, 128, 300),
        (5, -200, 256, 60),
        (6, -8, 64, 0),
    ]
    moments = [moment(us, size, address, **{"Total Reserved": held}) for us, size, address, held in reserved]
    # For what it maps on the host, PyTorch writes its size as the reserved total.
    host = moment(7, 8, 64, kind=CPU, **{"Total Allocated": 0, "Total Reserved": 8})
    want = "kind, device_id, size_bytes, alloc_ns - {base}, free_ns - {base}"
    assert [block for block in blocks(tmp_path, *moments, host, want=want) if block[0] == "segment"] == [
        ("segment", 0, 100, None, 3000),
        ("segment", 0, 300, 3000, 5000),
        ("segment", 0, 60, 5000, 6000),
    ]
    columns = "device_id, peak_used_bytes, reserved_bytes, fragmentation_bytes, peak_reserved_bytes, live_count"
    found = query(tmp_path / "trace.duckdb", f"SELECT {columns} FROM memory_peak")
    assert found == [(-1, 8, None, None, None, 1), (0, 224, 300, 76, 300, 3)]


def test_extreme_and_invalid_addresses_and_sizes(tmp_path: Path) -> None:
    """Addresses written as signed numbers are read; for invalid or too large sizes, no block is guessed."""
    found = blocks(
        tmp_path,
        moment(1, 8, -4096),
        moment(2, -8, 2**64 - 4096),
        moment(3, "many", 64),
        moment(4, 0, 64),
        moment(5, 2**70, 64),
        moment(6, -(2**63), 64),
        moment(7, 16, "somewhere"),
        moment(8, 8, 2**66),
        moment(9, 2**62, 1, **{"Total Allocated": -(2**62)}),
    )
    assert found == [
        (0, 2**64 - 4096, 8, 1000, 2000),
        (0, None, 16, 7000, None),
        (0, None, 8, 8000, None),
        (0, 1, 2**62, 9000, None),
    ]


def test_totals_beyond_64_bits_are_unknown(tmp_path: Path) -> None:
    """Ingest and reports still succeed."""
    most = 2**63 - 1
    events = [moment(us, most, us, **{"Total Allocated": -most}) for us in (1, 2, 3)]
    events.append(moment(4, -most, 99, device=1, **{"Total Allocated": most}))
    assert len(blocks(tmp_path, *events)) == 5
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        rows = store.execute(
            f"SELECT ts_ns - {BASE_NS}, used_bytes FROM memory_usage "
            "WHERE level = 'device' AND device_id = 0 ORDER BY 1"
        ).fetchall()
        store.execute("FROM memory_peak").fetchall()
    assert rows == [(1000, most), (2000, None), (3000, None)]


def test_a_trace_without_such_markers_has_no_blocks(tmp_path: Path) -> None:
    assert blocks(tmp_path) == []


def test_blocks_of_our_own_export_are_not_duplicated(tmp_path: Path) -> None:
    from traceconv.export.chrome import export_chrome

    blocks(tmp_path, moment(1, 8, 64), moment(2, -8, 64))
    with duckdb.connect(str(tmp_path / "trace.duckdb")) as store:
        export_chrome(store, 1, tmp_path / "again.json")
    ingest([tmp_path / "again.json"], tmp_path / "again.duckdb")
    with duckdb.connect(str(tmp_path / "again.duckdb"), read_only=True) as store:
        assert store.execute("SELECT count(*) FROM memory").fetchone() == (1,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "[memory]"', "memory: size_bytes is missing"),
        ('nme = "x"', "memory: unknown key 'nme'. Did you mean 'name'"),
        ("name = 1\nsize_bytes = 2", "memory: name must be a string"),
    ],
)
def test_invalid_memory_rules_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules(f'title = "x"\n[memory]\n{text}\n', "rules.toml")


def paddle_moment(us: int, change: str, size: int, place: str, allocated: int, reserved: int) -> dict[str, Any]:
    args = {
        "place": f"Place({place})", "addr": "94923988889600", "increase_bytes": size, "current_allocated": allocated,
        "current_reserved": reserved, "peak_allocated": 10**9, "peak_reserved": 10**9,
    }  # fmt: skip
    thread = {"pid": 5, "tid": "5(C++)"}
    return {"name": "[memory]", **thread, "ts": BASE_US + us, "ph": "i", "cat": change, "args": args}


def test_memory_of_paddle(tmp_path: Path) -> None:
    """Reserved memory of the host is not counted by its profiler: 8 MiB are what the first event saw."""
    operator = {"ph": "X", "cat": "Operator", "pid": 5, "tid": "5(C++)", "ts": BASE_US, "dur": 20.5}
    events = [
        {**operator, "name": "matmul dygraph[20.500 us]"},
        paddle_moment(1, "ReservedAllocate", 4096, "gpu:1", 1000, 6096),
        paddle_moment(2, "Allocate", 512, "gpu:1", 1512, 6096),
        paddle_moment(3, "Allocate", 64, "cpu", 1064, 8 << 20),
        paddle_moment(4, "Allocate", 32, "gpu_pinned", 1096, 8 << 20),
        paddle_moment(5, "Free", -512, "gpu:1", 1000, 6096),
        paddle_moment(6, "ReservedFree", -4096, "gpu:1", 1000, 2000),
    ]
    trace = {"schemaVersion": "1.0.2", "span_index": "0", "traceEvents": events}
    columns = f"device_id, kind, size_bytes, alloc_ns - {BASE_NS}, free_ns - {BASE_NS}"
    assert rows_of(trace, tmp_path, f"SELECT {columns} FROM memory ORDER BY device_id, kind, size_bytes, alloc_ns") == [
        (-1, "block", 32, 4000, None),
        (-1, "block", 64, 3000, None),
        (-1, "block", 1000, None, None),
        (1, "block", 512, 2000, 5000),
        (1, "block", 1000, None, None),
        (1, "segment", 2000, 6000, None),
        (1, "segment", 2000, None, 1000),
        (1, "segment", 6096, 1000, 6000),
    ]
    by_operator = "SELECT range_name, size_bytes FROM allocating_range ORDER BY size_bytes"
    store = tmp_path / "trace.duckdb"
    assert query(store, by_operator) == [("matmul dygraph", size) for size in (32, 64, 512)]
    assert query(store, "SELECT device_id, kind FROM device ORDER BY 1") == [(-1, "CPU"), (1, None)]
