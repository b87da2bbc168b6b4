"""The manifest of a capture: read as input that is not to be trusted, into values that were checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from traceconv.base.errors import printable
from traceconv.wire.log_writer import FORMAT_NAME, MANIFEST

#: Largest manifest that is read; one of this size names some 300 000 files.
MAX_MANIFEST_BYTES = 64 << 20
_OWN_KEYS = frozenset({"format", "version", "writer_id", "files"})
_NUMBERS = ("size_bytes", "first_sequence", "record_count")
_HEX = re.compile(r"[0-9a-f]{1,16}")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A file as the manifest names it; `path` is relative to the capture, with '/', and never leaves it."""

    path: str
    record: str
    size_bytes: int
    first_sequence: int
    record_count: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the writer said when it was done. `extra` holds the keys that the format does not define."""

    writer_id: int
    version: int
    files: tuple[ManifestFile, ...]
    extra: Mapping[str, object]


class ManifestProblem(ValueError):
    """The manifest is missing, can't be read, or says what can't be so; the text says which."""


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a capture's folder. Raises ManifestProblem for anything but a sound one."""
    path = folder / MANIFEST
    try:
        if not path.exists():
            raise ManifestProblem("missing: the recording was cut off")
        if not path.is_file():
            raise ManifestProblem("unreadable: it is no file")
        with path.open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestProblem(f"unreadable: {error.strerror or error}") from error
    if len(content) > MAX_MANIFEST_BYTES:
        raise ManifestProblem(f"invalid: larger than {MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        raw = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestProblem("invalid: it is no JSON text") from error
    return parse_manifest(raw)


def parse_manifest(raw: object) -> Manifest:
    """The manifest that a JSON value says. Raises ManifestProblem when it is no sound one."""
    if not isinstance(raw, dict):
        raise ManifestProblem("invalid: it is no JSON object")
    if raw.get("format") != FORMAT_NAME:
        raise ManifestProblem(f"invalid: format is not '{FORMAT_NAME}'")
    version, writer_id, entries = raw.get("version"), raw.get("writer_id"), raw.get("files")
    if type(version) is not int or version < 1:
        raise ManifestProblem("invalid: version is no number from 1 on")
    if not isinstance(writer_id, str) or not _HEX.fullmatch(writer_id):
        raise ManifestProblem("invalid: writer_id is no hexadecimal number of 64 bits")
    if not isinstance(entries, list):
        raise ManifestProblem("invalid: files is no list")
    files = tuple(_parse_file(entry) for entry in entries)
    if len({file.path for file in files}) != len(files):
        raise ManifestProblem("invalid: a file is named twice")
    extra = {key: value for key, value in raw.items() if key not in _OWN_KEYS}
    return Manifest(int(writer_id, 16), version, files, MappingProxyType(extra))


def _parse_file(entry: Any) -> ManifestFile:
    if not isinstance(entry, dict):
        raise ManifestProblem("invalid: an entry of files is no object")
    path, record = entry.get("path"), entry.get("record")
    if not isinstance(path, str) or not _stays_inside(path):
        raise ManifestProblem(f"invalid: {printable(repr(path), 80)} is no path inside the capture")
    if not isinstance(record, str):
        raise ManifestProblem(f"invalid: {printable(path, 80)} has no record type")
    size_bytes, first_sequence, record_count = (_number(entry, key, path) for key in _NUMBERS)
    return ManifestFile(path, record, size_bytes, first_sequence, record_count)


def _number(entry: dict[str, Any], key: str, path: str) -> int:
    number = entry.get(key)
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ManifestProblem(f"invalid: {printable(path, 80)} needs a whole number as {key}")
    return number


def _stays_inside(path: str) -> bool:
    parts = path.split("/")
    return "\0" not in path and "\\" not in path and not any(part in ("", ".", "..") for part in parts)
