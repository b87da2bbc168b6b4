"""Damage within a vendor's CSV file: intact records are kept, damaged ones are counted, with their lines."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import pytest
from stores import query

from traceconv.base.errors import InputError
from traceconv.pipeline.ingest import ingest

HEAD = "Name,Type,Start Time(us),Duration(us),Accelerator Core,Stream ID\n"
ROWS = [f"op{n},Add,{100 + 10 * n}.5\t,2.25,AI_VECTOR_CORE,1\n" for n in range(6)]
WHOLE = (HEAD + "".join(ROWS)).encode()
NAMES = [f"op{n}" for n in range(6)]


def with_row(row: bytes, place: int = 2) -> bytes:
    """The file with another row in the place of one."""
    rows = [text.encode() for text in ROWS]
    rows[place] = row
    return HEAD.encode() + b"".join(rows)


@dataclass(frozen=True)
class Case:
    """names: of the tasks by start; lost: records; codes: of the log."""

    content: bytes
    names: list[str]
    lost: int = 0
    codes: tuple[str, ...] = ()


def without(*places: int) -> list[str]:
    return [name for n, name in enumerate(NAMES) if n not in places]


def renamed(name: str) -> list[str]:
    return [*NAMES[:2], name, *NAMES[3:]]


GOOD = b"120.5,2.25,AI_VECTOR_CORE,1\n"
CASES = {
    "sound": Case(WHOLE, NAMES),
    "BOM": Case(b"\xef\xbb\xbf" + WHOLE, NAMES),
    "CRLF": Case(WHOLE.replace(b"\n", b"\r\n"), NAMES),
    "blank lines": Case(WHOLE.replace(b"\n", b"\n\n"), NAMES),
    "no newline at the end": Case(WHOLE[:-1], NAMES, 0, ("no_end",)),
    "gzip by content": Case(gzip.compress(WHOLE), NAMES, 0, ("unexpected_container",)),
    "comma in quotes": Case(with_row(b'"op,2",Add,' + GOOD), renamed("op,2")),
    "line's end in quotes": Case(with_row(b'"op\n2",Add,' + GOOD), renamed("op\n2")),
    "quote in quotes": Case(with_row(b'"op""2",Add,' + GOOD), renamed('op"2')),
    "quote inside of a cell": Case(with_row(b'op"2,Add,' + GOOD), renamed('op"2')),
    "empty cells too many": Case(with_row(b"op2,Add," + GOOD.replace(b"\n", b",,\n")), NAMES),
    "cut row": Case(WHOLE[:-20], without(5), 1, ("damaged_event",)),
    "cut in the last cell": Case(WHOLE[:-2], [*NAMES[:5], "op5"], 0, ("no_end",)),
    "cell too many": Case(with_row(b"op2,Add,120.5,2.25,AI_VECTOR_CORE,1,9\n"), without(2), 1, ("damaged_event",)),
    "cells too few": Case(with_row(b"op2,Add,120.5\n"), without(2), 1, ("damaged_event",)),
    "open quote": Case(with_row(b'"op2,Add,' + GOOD), without(2), 1, ("damaged_event",)),
    "no start": Case(with_row(b"op2,Add,12a.5,2.25,X,1\n"), without(2), 1, ("damaged_event", "bad_number")),
    "start beyond 64 bits": Case(with_row(b"op2,Add,1e400,2.25,X,1\n"), without(2), 1, ("damaged_event", "bad_number")),
    "infinite start": Case(with_row(b"op2,Add,inf,2.25,X,1\n"), without(2), 1, ("damaged_event", "bad_number")),
    "no duration": Case(with_row(b"op2,Add,120.5,xx,X,1\n"), NAMES, 0, ("bad_number",)),
    "duration below 0": Case(with_row(b"op2,Add,120.5,-2.25,X,1\n"), NAMES, 0, ("negative_duration",)),
    "stream beyond 64 bits": Case(with_row(b"op2,Add,120.5,1,X,99999999999999999999\n"), NAMES, 0, ("bad_number",)),
    "no UTF-8": Case(with_row(b"op\xff2,Add," + GOOD), renamed("op\ufffd2"), 0, ("bad_bytes",)),
    "NUL in a cell": Case(with_row(b"op\x002,Add," + GOOD), renamed("op\ufffd2"), 0, ("bad_bytes",)),
    "NUL row": Case(with_row(bytes(50) + b"\n"), without(2), 1, ("damaged_event",)),
    "NUL hole up to a row": Case(with_row(bytes(50)), without(2), 1, ("damaged_event",)),
    "NUL rows": Case(with_row(b"\0\n" * 9), without(2), 1, ("damaged_event",)),
    "NUL at the end": Case(WHOLE + bytes(4096), NAMES, 0, ("padding",)),
    "NUL and a blank line at the end": Case(WHOLE + bytes(9) + b"\n\n", NAMES, 0, ("padding",)),
    "long line": Case(with_row(b"x" * (2 << 20) + b"\n"), without(2), 1, ("damaged_event",)),
    "the header once more": Case(with_row(HEAD.encode()), without(2), 1, ("damaged_event", "bad_number")),
}
INFO = {"unexpected_container", "padding", "no_end"}


@pytest.mark.parametrize("what", CASES)
def test_intact_records_are_kept_and_damaged_ones_are_counted(what: str, tmp_path: Path) -> None:
    case, store = CASES[what], tmp_path / "s.duckdb"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kernel_details.csv").write_bytes(case.content)
    (run,) = ingest([tmp_path / "out"], store)
    rows = query(store, "SELECT name, start_ns, dur_ns FROM task ORDER BY start_ns")
    assert [name for name, _, _ in rows] == case.names
    starts = [100_500 + 10_000 * n for n in range(6)]
    assert set(starts) >= {start for _, start, _ in rows}
    odd_dur = {"no duration": None, "duration below 0": None, "stream beyond 64 bits": 1000}
    assert {dur for _, start, dur in rows if start != 120_500} <= {2250}
    assert {dur for _, start, dur in rows if start == 120_500} <= {odd_dur.get(what, 2250)}
    accounts = query(store, "SELECT record_count, row_count, lost_count FROM import_account")
    assert accounts == [(len(rows) + case.lost, len(rows), case.lost)]
    log = query(store, "SELECT code, event_count, message FROM import_log")
    assert {code for code, _, _ in log} == set(case.codes)
    assert sum(count for code, count, _ in log if code == "damaged_event") == case.lost
    assert all("kernel_details.csv" in message for code, _, message in log if code != "unexpected_container")
    assert run.lossy == bool(set(case.codes) - INFO)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WHOLE.replace(b"Start Time(us)", b"Begin"), "no column for start_ns"),
        ("".join(ROWS).encode(), "no column for name, start_ns, dur_ns"),
        (WHOLE.replace(b",", b";"), "no column for name, start_ns, dur_ns"),
        (WHOLE.replace(b"\n", b"\r"), "line 1: malformed CSV"),
        (b"", "its tables are empty"),
        (HEAD.encode(), "its tables are empty"),
        (bytes(1000), "its tables are empty"),
    ],
)
def test_a_file_that_is_not_a_table_is_a_one_line_error(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kernel_details.csv").write_bytes(content)
    with pytest.raises(InputError, match=reason) as caught:
        ingest([tmp_path / "out"], tmp_path / "s.duckdb")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("s.duckdb*"))


def test_a_bad_table_does_not_stop_the_good_one(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kernel_details.csv").write_bytes(WHOLE)
    (tmp_path / "out/memory_record.csv").write_bytes(b"this,is\nno,table\n")
    (run,) = ingest([tmp_path / "out"], tmp_path / "s.duckdb")
    assert run.lossy
    assert query(tmp_path / "s.duckdb", "SELECT count(*) FROM task") == [(6,)]
    log = "SELECT l.severity, l.code, s.path FROM import_log AS l JOIN source AS s USING (run_id, source_id)"
    assert query(tmp_path / "s.duckdb", log) == [("error", "no_column", "memory_record.csv")]


def test_another_trace_next_to_the_tables_is_named(tmp_path: Path) -> None:
    """It may be of another recording, so that it is not read with them, nor passed over in silence."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "kernel_details.csv").write_bytes(WHOLE)
    (folder / "rank0.pt.trace.json").write_text('{"traceEvents":[{"ph":"X","name":"f","pid":1,"ts":1,"dur":2}]}')
    (folder / "profiler.json").write_text('{"of": "neither"}')
    result = ingest([folder], tmp_path / "s.duckdb")
    assert len(result) == 1
    (other,) = result.others
    assert other.path == folder / "rank0.pt.trace.json"
    assert "name it to ingest it" in other.message
