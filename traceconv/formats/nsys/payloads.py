"""Typed payloads of NVTX events: the bytes of a C structure, which the report describes.

The bytes come after a header of 32: domain, schema and size, each of 8 bytes, and 8 more. NVIDIA documents the schemas
(nvToolsExtPayload.h), but not the header: payloads of which a size doesn't match are not decoded.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from traceconv.events.trace import Coded
from traceconv.formats.common.sqlite_names import SqliteNames

_HEADER = struct.Struct("<QQQ8x")
#: Formats of types with the same size in all systems; 22 and 23 are size_t and addresses.
_FORMATS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 9: "q", 10: "Q", 11: "b", 12: "B", 13: "h", 14: "H", 15: "i",
    16: "I", 17: "q", 18: "Q", 19: "f", 20: "d", 22: "Q", 23: "Q",
}  # fmt: skip


class Payloads:
    """Decodes payloads by the schemas of a report."""

    def __init__(self, names: SqliteNames) -> None:
        #: (domain, schema) → size; None if processes have different schemas with these IDs.
        self._sizes: dict[tuple[Any, Any], int | None] = {}
        #: Offset, format and name of each plain number.
        self._members: dict[tuple[Any, Any], dict[int, tuple[str, str]]] = {}
        for domain, schema, size in names.all_rows("NVTX_PAYLOAD_SCHEMAS", ("domainId", "schemaId", "payloadSize")):
            key = domain, schema
            self._sizes[key] = size if isinstance(size, int) and self._sizes.get(key, size) == size else None
        columns = ("domainId", "schemaId", "idx", "flags", "type", "name", "offset")
        for domain, schema, index, flags, kind, name, offset in names.all_rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", columns):
            at = offset if isinstance(offset, int) and offset > 0 else 0 if index == 0 else None
            if at is None or flags or kind not in _FORMATS or not isinstance(name, str):
                continue
            member = self._members.setdefault((domain, schema), {}).setdefault(at, (_FORMATS[kind], name))
            if member != (_FORMATS[kind], name):
                self._sizes[domain, schema] = None

    def decoded(self, payloads: Coded) -> Coded:
        """Return a JSON object for each payload; NULL for those that can't be decoded."""
        return Coded(payloads.codes, [self._object(one) for one in payloads.distinct])

    def _object(self, payload: Any) -> msgspec.Raw | None:
        if not isinstance(payload, bytes) or len(payload) < _HEADER.size:
            return None
        domain, schema, size = _HEADER.unpack_from(payload)
        key = domain, schema
        if self._sizes.get(key) != size or len(payload) != _HEADER.size + size:
            return None
        found = {
            name: struct.unpack_from(f"<{kind}", payload, _HEADER.size + at)[0]
            for at, (kind, name) in self._members.get(key, {}).items()
            if at + struct.calcsize(f"<{kind}") <= size
        }
        return msgspec.Raw(msgspec.json.encode(found)) if found else None
