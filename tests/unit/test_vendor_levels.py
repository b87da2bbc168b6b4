"""Output folders of torch_npu of every level: no kernel twice, none lost, sums as in the vendor's tables."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from stores import query
from vendor_recording import T0, Recording, Task, as_level_2, made_up, timeline, write_csv, write_folder, write_kernels

from traceconv.cli import app
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun

#: Level, a column for the device, times by way of a double, devices.
KINDS = {
    "level 0": (0, False, False, (0,)),
    "level 0, two devices": (0, True, False, (0, 3)),
    "level 0, rounded": (0, False, True, (0,)),
    "level 0, rounded, two devices": (0, True, True, (0, 1)),
    "level 1": (1, False, False, (0,)),
    "level 1, rounded, two devices": (1, True, True, (0, 1)),
    "level 2": (2, False, False, (0,)),
    "level 2, two devices": (2, True, False, (0, 1)),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def stored(folder: Path, out: Path) -> tuple[IngestedRun, Path]:
    run = ingest([out], folder / "trace.duckdb")[0]
    assert all(account.balanced for account in run.accounts.by_record.values())
    return run, folder / "trace.duckdb"


def recorded(level: int, seed: int, devices: tuple[int, ...], steps: int = 2) -> Recording:
    found = made_up(seed, devices=devices, steps=steps)
    return as_level_2(found) if level == 2 else found


def by_type(rows: list[Task]) -> list[tuple[object, ...]]:
    counts = Counter((row.op_type, row.core) for row in rows if not row.collective)
    sums = Counter[tuple[str, str | None]]()
    for row in rows:
        sums[row.op_type, row.core] += row.dur_ns
    return sorted((*key, count, sums[key]) for key, count in counts.items())


@kinds
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_each_kernel_is_one_task(kind: tuple[int, bool, bool, tuple[int, ...]], seed: int, tmp_path: Path) -> None:
    level, device_id, old, devices = kind
    recording = recorded(level, seed, devices)
    out = write_folder(tmp_path, recording, level, device_id=device_id, old=old)
    run, store = stored(tmp_path, out)
    assert not run.lossy
    assert run.accounts["kernel_details records"].paired == len(recording.rows)
    tasks = query(store, "SELECT name, start_ns, dur_ns, stream_id, device_id FROM task")
    shown = query(store, "SELECT op_type, core_type, sum(count), sum(total_ns) FROM op_statistic GROUP BY ALL")
    assert sorted(shown) == by_type(recording.rows)
    steps = query(store, "SELECT DISTINCT step_id, step_source FROM step ORDER BY ALL")
    assert steps == [(1, "annotation"), (2, "annotation")]
    device = {None: 0} if not device_id else {}
    assert Counter((*task[:4], device.get(task[4], task[4])) for task in tasks) == Counter(
        (one.name, one.start_ns, one.dur_ns, one.stream, one.device) for one in recording.tasks
    )


@kinds
def test_a_row_that_only_one_file_has_is_one_task(
    kind: tuple[int, bool, bool, tuple[int, ...]], tmp_path: Path
) -> None:
    level, device_id, old, devices = kind
    recording = recorded(level, 7, devices, steps=1)
    out = write_folder(tmp_path, recording, level, device_id=device_id, old=old)
    only_table, only_timeline = recording.rows[11], recording.rows[24]
    shown = Recording([task for task in recording.tasks if task is not only_table], recording.steps)
    (out / "trace_view.json").write_text(json.dumps(timeline(shown, level)), encoding="utf-8")
    rows = [row for row in recording.rows if row is not only_timeline]
    write_kernels(out / "kernel_details.csv", rows, level, device_id=device_id, old=old)
    run, store = stored(tmp_path, out)
    account = run.accounts["kernel_details records"]
    assert (account.paired, account.rows, account.lost) == (len(rows) - 1, 1, 0)
    assert query(store, "SELECT count(*), sum(dur_ns) FROM task") == [
        (len(recording.tasks), sum(task.dur_ns for task in recording.tasks))
    ]


def one_moment(*durs: int) -> list[Task]:
    """Kernels of one name that begin at once, each on a stream of its own."""
    return [Task("a", "Add", "AI_CORE", T0, dur, stream, stream) for stream, dur in enumerate(durs, 2)]


@pytest.mark.parametrize(
    ("of_timeline", "of_table", "paired", "fresh", "unclear"),
    [
        ((500, 500), (500, 500), 2, 0, 0),
        ((500, 900), (900, 500), 2, 0, 0),
        ((500, 500), (500, 500, 500), 2, 1, 0),
        ((500, 500, 500), (500, 500), 2, 0, 0),
        ((500, 900), (700,), 0, 0, 1),
        ((500, 900), (500, 700), 2, 0, 0),
    ],
)
def test_kernels_that_begin_at_once_are_distinguished_by_other_columns(
    of_timeline: tuple[int, ...], of_table: tuple[int, ...], paired: int, fresh: int, unclear: int, tmp_path: Path
) -> None:
    """A level without streams. Ambiguous rows are reported, and not counted twice."""
    out = write_folder(tmp_path, Recording(one_moment(*of_timeline)), 0)
    write_kernels(out / "kernel_details.csv", one_moment(*of_table), 0)
    run, store = stored(tmp_path, out)
    account = run.accounts["kernel_details records"]
    assert (account.paired, account.rows, account.lost) == (paired, fresh, unclear)
    assert run.lossy == bool(unclear)
    assert query(store, "SELECT count(*) FROM task") == [(len(of_timeline) + fresh,)]
    logged = "SELECT event_count, severity FROM import_log WHERE code = 'unclear_record'"
    assert query(store, logged) == [(unclear, "data_loss")] * bool(unclear)
    typed = "SELECT count(*) FROM task JOIN op USING (run_id, op_id) WHERE op_type_source = 'recorded'"
    assert query(store, typed) == [(paired + fresh,)] if not unclear else True


def test_very_many_records_of_one_moment_are_not_paired_one_by_one(tmp_path: Path) -> None:
    many = [replace(one_moment(500)[0], number=number) for number in range(3000)]
    out = write_folder(tmp_path, Recording(many), 1)
    write_kernels(out / "kernel_details.csv", many, 0)
    run, store = stored(tmp_path, out)
    assert run.accounts["kernel_details records"].lost == 3000
    assert query(store, "SELECT count(*) FROM task") == [(3000,)]


def test_values_missing_at_a_low_level_stay_those_of_the_timeline(tmp_path: Path) -> None:
    """A type that is N/A takes nothing from the op, and a name like an event's does not make a kernel an event."""
    rows = [
        Task("MEM_WAIT_VALUE", "N/A", "N/A", T0, 500, 2, 7),
        Task("write_y", "Write", "AI_CORE", T0 + 900, 500, 2, 8),
    ]
    out = write_folder(tmp_path, Recording(rows), 0)
    _, store = stored(tmp_path, out)
    sql = (
        "SELECT t.name, kind, kind_source, op_type, op_type_source FROM task AS t "
        "LEFT JOIN op USING (run_id, op_id) ORDER BY start_ns"
    )
    first, second = query(store, sql)
    assert first[:3] == ("MEM_WAIT_VALUE", "sync", "name")
    assert second == ("write_y", "compute", "recorded", "Write", "recorded")


@pytest.mark.parametrize(("level", "with_timeline"), [(0, False), (1, False), (1, True)])
def test_steps_that_only_the_table_has_are_added(level: int, with_timeline: bool, tmp_path: Path) -> None:
    recording = made_up(3, devices=(0, 1))
    out = write_folder(tmp_path, recording, level, device_id=True)
    if with_timeline:
        events = [event for event in timeline(recording, level) if "ProfilerStep" not in str(event["name"])]
        (out / "trace_view.json").write_text(json.dumps(events), encoding="utf-8")
    else:
        (out / "trace_view.json").unlink()
    _, store = stored(tmp_path, out)
    steps = query(store, "SELECT step_id, device_id, iteration, step_source, start_ns, end_ns FROM step ORDER BY ALL")
    expected = []
    for step in (1, 2):
        for device in (0, 1):
            own = [row for row in recording.rows if (row.step, row.device) == (step, device)]
            bounds = min(row.start_ns for row in own), max(row.end_ns for row in own)
            expected.append((step, device, step, "csv", *bounds))
    assert steps == expected
    counted = query(
        store,
        "SELECT step_id, count(*), sum(dur_ns) FROM task WHERE kind IN ('compute', 'collective') "
        "GROUP BY ALL ORDER BY ALL",
    )
    logged = "SELECT event_count FROM import_log WHERE message LIKE '%steps that only this file has%'"
    assert query(store, logged) == [(4,)]
    rows = [[row for row in recording.rows if row.step == step] for step in (1, 2)]
    assert counted == [(step, len(own), sum(row.dur_ns for row in own)) for step, own in enumerate(rows, 1)]


def differing(out: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit code of verify, and (file, column, vendor's value) of the cells that it shows."""
    code = app.run(["verify", str(out), "--format", "csv"])
    shown = csv.DictReader(io.StringIO(capfd.readouterr().out))
    return code, [(row["file"], row["column_name"], row["vendor_value"]) for row in shown]


@kinds
@pytest.mark.parametrize("seed", [1, pytest.param(4, marks=pytest.mark.long)])
def test_verify_agrees_with_a_sound_folder(
    kind: tuple[int, bool, bool, tuple[int, ...]], seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Doubles of today's µs keep a quarter of one: the vendor's rounding is not an error of its table."""
    level, device_id, old, devices = kind
    recording = recorded(level, seed, devices, steps=3)
    out = write_folder(tmp_path, recording, level, device_id=device_id, old=old)
    assert differing(out, capfd) == (0, [])


MUTATED = {
    "kernel_details.csv": ("Task ID", "Start Time(us)", "Duration(us)", "Wait Time(us)"),
    "op_statistic.csv": ("Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)", "Max Time(us)", "Ratio(%)"),
    "step_trace_time.csv": (
        "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free", "Stage", "Bubble",
        "Communication(Not Overlapped and Exclude Receive)", "Preparing",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "column"), [(file, column) for file, columns in MUTATED.items() for column in columns]
)
def test_verify_finds_a_cell_that_is_wrong(
    file: str, column: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a quarter of a µs, which doubles could be off by, or by 1 of a count."""
    out = write_folder(tmp_path, made_up(2), 1)
    with (out / file).open(encoding="utf-8", newline="") as table:
        header, *rows = csv.reader(table)
    place = header.index(column)
    row = next(
        row
        for row in rows[len(rows) // 2 :]
        if row[place].strip() not in ("", "N/A") and (row[place] != "0" or column == "Bubble")
    )
    value = Decimal(row[place].strip()) + (1 if column in ("Task ID", "Count") else Decimal("0.25"))
    row[place] = str(value)
    write_csv(out / file, header, rows)
    code, cells = differing(out, capfd)
    assert code == 3
    assert (file, column.casefold(), str(value)) in cells
