"""Databases of torch_npu and msprof, built by the published schema: intact, old, in folders, damaged and hostile."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ascend_db_builder import NONE, PID, T0, database, insert, tid
from ingest_checks import taken_from

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.ingest import ingest

GROUP = "Group 10.170.22.98%enp67s0f5_60000_0"


def test_every_row_is_in_its_table(tmp_path: Path) -> None:
    path = database(tmp_path / "ascend_pytorch_profiler_3.db")
    assert choose_reader(path) == "ascend_db"
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT writer, source_format, rank, host, start_ns, end_ns FROM run").fetchone() == (
        "Ascend (torch_npu, msprof)", "ascend_db", 3, "node-7", T0, T0 + 6000)  # fmt: skip
    options = json.loads(store.execute("SELECT options FROM run").fetchall()[0][0])
    assert options["ascend_db"]["META_DATA"]["ENV_VARIABLES"] == {"HCCL_RDMA_TC": "1"}
    assert store.execute("SELECT device_id, kind, name FROM device").fetchall() == [(1, "NPU", "Ascend910B")]
    tasks = store.execute(
        "SELECT kind, t.name, start_ns - ?, dur_ns, submit_ns - ?, step_id, stream_id, source_task_id, context_id, "
        "task_type, core_type, size_bytes, comm_group FROM task t ORDER BY start_ns, kind",
        [T0, T0],
    ).fetchall()
    assert tasks == [
        ("compute", "aclnnMm_MatMulCommon_MatMulV2", 1000, 501, 410, 7, 2, 30, None, "AI_CORE", "AI_CORE", None, None),
        ("copy", "MEMCPY_ASYNC", 1600, 100, 520, 7, 2, 31, None, "MEMCPY_ASYNC", None, 4096, None),
        ("collective", "hcom_allReduce__428_0_1", 2001, 898, 600, 7, None, None, None, "HCCL", None, 8192, GROUP),
        ("copy", "SDMA", 2001, 399, 620, 7, 4, 32, 0, "SDMA", None, None, None),
        ("copy", "SDMA", 2500, 399, 620, 7, 4, 32, 1, "SDMA", None, None, None),
        ("compute", "KERNEL_AICORE", 5000, 100, None, 7, 4, 32, None, "KERNEL_AICORE", "KERNEL_AICORE", None, None),
    ]
    assert store.execute(
        "SELECT op_type, op_type_source, input_shapes, input_dtypes, input_formats, output_shapes, output_dtypes, "
        "block_count, mix_block_count, hf32_eligible FROM task JOIN op USING (op_id) WHERE start_ns = ?",
        [T0 + 1000],
    ).fetchall() == [
        ("MatMulV2", "recorded", "2,3;3,4", "FLOAT16;FLOAT16", "ND;ND", "2,4", "FLOAT16", 24, 0, True),
    ]  # fmt: skip
    assert store.execute("SELECT level, name, correlation_id, depth FROM api ORDER BY start_ns").fetchall() == [
        ("os", "poll", None, 0), ("node", "launch", 5, 0), ("acl", "aclrtMemcpyAsync", 6, 0), ("node", "launch", 7, 0),
        ("communication", "Launch_Ffts", 8, 1),
    ]  # fmt: skip
    ranges = store.execute(
        "SELECT r.name, r.kind, r.start_ns - ?, dur_ns, depth, correlation_id, p.name, k.name FROM range r "
        "JOIN track k USING (track_id) JOIN process p USING (process_id) ORDER BY start_ns, r.name, k.name",
        [T0],
    ).fetchall()
    assert ranges == [
        ("ProfilerStep#7", "annotation", 0, 6000, 0, None, "Python", "Thread 11"),
        ("epoch", "annotation", 80, 19, 0, None, "Python", None),
        ("batch", "annotation", 90, 5, 0, None, "Python", "Thread 12"),
        ("train.py(3): step", "frame", 100, 800, 1, None, "Python", "Thread 11"),
        ("aten::mm", "host_op", 300, 30, 2, None, "Python", "Thread 11"),
        ("Enqueue", "annotation", 310, 10, 3, 100, "Python", "Thread 11"),
        ("Dequeue@aclnnMm", "annotation", 400, 100, 0, 100, "Python", "Thread 22"),
        ("MmBackward0", "host_op", 700, 50, 0, None, "Python", "Thread 12"),
        ("GC", "annotation", 760, 10, 0, None, "Python GC", "Thread 12"),
        ("Computing", "summary", 1000, 501, 0, None, "Overlap Analysis", "Computing"),
        (
            "Communication(Not Overlapped)",
            "summary",
            2001,
            898,
            0,
            None,
            "Overlap Analysis",
            "Communication(Not Overlapped)",
        ),
        ("Memcpy", "summary", 2001, 399, 0, None, "Communication", "Plane 0"),
        ("Memcpy", "summary", 2500, 399, 0, None, "Communication", "Plane 1"),
    ]
    ((args,), (part,)) = store.execute(
        "SELECT args FROM range WHERE name = 'aten::mm' OR start_ns = ? ORDER BY start_ns", [T0 + 2500]
    ).fetchall()
    assert json.loads(args) == {
        "Sequence number": 4, "Fwd thread id": 0, "Input Dims": "2,3;\r\n3,4", "Input type": "float;float",
        "Call stack": "train.py(3): step;\r\ntrain.py(9): main",
    }  # fmt: skip
    assert json.loads(part).items() >= {"size(Byte)": 4096, "link type": "HCCS", "dst rank": 2, "task id": 32}.items()
    assert store.execute("SELECT step_id, iteration, start_ns, end_ns, step_source FROM step").fetchall() == [
        (7, 7, T0, T0 + 6000, "annotation")]  # fmt: skip
    flows = store.execute("SELECT category, src_ns - ?, dst_ns - ? FROM flow ORDER BY ALL", [T0, T0]).fetchall()
    assert flows == [
        ("HostToDevice", 410, 1000), ("HostToDevice", 520, 1600), ("HostToDevice", 600, 2001),
        ("async_npu", 300, 1000), ("async_task_queue", 310, 400), ("fwdbwd", 300, 700),
    ]  # fmt: skip


def test_counters_memory_and_marks(tmp_path: Path) -> None:
    path = database(tmp_path / "ascend_pytorch_profiler_3.db")
    run, store = taken_from(path, tmp_path)
    assert run.accounts.by_record["TASK_PMU_INFO rows"].paired == 4
    assert any("counters that no table has: aic_new" in entry.message for entry in run.log)
    counters = "SELECT t.name, metric_group, aic_total_cycles, vendor_values FROM task_pmu p JOIN task t USING (id)"
    ((name, group, cycles, values),) = store.execute(counters).fetchall()
    assert (name, group, cycles) == ("aclnnMm_MatMulCommon_MatMulV2", "PipeUtilization", 864)
    assert json.loads(values) == {"aicore_time_ns": 480, "aic_mac_time_ns": 240, "aic_mac_ratio": 0.5}
    blocks = store.execute(
        "SELECT o.name, pool, kind, size_bytes, alloc_ns - ?, free_ns - ? FROM memory m LEFT JOIN op o USING (op_id) "
        "ORDER BY pool, kind, size_bytes", [T0, T0],
    ).fetchall()  # fmt: skip
    assert blocks == [
        ("cann::conv", "GE", "block", 64, 310, None), (None, "GE", "segment", 64, None, None),
        ("aten::mm", "PTA", "block", 512, 305, 800), (None, "PTA", "block", 1024, None, None),
        (None, "PTA", "segment", 2048, None, None),
    ]  # fmt: skip
    samples = store.execute(
        "SELECT k.name, unit, series, ts_ns - ?, value, value_int FROM counter c JOIN track k USING (track_id) "
        "ORDER BY k.name, series, ts_ns", [T0],
    ).fetchall()  # fmt: skip
    assert samples == [
        ("HBM 2 read", "B/s", "bandwidth", 900, 2.0**40, 2**40), ("HBM 2 read", "B/s", "bandwidth", 950, 0.5, None),
        ("PTA (memory_record)", "B", "totalActive", 305, 512, 512),
        ("PTA (memory_record)", "B", "totalAllocated", 305, 1536, 1536),
        ("PTA (memory_record)", "B", "totalReserved", 305, 2048, 2048),
    ]  # fmt: skip
    assert store.execute("SELECT name, ts_ns, category FROM marker").fetchall() == [("point", T0 + 92, "mstx")]
    # Some versions truncate ratios.
    db = sqlite3.connect(path)
    db.execute("UPDATE TASK_PMU_INFO SET value = 1 WHERE value = 0.5")
    db.execute("INSERT INTO TASK_PMU_INFO SELECT 77, name, 'x' FROM TASK_PMU_INFO LIMIT 1")
    db.execute("INSERT INTO OP_MEMORY (name, size) VALUES (1, 2)")
    db.commit()
    db.close()
    store.close()
    run, store = taken_from(path, tmp_path)
    assert run.accounts.by_record["TASK_PMU_INFO rows"].lost == run.accounts.by_record["OP_MEMORY rows"].lost == 1
    ((*_, values),) = store.execute(counters).fetchall()
    assert json.loads(values) == {"aicore_time_ns": 480, "aic_mac_time_ns": 240}


def test_ids_of_newer_versions(tmp_path: Path) -> None:
    """torch_npu's own connections start at a fixed one; blocks and tasks of msmonitor have no number."""
    path = database(tmp_path / "msmonitor_1_20260101000000_0.db")
    db = sqlite3.connect(path)
    db.execute("UPDATE CONNECTION_IDS SET connectionId = connectionId - 9 + ? WHERE connectionId > 8", [5 << 28])
    db.execute("UPDATE COMPUTE_TASK_INFO SET blockNum = ?1, mixBlockNum = ?1", [NONE])
    db.execute("UPDATE TASK SET taskId = ?", [NONE])
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    queued = "SELECT correlation_id FROM range WHERE name IN ('Enqueue', 'Dequeue@aclnnMm')"
    assert store.execute(queued).fetchall() == [(100,), (100,)]
    flows = "SELECT category FROM flow WHERE kind = 'other' ORDER BY ALL"
    assert store.execute(flows).fetchall() == [("async_npu",), ("async_task_queue",), ("fwdbwd",)]
    tasks = "SELECT DISTINCT block_count, mix_block_count, source_task_id FROM task"
    assert store.execute(tasks).fetchall() == [(None, None, None)]


def test_marks_on_streams_are_no_tasks(tmp_path: Path) -> None:
    """TASK also has the program's ranges and points on a stream, and operators that make them have a connection."""
    path = database(tmp_path / "ascend_pytorch_profiler_3.db")
    db = sqlite3.connect(path)
    db.execute("INSERT INTO STRING_IDS VALUES (1, 'MsTx')")
    mark = (NONE, 0, "conv", tid(11), tid(11), "epoch")
    insert(
        db, "TASK",
        (T0 + 900, T0 + 5500, 1, 4000000011, 9, PID, 1, NONE, 2, 40, NONE),
        (T0 + 950, T0 + 950, 1, 4000000012, 10, PID, 1, NONE, 2, 41, NONE),
    )  # fmt: skip
    insert(db, "MSTX_EVENTS", (T0 + 70, T0 + 5900, 2, *mark, 4000000011), (T0 + 71, T0 + 71, 3, *mark, 4000000013))
    insert(db, "CONNECTION_IDS", (50, 4000000011))
    insert(db, "PYTORCH_API", (str(T0 + 69), str(T0 + 72), tid(11), 50, "batch", -1, 0, None, None, None, 50001))
    db.commit()
    db.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT name, kind FROM task WHERE kind = 'compute' ORDER BY start_ns").fetchall() == [
        ("aclnnMm_MatMulCommon_MatMulV2", "compute"), ("KERNEL_AICORE", "compute"),
    ]  # fmt: skip
    assert store.execute("SELECT compute_ns FROM step_breakdown()").fetchall() == [(601,)]
    ranges = (
        "SELECT r.name, k.name, start_ns - ? FROM range r JOIN track k USING (track_id) WHERE r.kind = 'annotation'"
    )
    assert store.execute(f"{ranges} AND start_ns BETWEEN ? AND ? ORDER BY 3", [T0, T0 + 900, T0 + 990]).fetchall() == [
        ("conv", "Stream 2", 900), ("MsTx", "Stream 2", 950),
    ]  # fmt: skip
    marks = "SELECT external_id, src_ns - ?, dst_ns - ? FROM flow WHERE category = 'MsTx'"
    assert store.execute(marks, [T0, T0]).fetchall() == [("4000000011", 70, 900)]
    loose = "SELECT message FROM import_log WHERE code = 'loose_flow'"
    assert store.execute(loose).fetchall() == [("1 flow ends without a start, 1 flow starts without an end",)]


def test_older_and_smaller_databases(tmp_path: Path) -> None:
    path = database(tmp_path / "msprof_20260101000000.db")
    db = sqlite3.connect(path)
    db.executescript("""
        ALTER TABLE COMPUTE_TASK_INFO DROP COLUMN blockDim; ALTER TABLE COMPUTE_TASK_INFO DROP COLUMN gridDim;
        ALTER TABLE COMPUTE_TASK_INFO RENAME COLUMN blockNum TO blockDim;
        ALTER TABLE COMPUTE_TASK_INFO DROP COLUMN hf32Eligible; ALTER TABLE COMMUNICATION_OP DROP COLUMN deviceId;
        DELETE FROM PYTORCH_API WHERE name = (SELECT id FROM STRING_IDS WHERE value = 'ProfilerStep#7');
        DROP TABLE ENUM_API_TYPE; DROP TABLE HOST_INFO; DROP TABLE RANK_DEVICE_MAP; DROP TABLE CONNECTION_IDS;
        DROP TABLE PYTORCH_CALLCHAINS; DROP TABLE OP_MEMORY; DROP TABLE TASK_PMU_INFO;
        DROP TABLE COMMUNICATION_TASK_INFO;
    """)
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT block_count, device_id, t.name FROM task t WHERE kind IN ('collective', 'compute') "
                         "ORDER BY start_ns").fetchall() == [
        (24, 1, "aclnnMm_MatMulCommon_MatMulV2"), (None, 1, "hcom_allReduce__428_0_1"), (None, 1, "KERNEL_AICORE"),
    ]  # fmt: skip
    assert store.execute("SELECT iteration, start_ns FROM step").fetchall() == [(7, T0)]
    assert store.execute("SELECT DISTINCT level FROM api ORDER BY 1").fetchall() == [
        ("acl",),
        ("communication",),
        ("node",),
        ("os",),
    ]


def test_a_recording_in_both_forms_is_read_once(tmp_path: Path) -> None:
    out = tmp_path / "node_4711_20260101000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True)
    database(out / "ascend_pytorch_profiler_3.db")
    (out / "op_statistic.csv").write_text("OP Type,Count\n")
    (out.parent / "profiler_info_3.json").write_text('{"rank_id": 3}')
    (out.parent / "PROF_1").mkdir()
    database(out.parent / "PROF_1" / "msprof_20260101000000.db")
    [run] = ingest([tmp_path], tmp_path / "db.duckdb")
    assert run.accounts.by_record["X events"].rows == 24
    assert run.accounts.by_record["OP_MEMORY rows"].rows == 2
    assert any("has the same records" in entry.message for entry in run.log)
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "name": "aten::mm", "cat": "cpu_op"}
    (out / "trace_view.json").write_text(json.dumps([event]))
    [run] = ingest([tmp_path], tmp_path / "text.duckdb")
    assert run.accounts.by_record["X events"].rows == 1
    assert any("have the same recording" in entry.message for entry in run.log)
    # Databases of several ranks in a folder are recordings of their own.
    (tmp_path / "all").mkdir()
    for rank in (0, 1):
        database(tmp_path / "all" / f"ascend_pytorch_profiler_{rank}.db")
    assert len(ingest([tmp_path / "all"], tmp_path / "all.duckdb")) == 2


def test_hostile_values_are_lost_or_null(tmp_path: Path) -> None:
    path = database(tmp_path / "hostile.db")
    db = sqlite3.connect(path)
    insert(
        db, "TASK",
        (None, 5, 1, 5, 0, PID, "SDMA", None, 2, 1, None),
        (T0 + 100, T0 + 50, 1, 2**62, 77, PID, 12345, -5, 2, 2, 0),
        (T0 + 110, 2**63 - 1, "x", b"\x00", 3, PID, "SDMA", 0, 2**40, None, None),
        ("soon", T0, None, None, None, None, None, None, None, None, None),
    )  # fmt: skip
    insert(db, "COMMUNICATION_TASK_INFO", *[("Memcpy", 3, *(None,) * 14)] * 2, ("Memcpy", 999, *(None,) * 14))
    insert(db, "PYTORCH_API", ("1e5", "99999999999999999999999", -1, 2**62, b"x", *(2**62,) * 6),
           (T0, T0 + 1, "thread", -7, 2.5, None, None, None, None, -1, None))  # fmt: skip
    insert(db, "META_DATA", ("ENVIRONMENT", '{"half a character": "\\ud800"}'))
    insert(db, "CONNECTION_IDS", (2**62, -1), (None, 2**63 - 1), ("a", "b"))
    insert(db, "PYTORCH_CALLCHAINS", (0, 0, 0), (None, None, None), (-1, "y", -1))
    insert(db, "CANN_API", (T0, T0 + 1, "kind", None, -3, 2**50))
    db.execute("CREATE TABLE NEW_EVENTS (startNs INTEGER)")
    db.execute("INSERT INTO NEW_EVENTS VALUES (1)")
    db.execute("CREATE VIEW evil AS SELECT * FROM TASK")
    db.commit()
    ((page,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'CANN_API'").fetchall()
    db.close()
    run, store = taken_from(path, tmp_path)
    codes = {entry.code for entry in run.log}
    assert {Code.NO_TIME, Code.BACKWARD, Code.UNKNOWN_RECORD, Code.NOT_READ} <= codes
    assert run.accounts.by_record["COMMUNICATION_TASK_INFO rows"].lost == 1
    assert store.execute("SELECT count(*) FROM task WHERE name = 'SDMA' AND dur_ns = 399").fetchone() == (2,)
    assert store.execute("SELECT level, name FROM api WHERE start_ns = ?", [T0]).fetchall() == [(None, "CANN_API")]
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(data)
    store.close()
    run, store = taken_from(path, tmp_path)
    assert Code.DAMAGED_BLOCK in {entry.code for entry in run.log}
    assert store.execute("SELECT count(*) FROM task UNION ALL SELECT count(*) FROM api").fetchall() == [(8,), (1,)]
    for table in "CommAnalyzerTime", '"CommunicationGroupMapping"', "ClusterStepTraceTime":
        (tmp_path / "analysis.db").unlink(missing_ok=True)
        with closing(sqlite3.connect(tmp_path / "analysis.db")) as db:
            db.execute(f"CREATE TABLE {table} (hccl_op_name TEXT)")
        with pytest.raises(InputError, match=r"ingest ascend_pytorch_profiler\*\.db"):
            ingest([tmp_path / "analysis.db"], tmp_path / "none.duckdb")
