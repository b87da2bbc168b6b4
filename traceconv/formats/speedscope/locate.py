"""Find the event that opens a frame of a speedscope profile, or the first sample of a slice."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.integers import parse_int64
from traceconv.formats.common.elements import elements_of, locate_element
from traceconv.formats.common.json_document import Elements, JsonDocument, Value
from traceconv.formats.locate import NO_LIMITS, Evidence, SourceFile, Wanted, text_evidence
from traceconv.formats.speedscope.reader import UNITS, document_shape
from traceconv.formats.speedscope.stacks import rounded

_ROLES = {"samples": "the first of its samples", "weights": "its weight"}


def locate(wanted: Wanted) -> list[Evidence]:
    """Find an event by its number in its block, a sample by the start of its slice."""
    if wanted.byte_offset is not None:
        return locate_element(wanted, lambda text: False)
    track = parse_int64(wanted.row.get("tid_text"))
    if track is None:
        return []
    profile, source = track - 1, wanted.source
    number = _sample_at(source, profile, int(wanted.row["start_ns"]))
    if number is None:
        return []
    found = {
        name: evidence
        for name, role in _ROLES.items()
        for elements in _lists(source, profile, name)
        for evidence in _element(source, elements, number, role)
    }
    return [found[name] for name in _ROLES if name in found]


def _sample_at(source: SourceFile, profile: int, start_ns: int) -> int | None:
    """Return the number of the sample that begins at a time."""
    # The unit and the start may come after the lists.
    values = {one.path[2]: one.text for one in _parts(source, profile) if isinstance(one, Value)}
    factor = UNITS.get(values.get("unit", b"").decode("utf-8", "replace").strip('"'), 1)
    start = rounded(_number(values.get("startValue", b"0")) * factor)
    elapsed = Decimal(0)
    for elements in _lists(source, profile, "weights"):
        for number, text in enumerate(elements.texts, elements.first):
            if start + rounded(elapsed) == start_ns:
                return number
            elapsed += max(Decimal(0), _number(bytes(text)) * factor)
    return None


def _element(source: SourceFile, elements: Elements, number: int, role: str) -> Iterator[Evidence]:
    if elements.first <= number < elements.first + len(elements.texts):
        text = source.text(elements.byte_offset, elements.byte_count)
        offset, element = list(elements_of(text))[number - elements.first]
        where = f"{'/'.join(map(str, elements.path))}, number {number}"
        yield text_evidence(source, role, elements.byte_offset + offset, element, where)


def _lists(source: SourceFile, profile: int, name: str) -> Iterator[Elements]:
    return (one for one in _parts(source, profile) if isinstance(one, Elements) and one.path[2] == name)


def _parts(source: SourceFile, profile: int) -> Iterator[Value | Elements]:
    """Yield the values and the portions of lists of one profile."""
    document = JsonDocument(source.chunks(), document_shape, ImportLog(), NO_LIMITS, Account())
    return (one for one in document.items() if len(one.path) == 3 and one.path[:2] == ("profiles", profile))


def _number(text: bytes) -> Decimal:
    try:
        return Decimal(text.decode().strip('" '))
    except (ArithmeticError, ValueError):
        return Decimal(0)
