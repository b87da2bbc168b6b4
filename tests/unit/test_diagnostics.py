"""The import log is bounded and keeps exact sums; accounts that don't balance are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from trace_files import write_trace

from traceconv.base.diagnostics import Account, Accounts, Code, ImportLog, Severity
from traceconv.base.errors import TraceconvError, printable, suggestion


def test_every_code_is_described() -> None:
    assert len({code.text for code in Code}) == len(Code)
    for code in Code:
        assert code.text == code.name.lower()
        assert code.doc.endswith(".")


def test_entries_are_in_order_with_their_numbers() -> None:
    log = ImportLog()
    log.add(Code.TRUNCATED, "cut", source_id=3, byte_offset=10, byte_count=5)
    log.add(Code.UNFINISHED, "open", event_count=2)
    one, two = log
    assert (one.severity, one.source_id, one.byte_offset, one.byte_count, one.event_count) == (
        Severity.DATA_LOSS,
        3,
        10,
        5,
        None,
    )
    assert (two.severity, two.source_id, two.event_count) == (Severity.INFO, None, 2)


def test_past_the_limit_entries_are_summed_by_code_and_file() -> None:
    log = ImportLog()
    for number in range(ImportLog.LIMIT + 50):
        log.add(Code.DAMAGED_BLOCK, "bad", source_id=1, byte_offset=number, byte_count=7, event_count=3)
    for _ in range(ImportLog.LIMIT):
        log.add(Code.DAMAGED_BLOCK, "bad", source_id=2)
    entries = list(log)
    assert len(entries) == 2 * ImportLog.LIMIT + 1
    rest = entries[-1]
    assert (rest.source_id, rest.byte_offset, rest.byte_count, rest.event_count) == (1, None, 350, 150)
    assert "50 more" in rest.message
    assert sum(entry.event_count or 0 for entry in entries if entry.source_id == 1) == 3 * (ImportLog.LIMIT + 50)


def test_lossy_means_more_than_a_note() -> None:
    for code in Code:
        log = ImportLog()
        assert not log.lossy
        log.add(code, "x")
        assert log.lossy == (code.severity is not Severity.INFO)


def test_the_accounting() -> None:
    accounts = Accounts()
    accounts["api"].records += 5
    assert not accounts["api"].balanced
    accounts["api"].rows += 2
    accounts["api"].paired += 2
    accounts["api"].lost += 1
    assert accounts["api"].balanced
    assert Account().balanced
    assert list(accounts.by_record) == ["api"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Straße", "plain Straße"),
        ("a\nb\x1b[2J", "a\\x0ab\\x1b[2J"),
        ("\u202e\ud800", "\\x202e\\xd800"),
        ("x" * 300, "x" * 199 + "…"),
        ("x" * 200, "x" * 200),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_suggestions() -> None:
    assert suggestion("tsk", ["task", "api"]) == " Did you mean 'task'?"
    assert suggestion("zzzzzz", ["task", "api"]) == ""


def test_every_error_has_an_exit_code_of_its_kind() -> None:
    kinds = TraceconvError.__subclasses__()
    assert kinds
    assert {kind.__name__: kind.exit_code for kind in kinds if kind.exit_code != 1} == {
        "UsageError": 2,
        "DataLossError": 3,
        "IncomparableError": 5,
    }


def test_an_ingest_that_contradicts_itself_stores_nothing_and_explains_how_to_report_it(tmp_path: Path) -> None:
    """Also under -O, which leaves out assertions."""
    trace = write_trace(tmp_path / "trace.json")
    builder = CaptureBuilder(tmp_path / "capture")
    builder.add("op", name="conv", op_type="Conv2D", op_index=0)
    builder.close()
    output = tmp_path / "host_1_20250101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    write_trace(output / "trace_view.json")
    header = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
    (output / "kernel_details.csv").write_text(f"{header}\n1,gemm,MatMul,AI_CORE,1700000000000020.0,500.0,0,1\n")
    code = (
        "import sys; from traceconv.base import diagnostics; from traceconv.cli.app import run\n"
        "diagnostics.Account.balanced = property(lambda self: False)\n"
        "sys.exit(sum(run(['ingest', path, '--db', sys.argv[1]]) for path in sys.argv[2:]))"
    )
    store = tmp_path / "s.duckdb"
    paths = [str(trace), str(tmp_path / "capture"), str(output.parent)]
    done = subprocess.run([sys.executable, "-O", "-c", code, str(store), *paths], capture_output=True, text=True)
    assert done.returncode == 3  # 1 for each
    lines = done.stderr.splitlines()
    assert len(lines) == 3, done.stderr
    assert all(line.startswith("traceconv: internal error: the accounting of '") for line in lines)
    assert all("please report it" in line for line in lines)
    assert list(tmp_path.glob("s.duckdb*")) == []
