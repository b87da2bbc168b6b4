"""The import log is bounded and forgets no number; the books show when they don't balance."""

from __future__ import annotations

import pytest

from traceconv.diagnostics import Account, Accounts, Code, ImportLog, Severity
from traceconv.errors import TraceconvError, printable, suggestion


def test_every_code_says_what_it_means() -> None:
    assert len({code.text for code in Code}) == len(Code)
    for code in Code:
        assert code.text == code.name.lower()
        assert code.doc.endswith(".")


def test_entries_come_in_order_with_their_numbers() -> None:
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


def test_past_the_limit_entries_are_summed_up_by_code_and_file() -> None:
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


def test_the_books() -> None:
    accounts = Accounts()
    accounts["api"].records += 5
    assert not accounts["api"].balanced
    accounts["api"].rows += 2
    accounts["api"].merged += 2
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
    }
