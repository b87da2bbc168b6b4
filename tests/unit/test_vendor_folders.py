"""Generated output folders of msprof and torch_npu: their rows, the effect of a damaged row, and verify's findings."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Command
from ingest_checks import rows_of
from stores import query
from vendor_folders import KERNELS, T0, TASK_TIME, msprof_folder, torch_npu_folder, write
from vendor_recording import made_up, meta, us, write_folder

from traceconv.cli import app
from traceconv.pipeline.ingest import ingest


def differing(folder: Path, capfd: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[tuple[str, ...]], str]:
    """Exit code of verify, the cells that it shows, and its messages about the files."""
    code = app.run(["verify", str(folder), "--format", "csv", *more])
    shown, err = capfd.readouterr()
    rows = csv.DictReader(io.StringIO(shown))
    return code, [tuple(list(row.values())[1:]) for row in rows], err


def edit(folder: Path, pattern: str, old: str, new: str) -> None:
    (file,) = folder.rglob(pattern)
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8", newline="")


def test_tables_alone_become_ops_tasks_steps_and_fusions(tmp_path: Path) -> None:
    store = tmp_path / "trace.duckdb"
    run = ingest([msprof_folder(tmp_path)], store)[0]
    assert all(account.balanced and account.lost == 0 for account in run.accounts.by_record.values())
    ns = T0 * 1000
    assert query(
        store,
        "SELECT t.name, t.stream_id, t.source_task_id, t.start_ns, t.dur_ns, o.op_type, o.state, t.core_type, "
        "t.block_count, t.step_id FROM task AS t LEFT JOIN op AS o USING (run_id, op_id) ORDER BY t.start_ns",
    ) == [
        ("conv_1", 2, 3, ns + 1, 10_500, "Conv2D", "static", "AI_CORE", 8, 1),
        ("relu_1", 2, 4, ns + 20_999, 1_002, "Relu", "static", "AI_CORE", 8, 2),
        ("conv_2", 2, 5, ns + 30_123, 7_250, "Conv2D", "static", "AI_CORE", 8, 2),
        ("EVENT_WAIT", 2, 6, ns + 40_000, 20, None, None, None, None, 2),
    ]
    assert query(store, "SELECT DISTINCT device_id FROM task") == [(0,)]
    assert query(store, "SELECT aic_total_cycles FROM task_pmu") == [(1234,)] * 3
    assert query(store, "SELECT iteration, model_id, fp_start_ns, bp_end_ns, end_ns FROM step ORDER BY iteration") == [
        (1, 7, ns, ns + 15_500, ns + 18_000),
        (2, 7, ns + 19_000, ns + 39_000, ns + 41_000),
    ]
    assert query(
        store,
        "SELECT o.name, o.model_name, o.input_bytes, o.output_bytes, o.weight_bytes, o.workspace_bytes, "
        "list(f.original_name ORDER BY f.original_index) FROM fusion AS f JOIN op AS o USING (run_id, op_id) "
        "GROUP BY ALL",
    ) == [("conv_1", "net", 1536, 2048, 256, 0, ["conv_1a", "bias_1", "bn_1"])]


@pytest.mark.parametrize("labels", [True, False])
def test_collectives_belong_to_the_iterations_of_their_device(tmp_path: Path, labels: bool) -> None:
    """msprof shows them in another process than the device's iterations, which labels or a table assign to it."""
    out = tmp_path / "mindstudio_profiler_output"
    out.mkdir()
    events: list[dict[str, object]] = []
    rows = []
    for device, shift in ((0, 0), (1, 30)):  # the iterations of device 1 overlap those of device 0
        hardware, hccl = 10 + device, 20 + device
        for pid, process, thread in (
            (hardware, "Ascend Hardware", "Step Trace(Model ID:1)"),
            (hccl, "HCCL", "Group g"),
        ):
            events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": process}})
            events.append({"ph": "M", "pid": pid, "tid": 5, "name": "thread_name", "args": {"name": thread}})
            if labels:
                label = {"labels": f"NPU {device}"}
                events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_labels", "args": label})
        events.append({"ph": "M", "pid": hardware, "tid": 2, "name": "thread_name", "args": {"name": "Stream 2"}})
        spans = [(hardware, 5, f"Iteration {number}", 50 + 50 * number, 50) for number in (1, 2)]
        spans += [(hardware, 2, f"Mul{number}_{device}", 50 + 50 * number, 7) for number in (1, 2)]
        spans += [(hccl, 5, f"hcom_{number}_{device}", at, 5) for number, at in enumerate((90, 145, 150, 200))]
        for pid, tid, name, at, dur in spans:
            category = "Iteration Time" if name.startswith("Iteration") else ""
            place = {"ph": "X", "pid": pid, "tid": tid, "ts": f"{T0 + at + shift}", "dur": dur, "name": name}
            events.append({**place, "cat": category, "args": {}})
            if not category:
                stream = 2 if tid == 2 else ""
                kind = "HCCL" if pid == hccl else "AI_CORE"
                rows.append((device, name, kind, stream, "", dur, f"{T0 + at + shift}", f"{T0 + at + shift + dur}"))
    (out / "msprof_20260101000001.json").write_text(json.dumps(events), encoding="utf-8")
    if not labels:
        write(out / "task_time_20260101000001.csv", TASK_TIME, rows)
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path], store)
    assert query(
        store,
        "SELECT t.device_id, t.name, s.device_id, s.iteration FROM task AS t "
        "LEFT JOIN step AS s USING (run_id, step_id) WHERE kind = 'collective' ORDER BY t.device_id, t.start_ns",
    ) == [
        (device, f"hcom_{number}_{device}", *found)
        for device in (0, 1)
        for number, found in enumerate([(None, None), (device, 1), (device, 2), (None, None)])
    ]


@pytest.mark.parametrize("with_table", [True, False])
def test_a_mark_on_a_stream_does_not_shorten_waits(tmp_path: Path, with_table: bool) -> None:
    """A step stands on the track of the kernels a and b, and ends between them."""
    recording = torch_npu_folder(tmp_path, damaged=False)
    timeline = recording / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    step = {"ph": "X", "pid": 9, "tid": 2, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": T0 + 99, "dur": 7}
    timeline.write_text(json.dumps([*json.loads(timeline.read_text("utf-8")), step]), encoding="utf-8")
    if not with_table:
        (timeline.parent / "kernel_details.csv").unlink()
    store = tmp_path / "trace.duckdb"
    ingest([recording], store)
    assert query(store, "SELECT name, source_format FROM range, run") == [("ProfilerStep#1", "vendor_folder")]
    waits = query(store, "SELECT name, wait_ns FROM task ORDER BY start_ns")
    assert waits == [("a", 0), ("b", 8751), ("c", 7501)]


def test_a_damaged_row_loses_only_that_row(tmp_path: Path, command: Command) -> None:
    store = tmp_path / "trace.duckdb"
    folder = torch_npu_folder(tmp_path, damaged=True)
    [line] = [line for line in command("ingest", folder, "--db", store, code=3).err.splitlines() if "cells" in line]
    assert line.count("kernel_details.csv: ") == 1
    books = "SELECT record_count, paired_count, lost_count FROM import_account WHERE record = 'kernel_details records'"
    assert query(store, books) == [(3, 2, 1)]
    (entry,) = query(store, "SELECT message, event_count, byte_offset FROM import_log WHERE severity <> 'info'")
    assert "kernel_details.csv" in str(entry[0])
    lines = next(folder.rglob("kernel_details.csv")).read_bytes().splitlines(keepends=True)
    assert entry[1:] == (1, len(lines[0]) + len(lines[1]))
    # The timeline still has all three, two are completed; of the third it knows no type but its name.
    assert query(
        store, "SELECT t.name, t.dur_ns, o.op_type FROM task AS t LEFT JOIN op AS o USING (run_id, op_id) ORDER BY 1"
    ) == [("a", 1250, "Add"), ("b", 2500, "b"), ("c", 750, "Add")]


def test_verify_agrees_with_tables_that_are_right(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, rows, err = differing(msprof_folder(tmp_path), capfd)
    assert rows == []
    assert code == 0
    assert "op_statistic_20260101000001.csv: 12 cells, all agree" in err
    code, rows, err = differing(torch_npu_folder(tmp_path, damaged=False), capfd, "--exact")
    assert (code, rows) == (0, [])
    assert "kernel_details.csv: 15 cells, all agree" in err


def test_verify_finds_a_changed_sum(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = msprof_folder(tmp_path)
    edit(folder, "op_statistic*.csv", "17.75", "17.85")
    code, rows, err = differing(folder, capfd)
    file = "mindstudio_profiler_output/op_statistic_20260101000001.csv"
    assert rows == [(file, "0 Conv2D AI_CORE", "total time(us)", "17.85", "17.750", "0.100")]
    assert code == 3
    assert f"{file}: 12 cells, 1 differs" in err


def test_verify_finds_a_kernel_missing_from_the_sums(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = msprof_folder(tmp_path)
    edit(folder, "op_statistic*.csv", "0,Relu,AI_CORE", "0,Tanh,AI_CORE")
    code, rows, _ = differing(folder, capfd)
    assert code == 3
    assert [(row[1], row[-1]) for row in rows] == [("0 Tanh AI_CORE", "no such row"), ("0 Relu AI_CORE", "no such row")]


def test_verify_finds_times_that_wrapped_at_64_bits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = msprof_folder(tmp_path)
    wrapped_us = f"{2**64 - 1500}"  # −1500 µs, as µs
    wrapped_ns = f"{(2**64 - 2502) // 1000}.{(2**64 - 2502) % 1000:03}"  # −2502 ns, as ns, printed in µs
    edit(folder, "step_trace*.csv", f"{T0 + 16},1.5", f"{T0 + 16},{wrapped_us}")
    edit(folder, "op_summary*.csv", "10.498", wrapped_ns)
    code, rows, _ = differing(folder, capfd)
    assert code == 3
    found = {(row[1], row[2]): (row[3], row[5]) for row in rows}
    assert found == {
        ("iteration 1 of device 0", "reduce duration(us)"): (wrapped_us, "wrapped at 2^64"),
        (f"relu_1 at {T0 + 20}.999", "task wait time(us)"): (wrapped_ns, "wrapped at 2^64, should be -2.502"),
    }


def test_verify_checks_rows_against_the_timeline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = torch_npu_folder(tmp_path, damaged=False)
    edit(folder, "kernel_details.csv", "2.5,8.751", "2.6,8.751")
    code, rows, _ = differing(folder, capfd)
    assert code == 3
    # What follows from the wrong duration, the wait of the next, is off too.
    assert [(row[2], row[3], row[4]) for row in rows] == [
        ("duration(us)", "2.6", "2.500"),
        ("wait time(us)", "7.501", "7.401"),
    ]


def test_exact_requires_equal_numbers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = msprof_folder(tmp_path)
    edit(folder, "op_statistic*.csv", "8.875", "8.876")
    assert differing(folder, capfd)[:2] == (0, [])
    code, rows, _ = differing(folder, capfd, "--exact")
    assert code == 3
    assert ("avg time(us)", "8.876", "8.875") in [row[2:5] for row in rows]


@pytest.mark.parametrize("size", ["12345678901234567890123456789012.123", "9e18", "many"])
def test_sizes_that_can_not_be_read_are_a_loss(size: str, tmp_path: Path) -> None:
    prof = msprof_folder(tmp_path)
    edit(prof, "fusion_op_*.csv", ",1.5,2,", f",{size},2.5,")
    ingest([prof], tmp_path / "s.duckdb")
    sizes = "SELECT input_bytes, output_bytes FROM op WHERE name = 'conv_1'"
    assert query(tmp_path / "s.duckdb", sizes) == [(None, 2560)]
    lost = "SELECT code, event_count FROM import_log WHERE severity = 'data_loss'"
    assert query(tmp_path / "s.duckdb", lost) == [("bad_number", 1)]


def test_verify_shows_numbers_of_any_size(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prof = msprof_folder(tmp_path)
    number = "12345678901234567890123456789012.125"
    edit(prof, "op_statistic_*.csv", "17.75,", f"{number},")
    edit(prof, "step_trace_*.csv", ",18,15.5,", f",{number},15.5,")
    code, cells, _ = differing(prof, capfd)
    assert code == 3
    assert [number in cell for cell in cells] == [True, True]


def test_tables_of_the_host_have_no_device(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prof = msprof_folder(tmp_path)
    edit(prof, "fusion_op_*.csv", "0,net,7,", "host,net,7,")
    [run] = ingest([prof], tmp_path / "s.duckdb")
    assert not run.lossy
    assert query(tmp_path / "s.duckdb", "SELECT count(*) FROM fusion") == [(3,)]
    assert differing(prof, capfd)[:2] == (0, [])


@pytest.mark.parametrize("task_type", ["ASYNC_DMA_SQE", "UBDMA_SQE", "SDMA_SQE"])
def test_tasks_of_any_dma_engine_are_copies(task_type: str, tmp_path: Path) -> None:
    """Chips of 2025 have engines of their own. Without the host's records, msprof has no name for such a task."""
    prof = msprof_folder(tmp_path)
    edit(prof, "task_time*.csv", "EVENT_WAIT,EVENT_WAIT", f"N/A,{task_type}")
    ingest([prof], tmp_path / "s.duckdb")
    assert query(tmp_path / "s.duckdb", "SELECT kind FROM task WHERE source_task_id = 6") == [("copy",)]
    slices = [
        meta("process_name", 1, 0, "Ascend Hardware"), meta("thread_name", 1, 2, "Stream 2"),
        {"ph": "X", "pid": 1, "tid": 2, "name": task_type, "ts": "1.5", "dur": 2, "args": {"Task Type": task_type}},
    ]  # fmt: skip
    assert rows_of(slices, tmp_path, "SELECT kind FROM task", "msprof_1.json") == [("copy",)]


def test_iterations_of_an_inference_have_no_times_of_1970(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """msprof's C++ export writes 0 for the missing start of the forward and end of the backward pass."""
    prof, ns = msprof_folder(tmp_path), T0 * 1000
    edit(prof, "step_trace_*.csv", f"{T0},{T0 + 15}.5,{T0 + 18},18,15.5,2.5", f"0.000\t,0.000\t,{T0 + 18},18,0.000,0")
    edit(prof, "step_trace_*.csv", f"{T0 + 19},{T0 + 39},{T0 + 41},22,20,2,1", f"0.000\t,0.000,{T0 + 41},22,0,0,0.000")
    ingest([prof], tmp_path / "s.duckdb")
    store = tmp_path / "s.duckdb"
    assert query(store, "SELECT start_ns, fp_start_ns, bp_end_ns, end_ns FROM step ORDER BY iteration") == [
        (ns, None, None, ns + 18_000),
        (ns + 19_000, None, None, ns + 41_000),
    ]
    assert query(store, "SELECT iteration_time_ns, refresh_ns FROM step_trace ORDER BY ALL") == [
        (18_000, None),
        (22_000, None),
    ]
    assert query(store, "SELECT name, step_id FROM task ORDER BY start_ns") == [
        ("conv_1", 1), ("relu_1", 2), ("conv_2", 2), ("EVENT_WAIT", 2)
    ]  # fmt: skip
    assert query(store, "SELECT start_ns FROM run") == [(ns,)]
    assert differing(prof, capfd)[:2] == (0, [])


@pytest.mark.parametrize("start", [None, 18, 17])
def test_iterations_start_before_their_forward_pass(
    start: int | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """msprof's Iteration Time is that from the start of the iteration, which only a timeline shows, to its end."""
    prof, ns = msprof_folder(tmp_path), T0 * 1000
    edit(prof, "step_trace_*.csv", f"{T0 + 41},22,", f"{T0 + 41},23,")
    if start is None:
        ingest([prof], tmp_path / "s.duckdb")
        assert query(tmp_path / "s.duckdb", "SELECT start_ns, fp_start_ns, end_ns FROM step ORDER BY iteration") == [
            (ns, ns, ns + 18_000),
            (ns + 18_000, ns + 19_000, ns + 41_000),
        ]
    else:
        names = ("process_name", "Ascend Hardware"), ("thread_name", "Step Trace(Model ID:7)")
        events: list[dict[str, object]] = [
            {"ph": "M", "pid": 6, "tid": 5, "name": name, "args": {"name": text}} for name, text in names
        ]
        for number, begin, end in (1, 0, 18), (2, start, 41):
            events.append({"ph": "X", "pid": 6, "tid": 5, "ts": f"{T0 + begin}", "dur": end - begin, "args": {},
                           "cat": "Iteration Time", "name": f"Iteration {number}"})  # fmt: skip
        (table,) = prof.rglob("step_trace_*.csv")
        table.with_name("msprof_20260101000001.json").write_text(json.dumps(events), encoding="utf-8")
    _, rows, _ = differing(prof, capfd)
    wrong = [(row, *cells) for _, row, column, *cells in rows if column.lower() == "iteration time(us)"]
    assert wrong == ([("iteration 2 of device 0", "23", "24.000", "-1.000")] if start == 17 else [])


def test_verify_reports_unreadable_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, rows, err = differing(torch_npu_folder(tmp_path, damaged=True), capfd)
    assert (code, "failed: ASCEND_PROFILER_OUTPUT/kernel_details.csv" in err) == (3, True)
    # The wait of the row after the lost one is unknown; nothing else differs.
    assert [row[2] for row in rows] == ["wait time(us)"]


def test_control_characters_in_a_name_are_escaped(tmp_path: Path, command: Command) -> None:
    folder = msprof_folder(tmp_path)
    edit(folder, "op_statistic*.csv", "0,Relu,AI_CORE", "0,\x1b[31mRelu,AI_CORE")
    shown, err = command("verify", folder, code=3)
    assert "\x1b" not in shown + err
    assert "\\x1b[31mRelu" in shown


def test_names_that_differ_in_white_space_only_are_different(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither ingest nor verify trims them: each row is about the task of exactly its name."""
    recording = made_up(5, kernels=30)
    recording.tasks = [
        replace(task, name=task.name + end, op_type=task.op_type + end)
        for number, task in enumerate(recording.tasks)
        for end in [("", "\n", " ")[number % 3]]
    ]
    folder = write_folder(tmp_path, recording, 1)
    store = tmp_path / "trace.duckdb"
    ingest([folder], store)
    found = query(store, "SELECT name, start_ns FROM task ORDER BY ALL")
    assert found == sorted((task.name, task.start_ns) for task in recording.tasks)
    assert differing(folder, capfd)[:2] == (0, [])
    (table,) = folder.rglob("kernel_details.csv")
    row = next(task for task in recording.rows if task.name.endswith("\n"))
    text = table.read_bytes().decode()
    at = text.index(us(row.start_ns))
    quoted = text.rindex(row.name, 0, at)
    table.write_text(text[: quoted + len(row.name) - 1] + text[quoted + len(row.name) :], encoding="utf-8", newline="")
    code, cells, _ = differing(folder, capfd)
    assert code == 3
    assert ("name", row.name[:-1], row.name[:-1] + "\\x0a") in [cell[-4:-1] for cell in cells]


@pytest.mark.parametrize("content", [None, "l2_cache.csv"])
def test_verify_reports_that_nothing_can_be_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        write(tmp_path / content, "Stream Id,Task Id,Op Name,Hit Rate", [(1, 2, "a", "0.5")])
    code, rows, err = differing(tmp_path, capfd)
    assert (code, rows) == (1, [])
    assert str(tmp_path) in err


def test_starts_that_were_kept_in_a_double_are_allowed_its_rounding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """1000.75 µs stands there as .8 and 1010.25 as .2, and the wait is right all the same; one that is not is found."""
    rows = [
        (1, 0, task, 2, "a", "Add", "dynamic", "AI_CORE", start, "1.5", wait, 4, 0, "NO", *["N/A"] * 7)
        for task, start, wait in ((1, f"{T0}.8", "0"), (2, f"{T0 + 10}.2", "8.0"), (3, f"{T0 + 20}.5", "9.75"))
    ]
    write(tmp_path / "kernel_details.csv", KERNELS, rows)
    code, found, _ = differing(tmp_path, capfd)
    assert (code, [row[2:] for row in found]) == (3, [("wait time(us)", "9.75", "8.800", "0.950")])
    assert [row[2:5] for row in differing(tmp_path, capfd, "--exact")[1]] == [
        ("wait time(us)", "8.0", "7.900"),
        ("wait time(us)", "9.75", "8.800"),
    ]


def test_a_folder_that_cannot_be_used_leaves_the_others_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "kernel_details.csv").write_bytes(b"")
    torch_npu_folder(tmp_path, damaged=False)
    code, rows, err = differing(tmp_path, capfd)
    assert (code, rows) == (3, [])
    assert "empty contains no usable events" in err
    assert "kernel_details.csv: 15 cells, all agree" in err
