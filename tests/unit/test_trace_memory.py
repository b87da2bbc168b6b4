"""Blocks of memory out of the moments at which PyTorch saw it allocated and freed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from traceconv.base.errors import InputError
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.pipeline.ingest import ingest

BASE_US = 1_700_000_000_000_000
BASE_NS = BASE_US * 1000
CPU, CUDA = 0, 1


def moment(
    us: int, size: Any, address: Any = None, *, kind: Any = CUDA, device: int = 0, pid: int = 1, **args: Any
) -> dict[str, Any]:
    said = {"Device Type": kind, "Device Id": device, "Bytes": size, **args}
    if address is not None:
        said["Addr"] = address
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": pid, "tid": 1, "ts": BASE_US + us, "args": said}


def blocks(
    folder: Path,
    *moments: dict[str, Any],
    want: str = "device_id, address, size_bytes, alloc_ns - {base}, free_ns - {base}",
) -> list[Any]:
    path = folder / "trace.json"
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1, "tid": 1, "ts": BASE_US, "dur": 1000}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op, *moments]}))
    ingest([path], folder / "trace.duckdb")
    with duckdb.connect(str(folder / "trace.duckdb"), read_only=True) as store:
        return store.execute(f"SELECT {want.format(base=BASE_NS)} FROM memory ORDER BY block_id").fetchall()


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


def test_the_order_in_the_file_does_not_matter_but_for_one_moment(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(9, -8, 64), moment(5, -8, 64), moment(5, 8, 64), moment(1, 8, 64))
    assert sorted(found) == [(0, 64, 8, 1000, 5000), (0, 64, 8, 5000, 9000)]


def test_what_the_recording_did_not_see_allocated_has_no_start(tmp_path: Path) -> None:
    assert blocks(tmp_path, moment(3, -512, 4096)) == [(0, 4096, 512, None, 3000)]


def test_a_free_that_was_lost_leaves_the_block_unfreed(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 512, 4096), moment(2, 512, 4096), moment(3, -512, 4096))
    assert found == [(0, 4096, 512, 1000, None), (0, 4096, 512, 2000, 3000)]


def test_without_addresses_blocks_of_one_size_are_alike(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 512), moment(2, 512), moment(3, 64), moment(4, -512), moment(5, -64))
    assert found == [(0, None, 512, 1000, None), (0, None, 512, 2000, 4000), (0, None, 64, 3000, 5000)]


def test_the_host_has_a_number_of_its_own(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 8, 64, kind=CPU, device=0), moment(2, 8, 64), moment(3, -8, 64))
    assert found == [(-1, 64, 8, 1000, None), (0, 64, 8, 2000, 3000)]
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        assert store.execute("SELECT device_id, kind FROM device ORDER BY 1").fetchall() == [(-1, "CPU"), (0, None)]


def test_addresses_of_two_processes_are_different_memory(tmp_path: Path) -> None:
    found = blocks(tmp_path, moment(1, 8, 64, pid=1), moment(2, 8, 64, pid=2), moment(3, -8, 64, pid=1))
    assert found == [(0, 64, 8, 1000, 3000), (0, 64, 8, 2000, None)]


def test_use_over_time_is_what_the_writer_counted(tmp_path: Path) -> None:
    """Of 1000 bytes that were there before, 300 are freed; the other 700 are a block without times."""
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


def test_numbers_at_the_edges(tmp_path: Path) -> None:
    """Addresses that were written signed, sizes that are no numbers or too large: no block is guessed."""
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


def test_sizes_that_no_sum_holds(tmp_path: Path) -> None:
    """A total that is beyond 64 bits is not known; neither reading nor asking breaks off."""
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


def test_a_trace_without_them_has_no_blocks(tmp_path: Path) -> None:
    assert blocks(tmp_path) == []


def test_an_export_of_ours_has_its_blocks_once(tmp_path: Path) -> None:
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
def test_rules_that_describe_no_markers_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rules(f'title = "x"\n[memory]\n{text}\n', "rules.toml")
