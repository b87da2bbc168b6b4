"""Locate events in their source for `traceconv why`: the input and output of a format's `locate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from traceconv.base.diagnostics import ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.formats.common.files import TextSource, opened
from traceconv.formats.common.limits import Limits

#: Longer pieces are truncated to this size.
MAX_BYTES = 8192
#: For files that ingest has read, within its own limits.
NO_LIMITS = Limits(ratio=1 << 40)


class SourceFile(NamedTuple):
    """A source file on disk, unchanged since ingest.

    name       its path in the store
    path       its path on disk
    format     as in `source.format`
    container  plain, gzip, zstd or xz, or another encoding of the text
    """

    source_id: int
    name: str
    path: Path
    format: str
    container: str

    def text(self, offset: int, count: int) -> bytes:
        """Return a byte range of its decompressed text; shorter if the text ends in it."""
        if offset < 0 or count < 0:
            raise InputError(f"the store has an invalid byte range for {printable(self.name)}: {count} at {offset}")
        if self.container == "plain":
            with opened(self.path) as stream:
                size = self.path.stat().st_size
                stream.seek(min(offset, size))
                return stream.read(min(count, size))
        parts: list[bytes] = []
        at, end = 0, offset + count
        for chunk in self.chunks():
            if at + len(chunk) > offset:
                parts.append(chunk[max(0, offset - at) : end - at])
            at += len(chunk)
            if at >= end:
                break
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """Yield its decompressed text."""
        return TextSource(self.path, ImportLog(), NO_LIMITS, lambda byte_count: None).chunks()


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of a source that a row was made from.

    role         what it is to the row, such as "its end"
    byte_offset  in the decompressed text; None if the format has no byte offsets
    byte_count   its full size, also if `data` is cut
    where        its position in terms of the format: a record, a line, a table and a rowid
    fields       decoded values by name, and their `units` where the format defines them
    data         its bytes, at most `MAX_BYTES`
    is_text      whether the bytes are text (JSON, CSV), not a binary record
    """

    source: SourceFile
    role: str
    byte_offset: int | None = None
    byte_count: int | None = None
    where: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    data: bytes = b""
    is_text: bool = True

    @property
    def cut(self) -> bool:
        """Whether `data` is truncated."""
        return self.byte_count is not None and self.byte_count > len(self.data) > 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """An event to find: number `index` of the `event_count` that were read from one block of its source.

    ordinal                  its number in the source
    byte_offset, byte_count  of the block, in the decompressed text; None if the format has no byte offsets
    role                     what the event is to the row
    row                      columns of the row, as far as known, with `tid_text` of its track
    options                  metadata of the source, as in `run.options`
    """

    source: SourceFile
    ordinal: int
    index: int
    event_count: int
    byte_offset: int | None
    byte_count: int | None
    role: str
    row: Mapping[str, Any]
    options: str | None = None

    def block(self) -> bytes:
        """Return the text of the block; empty if the format has no byte offsets."""
        return self.source.text(self.byte_offset or 0, self.byte_count or 0)

    def evidence(self, offset: int, text: bytes, where: str = "", role: str = "", **more: Any) -> Evidence:
        """Return a piece of the block, by its offset in the block."""
        where = where or f"event {self.ordinal}"
        return text_evidence(self.source, role or self.role, (self.byte_offset or 0) + offset, text, where, **more)


#: Find an event; empty if it can't be found. Raises InputError if the file has changed since ingest.
Locate: TypeAlias = Callable[[Wanted], list[Evidence]]


def text_evidence(source: SourceFile, role: str, offset: int, text: bytes, where: str, **more: Any) -> Evidence:
    """Return a piece of text at a byte offset, truncated to `MAX_BYTES`."""
    return Evidence(source, role, offset, len(text), where, data=text[:MAX_BYTES], **more)


def locate_block(wanted: Wanted) -> list[Evidence]:
    """Find the block of the event, for formats that can't locate single events."""
    if wanted.byte_offset is None:
        return []
    text = wanted.block()
    where = f"a block of {wanted.event_count} events, number {wanted.index} of them"
    return [wanted.evidence(0, text, where, f"{wanted.role} is in this block", is_text=_is_text(text[:MAX_BYTES]))]


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().replace("\n", "").replace("\t", "").isprintable()
    except UnicodeDecodeError:
        return False
