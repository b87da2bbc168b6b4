"""Databases of rocmProfileData: every row against sums and joins in plain SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from ingest_checks import taken_from
from rpd_builder import Rpd, recording

from traceconv.base.diagnostics import Code
from traceconv.formats.registry import choose_reader

_TEXT = "(SELECT string FROM rocpd_string WHERE id = {})"
_ARGS = "(SELECT string FROM rocpd_{} WHERE id = args_id)"
_NAME = f"CASE {_TEXT.format('description_id')} WHEN '' THEN {_TEXT.format('opType_id')} "
_NAME += f"ELSE {_TEXT.format('description_id')} END"
_FUNCTION = _TEXT.format("apiName_id")
_PAIRS = "rocpd_api_ops JOIN rocpd_op o ON o.id = op_id"
_KERNELS = {1: "rocpd_kernelop d ON d.op_ptr_id = op_id", 2: "rocpd_kernelapi d ON d.api_ptr_id = api_id"}
_COPIES = {1: "rocpd_copyop d ON d.op_ptr_id = op_id", 2: "rocpd_copyapi d ON d.api_ptr_id = api_id"}
_ALONE = "(SELECT count(*) FROM rocpd_api_ops x WHERE x.api_id = rocpd_api_ops.api_id) = 1"
#: Statements on a store, and on the database.
_SAME = (
    (
        "SELECT name, start_ns, dur_ns, device_id FROM task",
        f'SELECT {_NAME}, start, "end" - start, gpuId FROM rocpd_op',
    ),
    (
        "SELECT src_ns, dst_ns FROM flow WHERE kind = 'launch'",
        f"SELECT a.start, o.start FROM {_PAIRS} JOIN rocpd_api a ON a.id = api_id",
    ),
    (
        "SELECT args->'$.gridY', args->'$.workgroupZ', args->'$.groupSegmentSize', start_ns FROM task "
        "WHERE (args->'$.gridX') IS NOT NULL",
        f"SELECT gridY, workgroupZ, groupSegmentSize, o.start FROM {_PAIRS} JOIN {{kernels}} WHERE {_ALONE}",
    ),
    (
        "SELECT size_bytes, start_ns FROM task WHERE size_bytes IS NOT NULL",
        f"SELECT size, o.start FROM {_PAIRS} JOIN {{copies}} WHERE {_ALONE}",
    ),
    (
        "SELECT name, start_ns, dur_ns, correlation_id FROM api",
        f"SELECT {_FUNCTION}, start, \"end\" - start, id FROM rocpd_api WHERE {_FUNCTION} LIKE 'hip%'",
    ),
    (
        "SELECT name, start_ns, dur_ns FROM range UNION ALL SELECT name, ts_ns, 0 FROM marker",
        f"SELECT CASE {_FUNCTION} WHEN 'UserMarker' THEN {{args}} ELSE {_FUNCTION} END, start, \"end\" - start "
        f"FROM rocpd_api WHERE {_FUNCTION} NOT LIKE 'hip%'",
    ),
    ("SELECT DISTINCT pid_text FROM process WHERE pid_text NOT LIKE 'GPU%'", "SELECT DISTINCT pid FROM rocpd_api"),
)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_row_of_each_version(version: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.rpd"
    recording(path, version)
    assert choose_reader(path) == "rpd"
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    args = _ARGS.format("ustring" if version == 3 else "string")
    tables = {"kernels": _KERNELS[min(version, 2)], "copies": _COPIES[min(version, 2)], "args": args}
    with sqlite3.connect(path) as db:
        for ours, theirs in _SAME:
            found = sorted(tuple(map(str, row)) for row in store.execute(ours).fetchall())
            assert found == sorted(tuple(map(str, row)) for row in db.execute(theirs.format(**tables))), ours
            assert found
        monitor = db.execute("SELECT value, start FROM rocpd_monitor").fetchall() if version > 1 else []
    db.close()
    assert sorted(store.execute("SELECT value, ts_ns FROM counter").fetchall()) == sorted(
        (float(value), start) for value, start in monitor
    )
    assert store.execute("SELECT kind, count(*) FROM task GROUP BY 1 ORDER BY 1").fetchall() == [
        ("collective", 2), ("compute", 4), ("copy", 4), ("sync", 2)]  # fmt: skip
    assert store.execute("SELECT DISTINCT iteration, end_ns - start_ns FROM step").fetchall() == [(3, 940)]
    # Queues of two processes have the same number; the details of a graph's launch are about one of its kernels.
    assert store.execute(
        "SELECT count(DISTINCT track_id) FROM task WHERE stream_id = 4 AND kind <> 'sync'"
    ).fetchone() == (2,)
    malloc, copy = store.execute(
        "SELECT args FROM api WHERE name IN ('hipMalloc', 'hipMemcpyAsync') AND start_ns < 1000 ORDER BY name"
    ).fetchall()
    assert '"args":"ptr=0x7f | size=0x40"' in malloc[0] and ('"size":64' in malloc[0]) == (version > 1)
    assert '"args":{"kind":"1", "dst":"0x7f"}' in copy[0]


def test_a_hostile_database(tmp_path: Path) -> None:
    """IDs of nothing, NULLs, texts and floats instead of integers, huge values; details without an index."""
    path = tmp_path / "trace.rpd"
    with sqlite3.connect(path) as db:
        for name, columns in {
            "string": "id integer primary key, string",
            "op": 'id integer primary key, gpuId, queueId, start, "end", description_id, opType_id',
            "api": 'id integer primary key, pid, tid, start, "end", apiName_id, args_id, domain_id, category_id',
            "api_ops": "api_id, op_id",
            "kernelapi": "api_ptr_id, gridX, kernelName_id",
            "monitor": 'deviceType, deviceId, monitorType, start, "end", value',
            "other": "start",
        }.items():
            db.execute(f"CREATE TABLE rocpd_{name} ({columns})")
        db.executemany(
            "INSERT INTO rocpd_string VALUES (?, ?)", [(1, "hip"), (2, "a\x00b"), (3, None), (4, b"\xff"), (5, "x")]
        )
        big = 2**63 - 1
        odd = [None, "1", b"\xfe", 1.5, big, -big - 1]
        for place, value in enumerate(odd):
            times = (value, value) if place % 2 else (5, value)
            db.execute("INSERT INTO rocpd_op VALUES (NULL, ?, ?, ?, ?, ?, ?)", (value, value, *times, value, 5))
            db.execute("INSERT INTO rocpd_api VALUES (NULL, ?, ?, ?, ?, ?, ?, 1, 3)", (value, value, *times, 5, value))
            db.execute("INSERT INTO rocpd_api_ops VALUES (?, ?)", (value, place + 1))
            db.execute("INSERT INTO rocpd_api_ops VALUES (?, ?)", (place + 1, 1))
            db.execute("INSERT INTO rocpd_kernelapi VALUES (?, ?, ?)", (place + 1, value, value))
            db.execute("INSERT INTO rocpd_monitor VALUES (?, ?, ?, 7, 8, ?)", (value, value, value, value))
        db.execute("INSERT INTO rocpd_op VALUES (?, 0, 0, 1, 2, 5, 5)", (-big - 1,))
        db.execute("INSERT INTO rocpd_other VALUES (1)")
    db.close()
    run, store = taken_from(path, tmp_path)
    codes = {entry.code for entry in run.log}
    assert {Code.MISSING_TEXT, Code.DAMAGED_BLOCK, Code.NO_TIME, Code.UNKNOWN_RECORD} <= codes
    assert store.execute("SELECT count(*) FROM task WHERE name = 'x'").fetchone() == (4,)
    assert store.execute("SELECT count(*) FROM api WHERE name = 'x'").fetchone() == (3,)


def test_damage_and_an_interrupted_writer_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "trace.rpd"
    rpd = Rpd(path, 3)
    for number in range(1, 1001):
        rpd.api(number, "hipLaunchKernel", number, number + 1, f"call {number}")
        rpd.op(number, "KernelExecution", f"kernel {number % 7}", number, number + 2, number)
        rpd.kernel("kernelapi", number, "kernel", stream="0x0")
    rpd.close()
    intact = path.read_bytes()
    for place in range(4096 * 9, len(intact) - 4096, 4096 * 23):
        path.write_bytes(intact[:place] + b"\xff" * 4096 + intact[place + 4096 :])
        run, store = taken_from(path, tmp_path)
        (count,) = store.execute("SELECT count(*) FROM slice").fetchone() or (0,)
        assert count > 1500
        assert run.lossy or count == 2000
        store.close()
    path.write_bytes(intact)
    (tmp_path / "trace.rpd-wal").write_bytes(b"rows")
    run, _ = taken_from(path, tmp_path)
    assert [entry.code for entry in run.log if entry.code.severity.value != "info"] == [Code.MISSING_RECORDS]
