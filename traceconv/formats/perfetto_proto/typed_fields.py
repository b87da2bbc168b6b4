"""Typed fields of track events and other messages → members of a JSON object, by descriptors, known or in the trace.

The keys are those of Perfetto's args: names of fields, with elements of repeated fields in arrays.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from traceconv import native
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Annotations, Member, double, object_of, quoted
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.message import Message, varints
from traceconv.formats.perfetto_proto.sequences import Sequence
from traceconv.formats.perfetto_proto.translations import Translations
from traceconv.formats.perfetto_proto.typed_field_names import TABLE
from traceconv.wire.protobuf import LEN, WireError, fields, signed

EVENT = "TrackEvent"
_ANNOTATION = "DebugAnnotation"
_PACKAGE = ".perfetto.protos."
_MAX_DEPTH = 32
#: Limit of the fields and enum values that a trace describes.
_MAX_DESCRIBED = 100_000
#: Types of FieldDescriptorProto; 10, a group, does not occur. Messages and enums have their own names.
_TYPES = {1: "double", 2: "float", 3: "int", 4: "uint", 5: "int", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
          12: "bytes", 13: "uint", 15: "sfixed32", 16: "sfixed64", 17: "sint", 18: "sint"}  # fmt: skip
_REPEATED = 3
_PLAIN: dict[str, Callable[[int], str]] = {
    "int": lambda value: str(signed(value)),
    "uint": str,
    "sint": lambda value: str(value >> 1 ^ -(value & 1)),
    "bool": lambda value: "true" if value else "false",
    "fixed32": str,
    "fixed64": str,
    "sfixed32": lambda value: str(value - (value >> 31 << 32)),
    "sfixed64": lambda value: str(signed(value)),
    "double": lambda value: _decimal(double(value)),
    "float": lambda value: _decimal(struct.unpack("<f", value.to_bytes(4, "little"))[0]),
}
#: The kinds of native/typed_fields.c, which leaves kind 0 to Python.
_KINDS = {
    name: number
    for number, name in enumerate(
        ["", "int", "uint", "sint", "bool", "fixed32", "sfixed32", "fixed64", "sfixed64", "double", "float", "enum",
         "string", "bytes", "message", "location"]
    )
}  # fmt: skip
#: Names of fields that refer to what is interned.
_REFERENCES = ("mojo_interface_method_iid", "location_iid")
#: A number in a message for C, whose unknown fields it leaves then.
_LEAVES_UNKNOWN = 0
_SIZES = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}


class Field(NamedTuple):
    """A field of a message. `type`: plain, or the name of a message or enum."""

    name: str
    type: str
    is_repeated: bool


@dataclass(slots=True)
class Schema:
    """Messages (by field number) and enums (by value), by name."""

    messages: dict[str, dict[int, Field]] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    described: int = 0

    def take_descriptors(self, data: bytes, start: int, end: int) -> None:
        """Add an ExtensionDescriptor: extensions of track events, with their messages and enums. Raises WireError."""
        for files in Message(data, start, end).messages(1):
            for file in files.messages(1):
                package = (file.text(2) or b"").decode("utf-8", "replace")
                self._scope(file, f".{package}." if package else ".", (4, 5, 7))

    def _scope(self, scope: Message, prefix: str, numbers: tuple[int, int, int]) -> None:
        """Add what a file or message declares: in the fields with these numbers messages, enums and extensions."""
        messages, enums, extensions = numbers
        for declared in scope.messages(messages):
            own = prefix + (declared.text(1) or b"").decode("utf-8", "replace")
            known = self.messages.setdefault(_short(own), {})
            for one in declared.messages(2):
                self._field(known, one)
            self._scope(declared, own + ".", (3, 4, 6))
        for declared in scope.messages(enums):
            own = prefix + (declared.text(1) or b"").decode("utf-8", "replace")
            values = self.enums.setdefault(_short(own), {})
            for value in declared.messages(2):
                number = value.signed(2) or 0
                values.setdefault(number, (value.text(1) or b"").decode("utf-8", "replace"))
                self.described += 1
        for one in scope.messages(extensions):
            extended = _short((one.text(2) or b"").decode("utf-8", "replace"))
            self._field(self.messages.setdefault(extended, {}), one)

    def _field(self, known: dict[int, Field], declared: Message) -> None:
        self.described += 1
        number, kind = declared.number(3) or 0, declared.number(5) or 0
        name = (declared.text(1) or b"").decode("utf-8", "replace")
        type_name = _TYPES.get(kind) or _short((declared.text(6) or b"").decode("utf-8", "replace"))
        if name and self.described <= _MAX_DESCRIBED:
            known.setdefault(number, Field(name, type_name, declared.number(4) == _REPEATED))


def _short(name: str) -> str:
    return name.removeprefix(_PACKAGE)


@lru_cache(1)
def _known() -> Schema:
    schema = Schema()
    for line in TABLE.strip().replace("\n    ", " ").splitlines():
        name, _, listed = line.partition(" ")
        entries = [entry.split() for entry in listed.removeprefix("= ").split(", ")]
        if name.endswith(":"):
            schema.messages[name[:-1]] = {
                int(number): Field(field, kind.rstrip("*"), kind.endswith("*")) for number, field, kind in entries
            }
        else:
            schema.enums[name] = {int(number): value for number, value in entries}
    return schema


def known_schema() -> Schema:
    """Return the fields that are known without descriptors in the trace."""
    known = _known()
    return Schema({name: dict(one) for name, one in known.messages.items()}, dict(known.enums))


#: A message as C needs it: number → kind, whether it is repeated, key, and names of an enum or fields of a message.
Compiled: TypeAlias = "dict[int, tuple[int, bool, bytes, object] | None]"


class TypedFields:
    """Turns typed fields into members."""

    def __init__(self, schema: Schema, translations: Translations, annotations: Annotations, losses: Losses) -> None:
        self._schema = schema
        self._translations = translations
        self._annotations = annotations
        self._texts = translations.texts
        self._counts = losses.counts
        #: Messages and enums for C.
        self._compiled: dict[str, Compiled] = {}
        self._names: dict[str, dict[int, bytes]] = {}

    def of_events(self, left: Collection[int]) -> Compiled:
        """Return the fields of events for native/track_events.c, which leaves those of `left` and unknown ones."""
        posted_from = (_KINDS["location"], False, b'"posted_from":', None)
        task = {_LEAVES_UNKNOWN: None, 1: posted_from}
        return {
            **self._compile(EVENT),
            **dict.fromkeys(left, (_KINDS[""], False, b"", None)),
            _LEAVES_UNKNOWN: None,
            pb.TASK_EXECUTION: (_KINDS["message"], False, b'"task":', task),
        }

    def _compile(self, name: str) -> Compiled:
        """Return the fields of a message, and all messages inside it, for C."""
        compiled, waiting = self._compiled, [] if name in self._compiled else [name]
        compiled.setdefault(name, {})
        while waiting:
            message = waiting.pop()
            known = self._schema.messages.get(message, {})
            names = Counter(one.name for one in known.values())
            for number, one in known.items():
                kind, target = self._kind(one.type, waiting)
                is_plain = names[one.name] == 1 and (message, one.name) not in self._translations.hashes
                if not is_plain or one.type == _ANNOTATION or one.name.endswith(_REFERENCES):
                    kind = ""
                compiled[message][number] = (_KINDS[kind], one.is_repeated, f"{quoted(one.name)}:".encode(), target)
        return compiled[name]

    def _kind(self, name: str, waiting: list[str]) -> tuple[str, object]:
        """Return the kind of a type, and its enum or message, which is put into `waiting` if it is to be compiled."""
        if name in _PLAIN or name in ("string", "bytes"):
            return name, None
        if name in self._schema.enums:
            if name not in self._names:
                texts = self._schema.enums[name].items()
                self._names[name] = {value: quoted(text).encode() for value, text in texts}
            return "enum", self._names[name]
        if name not in self._compiled:
            waiting.append(name)
        return "message", self._compiled.setdefault(name, {})

    def members(self, event: Message, sequence: Sequence) -> list[Member]:
        """Take the known typed fields of an event."""
        return self._taken(event, event.numbers_left & self._schema.messages[EVENT].keys(), EVENT, sequence)

    def rest(self, message: Message, name: str, sequence: Sequence) -> list[Member]:
        """Take all fields of a message with this name that were not taken, also unknown ones."""
        return self._taken(message, message.numbers_left, name, sequence)

    def _taken(self, message: Message, numbers: Set[int], name: str, sequence: Sequence) -> list[Member]:
        values = [(number, *one) for number in sorted(numbers) for one in message.take(number)]
        return self._members(message.data, values, name, sequence, 0)

    def _message(self, data: bytes, start: int, end: int, name: str, sequence: Sequence, depth: int) -> list[Member]:
        if depth > _MAX_DEPTH:
            self._counts["deep"] += 1
            return []
        if name == _ANNOTATION:
            return [self._annotations.member(data, start, end, sequence)]
        try:
            values = list(fields(data, start, end))
        except WireError:
            self._counts["annotation"] += 1
            return []
        return self._members(data, values, name, sequence, depth)

    def _members(
        self, data: bytes, values: list[tuple[int, int, int, int]], message: str, sequence: Sequence, depth: int
    ) -> list[Member]:
        """Members of a message from number, kind, value and position of its fields."""
        known = self._schema.messages.get(message, {})
        found: dict[str, tuple[Field, list[str]]] = {}
        inline: list[Member] = []
        for number, kind, value, at in values:
            one = known.get(number)
            if one is None:
                text = quoted(data[at : at + value].hex()) if kind == LEN else str(value)
                one, texts = Field(f"field_{number}", "", False), [text]
            elif kind == LEN and one.type == _ANNOTATION:
                inline += self._message(data, at, at + value, one.type, sequence, depth + 1)
                continue
            else:
                texts = self._texts_of(data, one, kind, value, at, sequence, depth)
            if one.name == "mojo_interface_method_iid":
                method = self._translations.mojo_method(sequence, value)
                sequence.misses += method is None and bool(self._translations.symbols)
                if method is not None:
                    inline += zip(("mojo_interface_tag", "mojo_method_name"), map(quoted, method), strict=True)
                    continue
            if one.name.endswith("location_iid"):
                if value in sequence.locations:
                    inline += sequence.locations[value]
                    continue
                sequence.misses += 1
            found.setdefault(one.name, (one, []))[1].extend(texts)
        members = [
            (name, f"[{','.join(texts)}]" if one.is_repeated or (not one.type and len(texts) > 1) else texts[-1])
            for name, (one, texts) in found.items()
            if texts
        ]
        for name, (_, texts) in found.items():
            target, names = self._translations.hashes.get((message, name), ("", {}))
            translated = names.get(int(texts[-1])) if names and texts else None
            if translated is not None and target not in found:
                members.append((target, quoted(translated)))
        return members + inline

    def _texts_of(
        self, data: bytes, one: Field, kind: int, value: int, at: int, sequence: Sequence, depth: int
    ) -> list[str]:
        """The values of a field as JSON; more than one if it is a packed list."""
        plain = _PLAIN.get(one.type)
        if plain is not None:
            if kind != LEN:
                return [plain(value)]
            with suppress(WireError):
                return [plain(number) for number in _packed(data, one.type, value, at)]
            self._counts["annotation"] += 1
            return []
        if one.type in self._schema.enums:
            names = self._schema.enums[one.type]
            numbers = [value]
            if kind == LEN:
                with suppress(WireError):
                    numbers = varints(data, kind, value, at)
            return [quoted(names[number]) if number in names else str(signed(number)) for number in numbers]
        if kind != LEN:
            return [str(value)]
        if one.type == "string":
            return [quoted(self._texts.text(data[at : at + value]))]
        if one.type == "bytes":
            return [quoted(data[at : at + value].hex())]
        if native.AVAILABLE and one.type != _ANNOTATION:
            fields_of = self._compile(one.type)
            text = native.typed_fields(data, at, at + value, fields_of, sequence.locations, depth + 1)
            if text is not None:
                return [text]
        return [object_of(self._message(data, at, at + value, one.type, sequence, depth + 1))]


def _packed(data: bytes, kind: str, size: int, at: int) -> list[int]:
    width = _SIZES.get(kind)
    if width is None:
        return varints(data, LEN, size, at)
    return [
        int.from_bytes(data[place : place + width], "little") for place in range(at, at + size // width * width, width)
    ]


def _decimal(value: float) -> str:
    text = repr(value)
    return quoted(text) if text in ("nan", "inf", "-inf") else text
