"""Records of timelines: C and Python write the same bytes, and those are what json and a protobuf decoder expect."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv import native
from traceconv.export.fill import fill
from traceconv.export.record_kinds import Kind
from traceconv.export.templates import Template

INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 999, -1, 2**53, 2**53 + 1, -(2**53) - 1]))
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.sampled_from(
        ['{"a":[1,2.5e3,{"b":null}]}', "[1,]", '{"a":NaN}', '"x"', "null", " {}", "{} ", '["\\ud800"]', "-0"]
    ),
    st.sampled_from(
        ['{"a":"\x01"}', "[" * 100 + "]" * 100, '{"a":1}x', "", "01", "true", '"' * 20, "\x00\x1f\x7f\u2028"]
    ),
)
ROWS = st.lists(
    st.tuples(st.none() | INT64, st.none() | TEXTS, st.none() | st.booleans(), st.none() | st.integers(-1, 3)),
    max_size=9,
)
PLACES = pa.array(["zero", None, "two"], pa.string())


def batch_of(rows: list[tuple[int | None, str | None, bool | None, int | None]]) -> pa.RecordBatch:
    types = {"number": pa.int64(), "text": pa.string(), "flag": pa.bool_(), "place": pa.int32()}
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types.values())]
    return pa.RecordBatch.from_arrays(columns, list(types))


def filled(template: Template, batch: pa.RecordBatch) -> bytes:
    buffer = bytearray(b"before" + bytes(100))
    end = fill(template, batch, buffer, 6)
    assert buffer[:6] == b"before"
    return bytes(buffer[6:end])


def json_template(base_ns: int) -> Template:
    args = Template().put(Kind.INTEGER, "number", ',"number":').put(Kind.STRING, "text", ',"text":')
    args.put(Kind.JSON, "text", ',"json":').put(Kind.BOOLEAN, "flag", ',"flag":')
    args.put(Kind.INTEGER, "number", ',"exact":', number=1).put(Kind.UNSIGNED, "number", ',"unsigned":')
    args.put(Kind.MICROSECONDS, "number", ',"ts":', number=base_ns).put(Kind.SHORT_MICROSECONDS, "number", ',"short":')
    has_text = Template().literal(',"has_text":true').when_null("flag", Template().literal(',"unflagged":1'))
    args.when_null("number", Template().literal(',"none":1')).unless_null("text", has_text)
    event = Template({"list": PLACES}).literal('{"place":"').lookup("place", "list").literal('","args":{')
    return event.extend(args).literal("}}\n")


def without_c(template: Template, batch: pa.RecordBatch) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", False)
        return filled(template, batch)


@given(ROWS, INT64, st.integers(0, 3))
def test_json(rows: list[tuple[int | None, str | None, bool | None, int | None]], base_ns: int, skipped: int) -> None:
    batch = batch_of(rows).slice(skipped)
    text = filled(json_template(base_ns), batch)
    assert text == without_c(json_template(base_ns), batch)
    lines = text.split(b"\n")[:-1]
    assert len(lines) == batch.num_rows
    for line, (number, word, flag, place) in zip(lines, rows[skipped:], strict=True):
        event = json.loads(line, parse_float=Decimal)
        assert event["place"] == (PLACES[place].as_py() or "" if place in (0, 1, 2) else "")
        found = event["args"]
        assert found.get("text") == word
        assert found.get("flag") == flag
        assert found.get("exact") == number
        assert ("none" in found, "has_text" in found) == (number is None, word is not None)
        assert ("unflagged" in found) == (word is not None and flag is None)
        if number is not None:
            assert int(found["number"]) == number
            assert found["short"] * 1000 == number
            assert isinstance(found["number"], str) == (abs(number) > 2**53)
            assert int(found["unsigned"]) == number % 2**64
            assert Decimal(found["ts"]) * 1000 == number - base_ns
        if word is not None:
            embedded = line[line.index(b',"json":') + 8 :] if number is not None or flag is not None else b""
            assert isinstance(found["json"], str) or embedded == b"" or embedded.startswith(word.encode())
            assert found["json"] == word or json.loads(word, parse_float=Decimal) == found["json"]


def packet_template() -> Template:
    inner = Template().put(Kind.VARINT, "number", b"\x08").put(Kind.NOTE, "number", b"\x12", b"\x08\x01\x10")
    inner.put(Kind.NOTE_BYTES, "text", b"\x1a", b"\x0a").put(Kind.FIXED64, "number", b"\x21")
    return Template().length(b"\x0a", Template().length(b"\x2a", inner).put(Kind.RAW, "text", b""))


@given(ROWS)
def test_packets(rows: list[tuple[int | None, str | None, bool | None, int | None]]) -> None:
    batch = batch_of(rows)
    data = filled(packet_template(), batch)
    assert data == without_c(packet_template(), batch)

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    def sized(body: bytes, least: int = 1) -> bytes:
        size = varint(len(body))
        return (size if len(size) >= least else bytes([size[0] | 128, 0])) + body

    expected = b""
    for number, word, *_ in rows:
        inner = b""
        if number is not None:
            inner += b"\x08" + varint(number % 2**64)
            inner += b"\x12" + sized(b"\x08\x01\x10" + varint(number % 2**64))
        if word is not None:
            inner += b"\x1a" + sized(b"\x0a" + sized(word.encode()))
        if number is not None:
            inner += b"\x21" + (number % 2**64).to_bytes(8, "little")
        expected += b"\x0a" + sized(b"\x2a" + sized(inner, 2) + (b"" if word is None else word.encode()), 2)
    assert data == expected


@given(st.tuples(st.none() | INT64, st.none() | TEXTS, st.none() | st.booleans(), st.none() | st.integers(-1, 3)))
def test_equal_rows(row: tuple[int | None, str | None, bool | None, int | None]) -> None:
    for template in (json_template(7), packet_template()):
        assert filled(template, batch_of([row] * 300)) == filled(template, batch_of([row])) * 300


def test_digits() -> None:
    numbers = [
        sign * (base**power + more)
        for base in (2, 10)
        for power in range(64)
        for more in (-1, 0, 1)
        for sign in (1, -1)
    ]
    numbers = [number for number in numbers if -(2**63) <= number < 2**63]
    texts = filled(
        Template().put(Kind.INTEGER, "number", number=1).literal("\n"),
        batch_of([(one, None, None, None) for one in numbers]),
    )
    assert list(map(int, texts.split())) == numbers
    assert b"".join(b"%d\n" % one for one in numbers) == texts


def test_a_record_larger_than_the_buffer() -> None:
    batch = batch_of([(1, "x" * 1000, None, None), (2, "y", None, None)])
    assert filled(Template().put(Kind.STRING, "text").literal("\n"), batch) == b'"%s"\n"y"\n' % (b"x" * 1000)


def test_lengths_of_more_than_two_bytes() -> None:
    batch = batch_of([(None, "x" * size, None, None) for size in (0, 127, 128, 16375, 16390, 2_100_000)])
    data = filled(packet_template(), batch)
    assert data == without_c(packet_template(), batch)
    ends = []
    while data:
        assert data[0] == 0x0A
        size, at = 0, 1
        while True:
            size |= (data[at] & 127) << 7 * (at - 1)
            at += 1
            if data[at - 1] < 128:
                break
        ends.append((at - 1, size))
        data = data[at + size :]
    assert [places for places, _ in ends] == [2, 2, 2, 3, 3, 4]
    # The text is in the packet twice, with its own lengths.
    assert [size > 2 * len(text.as_py()) for (_, size), text in zip(ends, batch.column("text"), strict=True)] == [
        True
    ] * 6


@pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")
@pytest.mark.parametrize(
    ("parts", "row"),
    [
        (((99, 0, -1, 0, b"", b""),), 0),
        (((Kind.STRING, 0, -1, 0, b"", b""),), 0),
        (((Kind.INTEGER, 1, -1, 0, b"", b""),), 0),
        (((Kind.LOOKUP, 0, 7, 0, b"", b""),), 0),
        (((Kind.NOTE, 0, -1, 0, b"", bytes(101)),), 0),
        (((Kind.CLOSE, -1, -1, 0, b"", b""),), 0),
        (((Kind.OPEN, -1, -1, 0, b"", b""),), 0),
        (((Kind.SKIP_IF_NULL, 0, -1, 5, b"", b""),), 0),
        (
            (
                (Kind.OPEN, -1, -1, 0, b"", b""),
                (Kind.SKIP_IF_NULL, 0, -1, 1, b"", b""),
                (Kind.CLOSE, -1, -1, 0, b"", b""),
            ),
            0,
        ),
        (((Kind.INTEGER, 0, -1, 0, b"", b""),), 3),
        (((Kind.INTEGER, 0, -1, 0, b"", b""),), -1),
    ],
)
def test_c_refuses_what_is_outside(parts: tuple[tuple[int, int, int, int, bytes, bytes], ...], row: int) -> None:
    column = (None, np.arange(3), None, 0, 3)
    with pytest.raises(ValueError, match=r"part|length|row"):
        native.records(parts, (column,), np.array([row]), 0, bytearray(100))


@pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")
@pytest.mark.parametrize("ends", [[0, 5, 3], [0, 1, 99], [-4, 0, 1]])
def test_c_refuses_texts_outside_of_their_data(ends: list[int]) -> None:
    column = (None, np.array(ends, np.int32), b"abc", 0, 2)
    with pytest.raises(ValueError, match="row"):
        native.records(((Kind.RAW, 0, -1, 0, b"", b""),), (column,), np.arange(2), 0, bytearray(100))
    with pytest.raises(ValueError, match="array"):
        native.records((), ((None, np.zeros(2, np.int32), b"", 0, 2),), np.arange(2), 0, bytearray(100))
