"""A real output folder of torch_npu: all of it goes in, and its tables are computed again, but for two cells."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.cli import app
from traceconv.pipeline import ingest

FOLDER = shared("real") / "ascend" / "torch_npu_level1_rank1"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vendor") / "trace.duckdb"
    run = ingest([FOLDER], path)[0]
    assert all(book.balanced and book.lost == 0 for book in run.accounts.by_record.values())
    assert run.complete
    assert not run.lossy
    return path


def ask(store: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(store), read_only=True) as connection:
        return connection.execute(query).fetchall()


def kernels() -> list[dict[str, str]]:
    with (FOLDER / "kernel_details.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_kernel_completes_a_task_of_the_timeline(store: Path) -> None:
    books = "SELECT record_count, merged_count, lost_count FROM import_account WHERE record = 'kernel_details records'"
    assert ask(store, books) == [(191, 191, 0)]
    assert ask(store, "SELECT count(*) FROM import_log WHERE severity <> 'info'") == [(0,)]


def test_what_kernel_details_says_stands_in_the_tasks(store: Path) -> None:
    rows = {
        (name, start_ns): (op_type, state, core)
        for name, start_ns, op_type, state, core in ask(
            store,
            "SELECT t.name, t.start_ns, o.op_type, o.state, t.core_type FROM task AS t JOIN op AS o "
            "USING (run_id, op_id)",
        )
    }
    computing = [cells for cells in kernels() if cells["Accelerator Core"] not in ("HCCL", "COMMUNICATION")]
    assert len(computing) == len(rows) == 187
    near = 0
    for cells in computing:
        whole, _, part = cells["Start Time(us)"].strip().partition(".")
        start_ns = int(whole) * 1000 + int(part.ljust(3, "0"))
        found = [rows[key] for at in (0, 1, -1) if (key := (cells["Name"], start_ns + at)) in rows]
        near += (cells["Name"], start_ns) not in rows
        assert found[0] == (cells["Type"], cells["OP State"], cells["Accelerator Core"])
    assert near < len(computing)


def test_verify_finds_the_two_cells_that_differ_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(["verify", str(FOLDER), "--format", "csv"]) == 3
    shown, said = capfd.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown)))
    cells = [(row["file"], row["column_name"], row["vendor_value"], row["our_value"]) for row in rows]
    assert cells == [
        ("step_trace_time.csv", "stage", "131912.5", "131912.616"),
        ("step_trace_time.csv", "preparing", "20433.25", "20433.190"),
    ]
    assert "all together: 1,761 cells, 2 differ" in said
    assert "kernel_details.csv: 951 cells, all agree" in said
    assert "l2_cache.csv: not checked: no other file tells of what it holds" in said
