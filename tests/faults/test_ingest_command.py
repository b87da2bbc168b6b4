"""Failures of `traceconv ingest`: a one-line error, the right exit code, and an unchanged store."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from capture_builder import CaptureBuilder
from ingest_checks import all_rows
from processes import TRACECONV, heed_interrupts, wait_until
from stores import query

from traceconv.cli.app import run
from traceconv.wire.log_writer import CaptureWriter, new_records


def capture(folder: Path, seed: int = 1) -> Path:
    """A small capture; others with another seed."""
    b = CaptureBuilder(folder)
    for tick in (0, 100, 10_000):
        b.sync(tick, tick * 10)
    for number in range(1, 4):
        b.call(number, number * seed, number * seed + 50, f"call {seed}")
        b.task(number, number * 10, number * 10 + 5, "k", correlation_id=number)
    return b.close()


def big_capture(folder: Path, task_count: int = 400_000) -> Path:
    """A capture that takes some seconds to ingest."""
    writer = CaptureWriter(folder, writer_id=5, device_clock_hz={0: 10**8})
    tasks = new_records("task", 2 * task_count)
    numbers = np.arange(task_count)
    for half in (0, 1):
        part = tasks[half::2]
        part["task_id"], part["ticks"], part["event"] = numbers, numbers * 10 + half * 5, half
        part["size_bytes"] = np.random.default_rng(half).integers(0, 1 << 60, task_count)
    writer.append("task", tasks, 0)
    writer.close({})
    return folder


def ingest(*arguments: object) -> int:
    return run(["ingest", *(str(argument) for argument in arguments)])


def refused(capfd: pytest.CaptureFixture[str], code: int, *arguments: object) -> str:
    """Runs ingest, which must end with `code` and one line on stderr; that line."""
    capfd.readouterr()
    assert ingest(*arguments) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("traceconv: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def nothing_left(folder: Path, *names: str) -> None:
    """No store, no partial store, no write-ahead log lies in `folder`: only what is named."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def start(*arguments: object, **options: object) -> subprocess.Popen[str]:
    command = [*TRACECONV, "ingest", *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def wait_until_loading(process: subprocess.Popen[str], file: Path, size: int = 1) -> None:
    """Waits until the database file has grown beyond `size`: rows are on their way."""
    wait_until(process, lambda: file.exists() and file.stat().st_size > size)


def test_a_good_capture_is_reported_on_stderr_and_nothing_on_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ingest(capture(tmp_path / "PROF_1"), "--db", tmp_path / "s.duckdb") == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"PROF_1 ingested as run 1 in {tmp_path / 's.duckdb'}" in err
    nothing_left(tmp_path, "PROF_1", "s.duckdb")


def test_a_file_without_events_has_no_table_of_records(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.json"
    file.write_text("[]")
    assert ingest(file, "--db", tmp_path / "s.duckdb") == 0
    _, warning, total = capfd.readouterr().err.splitlines()
    assert warning == "  warning: empty.json contains no events"
    assert total.startswith("  0 records, 0.0 kB in ")


def test_a_repeated_ingest_is_reported_and_duplicates_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.duckdb"
    folder = capture(tmp_path / "PROF_1")
    assert ingest(folder, "--db", store) == 0
    before = all_rows(store)
    shutil.copytree(folder, tmp_path / "PROF_copy")
    reports = ("PROF_1 is already in", "PROF_copy has the same content as run 1 (PROF_1) in")
    for path, report in zip((folder, tmp_path / "PROF_copy"), reports, strict=True):
        capfd.readouterr()
        assert ingest(path, "--db", store) == 0
        assert report in capfd.readouterr().err
    assert all_rows(store) == before
    assert ingest(folder, "--db", store, "--replace") == 0
    assert "PROF_1 replaced as run 1" in capfd.readouterr().err
    assert all_rows(store) == before


def test_a_lossy_run_that_is_kept_is_still_lossy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 would say that all of the capture is in the store."""
    folder = capture(tmp_path / "PROF_1")
    (folder / "device_0/data/task.slice_0.bin").unlink()
    store = tmp_path / "s.duckdb"
    assert ingest(folder, "--db", store) == 3
    capfd.readouterr()
    assert ingest(folder, "--db", store) == 3
    err = capfd.readouterr().err
    assert "is already in" in err
    assert "loss" in err
    refused(capfd, 3, folder, "--db", store, "--strict")


def test_captures_in_two_orders_give_the_same_rows(tmp_path: Path) -> None:
    one, two = capture(tmp_path / "PROF_1"), capture(tmp_path / "PROF_2", seed=7)
    assert ingest(one, two, "--db", tmp_path / "a.duckdb") == 0
    assert ingest(two, "--db", tmp_path / "b.duckdb") == 0
    assert ingest(one, "--db", tmp_path / "b.duckdb") == 0
    assert query(tmp_path / "a.duckdb", "SELECT run_id, label FROM run ORDER BY 1") == [(1, "PROF_1"), (2, "PROF_2")]
    swap = {1: 2, 2: 1}
    swapped = {
        table: sorted(((swap[row[0]], *row[1:]) for row in rows), key=repr)
        for table, rows in all_rows(tmp_path / "b.duckdb").items()
    }
    assert swapped == all_rows(tmp_path / "a.duckdb")


def test_two_ingests_give_equal_tables(tmp_path: Path) -> None:
    folder = capture(tmp_path / "PROF_1")
    for name in ("a", "b"):
        assert ingest(folder, "--db", tmp_path / f"{name}.duckdb") == 0
    assert all_rows(tmp_path / "a.duckdb") == all_rows(tmp_path / "b.duckdb")


def test_a_missing_path_stores_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A mistake in the call: it can be repeated correctly."""
    bad = tmp_path / "nowhere"
    assert str(bad) in refused(capfd, 1, capture(tmp_path / "PROF_1"), bad, "--db", tmp_path / "s.duckdb")
    nothing_left(tmp_path, "PROF_1")


def test_one_bad_capture_does_not_stop_the_good_ones(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, last, store = capture(tmp_path / "PROF_1"), capture(tmp_path / "PROF_3", seed=3), tmp_path / "s.duckdb"
    zeros = tmp_path / "PROF_2"
    (zeros / "host/data").mkdir(parents=True)
    (zeros / "host/data/api.slice_0.bin").write_bytes(bytes(10_000))
    assert str(zeros) in refused(capfd, 3, good, zeros, last, "--db", store, "--strict")
    nothing_left(tmp_path, "PROF_1", "PROF_2", "PROF_3")
    assert ingest(good, zeros, last, "--db", store) == 3
    err = capfd.readouterr().err
    assert [line for line in err.splitlines() if line.startswith("failed: ")] == [
        line for line in err.splitlines() if "contains no usable events" in line
    ]
    assert query(store, "SELECT run_id, label FROM run ORDER BY run_id") == [(1, "PROF_1"), (2, "PROF_3")]
    assert ingest(good, last, "--db", tmp_path / "complete.duckdb") == 0
    assert all_rows(store) == all_rows(tmp_path / "complete.duckdb")


def test_strict_refuses_any_loss_and_leaves_the_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.duckdb"
    bad = capture(tmp_path / "PROF_bad", seed=3)
    (bad / "host/data/api.slice_0.bin").unlink()
    assert "PROF_bad" in refused(capfd, 3, bad, "--db", store, "--strict")
    nothing_left(tmp_path, "PROF_bad")
    assert ingest(capture(tmp_path / "PROF_1"), "--db", store, "--strict") == 0
    before = all_rows(store)
    refused(capfd, 3, bad, "--db", store, "--strict")
    assert all_rows(store) == before
    assert ingest(bad, "--db", store) == 3
    assert query(store, "SELECT run_id, complete FROM run ORDER BY 1") == [(1, True), (2, False)]


def test_stores_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = capture(tmp_path / "PROF_1")
    text = tmp_path / "notes.txt"
    text.write_text("I am no database\n" * 100)
    assert "not a DuckDB file" in refused(capfd, 1, folder, "--db", text)
    assert text.read_text().startswith("I am no")
    refused(capfd, 1, folder, "--db", tmp_path)
    refused(capfd, 1, folder, "--db", tmp_path / "no/such/folder/s.duckdb")
    refused(capfd, 1, folder, "--db", text / "s.duckdb")
    refused(capfd, 1, folder, "--db", "/proc/s.duckdb")
    newer = tmp_path / "newer.duckdb"
    assert ingest(folder, "--db", newer) == 0
    with duckdb.connect(newer) as connection:
        connection.execute("UPDATE store_info SET schema_version = 999")
    assert "upgrade traceconv" in refused(capfd, 1, folder, "--db", newer)
    nothing_left(tmp_path, "PROF_1", "notes.txt", "newer.duckdb")


def test_a_store_in_use_is_reported_clearly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "s.duckdb"
    assert ingest(capture(tmp_path / "PROF_1"), "--db", store) == 0
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=len(sys.argv) > 2)"
    hold += "; print(1, flush=True); input()"
    other = capture(tmp_path / "PROF_2", seed=2)
    for how in ((), ("read only",)):
        holder = subprocess.Popen(
            [sys.executable, "-c", hold, str(store), *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        assert "is in use" in refused(capfd, 1, other, "--db", store)
        holder.communicate("\n")
    assert ingest(other, "--db", store) == 0


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return big_capture(tmp_path_factory.mktemp("big") / "PROF_9")


def test_a_killed_ingest_into_a_new_store_leaves_none(tmp_path: Path, big: Path) -> None:
    store, partial = tmp_path / "s.duckdb", tmp_path / "s.duckdb.partial"
    process = start(big, "--db", store)
    wait_until_loading(process, partial, 1 << 20)
    process.kill()
    process.communicate()
    assert not store.exists()
    assert partial.exists()
    assert ingest(capture(tmp_path / "PROF_1"), "--db", store) == 0
    nothing_left(tmp_path, "PROF_1", "s.duckdb")


def test_a_killed_ingest_into_an_old_store_leaves_its_rows(tmp_path: Path, big: Path) -> None:
    store = tmp_path / "s.duckdb"
    assert ingest(capture(tmp_path / "PROF_1"), "--db", store) == 0
    before = all_rows(store)
    process = start(big, "--db", store)
    wait_until_loading(process, store, store.stat().st_size)
    process.kill()
    process.communicate()
    assert all_rows(store) == before
    assert ingest(capture(tmp_path / "PROF_2", seed=2), "--db", store) == 0
    assert query(store, "SELECT label FROM run ORDER BY run_id") == [("PROF_1",), ("PROF_2",)]
    nothing_left(tmp_path, "PROF_1", "PROF_2", "s.duckdb")


@pytest.mark.parametrize("old", [False, True])
def test_ctrl_c_leaves_the_store_unchanged(tmp_path: Path, big: Path, old: bool) -> None:
    store = tmp_path / "s.duckdb"
    names = ["s.duckdb", "PROF_1"] if old else []
    if old:
        assert ingest(capture(tmp_path / "PROF_1"), "--db", store) == 0
    before = all_rows(store) if old else {}
    process = start(big, "--db", store, preexec_fn=heed_interrupts)
    wait_until_loading(process, store if old else tmp_path / "s.duckdb.partial", store.stat().st_size if old else 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "traceconv: interrupted\n")
    nothing_left(tmp_path, *names)
    if old:
        assert all_rows(store) == before


@pytest.mark.parametrize("old", [False, True])
def test_a_full_disk_is_a_one_line_error_and_the_store_is_unchanged(tmp_path: Path, big: Path, old: bool) -> None:
    """The kernel refuses to let any file grow past the limit, as a full disk does."""
    store = tmp_path / "s.duckdb"
    if old:
        assert ingest(capture(tmp_path / "PROF_1"), "--db", store) == 0
    before = all_rows(store) if old else {}
    limit = (store.stat().st_size if old else 1 << 20) + (2 << 20)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = start(big, "--db", store, preexec_fn=limited)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), err
    assert err.startswith(("traceconv: cannot ", "traceconv: can't "))
    assert err.count("\n") == 1
    if old:
        assert all_rows(store) == before
        assert ingest(capture(tmp_path / "PROF_2", seed=2), "--db", store) == 0
    else:
        nothing_left(tmp_path)


def test_a_disk_that_is_full_at_the_commit_is_the_reason(tmp_path: Path) -> None:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))

    store = tmp_path / "s.duckdb"
    process = start(capture(tmp_path / "PROF_1"), "--db", store, preexec_fn=limited)
    reason = f'Could not write file "{store}.partial": File too large'
    assert process.communicate()[1] == f"traceconv: can't write {store}: {reason}; the store is as it was before\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB, where one can be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root can mount the small disk that this test fills")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("what", ["store", "temporary files"])
def test_a_real_full_disk(tmp_path: Path, big: Path, small_disk: Path, what: str) -> None:
    store = small_disk / "s.duckdb" if what == "store" else tmp_path / "s.duckdb"
    environment = {**os.environ, "TMPDIR": str(small_disk)}
    (small_disk / "filler").write_bytes(bytes(5 << 20))
    process = start(big, "--db", store, env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, ""), err
    assert err.startswith(("traceconv: cannot ", "traceconv: can't "))
    assert err.count("\n") == 1
    nothing_left(small_disk, "filler")
    assert not store.exists()


def test_folders_without_permission(folder_of_a_user: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = capture(folder_of_a_user / "PROF_1")
    locked = folder_of_a_user / "locked"
    locked.mkdir()
    assert ingest(folder, "--db", locked / "s.duckdb") == 0
    (locked / "s.duckdb").chmod(0o444)
    refused(capfd, 1, capture(folder_of_a_user / "PROF_2", seed=2), "--db", locked / "s.duckdb")
    locked.chmod(0o555)
    refused(capfd, 1, folder, "--db", locked / "t.duckdb")
    locked.chmod(0o755)
    (folder / "host/data/api.slice_0.bin").chmod(0)
    assert ingest(folder, "--db", folder_of_a_user / "s.duckdb") == 3


HOSTILE = [
    "\x1b[31mred",
    "a\nb\r\tc",
    "'; DROP TABLE task; --",
    '"quoted"',
    "nul\0byte",
    "\u202eright to left",
    "🦊" * 50,
]


def test_hostile_names_are_stored_exactly_and_never_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "PROF_\x1b[2J';--"
    b = CaptureBuilder(folder)
    b.add("capture", host_name=HOSTILE[0], model_name=HOSTILE[2], options=HOSTILE[1])
    for number, name in enumerate(HOSTILE):
        b.call(number + 1, number, number + 1, name)
        b.add("range", host_ns=number, span_id=number + 1, event="begin", name=name, args=name, category=name)
    b.sync(0, 0).task(1, 1, 2, HOSTILE[1]).add("stream", 0, name=HOSTILE[0], stream_id=0)
    b.close()
    (folder / "host/data/\x1b[31mevil.slice_0.bin").write_bytes(b"\x89NPULOG\n" + bytes(100))
    store = tmp_path / "s\x1b[0m.duckdb"
    assert ingest(folder, "--db", store) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert all(line.isprintable() for line in err.split("\n"))
    assert [name for (name,) in query(store, "SELECT name FROM api ORDER BY start_ns")] == HOSTILE
    assert [name for (name,) in query(store, "SELECT name FROM range ORDER BY start_ns")] == HOSTILE
    assert query(store, "SELECT name FROM task") == [(HOSTILE[1],)]
    assert query(store, "SELECT host, model_name, label FROM run") == [(HOSTILE[0], HOSTILE[2], folder.name)]
    assert query(store, "SELECT count(*) FROM range WHERE NOT json_valid(args)") == [(0,)]


def test_file_names_that_are_not_utf8(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/PROF_\xff\xfe"))
    capture(folder)
    assert ingest(folder, "--db", tmp_path / "s.duckdb") == 0
    assert "PROF_" in capfd.readouterr().err
    assert query(tmp_path / "s.duckdb", "SELECT label LIKE 'PROF%', source_path LIKE '%PROF%' FROM run") == [
        (True, True)
    ]
