"""Where values end in JSON text; truncated text is not scanned repeatedly."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingest_checks import taken

from traceconv import native
from traceconv.formats.chrome_json import recovery, scan


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'{"a":"}"}x', 9),
        (rb'{"a":"\"}"}', 11),
        (rb'{"a":"\\"}', 10),
        (rb'{"a":"\\\"}"}', 13),
        (b'{"a":[{},[]]}', 13),
        (b'{"a":"}', None),
        (rb'{"a":"}\"', None),
        (b'{"a":"}\\', None),
        (rb'{"a":"}\\', None),
        (b'{"a":1', None),
        (b"[1,2]]", 5),
    ],
)
@pytest.mark.parametrize("in_c", [True, False])
def test_the_end_of_an_object(text: bytes, end: int | None, in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and in_c)
    assert scan.end_of_bracketed(text, 0) == end


def test_a_truncated_string_is_scanned_once() -> None:
    """A source text in a value, as VizTracer keeps it, cut at the end of a chunk: it may be a megabyte of quotes."""
    text = b'{"files":{"a.py":"' + rb"\"x" * 2000
    tokens = [match[0] for match in scan._TOKEN.finditer(text)]
    assert tokens == [b"{", b'"files"', b"{", b'"a.py"', text[text.index(b'"' + rb"\"x") :]]
    assert scan.end_of_bracketed(text, 0) is None
    assert scan.end_of_bracketed(text + b'"}}', 0) == len(text) + 3


def test_the_end_of_a_large_event_is_not_searched_before_it_arrives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A snapshot of megabytes in an event, as Chrome writes them, comes in pieces."""
    looked_at = 0
    search = recovery.end_of_bracketed

    def counting(text: bytes, at: int, end: int) -> int | None:
        nonlocal looked_at
        found = search(text, at, end)
        looked_at += (found or end) - at
        return found

    monkeypatch.setattr(recovery, "end_of_bracketed", counting)
    layer = '{"id":7,"name":"layer","bounds":{"w":1,"h":2},"text":"' + "x" * 500 + '"}'
    layers = ",".join([layer] * 12_000)
    small = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}'
    large = '{"ph":"O","name":"b","pid":1,"tid":1,"ts":1,"id":"1","args":{"snapshot":[' + layers + "]}}"
    run, _ = taken(f"[{small},{large},{small}]", tmp_path)
    assert not run.log
    assert {title: account.rows for title, account in run.accounts.by_record.items()} == {"O events": 1, "X events": 2}
    assert looked_at < len(large) // 10
