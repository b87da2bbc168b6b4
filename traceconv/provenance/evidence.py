"""What is found for a row: pieces of sources with their place, rows it was made of, and how its columns came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Most bytes of one piece that are kept: an event of 200 MB is named with its place and size, and begun.
MAX_BYTES = 8192
#: Most pieces that are shown for one row.
MAX_PIECES = 32


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of a source.

    role         what it is to the row, such as "its end"
    file         the source's path as the store has it
    path         where it was read now
    format       as `source.format`
    byte_offset  where it stands: in the unpacked text, where the file is packed; None where a format has no such place
    byte_count   its whole size, also when `data` is cut
    container    plain, gzip or zstd
    where        its place in words of the format: a record, a line, a table and a rowid
    fields       what it says, decoded: name → value
    units        name of a field → unit, where the format tells
    data         its bytes, at most `MAX_BYTES`
    is_text      whether the bytes are text (JSON, CSV) and no binary record
    """

    role: str
    source_id: int
    file: str
    path: str
    format: str
    byte_offset: int | None
    byte_count: int | None
    container: str = "plain"
    where: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""
    is_text: bool = True

    @property
    def cut(self) -> bool:
        """Whether `data` is only the beginning."""
        return self.byte_count is not None and self.byte_count > len(self.data) > 0


@dataclass(frozen=True, slots=True)
class RowRef:
    """Another row that this one was made of."""

    table: str
    id: int
    role: str


@dataclass(frozen=True, slots=True)
class Answer:
    """All that is known of where a row came from.

    rows      the row; several where one id has several, as a fusion has
    made_of   rows that it was made of; where `evidence` is empty, why there is none is in `notes`
    notes     (column, how its value was made); an empty column is about the whole row
    problems  sources that are gone or were changed since, a sentence each
    """

    table: str
    id: str
    run_id: int
    run_label: str
    rows: Sequence[Mapping[str, object]]
    evidence: Sequence[Evidence] = ()
    made_of: Sequence[RowRef] = ()
    notes: Sequence[tuple[str, str]] = ()
    problems: Sequence[str] = ()
