"""Records survive encoding and decoding, and other schema versions lose nothing that can be kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.schema import record, records
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.schema.model import Field, RecordSchema
from traceconv.wire.codec import decode_block, encode_block, missing_fields, unknown_fields
from traceconv.wire.frames import Block, FileHeader, FrameDecoder, encode_file_header
from traceconv.wire.text import MAX_TEXT_BYTES, TextCollector, TextTable, encode_text

NAMES = st.sampled_from(sorted(records()))


def record_arrays(schema: RecordSchema, *, min_size: int = 1) -> st.SearchStrategy[RecordArray]:
    """Any bytes are records: every field takes every value of its type."""
    size = schema.size_bytes
    return st.binary(min_size=min_size * size, max_size=12 * size).map(
        lambda data: np.frombuffer(data[: len(data) // size * size], dtype_of(schema))
    )


def through_a_file(written: RecordSchema, records_: RecordArray) -> tuple[RecordSchema, Block]:
    """The schema and the block that a reader gets of a file with one block."""
    decoder = FrameDecoder()
    head = encode_file_header(FileHeader(1, None, written.clock, 1, 0, 0, (written,)))
    (block,) = [*decoder.feed(head + b"".join(encode_block(written, records_, 0))), *decoder.finish()]
    assert isinstance(block, Block)
    assert decoder.header is not None
    return decoder.header.schemas[0], block


def values_of(schema: RecordSchema) -> st.SearchStrategy[list[tuple[int | float | bytes, ...]]]:
    fields = []
    for field in schema.fields:
        bits = 8 * field.size_bytes
        if field.type.startswith("bytes"):
            fields.append(st.binary(min_size=field.size_bytes, max_size=field.size_bytes))
        elif field.type == "i64":
            fields.append(st.integers(-(1 << 63), (1 << 63) - 1))
        else:
            fields.append(st.integers(0, (1 << bits) - 1))
    return st.lists(st.tuples(*fields), min_size=1, max_size=5)


@pytest.mark.parametrize("name", records())
@given(data=st.data())
@settings(max_examples=15)
def test_decode_of_encode_is_the_identity(name: str, data: st.DataObject) -> None:
    schema = record(name)
    values = data.draw(values_of(schema))
    columns = list(zip(*values, strict=True))
    records_ = np.zeros(len(values), dtype_of(schema))
    for field, column in zip(schema.fields, columns, strict=True):
        raw = field.type.startswith("bytes")
        records_[field.name] = np.frombuffer(b"".join(column), f"V{field.size_bytes}") if raw else column
    written, block = through_a_file(schema, records_)
    assert decode_block(block, written, schema).tolist() == values
    assert not unknown_fields(block, written, schema)
    assert not missing_fields(written, schema)


@given(name=NAMES, data=st.data())
def test_fields_that_only_a_newer_writer_has_are_ignored(name: str, data: st.DataObject) -> None:
    ours = record(name)
    newer = dataclasses.replace(
        ours, fields=(*ours.fields, Field("spin", "u32", "count", ""), Field("x", "f64", "", ""))
    )
    records_ = data.draw(record_arrays(newer))
    written, block = through_a_file(newer, records_)
    assert unknown_fields(block, written, ours)
    got = decode_block(block, written, ours)
    assert [got[field.name].tolist() for field in ours.fields] == [records_[f.name].tolist() for f in ours.fields]


@given(name=NAMES, data=st.data())
def test_fields_that_an_older_writer_lacks_are_null(name: str, data: st.DataObject) -> None:
    ours = record(name)
    kept = data.draw(st.integers(1, len(ours.fields)))
    older = dataclasses.replace(ours, fields=ours.fields[:kept])
    records_ = data.draw(record_arrays(older))
    written, block = through_a_file(older, records_)
    assert missing_fields(written, ours) == (kept < len(ours.fields))
    got = decode_block(block, written, ours)
    for index, field in enumerate(ours.fields):
        want = records_[field.name] if index < kept else np.full(len(records_), field.null or 0)
        if field.type.startswith("bytes") and index >= kept:
            want = np.zeros(len(records_), f"V{field.size_bytes}")
        assert got[field.name].tolist() == want.tolist()


@given(name=NAMES, data=st.data())
def test_records_longer_than_the_schema_keep_their_known_fields(name: str, data: st.DataObject) -> None:
    """A block may state a longer record than the schema in the file: what is past the schema is stepped over."""
    ours = record(name)
    tail = data.draw(st.integers(1, 40))
    records_ = data.draw(record_arrays(ours))
    payload = b"".join(row.tobytes() + b"\xee" * tail for row in records_)
    block = Block(ours.tag, ours.size_bytes + tail, len(records_), 0, memoryview(payload), 0, 0, 0)
    assert unknown_fields(block, ours, ours)
    assert decode_block(block, ours, ours).tobytes() == records_.tobytes()


@given(name=NAMES, data=st.data())
def test_fields_are_found_by_name_at_any_position(name: str, data: st.DataObject) -> None:
    ours = record(name)
    fields = data.draw(st.permutations(ours.fields))
    other = dataclasses.replace(ours, fields=tuple(fields))
    records_ = data.draw(record_arrays(other))
    written, block = through_a_file(other, records_)
    got = decode_block(block, written, ours)
    assert all(got[field.name].tolist() == records_[field.name].tolist() for field in ours.fields)


def test_a_field_of_another_type_is_null_and_not_reinterpreted() -> None:
    ours = record("stream")
    changed = tuple(f._replace(type="f64") if f.name == "name" else f for f in ours.fields)
    other = dataclasses.replace(ours, fields=changed)
    records_ = np.zeros(1, dtype_of(other))
    records_["name"] = 1.5
    records_["stream_id"] = 3
    written, block = through_a_file(other, records_)
    assert decode_block(block, written, ours).tolist() == [(0, 3, 0)]


def test_records_shorter_than_the_schema_are_refused() -> None:
    ours = record("stream")
    block = Block(ours.tag, 8, 1, 0, memoryview(bytes(8)), 0, 0, 0)
    with pytest.raises(ValueError, match="can't hold"):
        decode_block(block, ours, ours)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=200)


@settings(max_examples=40)
@given(texts=st.lists(TEXTS, max_size=8), data=st.data())
def test_texts_are_assembled_from_their_records_in_any_order(texts: list[str], data: st.DataObject) -> None:
    table = TextTable()
    parts = []
    hashes = {}
    for text in texts:
        hashes[text], new = table.hash(text)
        if new is not None:
            parts.extend(new[i : i + 1] for i in range(len(new)))
    assert len(set(hashes.values())) == len(hashes)
    assert 0 not in hashes.values()
    collector = TextCollector(1 << 20)
    for part in data.draw(st.permutations(parts)):
        collector.add(part)
    assert collector.texts == {text_hash: text for text, text_hash in hashes.items()}
    assert (collector.bad, collector.refused, collector.unfinished) == (0, 0, 0)


@given(data=st.binary(max_size=64 * 20))
def test_any_bytes_as_dictionary_records_are_used_or_counted(data: bytes) -> None:
    dtype = dtype_of(record("dictionary"))
    records_ = np.frombuffer(data[: len(data) // 64 * 64], dtype)
    collector = TextCollector(1 << 20)
    collector.add(records_)
    assert collector.bad + collector.unfinished + len(collector.texts) <= max(len(records_), 0)


def test_text_past_the_limit_is_refused_and_counted() -> None:
    collector = TextCollector(10 * 48)
    collector.add(encode_text(1, "a" * 48 * 8))
    collector.add(encode_text(2, "b" * 48 * 4))
    assert list(collector.texts) == [1]
    assert collector.refused == 2


def test_a_text_longer_than_the_maximum_is_refused() -> None:
    assert len(encode_text(1, "x" * MAX_TEXT_BYTES)) == 0xFFFF
    with pytest.raises(ValueError, match="exceeds the maximum length"):
        encode_text(1, "x" * (MAX_TEXT_BYTES + 1))


def test_texts_with_lone_surrogates_get_distinct_hashes() -> None:
    table = TextTable()
    assert table.hash("\ud800")[0] != table.hash("?")[0]
