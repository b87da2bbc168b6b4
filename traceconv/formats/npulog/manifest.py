"""The manifest of a capture, validated: it is untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from traceconv.base.errors import printable, reason_of
from traceconv.wire.log_writer import MANIFEST

#: Largest manifest that is read; one of this size lists about 300,000 files.
MAX_MANIFEST_BYTES = 64 << 20

_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ManifestFile(Struct, frozen=True):
    """A file that the manifest lists; `path` is relative to the capture, with '/', and never leaves it."""

    path: str
    record: str
    size_bytes: _Count
    first_sequence: _Count
    record_count: _Count

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if "\0" in self.path or "\\" in self.path or not {"", ".", ".."}.isdisjoint(parts):
            raise ValueError(f"{printable(repr(self.path), 80)} is not a path inside the capture")

    @property
    def sequences(self) -> tuple[int, int]:
        """The sequence numbers of its records: the first, and the one after the last."""
        return self.first_sequence, self.first_sequence + self.record_count


class _Content(Struct):
    format: Literal["npulog"]
    version: Annotated[int, Meta(ge=1)]
    writer_id: Annotated[str, Meta(pattern=r"^[0-9a-f]{1,16}\Z")]
    files: list[ManifestFile]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Written last, when all files are complete. `extra` contains the keys that the format does not define."""

    writer_id: int
    version: int
    files: tuple[ManifestFile, ...]
    extra: Mapping[str, object]


class ManifestProblem(ValueError):
    """The manifest is missing, unreadable or invalid, which is the first word of the text."""


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a capture's folder. Raises ManifestProblem."""
    path = folder / MANIFEST
    try:
        if not path.exists():
            raise ManifestProblem("missing: the recording is incomplete")
        if not path.is_file():
            raise ManifestProblem("unreadable: it is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestProblem(f"unreadable: {reason_of(error)}") from error
    if len(content) > MAX_MANIFEST_BYTES:
        raise ManifestProblem(f"invalid: larger than {MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        raw = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestProblem("invalid: it is not JSON") from error
    return parse_manifest(raw)


def parse_manifest(raw: object) -> Manifest:
    """Validate the manifest in a JSON value. Raises ManifestProblem."""
    try:
        content = msgspec.convert(raw, _Content)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ManifestProblem(f"invalid: {printable(str(error))}") from error
    if len({file.path for file in content.files}) != len(content.files):
        raise ManifestProblem("invalid: duplicate file")
    extra = {key: value for key, value in dict(raw).items() if key not in _Content.__struct_fields__}  # type: ignore[call-overload]
    return Manifest(int(content.writer_id, 16), content.version, tuple(content.files), extra)
