"""Load the TOML files of `traceconv.schemas`, once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import tomli

from traceconv.schema.model import RecordSchema, SchemaError, TableSchema, parse_record, parse_table


def _load_folder(folder: str) -> list[Mapping[str, Any]]:
    files = (resources.files("traceconv.schemas") / folder).iterdir()
    texts = sorted((file.name, file.read_text("utf-8")) for file in files if file.name.endswith(".toml"))
    loaded: list[Mapping[str, Any]] = []
    for name, text in texts:
        raw = tomli.loads(text)
        if f"{raw.get('name')}.toml" != name:
            raise SchemaError(f"{folder}/{name}: contains {raw.get('name')!r}; the file must have the same name")
        loaded.append(raw)
    return loaded


@cache
def records() -> Mapping[str, RecordSchema]:
    """Return all record schemas by name, in the order of their tags."""
    loaded = sorted((parse_record(raw) for raw in _load_folder("records")), key=lambda schema: schema.tag)
    if len({schema.tag for schema in loaded}) != len(loaded):
        raise SchemaError("two records have the same tag")
    return MappingProxyType({schema.name: schema for schema in loaded})


@cache
def tables() -> Mapping[str, TableSchema]:
    """Return all table schemas by name, in alphabetical order."""
    return MappingProxyType({schema.name: schema for schema in map(parse_table, _load_folder("tables"))})


def record(name: str) -> RecordSchema:
    """Return the schema of a record type; KeyError if it does not exist."""
    return records()[name]


def table(name: str) -> TableSchema:
    """Return the schema of a table; KeyError if it does not exist."""
    return tables()[name]


@cache
def record_by_tag() -> Mapping[int, RecordSchema]:
    """Return all record schemas by tag."""
    return MappingProxyType({schema.tag: schema for schema in records().values()})
