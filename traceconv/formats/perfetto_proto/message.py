"""One protobuf message: its fields by number."""

from __future__ import annotations

import struct
from collections.abc import Container

from traceconv.wire.protobuf import LEN, WireError, fields, signed, varint


class Message:
    """The fields of a message by number. Each accessor removes its fields; `rest` returns the remaining ones.

    Where a field that isn't repeated occurs more than once, the last one counts.
    """

    def __init__(self, data: bytes, start: int, end: int, packed: Container[int] = ()) -> None:
        """Raises WireError, also for a list of varints among the `packed` fields that can't be read to its end."""
        self.data = data
        self._fields: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, at in fields(data, start, end):
            self._fields.setdefault(number, []).append((kind, value, at))
            if kind == LEN and number in packed:
                varints(data, kind, value, at)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def numbers_left(self) -> set[int]:
        """The numbers of the fields that were not taken."""
        return set(self._fields)

    def has_any(self, numbers: frozenset[int]) -> bool:
        """Return whether a field with one of these numbers was not taken."""
        return not self._fields.keys().isdisjoint(numbers)

    def take(self, number: int) -> list[tuple[int, int, int]]:
        """Kind, value and position of all fields with a number."""
        return self._fields.pop(number, [])

    def values(self, number: int) -> list[int]:
        """All values of a scalar field."""
        return [value for kind, value, _ in self._fields.pop(number, ()) if kind != LEN]

    def number(self, number: int) -> int | None:
        """The value of a scalar field; None if absent."""
        values = self.values(number)
        return values[-1] if values else None

    def signed(self, number: int) -> int | None:
        """The value of a signed scalar field; None if absent."""
        value = self.number(number)
        return None if value is None else signed(value)

    def spans(self, number: int) -> list[tuple[int, int]]:
        """Start and end of each text or inner message."""
        return [(at, at + size) for kind, size, at in self._fields.pop(number, ()) if kind == LEN]

    def spans_left(self, number: int) -> list[tuple[int, int]]:
        """Like `spans`, but the fields are not removed."""
        return [(at, at + size) for kind, size, at in self._fields.get(number, ()) if kind == LEN]

    def texts(self, number: int) -> list[bytes]:
        """All texts of a field."""
        return [self.data[start:end] for start, end in self.spans(number)]

    def text(self, number: int) -> bytes | None:
        """The text of a field; None if absent."""
        texts = self.texts(number)
        return texts[-1] if texts else None

    def messages(self, number: int) -> list[Message]:
        """All inner messages of a field that are sound."""
        found = []
        for start, end in self.spans(number):
            try:
                found.append(Message(self.data, start, end))
            except WireError:
                continue
        return found

    def numbers(self, number: int) -> list[int]:
        """All values of a repeated field of varints, packed or not. Raises WireError, unless checked as `packed`."""
        return [one for kind, value, at in self._fields.pop(number, ()) for one in varints(self.data, kind, value, at)]

    def fixed_numbers(self, number: int) -> list[int]:
        """All values of a repeated field of 64 bits each, as unsigned integers."""
        found = []
        for kind, value, at in self._fields.pop(number, ()):
            words = struct.iter_unpack("<Q", self.data[at : at + value // 8 * 8]) if kind == LEN else [(value,)]
            found += [bits for (bits,) in words]
        return found

    def rest(self, known: frozenset[int] = frozenset()) -> list[tuple[int, str]]:
        """Number and JSON text of the fields that were not taken and are not `known`: bytes in hexadecimal."""
        return [
            (number, f'"{self.data[at : at + value].hex()}"' if kind == LEN else str(value))
            for number in sorted(self._fields.keys() - known)
            for kind, value, at in self._fields[number]
        ]


def varints(data: bytes, kind: int, value: int, at: int) -> list[int]:
    """The values of one field of a repeated number: a single value, or a packed list. Raises WireError."""
    if kind != LEN:
        return [value]
    found = []
    end = at + value
    while at < end:
        one, at = varint(data, at, end)
        found.append(one)
    return found
