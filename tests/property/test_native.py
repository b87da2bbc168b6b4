"""The C functions give the results of their Python fallbacks or decline, and never read out of bounds."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from traceconv import native
from traceconv.events.trace import binary_column
from traceconv.formats.chrome_json.patch import Patched, patch
from traceconv.formats.chrome_json.scan import end_of_bracketed
from traceconv.formats.perfetto_proto import framing, rows, translate
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.args import merged
from traceconv.normalize.trace.begin_end import POINT_DTYPE
from traceconv.normalize.trace.column_builder import Numbers, Values, new_column
from traceconv.normalize.trace.complete_nesting import (
    BEFORE_NEXT,
    ENCLOSING_DTYPE,
    NESTED_DTYPE,
    NO_PARENT,
    PAIR,
    POINT,
    SLICE,
    SPAN_DTYPE,
    UNFINISHED,
    CompleteNester,
)
from traceconv.normalize.trace.counters import samples_of
from traceconv.normalize.trace.ids import numbers_of
from traceconv.normalize.trace.times import exact_ns
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire import protobuf

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")


TIMES = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.decimals(-(10**19), 10**19, places=3).map(str),
    st.decimals(-(10**6), 10**6, places=6).map(str),
    st.sampled_from(
        ["", "null", "0", "-0", "1.", ".5", "+1", "1e3", "1E-9", "007", '"12.5"', '"', '""', "-", "1.2.3", "true"]
    ),
    st.sampled_from(["0.0005", "0.0015", "-0.0025", "2.50000000000001", "9223372036854775807.5", "7.4999", "1.5e-3"]),
    st.sampled_from(["4611686018427387.903", "4611686018427387.904", "9223372036854775807", "1.0000", "1.0001"]),
)


@given(st.lists(TIMES, max_size=8), st.integers(0, 6))
def test_times(texts: list[str], places: int) -> None:
    array = binary_column([text.encode() for text in texts])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        slow = exact_ns(array, places)
    fast = exact_ns(array, places)
    assert fast.ns.tolist() == slow.ns.tolist()
    assert fast.valid.tolist() == slow.valid.tolist()
    assert fast.absent.tolist() == slow.absent.tolist()
    assert fast.rounded == slow.rounded


IDS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.sampled_from(["", "0", "-0", "07", "+7", "-", "-7", "0x7f31", "7 ", "\u0667", "12345678901234567890", "é"]),
    st.sampled_from([f"{sign}922337203685477580{digit}" for sign in ("", "-") for digit in range(7, 10)]),
    st.text(max_size=40),
)


@given(st.lists(IDS, max_size=8), st.integers(0, 3))
def test_numbers_of_ids(ids: list[str], first: int) -> None:
    texts = pa.array(ids, pa.string()).slice(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        slow = numbers_of(texts)
    assert numbers_of(texts).tolist() == slow.tolist()


def test_only_integers_in_canonical_form_are_their_own_numbers() -> None:
    own = [0, 7, -7, 2**63 - 1, -(2**63)]
    assert numbers_of(pa.array(map(str, own), pa.string())).tolist() == own
    others = pa.array(["07", "+7", "7 ", "-0", "00", str(2**63)], pa.string())
    assert not {*numbers_of(others).tolist()} & {0, 7, -(2**63)}


KEYS = ("stream", "External id", "Input Dims", "é", "a" * 20, "aa")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["7", "0x1f", "-12", "", "text", '"\\', "é"]),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.sampled_from(KEYS), st.integers(0, 9), max_size=2),
)
OBJECTS = st.dictionaries(st.sampled_from((*KEYS, "other")), VALUES, max_size=6)


@given(
    st.lists(st.one_of(st.none(), OBJECTS), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_members(objects: list[dict[str, object] | None], ascii_only: bool, some: bool, data: st.DataObject) -> None:
    fields = {
        "first": ("stream",),
        "second": ("External id", "aa"),
        "third": ("aa", "é", "stream"),
        "fourth": ("Input Dims", "a" * 20),
        "fifth": ("é",),
    }
    kinds = {"first": "i64", "second": "i32", "third": "str", "fourth": "str", "fifth": "bool"}
    texts = [None if one is None else json.dumps(one, ensure_ascii=ascii_only) for one in objects]
    args = pa.array(["{}", *texts], pa.string()).slice(1)
    rows = None
    if some:
        rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1))), np.intp)

    def read() -> dict[str, list[object]]:
        columns = {name: new_column(kind, len(texts)) for name, kind in kinds.items()}
        for name, values in ArgColumns(fields, {"first", "second"}).read(args, rows):
            columns[name].put(rows, values)
        found: dict[str, list[object]] = {}
        for name, column in columns.items():
            made = column.column()
            found[name] = (
                made.to_pylist()
                if isinstance(made, pa.Array)
                else np.where(made.null, None, made.values.astype(object)).tolist()
            )
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        slow = read()
    assert read() == slow


@given(st.lists(st.tuples(OBJECTS, OBJECTS), min_size=1, max_size=5), st.booleans(), st.sampled_from(["", " ", "\n\t"]))
def test_merged_args(pairs: list[tuple[dict[str, object], dict[str, object]]], ascii_only: bool, blank: str) -> None:
    separators = f"{blank},{blank}", f"{blank}:{blank}"
    texts = [[json.dumps(one, ensure_ascii=ascii_only, separators=separators) for one in pair] for pair in pairs]
    twice = '{"a":1,"aa":2,"a":[3]}'
    begins, ends = (pa.array([*own, twice]) for own in zip(*texts, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        slow = merged(begins, ends.take(pa.array([*range(1, len(ends)), 0])))
    assert merged(begins, ends.take(pa.array([*range(1, len(ends)), 0]))).equals(slow)


def test_objects_that_cannot_be_merged_are_declined() -> None:
    sound = b'{"a":1}'
    assert native.merge(np.array([0, 7], np.int32), sound, np.array([0, 7], np.int32), sound) is not None
    for text in (b'{"a":1', b'{"a" 1}', b"[1]", b'{"\\u0061":1}', '{"é":1}'.encode(), b'{"a":"\x01"}', b'{"a":1} 2'):
        ends = np.array([0, len(text)], np.int32)
        assert native.merge(ends, text, np.array([0, 7], np.int32), sound) is None
        assert native.merge(np.array([0, 7], np.int32), sound, ends, text) is None
    for outside in ([0, 8], [-1, 7], [7, 0], [0, 2**31 - 1]):
        assert native.merge(np.array(outside, np.int32), sound, np.array([0, 7], np.int32), sound) is None
    with pytest.raises(ValueError, match="lengths"):
        native.merge(np.array([0, 7], np.int32), sound, np.array([0], np.int32), b"")


WORDS = ["NaN", "+NaN", "-inf", "Infinity", "-Infinity", "INF", "N/A", "None", "True", "False", "undefined", "nanx"]
NUMBERS = ["+5", "007", "-01.5", ".5", "-.5", "5.", "-12.", "0.", "1.5", "-", "+x", "1.2.", "..", "+1:NaN"]
SOUND = ["true", "false", "null", "{}", "[]", '{"a":1}', "[1,2]", '"text"', '"NaN, ]"', '"é"']
STRINGS = ['"ta\tb"', '"\x01\x1f"', r'"\n"', r'"\q"', r'"\ud800"', r'"\ud83d\ude00"']
MARKS = ['"', "\\", ",", "]", "}", "[", "{", ":", " ", "\n", "\v"]
NEARLY = st.sampled_from([*WORDS, *NUMBERS, *SOUND, *STRINGS, *MARKS])


def patched_without_c(text: bytes) -> Patched:
    with pytest.MonkeyPatch.context() as context:
        context.setattr(native, "AVAILABLE", False)
        return patch(text)


@given(st.lists(st.tuples(NEARLY, st.sampled_from([",", ":", " ", "\t", "", ",]", ", }"])), max_size=12))
def test_patch(pieces: list[tuple[str, str]]) -> None:
    text = "".join(one + gap for one, gap in pieces).encode()
    slow = patched_without_c(text)
    fast = patch(text)
    if not re.search(rb"""[+.0-9][^\s,\]}"]*[:\[]""", text):  # a number that continues after a quote never becomes JSON
        assert fast == slow


@given(st.text('[]{}"\\a,\n', max_size=60).map(str.encode), st.integers(0, 60))
def test_the_end_of_an_object_or_array(text: bytes, limit: int) -> None:
    text = b"{" + text
    limit = min(limit, len(text))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(native, "AVAILABLE", False)
        slow = end_of_bracketed(text, 0, limit)
    assert end_of_bracketed(text, 0, limit) == slow


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":NaN,"b\t":1},{"name":"\tx',
        b'"a\tb\\"c:[1,]NaN, NaN,\\\\\\"x',
        b'[NaN,"',
        b'NaN "\\n"NaN "\\n \n, ]',
    ],
)
def test_patch_continues_in_a_string_that_the_text_cuts(text: bytes) -> None:
    assert native.patch(text, 128) is not None
    assert patch(text) == patched_without_c(text)


def test_patch_treats_deep_values_as_text() -> None:
    deep = b"[" * 200 + b"NaN" + b"]" * 200
    assert native.patch(deep, 128) is None
    assert patch(deep) == patched_without_c(deep)


def test_a_column_keeps_earlier_values_where_later_ones_are_missing() -> None:
    numbers, texts = new_column("i64", 3), new_column("str", 3)
    numbers.put(None, Values(np.array([0, 0, 0], np.int32), [4]))
    numbers.put(None, Numbers(np.array([1, 2, 3]), np.array([True, False, True])))
    texts.put(np.array([0, 2]), Values(np.array([0, 1], np.int32), ["a", {"b": 1}]))
    texts.put(np.array([2]), Values(np.array([-1], np.int32), []))
    assert numbers.column().values.tolist() == [4, 2, 4]
    assert texts.column().to_pylist() == ["a", None, '{"b":1}']


def test_members_of_malformed_objects_are_declined() -> None:
    wanted = ((b"a", True),)
    for text in (b'{"a":1', b'{"a":1}}', b'{"a" 1}', b"[1]", b'{"\\u0061":1}', b'{"a":01}', b'{"a":"\x01"}', b'{"a":}'):
        assert native.members(np.array([0, len(text)], np.int32), text, None, wanted) is None


def test_offsets_and_rows_out_of_bounds_are_not_read() -> None:
    wanted = ((b"a", True),)
    text = b'{"a":1}'
    for ends in ([0, 8], [-1, 7], [7, 0], [0, 2**31 - 1]):
        assert native.members(np.array(ends, np.int32), text, None, wanted) is None
        assert native.times(np.array(ends, np.int32), b"1234567", 3) == (bytes(8), b"\x02", 0)
        with pytest.raises(ValueError, match="beyond the data"):
            native.id_numbers(np.array(ends, np.int32), text)
    for row in (-1, 1, 2**40):
        assert native.members(np.array([0, 7], np.int32), text, np.array([row], np.int64), wanted) is None
    for no_array in (b"", b"\0\0\0"):
        with pytest.raises(ValueError, match="offsets"):
            native.members(no_array, text, None, wanted)
        with pytest.raises(ValueError, match="offsets"):
            native.times(no_array, text, 3)
        with pytest.raises(ValueError, match="offsets"):
            native.id_numbers(no_array, text)
    with pytest.raises(ValueError, match="at most 64 keys"):
        native.members(np.array([0, 7], np.int32), text, None, wanted * 65)
    with pytest.raises(ValueError, match="1 to 8 bytes"):
        native.events(b"{}", False, (b"nine bytes",), (), False)
    with pytest.raises(ValueError, match="18"):
        native.times(np.array([0, 1], np.int32), b"1", 19)


def test_deep_values_are_declined() -> None:
    for depth, is_taken in ((200, True), (300, False), (1_000_000, False)):
        text = b'{"args":' + b"[" * depth + b"]" * depth + b"}"
        assert (native.events(text, False, (b"ph",), (b"args",), False) is not None) is is_taken


VALUES = st.one_of(
    TIMES,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(lambda number: f"{number}.000"),
    st.sampled_from(["-0", "-0.0", "1.50", "1E2", "1e-400", "1e400", "null", '"7"', '"a b"', "{}", '{"a":1}', "[1,2]"]),
)
SERIES = st.dictionaries(st.sampled_from(["value", "a", "b c", "é", "", "\\n"]), VALUES, max_size=4)


@given(st.lists(st.one_of(SERIES, st.sampled_from(["", " ", "{}", "null", "[]", '{"a":1,"a":2}', '{"a":1', "1"]))))
def test_samples_of_counters(events: list[dict[str, str] | str]) -> None:
    texts = [
        event if isinstance(event, str) else "{" + " , ".join(f'"{key}":{event[key]}' for key in event) + "}"
        for event in events
    ]
    args = binary_column([text.encode() for text in texts])
    fast = samples_of(args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        slow = samples_of(args)
    assert fast.events.tolist() == slow.events.tolist()
    assert list(fast.series) == list(slow.series)
    assert fast.values.tobytes() == slow.values.tobytes()
    assert fast.integers.to_pylist() == slow.integers.to_pylist()
    assert fast.bad == slow.bad
    assert fast.unread == slow.unread


def test_series_of_malformed_objects_are_declined() -> None:
    assert native.series(np.array([0, 7], np.int32), b'{"a":1}') is not None
    many = ",".join(f'"{number}":1' for number in range(65)).encode()
    for text in (b'{"a":1', b'{"a" 1}', b"[1]", b'{"\\u0061":1}', b'{"a":1,"a":1}', b'{"a":01}', b"{%s}" % many):
        assert native.series(np.array([0, len(text)], np.int32), text) is None
    for ends in ([0, 8], [-1, 7], [7, 0], [0, 2**31 - 1]):
        assert native.series(np.array(ends, np.int32), b'{"a":1}') is None
    for no_array in (b"", b"\0\0\0"):
        with pytest.raises(ValueError, match="offsets"):
            native.series(no_array, b"{}")


@st.composite
def span_windows(draw: st.DrawFn) -> list[RecordArray]:
    """Spans in the order of their start, cut between different starts. There are few starts, so that many coincide."""
    kinds = st.sampled_from([SLICE, SLICE, SLICE, PAIR, PAIR, UNFINISHED, POINT, BEFORE_NEXT])
    row = st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(1, 3), kinds)
    rows = sorted(draw(st.lists(row, max_size=14)), key=lambda one: one[0])
    ids = draw(st.permutations(range(len(rows))))
    spans = np.zeros(len(rows), SPAN_DTYPE)
    for place, (start, dur, track, kind) in enumerate(rows):
        dur = dur if kind in (SLICE, PAIR) else 0
        link = 2 * (ids[place] + draw(st.integers(0, 3))) + 1 if kind == PAIR else -1
        spans[place] = (start, dur, 2 * ids[place], link, track, kind)
    cuts = draw(st.lists(st.integers(0, 8), max_size=2))
    return np.split(spans, np.searchsorted(spans["start_ns"], sorted(cuts)))


def nested(
    windows: list[RecordArray], in_c: bool = True, start_step_ns: int = 1
) -> tuple[list[object], list[object], int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", in_c)
        nester = CompleteNester(start_step_ns)
    parts = [*map(nester.feed, windows), nester.finish()]
    rows, points = (sorted(row for part in parts for row in part[which].tolist()) for which in (0, 1))
    return rows, points, nester.overlaps


@given(span_windows(), st.sampled_from([1, 2, 3]))
def test_nesting(windows: list[RecordArray], start_step_ns: int) -> None:
    rows, points, overlaps = nested(windows, True, start_step_ns)
    assert (rows, points, overlaps) == nested(windows, False, start_step_ns)
    spans = np.concatenate(windows) if windows else np.zeros(0, SPAN_DTYPE)
    assert len(rows) == np.count_nonzero(spans["kind"] <= UNFINISHED)
    assert len(points) == np.count_nonzero(spans["kind"] > UNFINISHED)


@pytest.mark.parametrize("in_c", [True, False])
def test_slices_inside_others_whose_starts_were_rounded_down(in_c: bool) -> None:
    # From 13 to 33; inside, from 15 to 20 and from 21 to 33; then from 34 to 36. The third one seems to end at 32.
    spans = np.array(
        [(10, 20, 1, -1, 1, SLICE), (10, 5, 2, -1, 1, SLICE), (20, 12, 3, -1, 1, SLICE), (30, 2, 4, -1, 1, SLICE)],
        SPAN_DTYPE,
    )
    rows, _, overlaps = nested([spans], in_c, start_step_ns=10)
    # id, parent, duration, self time, gap
    expected = [(1, NO_PARENT, 20, 5, 0), (2, 1, 5, 5, -20), (3, 1, 12, 12, 5), (4, NO_PARENT, 2, 2, -2)]
    assert [row[:5] for row in rows] == expected  # type: ignore[index]
    assert overlaps == 0
    rows, _, overlaps = nested([spans], in_c)
    assert [row[:2] for row in rows] == [(1, NO_PARENT), (2, 1), (3, NO_PARENT), (4, 3)]  # type: ignore[index]
    assert overlaps == 1


@pytest.mark.parametrize("in_c", [True, False])
def test_a_begin_encloses_its_children_after_a_slice_of_duration_0_at_the_same_time(in_c: bool) -> None:
    spans = np.array(
        [(5, 0, 1, -1, 1, SLICE), (5, 9, 2, 20, 1, PAIR), (7, 2, 3, -1, 1, SLICE)],
        SPAN_DTYPE,
    )
    rows, _, _ = nested([spans], in_c)
    assert [row[:2] for row in rows] == [(1, NO_PARENT), (2, NO_PARENT), (3, 2)]  # type: ignore[index]


@pytest.mark.parametrize("in_c", [True, False])
def test_a_pair_does_not_enclose_what_follows_its_end_in_the_source_at_the_same_time(in_c: bool) -> None:
    # (( )) () and a flow point: begins 1, 2 with the ends 3, 4, then begin 5 with the end 6.
    spans = np.array(
        [(5, 0, 1, 4, 1, PAIR), (5, 0, 2, 3, 1, PAIR), (5, 0, 5, 6, 1, PAIR), (5, 0, 7, -1, 1, POINT)], SPAN_DTYPE
    )
    rows, points, _ = nested([spans], in_c)
    assert [row[:2] for row in rows] == [(1, NO_PARENT), (2, 1), (5, NO_PARENT)]  # type: ignore[index]
    assert points == [(7, 5)]
    # A flow point inside of (), and one after it.
    spans = np.array(
        [(5, 4, 4, 9, 1, PAIR), (5, 0, 1, 3, 1, PAIR), (5, 0, 5, -1, 1, POINT), (5, 0, 2, -1, 1, POINT)], SPAN_DTYPE
    )
    assert nested([spans], in_c)[1] == [(2, 1), (5, 4)]


def test_the_nester_rejects_spans_with_an_invalid_track_or_kind() -> None:
    for track, kind in ((-1, SLICE), (1, 9), (1, -1), (2**31 - 1, SLICE)):
        with pytest.raises(ValueError, match="no track or kind"):
            CompleteNester().feed(np.array([(0, 1, 1, -1, track, kind)], SPAN_DTYPE))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("Span", SPAN_DTYPE),
        ("BeginOrEnd", POINT_DTYPE),
        ("Nested", NESTED_DTYPE),
        ("Point", ENCLOSING_DTYPE),
        ("Packet", translate._PACKET),
        ("Row", rows._ROW),
        ("Flow", rows._FLOW),
        ("Time", rows._TIME),
        ("Found", protobuf.FIELD),
        ("Range", dtype_of(record("range"))),
    ],
)
def test_c_structs_have_the_layout_of_their_dtypes(name: str, dtype: np.dtype[np.void]) -> None:
    """The compiler checks the structs against the numbers in the source; this checks those against the dtypes."""
    text = "".join(path.read_text() for path in Path(native.__file__).parent.glob("*.[ch]"))
    assert re.findall(rf"^SIZE\({name}, (\d+)\);", text, re.M) == [str(dtype.itemsize)]
    asserted = re.findall(rf"\bAT\({name}, (\w+), (\d+)\);", text)
    assert asserted == [(field, str(dtype.fields[field][1])) for field in dtype.names]


def test_events_without_fields_are_counted() -> None:
    text = ",".join(['{"":1}', "{}", '{"ph":"X"}'] * 3000).encode()
    found = native.events(text, False, (), (), False)
    assert found is not None
    count, end, labels, raws, others = found
    assert (count, end, labels, raws) == (9000, len(text), [], [])
    assert np.frombuffer(others, np.int32).reshape(-1, 5)[:2].tolist() == [[0, 1, 2, 4, 5], [2, 11, 14, 16, 19]]
    assert native.members(np.array([0, 7], np.int32), b'{"a":1}', None, ()) == []


def test_mutable_text_is_rejected() -> None:
    for text in (bytearray(b"{}"), np.frombuffer(b"{}", np.uint8)):
        with pytest.raises(TypeError):
            native.events(text, False, (b"ph",), (), False)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            native.patch(text, 9)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            native.packets(text, np.zeros((1, 2), np.int64), framing._TELLING_KINDS)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            native.messages(text, 0, 9, 10, 9)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            native.walk(text, np.zeros((1, 2), np.int64))  # type: ignore[arg-type]


def test_packets_and_messages_out_of_bounds_are_not_read() -> None:
    bounds = np.array([(0, 2), (0, 3), (-1, 2), (2, 1), (9, 9)], np.int64)
    columns, found, sound = native.packets(b"\x18\x01", bounds, framing._TELLING_KINDS)
    assert np.frombuffer(columns, np.int64).reshape(7, 5)[:3].tolist() == [[-1] * 5, [-1] * 5, [0] * 5]
    assert np.frombuffer(found, protobuf.FIELD).tolist() == [(0, 1, 1, 3, 0)]
    assert list(sound) == [1, 0, 0, 1, 0]
    with pytest.raises(ValueError, match="kinds of another number"):
        native.packets(b"", bounds, framing._TELLING_KINDS[1:])
    assert native.messages(b"\n\x01a\n\x09b", -1, 6, 10, 9) == (b"", 6)
    assert native.messages(b"\n\x01a\n\x09b", 9, 6, 10, 9) == (b"", 9)
    for end in (7, -1):
        found, at = native.messages(b"\n\x01a\n\x09b", 0, end, 10, 9)
        assert (np.frombuffer(found, np.int64).tolist(), at) == ([2, 3], 3)
    found, sound = native.walk(b"\x18\x01", bounds)
    assert np.frombuffer(found, protobuf.FIELD).tolist() == [(0, 1, 1, 3, 0)]
    assert list(sound) == [1, 0, 0, 0, 0]


_FIELDS = st.tuples(
    st.sampled_from([1, 1, 3, 8, 8, 10, 11, 11, 13, 58, 12, 41, 127, 128, 900, 1200, 1201]),
    st.sampled_from([0, 2]) | st.sampled_from([0, 1, 2, 3, 5]),
    st.integers(0, 2**64 - 1) | st.integers(0, 5),
)


@given(st.lists(st.lists(_FIELDS, max_size=6), max_size=5), st.integers(0, 3))
def test_packets(given_packets: list[list[tuple[int, int, int]]], cut: int) -> None:
    data, bounds = b"", []
    for one in given_packets:
        start = len(data)
        for number, kind, value in one:
            size = {1: 8, 5: 4}.get(kind)
            encoded = (value & (1 << 8 * size) - 1).to_bytes(size, "little") if size else b""
            if kind == 0:
                encoded = protobuf.encode_varint(value)
            elif kind == 2:
                encoded = protobuf.encode_varint(value % 9) + bytes(value % 9)
            data += protobuf.encode_varint(number << 3 | kind) + encoded
        bounds.append((start, max(start, len(data) - cut)))
    places = np.array(bounds, np.int64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "AVAILABLE", False)
        columns, others = framing._read(data, places)
        walked = protobuf.walk(data, places)
    walked_in_c = protobuf.walk(data, places)
    for name in ("sound", "row", "number", "kind", "value", "at"):
        assert getattr(walked_in_c, name).tolist() == getattr(walked, name).tolist()
    columns_in_c, others_in_c = framing._read(data, places)
    assert others_in_c.sound.tolist() == others.sound.tolist()
    for name in ("start", "end", "sequence", "time", "clock", "flags", "timed"):
        assert getattr(columns_in_c, name)[others.sound].tolist() == getattr(columns, name)[others.sound].tolist()
    for name in ("row", "number", "kind", "value", "at"):
        own, own_in_c = others.sound[others.row], others.sound[others_in_c.row]
        assert getattr(others_in_c, name)[own_in_c].tolist() == getattr(others, name)[own].tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)), st.integers(0, 3))
def test_differences(numbers: list[int], more: int) -> None:
    column = np.array(numbers, np.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "AVAILABLE", False)
        encoded = protobuf.encode_differences(column)
    assert protobuf.encode_differences(column) == encoded
    last = numbers[-1] if numbers else 0
    assert protobuf.decode_differences(encoded, len(numbers) + more).tolist() == numbers + [last] * more


def while_it_changes(array: NDArray[np.generic], values: list[object], read: Callable[[], None]) -> None:
    """Call `read` a hundred times while another thread writes values into the array."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for value in values:
                array[:] = value

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            read()
    finally:
        stop.set()
        writer.join()


def test_spans_that_change_during_nesting_access_no_invalid_track() -> None:
    spans = np.zeros(50_000, SPAN_DTYPE)
    spans["start_ns"] = np.arange(50_000) // 2

    def read() -> None:
        nester = native.Nester()
        try:
            rows = nester.feed(spans)[0] + nester.finish()[0]
        except ValueError as error:
            assert str(error) == "a span of no track or kind"
        else:
            assert len(rows) == 50_000 * NESTED_DTYPE.itemsize

    while_it_changes(spans["track"], [0, -1, 2**31 - 1, 1], read)


def test_a_nester_rejects_concurrent_calls() -> None:
    nester, spans, refused, rows = native.Nester(), np.zeros(20_000, SPAN_DTYPE), [], []

    def feed() -> None:
        for _ in range(20):
            try:
                rows.append(nester.feed(spans)[0])
            except RuntimeError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=feed) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(refused) <= {"another thread uses this nester"}
    rows.append(nester.finish()[0])
    assert sum(map(len, rows)) == (60 - len(refused)) * 20_000 * NESTED_DTYPE.itemsize
