"""Which CSV files of vendors are known, and which of their columns: `tables.toml`, checked when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import tomli

COLUMN_TYPES = frozenset(("number", "text", "shapes", "int", "flag", "us", "size"))
_UNIT = re.compile(r"\(\s*(B|[KMGT]i?B|Bytes?)\s*\)\s*$", re.IGNORECASE)
BECOMES = frozenset(("task", "attach", "counter", "memory", "step", "fusion", "nothing"))


@dataclass(frozen=True, slots=True)
class Column:
    """One of our columns, and how the file's header may spell it (as `plain` gives it)."""

    name: str
    type: str
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file. becomes `nothing`: its rows are no rows of ours, `doc` says why."""

    kind: str
    names: re.Pattern[str]
    becomes: str
    doc: str
    needs: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of a kind are in one file.

    places   our column → index of the cell
    units    our column → bytes that a unit of its heading is: 1024 of "Size(KB)"
    others   (header, index) of the columns that are none of ours, in order
    missing  columns that the kind needs and the file lacks
    group    group of hardware counters that was recorded; None when the header does not tell
    vendor_values (column of op_summary, index) of cells that are made of such counters
    """

    kind: FileKind
    places: Mapping[str, int]
    others: tuple[tuple[str, int], ...]
    missing: tuple[str, ...]
    group: str | None = None
    units: Mapping[str, int] = field(default_factory=dict)
    vendor_values: tuple[tuple[Column, int], ...] = ()


@dataclass(frozen=True)
class Spec:
    """All kinds of files, in the order of tables.toml."""

    kinds: tuple[FileKind, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vendor_values: tuple[Column, ...] = ()

    def kind_of(self, file_name: str) -> FileKind | None:
        """The kind of a file by its name; None for one that is not known."""
        return next((kind for kind in self.kinds if kind.names.fullmatch(file_name)), None)

    def layout(self, kind: FileKind, header: Sequence[str]) -> Layout:
        """Finds the columns of `kind` in a header; of a heading that comes twice, the first one counts."""
        found: dict[str, int] = {}
        for place, text in enumerate(header):
            found.setdefault(plain(text), place)
        places: dict[str, int] = {}
        for column in kind.columns:
            at = next((found[name] for name in column.headers if name in found), None)
            if at is not None:
                places[column.name] = at
        group = next((name for name, words in self.groups.items() if found.keys() & set(words)), None)
        vendor_values: list[tuple[Column, int]] = []
        for column in self.vendor_values if kind.becomes == "task" and group is not None else ():
            at = next((found[name] for name in column.headers if name in found), None)
            if at is not None:
                vendor_values.append((column, at))
        used = {*places.values(), *(place for _, place in vendor_values)}
        others = tuple((text, place) for place, text in enumerate(header) if place not in used and text)
        missing = tuple(name for name in kind.needs if name not in places)
        units = {name: _unit(header[place]) for name, place in places.items()}
        return Layout(kind, places, others, missing, group, units, tuple(vendor_values))


def counter_title(name: str, kind: str, stream: str | None) -> str:
    """Name of a counter's track: several kinds of files count components of the same names."""
    return f"{name} ({kind})" if stream is None else f"{name} ({kind}, stream {stream})"


def _unit(header: str) -> int:
    """Bytes in the unit that a heading names; 1 where it names none."""
    match = _UNIT.search(header)
    return 1024 ** "bkmgt".index(match[1][0].casefold()) if match else 1


def plain(header: str) -> str:
    """A heading without what its spellings differ in: case, blanks, underscores, a byte order mark, the micro sign."""
    text = re.sub(r"[\s_]+", " ", header.strip().strip("\ufeff")).casefold()
    return text.replace(" (", "(").replace("μs)", "us)")


@cache
def spec() -> Spec:
    """What tables.toml says. ValueError when it breaks its own rules: that is an error of ours, not of the user."""
    text = (resources.files("traceconv.normalize.vendor_csv") / "tables.toml").read_text("utf-8")
    raw: dict[str, Any] = tomli.loads(text)
    columns = {
        name: tuple(_column(ours, entry) for ours, entry in entries.items()) for name, entries in raw["columns"].items()
    }
    kinds = []
    for entry in raw["file"]:
        becomes = entry.get("becomes", "nothing")
        own = columns[entry["columns"]] if "columns" in entry else ()
        needs = tuple(entry.get("needs", ()))
        if becomes not in BECOMES or not set(needs) <= {column.name for column in own}:
            raise ValueError(f"tables.toml: {entry['kind']}: unknown `becomes`, or a need that is no column")
        names = re.compile(entry["names"], re.IGNORECASE)
        kinds.append(FileKind(entry["kind"], names, becomes, entry["doc"], needs, own))
    groups = {name: tuple(map(plain, words)) for name, words in raw["pmu_groups"].items()}
    return Spec(tuple(kinds), groups, tuple(_column(ours, entry) for ours, entry in raw["pmu_vendor_values"].items()))


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    if entry["type"] not in COLUMN_TYPES:
        raise ValueError(f"tables.toml: {name}: unknown type {entry['type']}")
    return Column(name, entry["type"], tuple(map(plain, entry["headers"])))
