"""Schemas: invalid ones are rejected, and those of the package are valid."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from traceconv.schema import record, record_by_tag, records, table, tables
from traceconv.schema.arrow import arrow_schema
from traceconv.schema.ddl import comments, create_table, quote_identifier, quote_text
from traceconv.schema.dtypes import dtype_of
from traceconv.schema.model import Field, SchemaError, parse_record, parse_table

RECORD: dict[str, Any] = {
    "name": "beat",
    "tag": 77,
    "clock": "host",
    "doc": "A beat.",
    "becomes": "x",
    "fields": [
        {"name": "host_ns", "type": "i64", "unit": "ns", "doc": "When."},
        {"name": "kind", "type": "u8", "unit": "enum", "doc": "Which.", "values": {"0": "a", "1": "b"}},
    ],
}
TABLE: dict[str, Any] = {
    "name": "beat",
    "doc": "Beats.",
    "filled_by": ["npulog"],
    "columns": [
        {"name": "run_id", "type": "i64", "unit": "id", "doc": "Run."},
        {"name": "ts_ns", "type": "i64", "unit": "ns", "doc": "When."},
    ],
}


def changed(raw: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return `raw` with the value at `a.0.b` replaced; None removes it."""
    raw = copy.deepcopy(raw)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = raw
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return raw


def test_a_valid_record() -> None:
    schema = parse_record(RECORD)
    assert (schema.name, schema.tag, schema.size_bytes) == ("beat", 77, 9)
    assert schema.field("kind").values == {0: "a", 1: "b"}
    with pytest.raises(KeyError):
        schema.field("nothing")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", None, "is not a name"),
        ("name", "Beat", "is not a name"),
        ("name", "a b", "is not a name"),
        ("tag", None, "tag must be"),
        ("tag", 0, "tag must be"),
        ("tag", 65536, "tag must be"),
        ("tag", True, "tag must be"),
        ("clock", None, "clock must be one of device, host, none"),
        ("doc", None, "needs a doc"),
        ("doc", "no full stop", "needs a doc"),
        ("fields", [], "between 1 and 256 fields"),
        ("fields.0", 5, "a field must be a table"),
        ("fields.0.name", "kind", "duplicate kind"),
        ("fields.0.type", "u128", "unknown type 'u128'"),
        ("fields.0.type", "bytes[0]", "unknown type"),
        ("fields.0.type", "bytes[65536]", "exceed the maximum size of a record"),
        ("fields.0.unit", None, "needs a unit"),
        ("fields.0.unit", "furlong", "needs a unit"),
        ("fields.0.doc", None, "beat.host_ns: needs a doc"),
        ("fields.0.doc", "When", "beat.host_ns: needs a doc"),
        ("fields.0.null", -1, "null must be an unsigned 64-bit integer"),
        ("fields.0.null", 1.0, "null must be an unsigned 64-bit integer"),
        ("fields.1.values", ["a"], "values must be a table"),
        ("fields.1.values", {"one": "a"}, "keys of values must be integers"),
    ],
)
def test_an_invalid_record_is_rejected(path: str, value: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("[", r"\[")):
        parse_record(changed(RECORD, path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", 5, "is not a name"),
        ("doc", None, "needs a doc"),
        ("columns", [], "first column must be run_id"),
        ("columns.0.name", "id", "first column must be run_id"),
        ("columns.1.name", "run_id", "duplicate run_id"),
        ("columns.1.type", "u8", "unknown type"),
        ("columns.1.unit", None, "needs a unit"),
        ("columns.1.doc", None, "needs a doc"),
    ],
)
def test_an_invalid_table_is_rejected(path: str, value: Any, message: str) -> None:
    assert parse_table(TABLE).column("ts_ns").unit == "ns"
    with pytest.raises(SchemaError, match=message):
        parse_table(changed(TABLE, path, value))


def test_a_schema_in_a_log_needs_no_docs_and_round_trips() -> None:
    for schema in records().values():
        again = parse_record(schema.to_wire(), documented=False)
        assert (again.name, again.tag, again.clock) == (schema.name, schema.tag, schema.clock)
        for ours, theirs in zip(schema.fields, again.fields, strict=True):
            expected = Field(ours.name, ours.type, ours.unit, "", ours.null, ours.values)
            assert theirs == expected


def test_a_str_is_null_when_it_is_0() -> None:
    assert all(f.null == 0 for schema in records().values() for f in schema.fields if f.type == "str")


def test_tags_are_unique_and_identify_records() -> None:
    assert {schema.tag: schema for schema in records().values()} == dict(record_by_tag())
    assert len(record_by_tag()) == len(records())


@pytest.mark.parametrize("name", records())
def test_a_record_has_no_gaps_and_its_null_values_fit(name: str) -> None:
    schema = record(name)
    dtype = dtype_of(schema)
    assert dtype.itemsize == schema.size_bytes
    assert schema.size_bytes % 8 == 0
    offset = 0
    for field in schema.fields:
        kind, at = dtype.fields[field.name][:2]  # type: ignore[index]  # a structured dtype has fields
        assert (at, kind.itemsize) == (offset, field.size_bytes)
        # Numbers are aligned, so that readers in any language can load them.
        assert field.type.startswith("bytes") or offset % field.size_bytes == 0
        offset += field.size_bytes
        if field.null is not None:
            assert field.null <= np.iinfo(kind).max
        assert (field.values is None) == (field.unit != "enum")
        if field.values is not None:
            assert all(0 <= value <= np.iinfo(kind).max for value in field.values)
            assert len(set(field.values.values())) == len(field.values)


@pytest.mark.parametrize("name", records())
def test_the_first_field_of_a_clocked_record_is_its_timestamp(name: str) -> None:
    schema = record(name)
    times = {"host": ("host_ns", "i64", "ns"), "device": ("ticks", "u64", "tick")}
    if schema.clock in times:
        first = schema.fields[0]
        assert (first.name, first.type, first.unit) == times[schema.clock]


@pytest.mark.parametrize("name", tables())
def test_timestamps_in_tables_are_signed_integers_in_ns(name: str) -> None:
    for column in table(name).columns:
        assert (column.unit == "ns") == column.name.endswith("_ns")
        if column.unit == "ns":
            assert column.type == "i64"
        if column.name.endswith("_id") or column.name == "id":
            assert column.type in ("i64", "str")
        if column.type == "f64":
            assert column.name == "value"  # of counters, which may be fractions in the source


@pytest.mark.parametrize("name", tables())
def test_ddl_and_arrow_have_the_same_columns(name: str) -> None:
    schema = table(name)
    statement = create_table(schema)
    lines = statement.splitlines()
    assert lines[0] == f'CREATE TABLE "{name}" ('
    assert [line.split('"')[1] for line in lines[1:-1]] == arrow_schema(name).names
    assert len(list(comments(schema))) == len(schema.columns) + 1
    for column, field in zip(schema.columns, arrow_schema(name), strict=True):
        assert pa.types.is_dictionary(field.type) == (column.type == "str")
        if column.unit == "ns":
            assert field.type == pa.int64()


def test_identifiers_are_quoted() -> None:
    assert quote_identifier('a"b') == '"a""b"'
    assert quote_text("it's") == "'it''s'"


def test_unknown_names_are_key_errors() -> None:
    for look_up in (record, table):
        with pytest.raises(KeyError):
            look_up("nothing")


def test_a_record_size_smaller_than_the_record_is_rejected() -> None:
    with pytest.raises(ValueError, match="8 bytes can't hold a api record of 40"):
        dtype_of(record("api"), 8)
    assert dtype_of(record("api"), 48).itemsize == 48
