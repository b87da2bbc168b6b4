"""Known CSV files of vendors and their columns: `tables.toml`, checked when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """One of our columns, and its possible headings in a file (as `plain` returns them)."""

    name: str
    type: str
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file. `becomes` nothing: its rows are not imported, for the reason in `doc`."""

    kind: str
    names: re.Pattern[str]
    becomes: str
    doc: str
    needs: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of a kind's columns in one file.

    places   our column → index of the cell
    units    our column → bytes per unit of its heading: 1024 for "Size(KB)"
    others   (header, index) of the other columns, in order
    missing  columns that the kind needs and the file lacks
    group    recorded group of hardware counters; None if the header does not identify it

    vendor_values: (column of op_summary, index) of cells that are computed from such counters
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
        """Return the kind of a file by its name; None for unknown files."""
        return next((kind for kind in self.kinds if kind.names.fullmatch(file_name)), None)

    def layout(self, kind: FileKind, header: Sequence[str]) -> Layout:
        """Find the columns of `kind` in a header. Of repeated headings, the first is used."""
        found: dict[str, int] = {}
        for place, text in enumerate(header):
            found.setdefault(plain(text), place)

        def placed(columns: Iterable[Column]) -> Iterator[tuple[Column, int]]:
            for column in columns:
                at = next((found[name] for name in column.headers if name in found), None)
                if at is not None:
                    yield column, at

        places = {column.name: at for column, at in placed(kind.columns)}
        group = next((name for name, words in self.groups.items() if found.keys() & set(words)), None)
        vendor_values = [*placed(self.vendor_values)] if kind.becomes == "task" and group is not None else []
        used = {*places.values(), *(place for _, place in vendor_values)}
        others = tuple((text, place) for place, text in enumerate(header) if place not in used and text)
        missing = tuple(name for name in kind.needs if name not in places)
        units = {name: _unit(header[place]) for name, place in places.items()}
        return Layout(kind, places, others, missing, group, units, tuple(vendor_values))


def counter_title(name: str, kind: str, stream: str | None) -> str:
    """Return the name of a counter's track; components of the same name occur in several kinds of files."""
    return f"{name} ({kind})" if stream is None else f"{name} ({kind}, stream {stream})"


def _unit(header: str) -> int:
    """Return the bytes in the unit of a heading; 1 without a unit."""
    match = _UNIT.search(header)
    return 1024 ** "bkmgt".index(match[1][0].casefold()) if match else 1


def plain(header: str) -> str:
    """Normalize a heading: case, blanks, underscores, byte order mark, micro sign."""
    text = re.sub(r"[\s_]+", " ", header.strip().strip("\ufeff")).casefold()
    return text.replace(" (", "(").replace("μs)", "us)")


@cache
def spec() -> Spec:
    """Return the content of tables.toml. ValueError if it is invalid, which is a bug."""
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
            raise ValueError(f"tables.toml: {entry['kind']}: unknown `becomes`, or a needed column that does not exist")
        names = re.compile(entry["names"], re.IGNORECASE)
        kinds.append(FileKind(entry["kind"], names, becomes, entry["doc"], needs, own))
    groups = {name: tuple(map(plain, words)) for name, words in raw["pmu_groups"].items()}
    return Spec(tuple(kinds), groups, tuple(_column(ours, entry) for ours, entry in raw["pmu_vendor_values"].items()))


def _column(name: str, entry: Mapping[str, Any]) -> Column:
    if entry["type"] not in COLUMN_TYPES:
        raise ValueError(f"tables.toml: {name}: unknown type {entry['type']}")
    return Column(name, entry["type"], tuple(map(plain, entry["headers"])))
