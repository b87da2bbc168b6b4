"""What all readers of one file of text or packets have in common: the file, its size and digest, its blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.limits import Limits


class FileReader:
    """The part of `TraceSource` that says what was read; `blocks` is for the reader to fill."""

    def __init__(
        self,
        path: Path,
        log: ImportLog,
        accounts: Accounts,
        limits: Limits,
        advance: Callable[[int], None],
        *,
        is_text: bool = True,
    ) -> None:
        self._path = path
        self._log = log
        self._accounts = accounts
        self._limits = limits
        self._source = TextSource(path, log, limits, advance, is_text=is_text)
        self.blocks: list[tuple[int, int, int | None, int | None]] = []

    @property
    def size_bytes(self) -> int:
        """Size of the file, as far as it was read."""
        return self._source.size_bytes

    @property
    def digest(self) -> str:
        """CRC-32 of the file, as far as it was read."""
        return f"{self._source.crc:08x}"

    @property
    def container(self) -> str:
        """plain, gzip or zstd."""
        return self._source.container


def keys_object(keys: Mapping[str, bytes]) -> str | None:
    """Keys and the texts of their values as one JSON object; values that are no JSON as strings. None for no keys."""
    members = [f"{json.dumps(key)}:{_sound(value)}" for key, value in keys.items()]
    return "{" + ",".join(members) + "}" if members else None


def _sound(value: bytes) -> str:
    try:
        msgspec.json.decode(value)
        return value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.dumps(value.decode("utf-8", "replace"))
