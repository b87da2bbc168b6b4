"""Strings of a log: 64-bit hashes in the records, and dictionary records that define them."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np

from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of

PART_BYTES = record("dictionary").field("text_bytes").size_bytes
#: Longest text: part_count is 16 bits.
MAX_TEXT_BYTES = 0xFFFF * PART_BYTES


def hash_text(text: str, salt: int = 0) -> int:
    """Return the hash of `text` (BLAKE2b, 64 bits), never 0; another one for each `salt`."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8, salt=salt.to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little") or 1


def encode_text(text_hash: int, text: str) -> RecordArray:
    """Return the dictionary records that define `text_hash`. ValueError if the text is longer than `MAX_TEXT_BYTES`."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MAX_TEXT_BYTES:
        raise ValueError(f"string of {len(encoded)} bytes exceeds the maximum length, {MAX_TEXT_BYTES}")
    parts = [encoded[i : i + PART_BYTES] for i in range(0, len(encoded), PART_BYTES)] or [b""]
    records = np.zeros(len(parts), dtype_of(record("dictionary")))
    records["hash"] = text_hash
    records["part"] = np.arange(len(parts))
    records["part_count"] = len(parts)
    records["size_bytes"] = [len(part) for part in parts]
    records["text_bytes"] = np.array([part.ljust(PART_BYTES, b"\0") for part in parts], f"V{PART_BYTES}")
    return records


class TextCollector:
    """Assembles texts from dictionary records in any order, within a limit of bytes.

    `texts` contains the complete ones. `bad` counts invalid records, `refused` those beyond the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.texts: dict[int, str] = {}
        self.bad = 0
        self.refused = 0
        self._left_bytes = limit_bytes
        self._parts: dict[int, dict[int, bytes]] = {}

    def add(self, records: RecordArray) -> None:
        """Add dictionary records. A Python loop is fast enough: few records per distinct string, none per event."""
        for text_hash, part, part_count, size, padded in records.tolist():
            if not 0 <= part < part_count or size > PART_BYTES or (part < part_count - 1 and size != PART_BYTES):
                self.bad += 1
                continue
            if self._left_bytes < PART_BYTES:
                self.refused += 1
                continue
            self._left_bytes -= PART_BYTES
            parts = self._parts.setdefault(text_hash, {})
            parts[part] = padded[:size]
            if len(parts) == part_count:
                del self._parts[text_hash]
                self._finish(text_hash, parts, part_count)

    def _finish(self, text_hash: int, parts: dict[int, bytes], part_count: int) -> None:
        try:
            self.texts[text_hash] = b"".join(parts[index] for index in range(part_count)).decode("utf-8")
        except (KeyError, UnicodeDecodeError):
            self.bad += part_count

    @property
    def unfinished(self) -> int:
        """Records of incomplete texts."""
        return sum(len(parts) for parts in self._parts.values())


class TextTable:
    """Assigns hashes to texts, and returns the dictionary records of each new one."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self._used: set[int] = set()

    def hash(self, text: str) -> tuple[int, RecordArray | None]:
        """Return the hash of `text`, and the records that define it if it is new."""
        known = self._hashes.get(text)
        if known is not None:
            return known, None
        hashes = (hash_text(text, salt) for salt in itertools.count())
        unused = next(one for one in hashes if one not in self._used)
        records = encode_text(unused, text)
        self._hashes[text] = unused
        self._used.add(unused)
        return unused, records
