"""Rows that viewers don't show, in packets of Perfetto traces: column by column, which costs a fifth of JSON.

See `formats/perfetto_proto/own_export.py` for the fields.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv.base.deflate import compress
from traceconv.export import perfetto_records as wire
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto import own_export as own
from traceconv.wire.protobuf import encode_differences

#: Numbers are small and differ, so compressing them costs more than it saves; zlib only adds a checksum.
STORED = 0


def packed(packet: bytes, level: int) -> bytes:
    """Return a packet with a compressed packet."""
    return wire.packet(wire.bytes_field(pb.PACKED, compress(packet, level)))


def columns_packet(name: str, batch: pa.RecordBatch) -> bytes:
    """Return a packet with rows of a table."""
    fields = [wire.bytes_field(own.TABLE, name.encode()), wire.number_field(own.COUNT, batch.num_rows)]
    fields += [
        wire.bytes_field(own.COLUMN, _column(title, column))
        for title, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count < len(column)
    ]
    return packed(wire.packet(wire.bytes_field(pb.OWN, b"".join(fields))), STORED)


def _column(name: str, column: pa.Array) -> bytes:
    fields = [wire.bytes_field(own.NAME, name.encode())]
    if column.null_count:
        known = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        fields.append(wire.bytes_field(own.KNOWN, known.tobytes()))
        column = column.drop_null()
    if pa.types.is_string(column.type):
        coded = column.dictionary_encode()
        fields += [wire.bytes_field(own.TEXTS, text.encode()) for text in coded.dictionary.to_pylist()]
        column = coded.indices
    numbers = column.to_numpy()
    if pa.types.is_floating(column.type):
        with np.errstate(invalid="ignore"):
            integers = numbers.astype(np.int64)
        # -0.0 and NaN differ in their bits.
        if (integers.astype(np.float64).view(np.int64) != numbers.view(np.int64)).any():
            return b"".join([*fields, wire.bytes_field(own.DOUBLES, numbers.tobytes())])
        numbers = integers
    fields.append(wire.bytes_field(own.DIFFERENCES, encode_differences(numbers.astype(np.int64, copy=False))))
    return b"".join(fields)
