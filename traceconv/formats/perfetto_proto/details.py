"""What few events say, and no column holds: where in the source they stand, log lines, fields that are not known."""

from __future__ import annotations

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Notes, quoted
from traceconv.formats.perfetto_proto.events import EventTable, Found
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts, location
from traceconv.wire.protobuf import LEN, WireError, fields, signed

Member = tuple[str, str]


def said_beside(
    events: EventTable, sequence: Sequence, others: dict[int, list[Found]], texts: Texts, notes: Notes
) -> list[Member]:
    """What an event says of its source, its task, its log line, its correlation. Uses up those fields."""
    data = events.data
    members: list[Member] = []
    for _, iid, _ in others.pop(pb.LOCATION_IID, ()):
        members.append(("source", _location(sequence, iid, notes)))
    for kind, size, at in others.pop(pb.LOCATION, ()):
        if kind == LEN:
            said = {n: (v, p) for n, _, v, p in _sound_fields(data, at, at + size)}
            names_ = [data[said[n][1] : said[n][1] + said[n][0]] if n in said else None for n in (2, 3)]
            members.append(("source", location(names_[0], names_[1], said.get(4, (None, 0))[0], texts)))
    for kind, size, at in others.pop(pb.TASK_EXECUTION, ()):
        for n, _, iid, _ in _sound_fields(data, at, at + size) if kind == LEN else ():
            if n == 1:
                members.append(("posted_from", _location(sequence, iid, notes)))
    for kind, size, at in others.pop(pb.LOG_MESSAGE, ()):
        for n, _, iid, _ in _sound_fields(data, at, at + size) if kind == LEN else ():
            if n == 1:
                members.append(("log_source", _location(sequence, iid, notes)))
            elif n == 2:
                members.append(("log_message", quoted(sequence.texts["log"].get(iid, f"text {iid}"))))
            elif n == 3:
                members.append(("log_priority", str(iid)))
    for _, value, _ in others.pop(pb.CORRELATION_ID, ()):
        members.append(("correlation_id", str(value)))
    for kind, size, at in others.pop(pb.CORRELATION_TEXT, ()):
        if kind == LEN:
            members.append(("correlation_id", quoted(texts.text(data[at : at + size]))))
    for _, iid, _ in others.pop(pb.CORRELATION_IID, ()):
        members.append(("correlation_id", quoted(sequence.texts["correlations"].get(iid, f"text {iid}"))))
    for _, value, _ in others.pop(pb.INSTRUCTIONS, ()):
        members.append(("thread_instruction_count", str(signed(value))))
    for _, value, _ in others.pop(pb.INSTRUCTIONS_DELTA, ()):
        sequence.instructions += signed(value)
        members.append(("thread_instruction_count", str(sequence.instructions)))
    return members


def _location(sequence: Sequence, iid: int, notes: Notes) -> str:
    found = sequence.locations.get(iid)
    if found is None:
        notes.unknown += 1
        return "null"
    return found


def unknown_fields(events: EventTable, others: dict[int, list[Found]]) -> list[Member]:
    """Fields that are not known here, as they are: bytes in hexadecimal."""
    members = []
    for what in sorted(others):
        for kind, value, at in others[what]:
            text = f'"{events.data[at : at + value].hex()}"' if kind == LEN else str(value)
            members.append((f"field_{what}", text))
    return members


def _sound_fields(data: bytes, start: int, end: int) -> list[tuple[int, int, int, int]]:
    try:
        return list(fields(data, start, end))
    except WireError:
        return []
