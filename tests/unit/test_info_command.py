"""`traceconv info`: identifies files and checks their integrity."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_builder import CLOCK_HZ, CaptureBuilder
from commands import Command, described


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    builder = CaptureBuilder(tmp_path / "PROF_1", block_bytes=80)
    builder.add("capture", host_ns=50, epoch_ns=1_700_000_000_000_000_001, writer="me 1.0", model_name="net")
    builder.add("device", 0, device_id=0, name="N1", kind="NPU", clock_hz=CLOCK_HZ)
    for number in range(10):
        builder.call(number + 1, 100 * number, 100 * number + 50)
    builder.sync(0, 60).sync(80, 860)
    builder.task(1, 5, 9)
    return builder.close(note="x")


def test_intact_capture(command: Command, capture: Path) -> None:
    out, err = command("info", capture)
    assert err == ""
    lines = out.splitlines()
    assert lines[:2] == ["PROF_1", "  a capture of the NPU runtime: intact"]
    assert "  writer    me 1.0" in lines
    assert "  model     net" in lines
    assert "  start     2023-11-14 22:13:20.000000001 UTC" in lines
    assert "  duration  0.000000950 s" in lines
    assert "  device 0  N1, NPU, counter 100,000,000 Hz" in lines
    api = next(line for line in lines if line.startswith("  host/api "))
    assert api.split()[1:] == ["1", f"{(capture / 'host/data/api.slice_0.bin').stat().st_size:,}", "10", "20", "0"]
    assert all(len(line) <= 80 for line in lines)


def test_as_json(command: Command, capture: Path) -> None:
    one = described(command, capture)
    assert (one["kind"], one["intact"], one["model_name"], one["dur_ns"]) == ("capture", True, "net", 950)
    assert one["start_epoch_ns"] == 1_700_000_000_000_000_001
    assert one["manifest_extra"] == {"note": "x"}
    files = {file["path"]: file for file in one["files"]}
    api = files["host/data/api.slice_0.bin"]
    assert (api["record_count"], api["block_count"], api["lost_count"]) == ({"api": 20}, 10, 0)
    assert api["header"]["writer_id"] == f"{7:016x}"
    assert api["header"]["schemas"][0]["name"] == "api"


def test_quick_reads_no_blocks(command: Command, capture: Path) -> None:
    path = capture / "host/data/api.slice_0.bin"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    out = command("info", capture, "--quick").out
    assert "no problems found" in out
    api = next(line for line in out.splitlines() if line.startswith("  host/api "))
    assert api.split()[3:] == ["-", "20", "-"]
    command("info", capture, code=3)


def test_quick_reports_files_with_an_unexpected_size(command: Command, capture: Path) -> None:
    path = capture / "host/data/api.slice_0.bin"
    path.write_bytes(path.read_bytes()[:-1])
    out = command("info", capture, "--quick", code=3).out
    assert "where the manifest says" in out


def test_damage_is_counted_and_reported(command: Command, capture: Path) -> None:
    path = capture / "host/data/api.slice_0.bin"
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)
    one = described(command, capture, code=3)
    api = next(file for file in one["files"] if file["record"] == "api")
    assert (api["record_count"], api["lost_count"], len(api["problems"])) == ({"api": 18}, 2, 1)
    out = command("info", capture, code=3).out
    assert "a capture of the NPU runtime: damaged" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_blocks_lost_at_the_end_are_found_by_the_manifest(command: Command, capture: Path) -> None:
    path = capture / "host/data/api.slice_0.bin"
    path.write_bytes(path.read_bytes()[:-112])  # the last block, whole
    one = described(command, capture, code=3)
    api = next(file for file in one["files"] if file["record"] == "api")
    assert api["lost_count"] == 2
    assert any("has 18 records where the manifest says 20" in problem for problem in api["problems"])


def test_long_lists_of_problems_are_shortened(command: Command, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "PROF_1", block_bytes=40)
    for number in range(100):
        builder.add("api", host_ns=number)
    folder = builder.close()
    path = folder / "host/data/api.slice_0.bin"
    content = bytearray(path.read_bytes())
    for number in range(0, 100, 2):
        content[-1 - 72 * number] ^= 1
    path.write_bytes(content)
    (api,) = described(command, folder, code=3)["files"]
    assert (api["lost_count"], api["record_count"]) == (50, {"api": 50})
    assert len(api["problems"]) == 11
    assert api["problems"][-1] == "and 40 more"


def test_missing_unlisted_and_foreign_files_are_reported(command: Command, tmp_path: Path, capture: Path) -> None:
    other = CaptureBuilder(tmp_path / "PROF_2")
    other.writer.writer_id = 8
    other.call(1, 2, 3).close()
    source = (tmp_path / "PROF_2/host/data/api.slice_0.bin").read_bytes()
    (capture / "host/data/api.slice_7.bin").write_bytes(source)
    (capture / "device_0/data/task.slice_0.bin").rename(tmp_path / "gone")
    one = described(command, capture, code=3)
    problems = " / ".join(one["problems"])
    assert "device_0/data/task.slice_0.bin is missing" in problems
    assert "api.slice_7.bin is not in the manifest" in problems
    assert "contains files of 2 captures" in problems


def test_file_in_the_folder_of_another_device(command: Command, capture: Path) -> None:
    (capture / "device_0").rename(capture / "device_1")
    one = described(command, capture, code=3)
    task = next(file for file in one["files"] if file["record"] == "task")
    assert any("folder of device 0, to which it belongs by its header" in problem for problem in task["problems"])


def test_truncated_capture(command: Command, tmp_path: Path) -> None:
    folder = CaptureBuilder(tmp_path / "PROF_1").call(1, 2, 3).cut()
    out = command("info", folder, code=3).out
    assert "  manifest  missing: the recording is incomplete" in out


def test_a_single_file(command: Command, capture: Path) -> None:
    out = command("info", capture / "host/data/api.slice_0.bin").out
    assert out.startswith("host/data/api.slice_0.bin\n  a log file of the NPU runtime: intact\n")
    assert "  schema api: tag 7, 40 bytes per record" in out


def test_capture_without_a_readable_file(command: Command, capture: Path) -> None:
    for path in capture.glob("*/data/*.bin"):
        path.write_bytes(bytes(path.stat().st_size))
    out = command("info", capture, code=1).out
    assert "nothing readable" in out


def test_a_store(command: Command, tmp_path: Path, capture: Path) -> None:
    store = tmp_path / "t.duckdb"
    command("ingest", capture, "--db", store)
    one = described(command, store)
    assert (one["kind"], one["rows"]["api"], one["rows"]["task"]) == ("store", 10, 1)
    assert [(run["run_id"], run["label"]) for run in one["runs"]] == [(1, "PROF_1")]
    out = command("info", store, capture).out
    assert ": a store, " in out
    assert "  run 1: PROF_1, complete" in out
    assert "a capture of the NPU runtime: intact" in out


def test_control_characters_in_logs_are_escaped(command: Command, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "PROF_1")
    builder.add("capture", model_name="\x1b[2J\x07", writer="a\nb", epoch_ns=-(1 << 63))
    builder.add("device", 0, name="\u202edeviced")
    out = command("info", builder.close()).out
    assert all(line.isprintable() for line in out.splitlines())
    assert "a\\x0ab" in out
