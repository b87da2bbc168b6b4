"""Payloads of blocks as numpy arrays, for any version of the schema."""

from __future__ import annotations

import numpy as np

from traceconv.schema import RecordSchema
from traceconv.schema.dtypes import RecordArray, dtype_of, plain
from traceconv.wire.frames import Block, encode_block_header


def encode_block(schema: RecordSchema, records: RecordArray, sequence: int) -> tuple[bytes, memoryview]:
    """Encode one block of `records`, of the schema's dtype; the first has number `sequence` in its stream.

    Return its header and payload.
    """
    payload = plain(records).view(np.uint8).data
    return encode_block_header(schema.tag, schema.size_bytes, sequence, payload), payload


def decode_block(block: Block, written: RecordSchema, known: RecordSchema) -> RecordArray:
    """Return the records of a block, `written` in one layout, in the layout of `known`.

    Not copied if both are the same. Fields that the writer lacks are null (0 if the field has no null value);
    unknown fields are dropped. Raises ValueError if a block's records are shorter than `written`.
    """
    raw = np.frombuffer(block.payload, dtype_of(written, block.record_size))
    if block.record_size == known.size_bytes and _same_layout(written, known):
        return raw
    records = null_records(known, len(raw))
    ours = {field.name: field.type for field in known.fields}
    for field in written.fields:
        if ours.get(field.name) == field.type:
            records[field.name] = raw[field.name]
    return records


def unknown_fields(block: Block, written: RecordSchema, known: RecordSchema) -> bool:
    """Whether the block's records contain more than `known` defines."""
    ours = {(field.name, field.type) for field in known.fields}
    longer = block.record_size > written.size_bytes
    return longer or any((field.name, field.type) not in ours for field in written.fields)


def missing_fields(written: RecordSchema, known: RecordSchema) -> bool:
    """Whether `known` has fields that the writer lacks."""
    theirs = {(field.name, field.type) for field in written.fields}
    return any((field.name, field.type) not in theirs for field in known.fields)


def null_records(schema: RecordSchema, count: int) -> RecordArray:
    """Return `count` records in which each field is null, or 0 if it has no null value."""
    records = np.zeros(count, dtype_of(schema))
    for field in schema.fields:
        if field.null:
            records[field.name] = field.null
    return records


def _same_layout(one: RecordSchema, other: RecordSchema) -> bool:
    return [(f.name, f.type) for f in one.fields] == [(f.name, f.type) for f in other.fields]
