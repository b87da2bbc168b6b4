"""Places in JSON documents that are no list of events: rocprofv3's results, speedscope's profiles, MegEngine's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.integers import parse_int64
from traceconv.events.items import ITEMS_KEY, Items
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.chrome_json.scan import end_of_string, end_of_value, skip_space
from traceconv.formats.common.json_document import ENTER, STREAM, WHOLE, Elements, JsonDocument, JsonPath
from traceconv.formats.common.limits import Limits
from traceconv.formats.json_items.fields import ItemFields
from traceconv.provenance.evidence import Evidence
from traceconv.provenance.files import SourceFile, Sources
from traceconv.provenance.trace_text import element_at, elements_of, text_evidence

_UNIT_NS = {"nanoseconds": 1, "microseconds": 1000, "milliseconds": 10**6, "seconds": 10**9}


def rocprof_record(sources: Sources, row: Mapping[str, Any], role: str) -> list[Evidence]:
    """The record of a row of rocprofv3's JSON: by its number in its list, or by its times where others were lost."""

    def same(text: bytes) -> bool:
        record = _object(text)
        inner = record.get("dispatch_data")
        times = inner if isinstance(inner, dict) else record
        return times.get("start_timestamp") == row["start_ns"] and (
            row["dur_ns"] is None or times.get("end_timestamp") == row["start_ns"] + row["dur_ns"]
        )

    return _in_list(sources, int(row["id"]), role, same)


def speedscope_event(sources: Sources, row: Mapping[str, Any], track: Mapping[str, Any], role: str) -> list[Evidence]:
    """The event that opens a frame, or the first of the samples that a slice of a sampled profile was made of."""
    event_id = int(row["id"])
    block = sources.block_of(event_id)
    if block is not None and block.byte_offset is not None:
        return _in_list(sources, event_id, role, lambda text: False)
    source = sources.file(event_id >> ORDINAL_BITS)
    number = parse_int64(track.get("tid_text"))
    return [] if number is None else _first_sample(source, number - 1, int(row["start_ns"]))


def item_of(sources: Sources, row: Mapping[str, Any], role: str) -> list[Evidence]:
    """The item of a document that a row was made of: by its number in its chunk, or by what it says."""
    said = _object(str(sources.run["options"]).encode()).get(ITEMS_KEY, {})
    fields = ItemFields(Items(**{**said, "args": None}))

    def same(text: bytes) -> bool:
        try:
            item = json.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return False
        if not isinstance(item, dict) or fields.times(item)[0] != row.get("start_ns"):
            return False
        dur_ns = fields.times(item)[1]
        name = row.get("source_name") or row.get("name")
        return (row.get("dur_ns") is None or dur_ns == row["dur_ns"]) and fields.name(item) in (name, None)

    return _in_list(sources, int(row["id"]), role, same, _objects_in)


def _objects_in(text: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of all objects that begin and end in a stretch of text, and of those inside of them."""
    at = text.find(b"{")
    while at >= 0:
        end = end_of_value(text, at, final=False)
        if end is not None:
            yield at, text[at:end]
        at = text.find(b"{", at + 1)


def _in_list(
    sources: Sources,
    event_id: int,
    role: str,
    same: Callable[[bytes], bool],
    candidates: Callable[[bytes], Iterator[tuple[int, bytes]]] = elements_of,
) -> list[Evidence]:
    source = sources.file(event_id >> ORDINAL_BITS)
    block = sources.block_of(event_id)
    if block is None or block.byte_offset is None or block.byte_count is None:
        return []
    text = source.text(block.byte_offset, block.byte_count)
    number = event_id & ((1 << ORDINAL_BITS) - 1)
    found = element_at(text, event_id - block.first_id, block.event_count)
    if found is not None:
        return [text_evidence(source, role, block.byte_offset + found[0], found[1], f"event {number}")]
    alike = [(offset, element) for offset, element in candidates(text) if same(element)]
    if not alike:
        where = f"a list of records, with event {number}"
        return [text_evidence(source, f"{role} is among these", block.byte_offset, text, where)]
    one = role if len(alike) == 1 else f"{role}, or one with the same times"
    return [
        text_evidence(source, one, block.byte_offset + offset, element, f"near event {number}")
        for offset, element in alike[:8]
    ]


def _first_sample(source: SourceFile, profile: int, start_ns: int) -> list[Evidence]:
    """The sample at whose time a slice begins, and its weight."""

    def shape(path: JsonPath) -> str:
        if not path or (path[0] == "profiles" and len(path) < 3):
            return ENTER
        return STREAM if path[0] == "profiles" and path[2] in ("samples", "weights") else WHOLE

    # First the unit and the start, which may stand behind the lists.
    factor, now = 1, 0
    facts: dict[str, bytes] = {}
    for item in _document(source, shape):
        if not isinstance(item, Elements) and item.path[:2] == ("profiles", profile) and len(item.path) == 3:
            facts[str(item.path[2])] = item.text
    factor = _UNIT_NS.get(str(_value(facts.get("unit", b'""'))), 1)
    now = _ns(facts.get("startValue", b"0"), factor) or 0
    number: int | None = None
    found: list[Evidence] = []
    for item in _document(source, shape):
        if not isinstance(item, Elements) or item.path[:2] != ("profiles", profile) or item.path[2] != "weights":
            continue
        for place, text in enumerate(item.texts):
            if number is None and now == start_ns:
                number = item.first + place
            now += max(0, _ns(bytes(text), factor) or 0)
        if number is not None:
            found += _element(source, item, number, "its weight")
            break
    if number is None:
        return []
    for item in _document(source, shape):
        if isinstance(item, Elements) and item.path == ("profiles", profile, "samples"):
            found = _element(source, item, number, "the first sample that it was made of") + found
            if item.first + len(item.texts) > number:
                break
    return found


def _element(source: SourceFile, item: Elements, number: int, role: str) -> list[Evidence]:
    index = number - item.first
    if not 0 <= index < len(item.texts):
        return []
    text = source.text(item.byte_offset, item.byte_count)
    for place, (offset, element) in enumerate(elements_of(text)):
        if place == index:
            where = f"{'/'.join(map(str, item.path))}, number {number}"
            return [text_evidence(source, role, item.byte_offset + offset, element, where)]
    return []


def static_operator(sources: Sources, row: Mapping[str, Any], track: Mapping[str, Any], role: str) -> list[Evidence]:
    """The times of an operator in a profile of MegEngine's, and what else the profile says of it."""
    source = sources.file(int(row["id"]) >> ORDINAL_BITS)
    block = sources.block_of(int(row["id"]))
    if block is None or block.byte_count is None:
        return []
    args = _object(str(row.get("args") or "{}").encode())
    key, node = args.get("opr_id"), track.get("tid_text")
    text = source.text(0, block.byte_count)
    found: list[Evidence] = []
    for side in ("device", "host"):
        place = _at_path(text, ("profiler", side, str(key), str(node)))
        times = _object(text[slice(*place)]) if place is not None else {}
        if place is not None and _seconds_ns(times.get("start")) == row["start_ns"]:
            found.append(_piece(source, text, place, role, f"profiler/{side}/{key}/{node}"))
            break
    for path in (("profiler", "opr_footprint", str(key)), ("graph_exec", "operator", str(key))):
        place = _at_path(text, path)
        if found and place is not None:
            found.append(_piece(source, text, place, "what the profile says of it", "/".join(path)))
    return found


def _piece(source: SourceFile, text: bytes, place: tuple[int, int], role: str, where: str) -> Evidence:
    return text_evidence(source, role, place[0], text[slice(*place)], where)


def _at_path(text: bytes, path: tuple[str, ...]) -> tuple[int, int] | None:
    """Start and end of the value at a path of keys; None when there is none."""
    at = skip_space(text, 3 if text.startswith(b"\xef\xbb\xbf") else 0)
    for key in path:
        if text[at : at + 1] != b"{":
            return None
        following = None
        for name, start in _members(text, at):
            if name == key:
                following = start
        if following is None:
            return None
        at = following
    end = end_of_value(text, at, final=True)
    return None if end is None else (at, end)


def _members(text: bytes, at: int) -> Iterator[tuple[str, int]]:
    """(key, where its value begins) of an object."""
    at += 1
    while True:
        at = skip_space(text, at)
        if text[at : at + 1] == b",":
            at = skip_space(text, at + 1)
        end = end_of_string(text, at) if text[at : at + 1] == b'"' else None
        if end is None:
            return
        key = _value(text[at:end])
        colon = skip_space(text, end)
        start = skip_space(text, colon + 1)
        yield str(key), start
        behind = end_of_value(text, start, final=True)
        if behind is None:
            return
        at = behind


def _document(source: SourceFile, shape: Any) -> Iterator[Any]:
    chunks = source.source_text().chunks()
    return JsonDocument(chunks, shape, ImportLog(), Limits(ratio=1 << 40), Account()).items()


def _object(text: bytes) -> dict[str, Any]:
    found = _value(text)
    return found if isinstance(found, dict) else {}


def _value(text: bytes) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _ns(text: bytes, factor: int) -> int | None:
    try:
        return int((Decimal(text.decode().strip('" ')) * factor).to_integral_value(ROUND_HALF_EVEN))
    except (ArithmeticError, ValueError):
        return None


def _seconds_ns(seconds: object) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    # The shortest text of a double is what the file has.
    return _ns(json.dumps(seconds).encode(), 10**9)
