"""Load the TOML files of `traceconv.schemas`, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

import tomli

from traceconv.schema.model import RecordSchema, SchemaError, TableSchema, parse_record, parse_table


def _files(folder: str) -> Iterator[str]:
    """Yield the names of the files of a folder without their suffix, in alphabetical order."""
    names = sorted(file.name for file in (resources.files("traceconv.schemas") / folder).iterdir())
    for name in names:
        if name.endswith(".toml"):
            yield name.removesuffix(".toml")


def _load(folder: str, name: str, members: str) -> Mapping[str, Any]:
    """Return a file. Its `members`, fields or columns by name, become a list, as log files have it."""
    text = (resources.files("traceconv.schemas") / folder / f"{name}.toml").read_text("utf-8")
    raw: Mapping[str, Any] = tomli.loads(text)
    return {**raw, "name": name, members: [{"name": one, **entry} for one, entry in raw[members].items()]}


@cache
def records() -> Mapping[str, RecordSchema]:
    """Return all record schemas by name, in the order of their tags."""
    loaded = (parse_record(_load("records", name, "fields")) for name in _files("records"))
    by_tag = sorted(loaded, key=lambda schema: schema.tag)
    if len({schema.tag for schema in by_tag}) != len(by_tag):
        raise SchemaError("two records have the same tag")
    return MappingProxyType({schema.name: schema for schema in by_tag})


@cache
def tables() -> Mapping[str, TableSchema]:
    """Return all table schemas by name, in alphabetical order."""
    return MappingProxyType({name: table(name) for name in _files("tables")})


def record(name: str) -> RecordSchema:
    """Return the schema of a record type; KeyError if it does not exist."""
    return records()[name]


@cache  # only its file is read: an ingest of a small recording needs a quarter of the tables
def table(name: str) -> TableSchema:
    """Return the schema of a table; KeyError if it does not exist."""
    if not name.isidentifier():
        raise KeyError(name)
    try:
        return parse_table(_load("tables", name, "columns"))
    except FileNotFoundError:
        raise KeyError(name) from None


@cache
def record_by_tag() -> Mapping[int, RecordSchema]:
    """Return all record schemas by tag."""
    return MappingProxyType({schema.tag: schema for schema in records().values()})
