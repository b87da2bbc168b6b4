"""Schemas of records and tables, parsed from TOML and validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

#: Version of the store's schema, raised with every change of a table. Stores with a newer version are refused.
SCHEMA_VERSION = 12

_SCALAR_BYTES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8, "f64": 8, "str": 8}
_COLUMN_TYPES = frozenset({"i32", "i64", "u64", "f64", "str", "bool", "json"})
_BYTES_TYPE = re.compile(r"bytes\[([1-9][0-9]{0,4})\]")
_UNITS = frozenset(
    {"none", "id", "index", "count", "byte", "ns", "tick", "cycle", "hz", "flop", "flop/s", "byte/s"}
    | {"text", "json", "hash", "enum", "flag"}
)
_CLOCKS = frozenset({"host", "device", "none"})
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class SchemaError(ValueError):
    """An invalid schema: a bug if it is our own, bad input if it is from a file."""


class Field(NamedTuple):
    """A field of a raw record. `null` is the value that means NULL; `values` names the values of an enum."""

    name: str
    type: str
    unit: str
    doc: str
    null: int | None = None
    values: Mapping[int, str] | None = None

    @property
    def size_bytes(self) -> int:
        match = _BYTES_TYPE.fullmatch(self.type)
        return int(match[1]) if match else _SCALAR_BYTES[self.type]


@dataclass(frozen=True)
class RecordSchema:
    """A raw record type: fixed size, little-endian, fields without gaps."""

    name: str
    tag: int
    clock: str
    doc: str
    becomes: str
    fields: tuple[Field, ...]

    @cached_property
    def size_bytes(self) -> int:
        return sum(field.size_bytes for field in self.fields)

    def field(self, name: str) -> Field:
        """Return a field; KeyError if it does not exist."""
        return {field.name: field for field in self.fields}[name]

    def to_wire(self) -> dict[str, Any]:
        """Return the schema as embedded in log files: all that a reader needs to skip, count and dump records."""
        fields: list[dict[str, Any]] = []
        for field in self.fields:
            entry: dict[str, Any] = {"name": field.name, "type": field.type, "unit": field.unit}
            if field.null is not None:
                entry["null"] = field.null
            if field.values is not None:
                entry["values"] = {str(value): text for value, text in field.values.items()}
            fields.append(entry)
        return {"name": self.name, "tag": self.tag, "clock": self.clock, "fields": fields}


class Column(NamedTuple):
    """A column of a store table.

    since       the first schema version that has it; 0: as old as the oldest version that can be migrated, or older
    """

    name: str
    type: str
    unit: str
    doc: str
    since: int = 0


class TableSchema(NamedTuple):
    """A table of the store.

    filled_by     the readers that fill it
    derived_from  tables whose rows it is computed from, for faster reports; no reader fills it
    since         the first schema version that has it; 0: as old as the oldest version that can be migrated, or older
    """

    name: str
    doc: str
    filled_by: tuple[str, ...]
    columns: tuple[Column, ...]
    derived_from: tuple[str, ...] = ()
    since: int = 0

    def column(self, name: str) -> Column:
        """Return a column; KeyError if it does not exist."""
        return {column.name: column for column in self.columns}[name]


def parse_record(raw: Mapping[str, Any], *, documented: bool = True) -> RecordSchema:
    """Parse a record schema from TOML, or from a log file with `documented=False`. Raises SchemaError."""
    name = _name(raw.get("name"), "record")
    where = f"record {name}"
    tag = raw.get("tag")
    if type(tag) is not int or not 0 < tag < 1 << 16:
        raise SchemaError(f"{where}: tag must be a number from 1 to 65535")
    clock = raw.get("clock")
    if clock not in _CLOCKS:
        raise SchemaError(f"{where}: clock must be one of {', '.join(sorted(_CLOCKS))}")
    entries = raw.get("fields")
    if not isinstance(entries, list) or not 0 < len(entries) <= 256:
        raise SchemaError(f"{where}: needs between 1 and 256 fields")
    fields = tuple(_parse_field(entry, where, documented) for entry in entries)
    _check_unique([field.name for field in fields], where)
    schema = RecordSchema(name, tag, clock, _doc(raw, where, documented), str(raw.get("becomes", "")), fields)
    if schema.size_bytes >= 1 << 16:
        raise SchemaError(f"{where}: {schema.size_bytes} bytes exceed the maximum size of a record")
    return schema


def parse_table(raw: Mapping[str, Any]) -> TableSchema:
    """Parse a table schema from TOML. Raises SchemaError, e.g. for a column without type, unit or doc."""
    name = _name(raw.get("name"), "table")
    where = f"table {name}"
    columns = []
    for entry in raw.get("columns", []):
        column = _name(entry.get("name"), where)
        if entry.get("type") not in _COLUMN_TYPES:
            raise SchemaError(f"{where}.{column}: unknown type {entry.get('type')!r}")
        _check_unit(entry, f"{where}.{column}")
        since = _since(entry, f"{where}.{column}")
        doc = _doc(entry, f"{where}.{column}", True)
        columns.append(Column(column, entry["type"], entry["unit"], doc, since))
    if not columns or columns[0].name != "run_id":
        raise SchemaError(f"{where}: the first column must be run_id")
    _check_unique([column.name for column in columns], where)
    filled_by, derived_from = tuple(raw.get("filled_by", ())), tuple(raw.get("derived_from", ()))
    return TableSchema(name, _doc(raw, where, True), filled_by, tuple(columns), derived_from, _since(raw, where))


def _parse_field(entry: object, where: str, documented: bool) -> Field:
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where}: a field must be a table")
    name = _name(entry.get("name"), where)
    where = f"{where}.{name}"
    kind = entry.get("type")
    if not isinstance(kind, str) or not (kind in _SCALAR_BYTES or _BYTES_TYPE.fullmatch(kind)):
        raise SchemaError(f"{where}: unknown type {kind!r}")
    if documented:
        _check_unit(entry, where)
    null = entry.get("null")
    if kind == "str":
        null = 0  # a hash of 0 means no string, in every record
    if null is not None and (type(null) is not int or not 0 <= null < 1 << 64):
        raise SchemaError(f"{where}: null must be an unsigned 64-bit integer")
    values = entry.get("values")
    if values is not None:
        if not isinstance(values, Mapping) or len(values) > 256:
            raise SchemaError(f"{where}: values must be a table of at most 256 names")
        try:
            values = {int(value): str(text) for value, text in values.items()}
        except ValueError:
            raise SchemaError(f"{where}: the keys of values must be integers") from None
    return Field(name, kind, str(entry.get("unit", "none")), _doc(entry, where, documented), null, values)


def _name(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > 64 or not _NAME.fullmatch(value):
        raise SchemaError(f"{where}: {value!r} is not a name (lower case, digits, _)")
    return value


def _since(entry: Mapping[str, Any], where: str) -> int:
    since = entry.get("since", 0)
    if type(since) is not int or not 0 <= since <= SCHEMA_VERSION:
        raise SchemaError(f"{where}: since must be a schema version up to {SCHEMA_VERSION}")
    return since


def _doc(entry: Mapping[str, Any], where: str, documented: bool) -> str:
    doc = entry.get("doc", "")
    if documented and not (isinstance(doc, str) and doc.endswith((".", "?", "!"))):
        raise SchemaError(f"{where}: needs a doc that ends with a full stop")
    return str(doc)


def _check_unit(entry: Mapping[str, Any], where: str) -> None:
    if entry.get("unit") not in _UNITS:
        raise SchemaError(f"{where}: needs a unit, one of {', '.join(sorted(_UNITS))}")


def _check_unique(names: list[str], where: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"{where}: duplicate {', '.join(twice)}")
