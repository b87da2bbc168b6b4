"""The C scanner of events returns the same as decoding key by key, however the events are written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv import native
from traceconv.events.trace import LABEL_FIELDS, RAW_FIELDS, EventColumns
from traceconv.formats.chrome_json.compiled import scanned_columns
from traceconv.formats.chrome_json.decode import BLANKS as BLANKS_BETWEEN
from traceconv.formats.chrome_json.decode import MalformedText, _one_by_one, decode_events

KEYS = (*LABEL_FIELDS, *RAW_FIELDS, "sf", "id2", "bind_id", "cname", "", "namename", "argsargsargs", "\\u0074s", "é")
pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")
BLANKS = st.sampled_from(["", " ", "\n", "\t", "\r\n", "\n    ", "      "])
STRINGS = st.one_of(
    st.sampled_from(
        ["", "X", "aten::add", "a,b", "a:b", "{", "}", "[]", '\\"', "\\\\", '\\\\\\"', "\\u00e9", "é" * 9, "e" * 40]
    ),
    st.text(st.characters(exclude_characters='"\\', exclude_categories=["Cs", "Cc"]), max_size=20),
)
SCALARS = st.one_of(
    STRINGS.map(lambda text: f'"{text}"'),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["null", "true", "false", "1.5", "-0", "1e3", "12345678.123456789", "0.1"]),
)
ARGS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: f"[{' , '.join(values)}]"),
        st.lists(st.tuples(STRINGS, inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f'"{key}" :{value}' for key, value in pairs) + "}"
        ),
    ),
    max_leaves=8,
)
USUAL = {
    "name": STRINGS.map(lambda text: f'"{text}"'),
    "cat": STRINGS.map(lambda text: f'"{text}"'),
    "ph": st.sampled_from(['"X"', '"B"', '"s"', "null"]),
    "pid": st.sampled_from(["1", "2", '"GPU 0"', "null", "123456789012"]),
    "tid": st.sampled_from(["1", "2", '"stream 7"', "-3"]),
    "ts": st.integers(0, 10**15).map(str),
}


@st.composite
def events(draw: st.DrawFn, usual: bool) -> str:
    """One event; unless `usual`, of any keys and values, one key perhaps twice."""
    if usual:
        chosen = draw(st.lists(st.sampled_from([*USUAL, "args"]), unique=True))
        members = [(key, draw(USUAL.get(key, ARGS))) for key in chosen]
    else:
        members = [(key, draw(ARGS)) for key in draw(st.lists(st.sampled_from(KEYS), max_size=8))]
    one, two, three, four = (draw(BLANKS) for _ in range(4))
    return "{" + one + ("," + two).join(f'"{key}"{three}:{four}{value}{one}' for key, value in members) + "}"


def rows(columns: EventColumns) -> list[dict[str, object]]:
    """Each event with all of its fields; missing ones are omitted."""
    found: list[dict[str, object]] = [{} for _ in range(columns.count)]
    for field in LABEL_FIELDS:
        for row, value in zip(found, columns.label(field), strict=True):
            row[field] = (type(value), value)
    for field, array in columns.raw.items():
        for row, text in zip(found, array.to_pylist(), strict=True):
            if text:
                row[field] = text
    for row, extra in zip(found, columns.extra or [None] * columns.count, strict=True):
        row["extra"] = {key: bytes(value) for key, value in (extra or {}).items()}
    return found


def joined(texts: list[str], gap: str, lines: bool) -> bytes:
    """The events twice, since the scanner expects what it has seen before, and one more, since it looks ahead."""
    all_events = [*texts, *texts, '{"ph":"X","name":"%s"}' % ("x" * 40)]
    between = "\n" if lines else gap + "," + gap
    return between.join(text.replace("\n", " ") if lines else text for text in all_events).encode()


@given(st.lists(events(usual=True), min_size=1, max_size=6), BLANKS, st.booleans())
def test_usual_events_are_scanned_correctly(texts: list[str], gap: str, lines: bool) -> None:
    body = joined(texts, gap, lines)
    expected = rows(_one_by_one(body, lines).columns)
    columns = scanned_columns(body, lines)
    assert columns is not None
    assert rows(columns) == expected


@settings(max_examples=60)
@given(st.lists(st.one_of(events(usual=False), events(usual=True)), min_size=1, max_size=6), BLANKS, st.booleans())
def test_any_events_are_scanned_correctly_or_declined(texts: list[str], gap: str, lines: bool) -> None:
    body = joined(texts, gap, lines)
    decoded = _one_by_one(body, lines)
    columns = scanned_columns(body, lines)
    if columns is not None:
        assert not decoded.repeated
        assert not decoded.non_objects
        assert rows(columns) == rows(decoded.columns)


@given(st.lists(events(usual=True), min_size=1, max_size=4), st.booleans(), st.data())
def test_malformed_events_are_declined(texts: list[str], lines: bool, data: st.DataObject) -> None:
    changed = bytearray(joined(texts, "", lines))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        new = data.draw(st.sampled_from([*b'"{}[]:,\\ \n\t\x00\x01a0-.eEu\xff', None]))
        changed[place : place + 1] = b"" if new is None else bytes([new])
        if not changed:
            return
    body = bytes(changed).strip(BLANKS_BETWEEN)
    try:
        body.decode()
    except UnicodeDecodeError:
        return
    columns = scanned_columns(body, lines)
    if columns is not None:
        assert rows(columns) == rows(_one_by_one(body, lines).columns)


ONE = b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],"c":"three"}}'


@pytest.mark.parametrize(
    "other",
    [
        b'{"ph":"X","name": "one","ts": 1,"args":{"External id":  1, "b": [2],"c":"three"}}',
        b'{ "ph":"X","name":"one" ,"ts":1 ,"args":{"External id":1 , "b":[2],"c":"three" } }',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],"d":"three"}}',
        b'{"ph":"X","name":"one","args":{"External id":1},"ts":1}',
        b'{"ph":"X","name":"one","args":{},"ts":1}',
        b'{"ph":"X","name":"one","tsts":1,"args":{"External id":{"External id":1, "b":[2]}, "b":3}}',
        b'{"ph":"X","name":"one","ts":1,"args":{"' + b"e" * 40 + b'":1, "' + b"e" * 40 + b'":2}}',
        b"{}",
    ],
)
def test_events_that_begin_like_others(other: bytes) -> None:
    body = b",".join([ONE, ONE, other, ONE, other, other, ONE])
    columns = scanned_columns(body, False)
    assert columns is not None
    assert rows(columns) == rows(_one_by_one(body, False).columns)


@pytest.mark.parametrize(
    "other",
    [
        b'{"ph":"X","name":"one","ts":,"args":{"External id":1, "b":[2],"c":"three"}}',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],"c":"three",}}',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],,"c":"three"}}',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1 "b":[2],"c":"three"}}',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],"c":"three"},}',
        b'{"ph":"X","name":"one","ts":1,"args":{"External id":1, "b":[2],"c":"three"',
        b'{,"ph":"X","name":"one","ts":1}',
    ],
)
def test_malformed_events_that_begin_like_others(other: bytes) -> None:
    assert scanned_columns(b",".join([ONE, ONE, other, ONE]), False) is None


def test_commas_are_missed_and_refused_after_any_key() -> None:
    # What led to a key is looked up by some bits of the key before it.
    for number in range(400):
        sound = f'{{"args":{{"x":5,"{number}":1,"b":2}},"ph":"X"}}'
        for other in (sound.replace('1,"b"', '1"x"'), sound.replace('{"x"', '{,"b"')):
            assert scanned_columns(",".join([sound, sound, other, sound]).encode(), False) is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"ts":1,"ts":2}',
        b'{"sf":1,"sf":2}',
        b'{"ts":1,"\\u0074s":2}',
        b"null",
        b'{"ph":"X"},null',
        b'{"ph":"X"},[1]',
        b'[{"ph":"X"}]',
        b'"ph"',
        b'{"name":5}',
        b'{"pid":1.5}',
        b'{"ph":9}',
    ],
)
def test_unusual_events_are_declined(text: bytes) -> None:
    assert scanned_columns(text, False) is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"ph":' + b" " * 100 + b'"X"}',
        b'{"ph":"X"' + b" " * 100 + b"}",
        b'{"ph":"X"}' + b" " * 100 + b',{"ph":"X"}',
    ],
)
def test_many_blanks(text: bytes) -> None:
    assert list(decode_events(text, False).columns.label("ph")) == ["X"] * text.count(b"ph")


def test_empty_events_and_numbered_kinds() -> None:
    columns = scanned_columns(b'{},{"ph":1},{ },{"ph":"i"}', False)
    assert columns is not None
    assert list(columns.label("ph")) == [None, "X", None, "i"]


def test_many_and_few_distinct_values_are_coded_alike() -> None:
    texts = [
        f'{{"tid":{number % 400},"cat":"{"c" * (number % 20)}","ph":"X","name":"{number}"}}' for number in range(4000)
    ]
    columns = scanned_columns(",".join(texts).encode(), False)
    assert columns is not None
    assert list(columns.label("tid")) == [number % 400 for number in range(4000)]
    assert list(columns.label("cat")) == ["c" * (number % 20) for number in range(4000)]
    assert list(columns.label("name")) == [str(number) for number in range(4000)]


def test_malformed_text_is_refused() -> None:
    for text in (b'{"ph":"X",}', b'{"ph":"X"},' * 2000 + b'{"ph":}'):
        with pytest.raises(MalformedText):
            decode_events(b" \n" + text, False)
