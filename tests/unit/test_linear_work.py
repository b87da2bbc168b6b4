"""Hostile trace JSON costs work in proportion to its length, wherever in a document a construct is repeated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from traceconv import native
from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.formats.chrome_json import parser, patch, pieces, recovery
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.furiosa_csv import reader as furiosa_reader
from traceconv.formats.furiosa_csv.format import HEAD
from traceconv.formats.furiosa_csv.reader import FuriosaCsvReader

EVENT = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}'
CONSTRUCTS = (
    *(b"+1:", b"N:", b"NaN:", b"-", b"1.:", b"1", b"\\", b'"', b'\\"', b"\xff", b"\xf0\x9f", b"\0", b"\t", b" ", b"["),
    *(
        b"{",
        b"]",
        b"}",
        b",",
        b":",
        b'{"a":',
        b'{"ph":',
        b',{"ph":"X",',
        b'{"ph":"X"}',
        b'{"ph":X},',
        b'"k":1,',
        b"[],",
    ),
    *(b"/*", b"\\ud800", b"\\x", b"null,", b'"traceEvents":[', b'"traceEvents":[],', b'",{"ph":"', b"}]", b'],"a":['),
    *(b"[]", b"{}", b'{"a":1}', b'{"name":"', b'{"name":"x",', b'{"ph":"X","args":[', b'{"ph":"X","ph":"X"},', b"],"),
    *(b'{"ph":"X","name":"\xff"},', b'{"ph":"X","name":"\t"},', b"[" + EVENT + b"]", b"\xef\xbb\xbf", b"# ", b'\\"]'),
)
PLACES: dict[str, Callable[[bytes], bytes]] = {
    "alone": lambda text: text,
    "among events": lambda text: b"[" + EVENT + b"," + text + b"," + EVENT + b"]",
    "in args": lambda text: b"[" + EVENT + b',{"ph":"X","ts":1,"args":{' + text + b"}}," + EVENT + b"]",
    "in a name": lambda text: b"[" + EVENT + b',{"ph":"X","name":"' + text + b'","ts":1},' + EVENT + b"]",
    "in a name that is cut": lambda text: b"[" + EVENT + b',{"ph":"X","name":"' + text,
    "as a time": lambda text: b"[" + EVENT + b',{"ph":"X","name":"x","ts":' + text + b"}," + EVENT + b"]",
    "as keys": lambda text: b"{" + text + b',"traceEvents":[' + EVENT + b"]}",
    "as a value": lambda text: b'{"x":' + text + b',"traceEvents":[' + EVENT + b"]}",
    "behind": lambda text: b"[" + EVENT + b"]" + text,
    "as lines": lambda text: EVENT + b"\n" + text + b"\n" + EVENT + b"\n",
}
#: What looks at all of a text that it is given, by its name and that of the text.
READS_ALL = {
    ("decode_events", "text"),
    ("goes_on", "text"),
    ("patch", "text"),
    ("first_bad_byte", "text"),
    ("_in_utf8", "text"),
    ("scanned_columns", "text"),
    ("scanned_prefix", "text"),
    ("__init__", "text"),
}
OF_A_STRETCH = {"event_starts", "next_event_start"}
SIZE = 12_000


def work(text: bytes) -> int:
    """Calls, and the bytes of what they are given to look at."""
    total = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal total
        total += 1
        if event != "call":
            return
        name, given = frame.f_code.co_name, frame.f_locals
        if (name, "text") in READS_ALL and "text" in given:
            total += len(given["text"])
        elif name in OF_A_STRETCH:
            total += given["end"] - given["at"]
        elif name == "_drop":
            total += len(given["self"]._text)

    one = TraceParser(ImportLog(), Limits(event_bytes=1 << 24))
    sys.setprofile(count)
    try:
        for _ in one.feed(text):
            pass
        for _ in one.finish():
            pass
    finally:
        sys.setprofile(None)
    return total


def slow_constructs(place: str, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, tuple[int, int]]:
    monkeypatch.setattr(pieces, "_AHEAD_BYTES", 1 << 12)
    monkeypatch.setattr(recovery, "MANY_FAILURES", 4)
    monkeypatch.setattr(parser, "MANY_FAILURES", 4)
    slow = {}
    for construct in CONSTRUCTS:
        one, two = (work(PLACES[place](construct * (size // len(construct)))) for size in (SIZE, 2 * SIZE))
        if two > 2.6 * one + 40_000:
            slow[construct] = (one, two)
    return slow


@pytest.mark.parametrize("place", ["among events", "as keys"])
def test_twice_the_text_takes_twice_the_work(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not slow_constructs(place, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("with_c", [True, False], ids=["c", "python"])
@pytest.mark.parametrize("place", PLACES)
def test_twice_the_text_takes_twice_the_work_everywhere(
    place: str, with_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "AVAILABLE", native.AVAILABLE and with_c)
    assert not slow_constructs(place, monkeypatch)


@pytest.mark.parametrize("construct", [b"N:", b"+1:", b"NaN:", b"1.:", b"00:", b"\xff", b"\\x", b"-", b",", b"\\ud800"])
@pytest.mark.parametrize("lead", [b'{"a":', b'{"a":"'])
def test_nearly_valid_text(construct: bytes, lead: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    # With work that grew with the square of the length, each of these would take many minutes.
    text = lead + construct * ((1 << 19) // len(construct)) + b'"}'
    patch.patch(text)
    monkeypatch.setattr(native, "AVAILABLE", False)
    found = patch.patch(text)
    assert len(found.text) < 8 * len(text)


@pytest.mark.parametrize(("count", "lost"), [(260_000, 0), (265_000, 1 + 265_000 - 262_144)])
def test_a_name_of_many_lines(count: int, lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in Furiosa's table that line feeds cut all the time; one that is too long is given up, not kept."""
    monkeypatch.setattr(furiosa_reader, "MAX_RECORD_BYTES", 1 << 19)
    path = tmp_path / "spans.csv"
    path.write_text(",".join((*HEAD, "thread.id")) + "\n1,0,1,5,7,cat," + "a\n" * count + "b,9\n1,0,1,8,9,cat,c,9\n")
    accounts = Accounts()
    reader = FuriosaCsvReader(ReadRequest(path, accounts=accounts))
    # With work that grew with the square of the number of lines, this would take minutes.
    assert sum(batch.columns.count for batch in reader.batches()) == (1 if lost else 2)
    assert sum(account.lost for account in accounts.by_record.values()) == lost
