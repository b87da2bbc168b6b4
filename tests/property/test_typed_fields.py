"""Messages of all types of fields: the JSON that C makes is Python's, and C makes most."""

from __future__ import annotations

import random
import struct

import pytest
from perfetto_builder import varint

from traceconv import native
from traceconv.formats.perfetto_proto.annotations import Annotations, object_of
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.sequences import Sequences, Texts
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.translations import Translations
from traceconv.formats.perfetto_proto.typed_fields import Field, Schema, TypedFields

VARINTS = ("int", "uint", "sint", "bool", "Color")
SIZES = {"fixed32": 4, "sfixed32": 4, "float": 4, "fixed64": 8, "sfixed64": 8, "double": 8}
TYPES = (*VARINTS, *SIZES, "string", "bytes", "Inner")
NUMBERS = (0, 1, 5, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
SCHEMA = Schema(
    {
        "Outer": {
            number: Field(f"{kind}_{'list' if is_list else 'one'}", kind, is_list)
            for number, (kind, is_list) in enumerate(((kind, flag) for kind in TYPES for flag in (False, True)), 1)
        },
        "Inner": {1: Field("again", "Outer", False), 2: Field("color", "Color", True)},
    },
    {"Color": {0: "RED", 5: "GREEN", 2**31 - 1: 'bl"ue'}},
)


def fixed(choice: random.Random, size: int) -> bytes:
    some = [struct.pack("<f" if size == 4 else "<d", value) for value in (0.0, -1.5, 0.1, float("nan"))]
    return choice.choice([*some, bytes(size), b"\xff" * size, choice.randbytes(size)])


def value_of(choice: random.Random, kind: str, depth: int) -> tuple[int, bytes]:
    """The wire's kind, and the bytes of a value."""
    if kind in VARINTS:
        return 0, varint(choice.choice(NUMBERS))
    if kind in SIZES:
        return 1 if SIZES[kind] == 8 else 5, fixed(choice, SIZES[kind])
    if kind == "Inner":
        text = message(choice, "Inner", depth + 1) if depth < 3 else b""
    else:
        text = choice.choice([b"", b"a", 'é"\n\x01'.encode(), b"\xff\xfe" if choice.random() < 0.2 else b"text"])
    return 2, varint(len(text)) + text


def packed(choice: random.Random, kind: str) -> tuple[int, bytes]:
    values = b"".join(value_of(choice, kind, 0)[1] for _ in range(choice.randrange(4)))
    values += b"\x80" if choice.random() < 0.05 else b""
    return 2, varint(len(values)) + values


def message(choice: random.Random, name: str, depth: int = 0) -> bytes:
    out = b""
    known = SCHEMA.messages[name]
    for number in choice.choices([*known], k=choice.randrange(4)):
        one = known[number]
        for _ in range(choice.randrange(1, 4) if one.is_repeated else 1):
            is_packed = (
                one.is_repeated and one.type not in ("string", "bytes", "Inner", "Outer") and choice.random() < 0.4
            )
            kind = one.type if one.type != "Outer" else "Inner"
            wire, value = packed(choice, kind) if is_packed else value_of(choice, kind, depth)
            out += varint(number << 3 | wire) + value
    if choice.random() < 0.2:
        number = choice.choice([90, 91, 7])  # unknown, or of another kind
        wire, value = value_of(choice, choice.choice(TYPES[:-1]), depth)
        out += varint(number << 3 | wire) + value
    return out


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension")
def test_c_makes_the_same_json(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = Losses()
    texts = Texts(losses)
    typed = TypedFields(SCHEMA, Translations(texts), Annotations(texts, losses), losses)
    sequence = Sequences(TraceState().clocks)[1]
    made = 0
    for seed in range(4000):
        choice = random.Random(seed)
        data = message(choice, "Outer")
        if data and choice.random() < 0.1:
            data = data[: choice.randrange(len(data))]
        in_c = native.typed_fields(data, 0, len(data), typed._compile("Outer"), {}, 1)
        with monkeypatch.context() as patch:
            patch.setattr(native, "AVAILABLE", False)
            before = losses.counts.total()
            in_python = object_of(typed._message(data, 0, len(data), "Outer", sequence, 1))
            is_lossy = losses.counts.total() > before
        assert in_c is None or (in_c == in_python and not is_lossy), (seed, data)
        made += in_c is not None
    assert made > 2000


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension")
def test_deeply_nested_messages_and_bad_bounds() -> None:
    losses = Losses()
    texts = Texts(losses)
    typed = TypedFields(SCHEMA, Translations(texts), Annotations(texts, losses), losses)
    compiled = typed._compile("Inner")
    inside = {number: one.name for number, one in SCHEMA.messages["Outer"].items()}
    [inner] = [number for number, name in inside.items() if name == "Inner_one"]
    data, made = b"", []
    for depth in range(1, 36):
        # The innermost message is in the same kind of message in both.
        data = varint((1 if depth % 2 else inner) << 3 | 2) + varint(len(data)) + data
        if depth % 2:
            made.append(native.typed_fields(data, 0, len(data), compiled, {}, 0))
    assert made[0] == '{"again":{}}'
    assert [text is None for text in made] == [depth > 12 for depth in range(1, 36, 2)]
    for start, end in ((0, len(data) + 1), (-1, 3), (5, 4)):
        assert native.typed_fields(data, start, end, compiled, {}, 0) is None
    assert native.typed_fields(b"", 0, 0, compiled, {}, 12) == "{}"
    assert native.typed_fields(b"", 0, 0, compiled, {}, 13) is None


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension")
def test_a_trace_can_name_its_messages_like_our_kinds() -> None:
    losses = Losses()
    texts = Texts(losses)
    names = ("location", "message", "enum", "")
    schema = Schema({"Odd": {number: Field(f"f{number}", kind, False) for number, kind in enumerate(names, 1)}})
    typed = TypedFields(schema, Translations(texts), Annotations(texts, losses), losses)
    sequence = Sequences(TraceState().clocks)[1]
    for number in range(1, len(names) + 1):
        for value in (varint(number << 3) + varint(7), varint(number << 3 | 2) + b"\x02\x08\x05"):
            in_python = object_of(typed._message(value, 0, len(value), "Odd", sequence, 0))
            assert native.typed_fields(value, 0, len(value), typed._compile("Odd"), {7: []}, 0) in (None, in_python)
