"""Entries of a lake: `_runs/KEY.json` names the files of a complete run, and has its row of the table run.

A run is in the lake once its entry is written, which is last; files without an entry are never read. Paths are made
from the entry's checked parts, so that no entry can name a file elsewhere. `FORMAT` is the version of this layout.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote

from traceconv._version import __version__
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.lake.folder import ENTRIES, LakeFolder
from traceconv.schema import table, tables
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.migrations import OLDEST_VERSION, columns_since

FORMAT = 1
#: Hive's partition of NULL.
_NO_GROUP = "__HIVE_DEFAULT_PARTITION__"
#: File names have 255 bytes at most on most systems.
_LONGEST_PART = 200
_KEY_DIGITS = 16
_KEY = re.compile(r"[0-9a-f]{16}")
_DIGEST = re.compile(r"[0-9a-f]{16,128}")
_FILE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}\.parquet")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"([0-9a-f]{16})\.json")
_PYTHON_TYPES: Mapping[str, type] = {"str": str, "json": str, "bool": bool}
_INT64 = 1 << 63

Value: TypeAlias = "int | str | bool | None"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file with rows of one table and run.

    sha256  of its bytes
    """

    table: str
    name: str
    row_count: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete run of a lake.

    key                the first 16 hex digits of its digest
    digest             of its source, or of its rows if that is unknown
    added_ns           when it was added, since the Unix epoch; runs are numbered in this order
    longest_text_bytes  size of its longest string, an upper limit
    run                its row of the table run, without run_id
    schema_version     of its files; columns and tables since then are not in them
    """

    key: str
    digest: str
    added_ns: int
    longest_text_bytes: int
    run: Mapping[str, Value]
    files: Sequence[TableFile]
    schema_version: int = SCHEMA_VERSION

    @property
    def label(self) -> str:
        """The label of the run, for messages."""
        return printable(str(self.run["label"]), 60)

    def paths(self) -> dict[str, TableFile]:
        """Return the files by their names in the lake."""
        return {f"{self.partition(one.table)}/{one.name}": one for one in self.files}

    def partition(self, table: str) -> str:
        """Return the folder of a table's files."""
        group = self.run["group_label"]
        return f"{table}/group={quoted_group(None if group is None else str(group))}/run={self.key}"

    def to_json(self) -> bytes:
        """Return the content of the entry's file."""
        entry = {
            "format": FORMAT,
            "schema_version": self.schema_version,
            "writer": f"traceconv {__version__}",
            "digest": self.digest,
            "added_ns": self.added_ns,
            "longest_text_bytes": self.longest_text_bytes,
            "run": dict(self.run),
            "files": [
                {
                    "table": one.table, "name": one.name, "row_count": one.row_count, "size_bytes": one.size_bytes,
                    "sha256": one.sha256,
                }
                for one in self.files
            ],
        }  # fmt: skip
        return (json.dumps(entry, indent=1) + "\n").encode()


@dataclass(slots=True)
class Lake:
    """The runs of a lake, in the order of their numbers; `problems` has a line for each that can't be used."""

    folder: LakeFolder
    entries: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def omit(self, entry: Entry, reason: str) -> None:
        """Leave out a run, because of one of its files."""
        self.entries.remove(entry)
        self.problems.append(f"{self.folder.shown}: {printable(reason)}; run {entry.label} is omitted")

    def notes(self) -> list[str]:
        """Return a line for each older schema version: what its runs lack."""
        counts = Counter(entry.schema_version for entry in self.entries)
        return [
            f"{self.folder.shown}: {count} run{'s have' if count > 1 else ' has'} schema version {version}; NULL or "
            f"without rows until exported again with --overwrite: {', '.join(missing)}"
            for version, count in sorted(counts.items())
            if (missing := _missing_in(version))
        ]


def key_of(digest: str) -> str:
    """Return the key of the run with a digest: its first 16 hex digits, or those of its SHA-256 if it has none."""
    if not _DIGEST.fullmatch(digest):
        digest = hashlib.sha256(digest.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:_KEY_DIGITS]


def entry_name(key: str) -> str:
    """Return the name of a run's entry in the lake."""
    return f"{ENTRIES}/{key}.json"


def quoted_group(label: str | None) -> str:
    """Return a group label for a path: percent-encoded except ASCII letters, digits, `_` and `-`.

    Long ones are cut, with a digest of the label at the end; the rows have the complete label.
    """
    if label is None:
        return _NO_GROUP
    quoted = quote(label, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(quoted) <= _LONGEST_PART:
        return quoted
    digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:_KEY_DIGITS]
    return f"{re.sub('%[0-9A-F]?$', '', quoted[:_LONGEST_PART])}-{digest}"


def read_lake(folder: LakeFolder) -> Lake:
    """Read all entries, and check that their files exist with their sizes.

    Raises InputError for a folder that can't be read, and if there is no entry.
    """
    lake = Lake(folder)
    names = [name for name in folder.entry_names() if _ENTRY.fullmatch(name)]
    if not names:
        raise InputError(
            f"{folder.shown} is not a lake, or has no runs; add some with: traceconv export parquet -o {folder.shown}"
        )
    for name, content in zip(names, folder.read(f"{ENTRIES}/{name}" for name in names), strict=True):
        try:
            lake.entries.append(parse_entry(name.removesuffix(".json"), content))
        except InputError as error:
            lake.problems.append(f"{folder.shown}: the entry {ENTRIES}/{printable(name)} {error}; its run is omitted")
    lake.entries.sort(key=lambda entry: (entry.added_ns, entry.key))
    sizes = folder.sizes(path for entry in lake.entries for path in entry.paths())
    for entry in list(lake.entries):
        for path, file in entry.paths().items():
            if sizes.get(path) != file.size_bytes:
                has = "is missing" if path not in sizes else f"has {sizes[path]:,} instead of {file.size_bytes:,} bytes"
                lake.omit(entry, f"{path} {has}")
                break
    return lake


def damaged_file(folder: LakeFolder, entry: Entry) -> str | None:
    """Read all files of a run; return the name of the first that is not as it was written, None if there is none."""
    wrong = (path for path, file in entry.paths().items() if folder.sha256(path) != file.sha256)
    return next(wrong, None)


def check_files(lake: Lake) -> Iterator[str]:
    """Read all files of a lake; yield a line for each run with a file that is not as it was written."""
    for entry in lake.entries:
        if (path := damaged_file(lake.folder, entry)) is not None:
            yield f"{lake.folder.shown}: {printable(path)} is damaged; export run {entry.label} again with --overwrite"


def parse_entry(key: str, content: bytes | OSError) -> Entry:
    """Parse an entry, as `LakeFolder.read` yields it.

    Raises InputError, with what is wrong, for one that can't be read, is damaged or of another version.
    """
    if isinstance(content, OSError):
        raise InputError(f"can't be read ({reason_of(content)})")
    try:
        raw: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError("is not valid JSON") from None
    if not isinstance(raw, dict) or type(raw.get("format")) is not int:
        raise InputError("is not an entry of a lake")
    if raw["format"] > FORMAT:
        raise InputError(f"has format {raw['format']}, newer than {FORMAT}: upgrade traceconv")
    version = raw.get("schema_version")
    if type(version) is not int or not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        is_newer = type(version) is int and version > SCHEMA_VERSION
        advice = "upgrade traceconv" if is_newer else "export the run again with --overwrite"
        raise InputError(
            f"has schema version {printable(str(version), 20)}, this is {__version__} with version {SCHEMA_VERSION}: "
            f"{advice}"
        )
    try:
        return _entry(key, raw, version)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"is not an entry of a lake: {printable(str(error) or type(error).__name__, 100)}") from None


def _missing_in(version: int) -> list[str]:
    """Return the tables and columns since a version."""
    later = [name for name, schema in tables().items() if schema.since > version]
    return later + [f"{name}.{column}" for name, column in columns_since(version) if name not in later]


def _entry(key: str, raw: Mapping[str, Any], version: int) -> Entry:
    row = raw["run"]
    lacking = columns_since(version)
    run: dict[str, Value] = {}
    for column in table("run").columns[1:]:
        run[column.name] = None if ("run", column.name) in lacking else _value(column.type, row[column.name])
    files = [
        TableFile(
            _text(one["table"], re.compile("|".join(tables()))),
            _text(one["name"], _FILE),
            _count(one["row_count"]),
            _count(one["size_bytes"]),
            _text(one["sha256"], _SHA256),
        )
        for one in raw["files"]
    ]
    digest = raw["digest"]
    if not isinstance(digest, str) or key_of(digest) != key:
        raise ValueError("its digest is that of another run")
    entry = Entry(key, digest, _count(raw["added_ns"]), _count(raw["longest_text_bytes"]), run, files, version)
    if len(entry.paths()) != len(files):
        raise ValueError("duplicate file")
    return entry


def _value(kind: str, value: object) -> Value:
    expected = _PYTHON_TYPES.get(kind, int)
    if value is None:
        return None
    if type(value) is not expected or (isinstance(value, int) and not -_INT64 <= value < _INT64):
        raise ValueError(f"{value!r} is not a value of type {kind}")
    if isinstance(value, str):
        value.encode()
    return value  # type: ignore[return-value]  # checked above


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"unexpected {value!r}")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _INT64:
        raise ValueError(f"{value!r} is not a count")
    return value
