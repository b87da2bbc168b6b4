"""Trace JSON yields the same events however it is split, and the accounting balances after any damage."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv import native
from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import TraceconvError
from traceconv.events.trace import TraceBatch
from traceconv.formats.chrome_json import parser
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.second_pass import SecondPass

EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "B", "E", "i", "C", "s", "f", "M", "b", "e", "Q"])},
        optional={
            "name": st.sampled_from(["a", "b", 'say "hi"', "層", "{", "]", "process_name", "\\"]),
            "cat": st.sampled_from(["kernel", "cpu_op", "x,y"]),
            "pid": st.sampled_from([1, "1", "p", 2.5, None]),
            "tid": st.integers(0, 2),
            "ts": st.one_of(st.integers(0, 50), st.just("12.345"), st.just(1e3), st.just("no")),
            "dur": st.one_of(st.integers(-1, 20), st.just("NaN")),
            "id": st.sampled_from([1, "0x1"]),
            "args": st.sampled_from([{}, {"v": 1}, {"name": "n", "list": [{"id": 1}, {"ph": "X"}]}, None]),
            "more": st.just({"deep": [1, 2]}),
        },
    ),
    max_size=12,
)
LAYOUTS = st.sampled_from(["object", "array", "open", "lines", "indented", "pages"])


def text_of(events: list[dict[str, object]], layout: str) -> bytes:
    texts = [json.dumps(event) for event in events]
    if layout == "object":
        return ('{"traceEvents":[' + ",\n".join(texts) + '],"other":{"id":1}}').encode()
    if layout == "open":
        return ("[" + ",".join(texts)).encode()
    if layout == "lines":
        return ("[\n" + "\n".join(texts) + "\n").encode()
    if layout == "indented":
        return json.dumps({"a": [{"name": 1}], "traceEvents": events}, indent=2).encode()
    if layout == "pages":
        return ("[" + ",".join(texts) + "]\n[" + ",".join(texts) + "]").encode()
    return ("[" + ",".join(texts) + "]").encode()


def read(chunks: list[bytes], log: ImportLog) -> list[TraceBatch]:
    one = TraceParser(log)
    batches = [batch for chunk in chunks for batch in one.feed(chunk)]
    return [*batches, *one.finish()]


def events_of(batches: list[TraceBatch]) -> list[tuple[object, ...]]:
    found = []
    for batch in batches:
        labels = [batch.columns.label(field) for field in ("name", "ph", "cat", "pid", "tid")]
        raw = [
            batch.columns.raw[field].to_pylist() if field in batch.columns.raw else [b""] * batch.columns.count
            for field in ("ts", "dur", "args", "id")
        ]
        places = [batch.place(index) for index in range(batch.columns.count)]
        found += list(zip(*labels, *raw, places, strict=True))
    return found


@settings(max_examples=60)
@given(EVENTS, LAYOUTS, st.lists(st.integers(0, 2000), max_size=6), st.integers(64, 400))
def test_any_split_yields_the_same_events(
    events: list[dict[str, object]], layout: str, cuts: list[int], chunk_bytes: int
) -> None:
    text = text_of(events, layout)
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    whole = events_of(read([text], ImportLog()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "CHUNK_BYTES", chunk_bytes)
        pieces = [text[low:high] for low, high in pairwise(bounds)]
        log = ImportLog()
        assert events_of(read(pieces, log)) == whole
    expected = 2 * len(events) if layout == "pages" else len(events)
    assert len(whole) == expected
    assert not log.lossy
    # Each event is at its reported position.
    for (_, ph, *_), (*_, (offset, size)) in zip(whole, whole, strict=True):
        assert json.loads(text[offset : offset + size])["ph"] == ph


ENDINGS = (
    "]}",
    "\n ]\n}",
    ",\n]}",
    "]",
    "",
    ",",
    "]]",
    '],"other":[1]}',
    '],"ph":1}',
    ']}\n[{"ph":"X"}]',
    ']\n[{"ph":"X"}]\n[{"ph":"i","args":{"x":[1]}},{"ph":"X"} ]\n[]\n[{"ph":"X"},]\n[{"ph":"X"}}]\n[{"ph":"i"}]\n',
    "] 7",
    "\0]",
    "}]",
    '],"a',
)


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=15)
@given(EVENTS)
def test_short_text_yields_the_same_events_as_long_text(ending: str, events: list[dict[str, object]]) -> None:
    text = ('{"traceEvents":[' + ",".join(map(json.dumps, events)) + ending).encode()
    found = []
    for most in (parser._SHORT_BYTES, -1):
        log = ImportLog()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parser, "_SHORT_BYTES", most)
            batches = read([text], log)
        ranges = [(batch.byte_offset, batch.byte_count) for batch in batches]
        found.append((events_of(batches), ranges, list(log)))
    assert found[0] == found[1]


def pass_through(text: bytes, log: ImportLog, accounts: Accounts) -> dict[str, int]:
    """Both passes; the number of rows of each table."""
    first = FirstPass(log, accounts, 1, 40, ())
    second = None
    rows: dict[str, int] = {}
    try:
        one = TraceParser(log)
        for batch in [*one.feed(text), *one.finish()]:
            first.take(batch)
        first.end()
        second = SecondPass(first, one.keys)
        second.prepare()
        for name, batches in second.tables():
            rows[name] = rows.get(name, 0) + sum(batch.num_rows for batch in batches)
    finally:
        first.close()
        if second is not None:
            second.close()
    return rows


@settings(max_examples=150)
@given(EVENTS, LAYOUTS, st.lists(st.tuples(st.integers(0, 3000), st.binary(max_size=3), st.integers(0, 3)), max_size=4))
def test_damage_of_any_kind_leaves_rows_or_log_entries(
    events: list[dict[str, object]], layout: str, damage: list[tuple[int, bytes, int]]
) -> None:
    text = text_of(events, layout)
    for at, put, taken in damage:
        at %= len(text) + 1
        text = text[:at] + put + text[at + taken :]
    log, accounts = ImportLog(), Accounts()
    try:
        rows = pass_through(text, log, accounts)
    except TraceconvError:
        return
    assert all(
        account.balanced and min(account.rows, account.paired, account.used, account.lost) >= 0
        for account in accounts.by_record.values()
    )
    # Only of events that were read: an event that was given up leaves no account, and no name.
    assert all(account.records for account in accounts.by_record.values())
    slices = sum(accounts[f"{ph} events"].rows for ph in "XBbS")
    assert rows["range"] == slices


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize(
    ("layout", "phases", "old", "new"),
    [
        ("array", "XEi", '"ph": "E", "name"', '"ph": "E", "na'),  # the only event of its phase
        ("lines", "XiBEi", '{"ph": "E"', 'x{"ph{": "E"'),  # the event before it is intact
    ],
)
def test_damaged_events_have_the_same_account_with_and_without_c(
    monkeypatch: pytest.MonkeyPatch, in_c: bool, layout: str, phases: str, old: str, new: str
) -> None:
    monkeypatch.setattr(native, "AVAILABLE", in_c and native.AVAILABLE)
    events: list[dict[str, object]] = [{"ph": ph, "name": ph, "ts": 1, "pid": 1, "tid": 1} for ph in phases]
    text = text_of(events, layout).decode().replace(old, new, 1)
    accounts, log = Accounts(), ImportLog()
    pass_through(text.encode(), log, accounts)
    read = {name.removesuffix(" events"): account.records for name, account in accounts.by_record.items()}
    assert read == dict(Counter(phases.replace("E", "")))
    assert log.lossy


def test_rows_do_not_depend_on_how_much_is_kept_in_memory(tmp_path: Path) -> None:
    from traceconv.normalize.sort.external_sort import ExternalSort

    dtype = np.dtype([("key", "<i8"), ("value", "<i8")])
    random = np.random.default_rng(7)
    rows = np.zeros(20_000, dtype)
    rows["key"] = random.integers(0, 900, len(rows))
    rows["value"] = np.arange(len(rows))
    sorter = ExternalSort(dtype, "key", run_rows=1 << 12)
    for part in np.array_split(rows, 37):
        sorter.add(part)
    windows = list(sorter.windows())
    found = np.concatenate(windows)
    assert len(windows) > 1
    assert np.array_equal(found, rows[np.argsort(rows["key"], kind="stable")])
    # All rows of one key are in one window.
    assert all(low["key"][-1] < high["key"][0] for low, high in pairwise(windows))
    sorter.close()


PIECES = st.sampled_from([b"", *(bytes([mark]) for mark in b'"{}],\\\t\n\xff'), b"\0\0\0", b"NaN", b'{"ph":'])
CHANGES = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 30), PIECES), max_size=4)


@pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")
@settings(max_examples=150)
@given(EVENTS, LAYOUTS, CHANGES, st.integers(64, 4000))
def test_damaged_text_yields_at_least_as_many_events_with_c_as_without(
    events: list[dict[str, object]], layout: str, changes: list[tuple[int, int, bytes]], chunk_bytes: int
) -> None:
    text = text_of(events, layout)
    for at, size, new in changes:
        text = text[:at] + new + text[at + size :]

    def outcome() -> tuple[list[tuple[object, ...]], bool]:
        log = ImportLog()
        found = [what for *what, _ in events_of(read([text], log))]
        return [tuple(what) for what in found if what[1] is not None], log.lossy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(parser, "_BATCH_BYTES", chunk_bytes)
        fast, fast_is_lossy = outcome()
        patch.setattr(native, "AVAILABLE", False)
        slow, slow_is_lossy = outcome()
    # Damage after an event is separate from it: with the C extension, the event is kept.
    left = iter(fast)
    assert all(event in left for event in slow)
    assert slow_is_lossy or not fast_is_lossy


def test_damage_after_a_short_array_is_reported_the_same_without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short array is decoded at once in C; how far is looked for the end of the next one must not depend on it."""
    events = ", ".join(f'{{"ph": "i", "name": "now", "pid": 1, "tid": 2, "ts": {n}, "s": "t"}}' for n in range(10))
    damage = '"1795243479393307472", "end_ts": "1795243479393378738", "tras": ' * 53
    text = f'[{{"ts": 0}}]["ph": "X 1, "ts": 42}}, {events}, {{"ph": "X",s": {damage}"17" "dur": 3}}]'.encode()
    found = []
    for in_c in (True, False):
        monkeypatch.setattr(native, "AVAILABLE", in_c and native.AVAILABLE)
        log = ImportLog()
        found.append((events_of(read([text], log)), list(log)))
    assert found[0] == found[1]
