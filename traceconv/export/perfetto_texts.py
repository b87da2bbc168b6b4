"""Interned texts of a Perfetto trace: each text is written once, before its first use."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from traceconv.export import perfetto_records as wire
from traceconv.export.record_file import RecordFile
from traceconv.wire.protobuf import encode_varint

#: Tags of an interned text's fields.
_ID, _TEXT = wire.tag(1, 0), wire.tag(2, 2)
#: If there are more texts than this, the interning state is reset.
MAX_TEXTS = 1 << 18


class Texts:
    """Assigns IDs to texts and writes the new ones."""

    _TAGS: Mapping[str, bytes] = {
        kind: wire.tag(number, 2) for kind, number in (("categories", 1), ("names", 2), ("notes", 3), ("values", 29))
    }

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._known: dict[str, dict[str, int]] = {kind: {} for kind in self._TAGS}
        self._new: list[bytes] = []
        #: IDs of the texts of ops, by how many of them are shown and the op.
        self.of_ops: dict[int, dict[int, tuple[int | None, ...]]] = {}

    def number(self, kind: str, text: str) -> int:
        """Return the ID of a text."""
        known = self._known[kind]
        found = known.get(text)
        if found is None:
            found = known[text] = len(known) + 1
            data = text.encode()
            entry = b"".join((_ID, encode_varint(found), _TEXT, encode_varint(len(data)), data))
            self._new += (self._TAGS[kind], encode_varint(len(entry)), entry)
        return found

    def numbers(self, kind: str, column: pa.Array) -> pa.Array:
        """Return the IDs of a text column; NULL stays NULL."""
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        known = self._known[kind]
        numbers = [known.get(text) or self.number(kind, text) for text in coded.dictionary.to_pylist()]
        return pa.array(numbers, pa.int64()).take(coded.indices)

    def begin(self) -> None:
        """Start a batch; reset the interning state if there are too many texts."""
        if sum(map(len, self._known.values())) > MAX_TEXTS:
            for known in self._known.values():
                known.clear()
            self._new.clear()
            self.of_ops.clear()
            self._file.write(wire.packet(flags=1))

    def flush(self) -> None:
        """Write the new texts."""
        if self._new:
            self._file.write(wire.packet(wire.bytes_field(wire.INTERNED, b"".join(self._new)), flags=2))
            self._new = []
