"""Folders as new versions of msprof write them: one export over several seconds, parts of tasks, tasks without ops."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path

import pytest
from commands import Command
from stores import query
from vendor_recording import made_up, meta, us, waits, write_csv, write_sums

from traceconv.formats.vendor_folder.discover import find_vendor_folders
from traceconv.normalize.vendor_csv.spec import plain
from traceconv.pipeline.ingest import ingest

T0 = 1_780_676_244_313_289_000
NO_SUBTASK = 2**32 - 1
#: Kernels on both kinds of cores, with the same number in every round: the timeline and op_summary have the part that
#: computes, task_time has the whole task, from `before` ns before it until `after` ns after it.
MIXED = [
    (0, T0, 87_139_380, 1580, 1000),
    (0, T0 + 94_098_120, 86_808_420, 860, 800),
    (2, T0 + 187_466_880, 86_846_720, 1340, 1280),
]
#: Tasks that the table calls N/A and the timeline by their type.
CONTROL = [
    ("PROFILING_ENABLE", 4, T0 - 15_391_805_620, 20),
    ("TASK_TIMEOUT_SET", 5, T0 - 15_381_910_040, 93_980),
    ("EVENT_RECORD", 6, T0 - 15_381_816_040, 0),
    ("PROFILING_DISABLE", 7, T0 + 547_799_580, 0),
]
CALLS = [("AscendCL", "acl", "aclrtMemcpy"), ("Node", "node", "launch"), ("Runtime", "runtime", "KernelLaunch")]
#: Seconds in which a real export wrote its timeline and its tables.
TIMELINE, TABLES = "20260605161734", "20260605161737"


def folder(tmp_path: Path, *, timeline: bool = True) -> Path:
    out = tmp_path / "PROF_000001_20260605161708478_ABCDEF" / "mindstudio_profiler_output"
    out.mkdir(parents=True)
    if timeline:
        (out / f"msprof_{TIMELINE}.json").write_text(json.dumps(events()))
    header = "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us)"
    header += ",Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Context ID,aicore_time(us)"
    rows = []
    for before, (number, start, dur, *_) in zip([None, *MIXED], MIXED, strict=False):
        wait = "0" if before is None else f"{start / 1000 - before[1] / 1000 - before[2] / 1000:.6f}"
        op = (0, NO_SUBTASK, number, 1756, "mixed", "mixed", "dynamic", "MIX_AIC")
        rows.append([*op, us(start) + "\t", us(dur), wait, 256, 512, "NO", 0, 12.7])
    write_csv(out / f"op_summary_{TABLES}.csv", header.split(","), rows)
    header = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
    whole = [("mixed", "MIX_AIC", 1756, n, start - early, dur + early + late) for n, start, dur, early, late in MIXED]
    whole += [("N/A", name, 1754, number, start, dur) for name, number, start, dur in CONTROL]
    table = [
        [0, name, kind, stream, number, us(dur), us(start) + "\t", us(start + dur) + "\t"]
        for name, kind, stream, number, start, dur in whole
    ]
    write_csv(out / f"task_time_{TABLES}.csv", header.split(","), table)
    durs = [dur / 1000 for _, _, dur, *_ in MIXED]
    header = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
    sums = [0, "mixed", "MIX_AIC", 3, round(sum(durs), 3), min(durs), round(sum(durs) / 3, 3), max(durs), 100]
    write_csv(out / f"op_statistic_{TABLES}.csv", header.split(","), [sums])
    header = "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance"
    called = [["host", level, name, 7.5, 3, 2.5, 2.5, 2.5, 0] for _, level, name in CALLS]
    write_csv(out / f"api_statistic_{TABLES}.csv", header.split(","), called)
    return out


def events() -> list[dict[str, object]]:
    found = [meta("process_name", 5, 0, "CANN"), meta("thread_name", 5, 66, "Thread 66")]
    found += [meta("process_name", 6, 0, "Ascend Hardware")]
    found += [meta("thread_name", 6, stream, f"Stream {stream}") for stream in (1754, 1756)]
    found.append({"ph": "M", "pid": 6, "tid": 0, "name": "process_labels", "args": {"labels": "NPU 0"}})
    for ((layer, level, name), (_, start, *_)), number in zip(itertools.product(CALLS, MIXED), itertools.count()):
        place = {"ph": "X", "pid": 5, "tid": 66, "ts": us(start - 300_000 + number * 10_000), "dur": 2.5}
        args = {"Mode": name, "Thread Id": 66, "connection_id": number, "level": level}
        found.append({**place, "name": f"{layer}@{name}", "args": args})
    tasks = [("mixed", "MIX_AIC", 1756, number, 0, start, dur) for number, start, dur, *_ in MIXED]
    tasks += [(name, name, 1754, number, NO_SUBTASK, start, dur) for name, number, start, dur in CONTROL]
    for name, kind, stream, number, subtask, start, dur in tasks:
        args = {"Physic Stream Id": stream, "Task Id": number, "Task Type": kind, "Subtask Id": subtask}
        place = {"ph": "X", "pid": 6, "tid": stream, "ts": us(start), "dur": dur / 1000}
        found.append({**place, "name": name, "args": args})
    return found


@pytest.mark.parametrize("timeline", [True, False])
def test_each_task_of_an_export_is_stored_once(timeline: bool, tmp_path: Path) -> None:
    out = folder(tmp_path, timeline=timeline)
    run = ingest([out.parent], tmp_path / "trace.duckdb")[0]
    assert not run.lossy
    store = tmp_path / "trace.duckdb"
    tasks = query(store, "SELECT name, kind, device_id, stream_id, source_task_id, start_ns, dur_ns FROM task")
    expected = [("mixed", "compute", 0, 1756, number, start, dur) for number, start, dur, *_ in MIXED]
    expected += [(name, "sync", 0, 1754, number, start, dur) for name, number, start, dur in CONTROL]
    assert sorted(tasks) == sorted(expected)
    assert query(store, "SELECT count(*) FROM api") == [(9 if timeline else 0,)]
    assert query(store, "SELECT op_type, core_type, count, total_ns FROM op_statistic") == [
        ("mixed", "MIX_AIC", 3, sum(dur for _, _, dur, *_ in MIXED))
    ]


def test_verify_agrees_and_still_finds_a_start_inside_of_the_part(tmp_path: Path, command: Command) -> None:
    out = folder(tmp_path)
    err = command("verify", out.parent, "--format", "csv").err
    assert "api_statistic_20260605161737.csv: 18 cells, all agree" in err
    table = out / f"task_time_{TABLES}.csv"
    right, wrong = us(MIXED[2][1] - MIXED[2][3]), us(MIXED[2][1] + 200)
    table.write_text(table.read_text().replace(right, wrong))
    rows = csv.DictReader(io.StringIO(command("verify", out.parent, "--format", "csv", code=3).out))
    assert ("task start(us)", wrong) in {(row["column_name"], row["vendor_value"]) for row in rows}


def test_waits_continue_from_slice_to_slice(tmp_path: Path, command: Command) -> None:
    """Twelve slices of two devices, written by several processes, the first with a byte order mark."""
    recording = made_up(5, devices=(0, 1), steps=1, kernels=40)
    rows = sorted(recording.rows, key=lambda row: (row.device, row.start_ns))
    header = "Device_id,Task ID,Stream ID,Op Name,OP Type,Task Type"
    header += ",Task Start Time(us),Task Duration(us),Task Wait Time(us)"
    table = []
    for row, wait in zip(rows, waits(rows), strict=True):
        numbers = ("N/A", "N/A") if row.collective else (row.number, row.stream)
        times = (us(row.start_ns) + "\t", us(row.dur_ns), f"{wait:.6f}")
        table.append([row.device, *numbers, row.name, row.op_type, row.core, *times])
    for number in range(12):
        file = tmp_path / f"op_summary_slice_{number}_2026010100000{number % 4}.csv"
        write_csv(file, header.split(","), table[7 * number : 7 * number + 7])
    first = tmp_path / "op_summary_slice_0_20260101000000.csv"
    first.write_bytes(b"\xef\xbb\xbf" + first.read_bytes())
    write_sums(tmp_path / "op_statistic_20260101000003.csv", rows, device_id=True)
    assert "120 cells, all agree" in command("verify", tmp_path).err


@pytest.mark.parametrize(
    ("files", "left"),
    [
        # One export, written over several seconds, in slices.
        (["msprof_slice_0_20260101000000.json", "msprof_slice_1_20260101000001.json", "l2_20260101000002.csv"], []),
        (["op_summary_slice_0_20230919172304.csv", "op_summary_slice_1_20230919172303.csv"], []),
        # Exported again, into one file.
        (
            [*(f"op_summary_slice_{n}_2026010100000{n}.csv" for n in range(3)), "op_summary_20260101000010.csv"],
            [f"op_summary_slice_{n}_2026010100000{n}.csv" for n in range(3)],
        ),
        # The tables alone exported again: the timeline is still that of the recording.
        (
            ["msprof_20260101000000.json", "op_summary_20260101000003.csv", "op_summary_20260101000009.csv"],
            ["op_summary_20260101000003.csv"],
        ),
        (
            ["msprof_20260101000000.json", "task_time_20260101000003.csv",
             "msprof_20260101000100.json", "task_time_20260101000104.csv"],
            ["msprof_20260101000000.json", "task_time_20260101000003.csv"],
        ),
    ],
)  # fmt: skip
def test_the_newest_export_of_each_kind_of_file_is_read(files: list[str], left: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    (found,) = find_vendor_folders(tmp_path, lambda name: "task" if name.endswith(".csv") else None)
    assert sorted(path.name for path, _ in found.left) == sorted(left)
    assert sorted(path.name for path in (*found.timelines, *found.tables)) == sorted({*files} - {*left})


@pytest.mark.parametrize(
    ("spelling", "same_as"),
    [
        ("Timestamp (\u00b5s)", "Timestamp(us)"),
        ("\ufeffTask_ID ", "Task ID"),
        ("DEVICE ID", "Device_id"),
        ("Communication (Not Overlapped)", "Communication(Not Overlapped)"),
    ],
)
def test_headings_of_all_versions_are_known(spelling: str, same_as: str) -> None:
    assert plain(spelling) == plain(same_as)


#: Tasks that execute no op, by the names that the runtime registers for profiling and the parts of a task have.
KINDS = {
    "sync": "EVENT_RECORD EVENT_WAIT EVENT_RESET NOTIFY_WAIT NOTIFY_RECORD MODEL_EXECUTE MODEL_MAINTAINCE END_GRAPH "
    "STREAM_ACTIVE LABEL_GOTO PROFILER_TRACE_EX PROFILING_ENABLE STARS_COMMON FFTS_PLUS CMO BARRIER WriteValueTask NOP "
    "STREAM_LABEL_SWITCH_BY_INDEX DEBUG_UNREGISTER_FOR_STREAM TASK_TIMEOUT_SET NPU_GET_FLOAT_STATUS FLIP_TASK "
    "OVERFLOW_SWTICH_SET AICPU_LOADINFO MEM_WAIT_VALUE RDMA_DB_SEND CAPTURE_WAIT IPC_EVENT_WAIT DAVID_EVENT_RECORD "
    "PLACE_HOLDER_SQE NOTIFY_WAIT_SQE WRITE_VALUE_SQE Notify~Wait Write~Value Writeback~Data~Context",
    "copy": "MEMCPY_ASYNC RDMA_SEND REDUCE_ASYNC_V2 SDMA_SQE PCIE_DMA_SQE SDMA",
    "compute": "KERNEL_AICORE KERNEL_MIX_AIC KERNEL_AICPU KERNEL_AIVEC KERNEL_FUSION DSA_SQE VPC_SQE JPEGD_SQE AIV_SQE",
}


@pytest.mark.parametrize("timeline", [True, False])
def test_tasks_without_an_op_have_the_kind_of_their_type(timeline: bool, tmp_path: Path) -> None:
    kinds = {name.replace("~", " "): kind for kind, names in KINDS.items() for name in names.split()}
    names = {name: number for number, name in enumerate(kinds)}
    if timeline:
        found = [meta("process_name", 6, 0, "Ascend Hardware"), meta("thread_name", 6, 1, "Stream 1")]
        for name, number in names.items():
            args = {"Task Type": name, "Task Id": number}
            found.append({"ph": "X", "pid": 6, "tid": 1, "name": name, "ts": number * 10, "dur": 1, "args": args})
        (tmp_path / "msprof_20260101000000.json").write_text(json.dumps(found))
    else:
        header = "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)"
        rows = [[0, "N/A", name, 1, number, 1, number * 10, number * 10 + 1] for name, number in names.items()]
        write_csv(tmp_path / "task_time_20260101000000.csv", header.split(","), rows)
    ingest([tmp_path], tmp_path / "trace.duckdb")
    assert dict(query(tmp_path / "trace.duckdb", "SELECT name, kind FROM task")) == kinds


@pytest.mark.parametrize("source", ["timeline", "table", "both"])
def test_only_kernels_that_compute_are_computation(source: str, tmp_path: Path) -> None:
    """Not kernels that execute a collective, which has a task of its own, ranges of mstx, or parts of a task."""
    kernels = [
        ("MatMulV2", "AI_CORE", 0, 100),
        ("AivKernel", "AI_VECTOR_CORE", 60, 80),
        ("x_AicpuKernel", "AI_CPU", 150, 9),
    ]
    events = [meta("process_name", 6, 0, "Ascend Hardware"), meta("thread_name", 6, 1, "Stream 1")]
    events += [meta("process_name", 7, 0, "Communication"), meta("thread_name", 7, 0, "Group 3 Communication")]
    rows = []
    for number, (name, core, start, dur) in enumerate(kernels):
        args = {"Task Type": core, "Physic Stream Id": 1, "Task Id": number}
        events.append({"ph": "X", "pid": 6, "tid": 1, "name": name, "ts": start, "dur": dur, "args": args})
        rows.append([0, name, name.lower(), core, 1, number, start, dur, 8])
    for name, start, dur in ("hcom_allReduce__1", 50, 100), ("hcom_allGather__2", 150, 10):
        events.append({"ph": "X", "pid": 7, "tid": 0, "name": name, "ts": start, "dur": dur, "args": {"relay": "no"}})
        rows.append([0, name, name, "HCCL", "N/A", "N/A", start, dur, 0])
    for name, start, dur in ("forward", 0, 200), ("TaskExecute 0", 151, 5):
        args = {"Physic Stream Id": 1, "Task Id": 2}
        events.append({"ph": "X", "pid": 6, "tid": 1, "name": name, "ts": start, "dur": dur, "args": args})
    events.append({"ph": "f", "pid": 6, "tid": 1, "cat": "MsTx", "name": "MsTx_1", "id": "1", "ts": 0, "bp": "e"})
    if source != "table":
        (tmp_path / "msprof_20260101000000.json").write_text(json.dumps(events))
    if source != "timeline":
        header = "Device_id,Op Name,OP Type,Task Type,Stream ID,Task ID,Task Start Time(us),Task Duration(us),Block Dim"
        write_csv(tmp_path / "op_summary_20260101000000.csv", header.split(","), rows)
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path], store)
    measured = "compute_ns, collective_ns, exposed_collective_ns, other_ns, idle_ns"
    assert query(store, f"SELECT {measured} FROM breakdown()") == [(100_000, 110_000, 60_000, 0, 0)]
    types = [(name if source == "timeline" else name.lower(), core, dur * 1000) for name, core, _, dur in kernels]
    assert query(store, "SELECT op_type, core_type, total_ns FROM op_statistic() ORDER BY total_ns DESC") == types
    assert query(store, "SELECT DISTINCT kind, kind_source FROM task WHERE name LIKE '%Kernel'") == [(None, None)]
    ranges = [] if source == "table" else [("TaskExecute 0", "summary"), ("forward", "annotation")]
    assert query(store, "SELECT name, kind FROM range ORDER BY name") == ranges
