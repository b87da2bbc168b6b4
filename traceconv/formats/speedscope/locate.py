"""Find the event that opens a frame of a speedscope profile, or the first sample of a slice."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.formats.common.elements import elements_of, locate_element
from traceconv.formats.common.json_document import Elements, JsonDocument, Value
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, SourceFile, Wanted, text_evidence
from traceconv.formats.speedscope.reader import SpeedscopeReader, document_shape

_ROLES = {"samples": "the first of its samples", "weights": "its weight"}


def locate(wanted: Wanted) -> list[Evidence]:
    """Find an event by its number in its block; for a slice of a sampled profile, its first sample."""
    if wanted.byte_offset is not None:
        return locate_element(wanted, lambda text: False)
    source = wanted.source
    reader = SpeedscopeReader(ReadRequest(source.path, limits=NO_LIMITS))
    for batch in reader.batches():
        index = wanted.ordinal - batch.first_ordinal
        if 0 <= index < batch.columns.count:
            break
    else:
        return []
    profile, sample = batch.columns.label("tid")[index] - 1, reader.first_samples[index]
    found = {
        name: evidence
        for name, role in _ROLES.items()
        for elements in _lists(source, profile, name)
        for evidence in _element(source, elements, sample, role)
    }
    return [found[name] for name in _ROLES if name in found]


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
    document = JsonDocument(source.chunks(), document_shape, ImportLog(), NO_LIMITS, Accounts(), "")
    return (one for one in document.items() if len(one.path) == 3 and one.path[:2] == ("profiles", profile))
