"""Perfetto events decoded in C and in Python: the same batches, accounting and log for any packets."""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableSequence
from pathlib import Path
from typing import Any

import perfetto_builder as pb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv import native
from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError
from traceconv.events.trace import LABEL_FIELDS, TraceBatch
from traceconv.formats.format import ReadRequest
from traceconv.formats.perfetto_proto import translate
from traceconv.formats.perfetto_proto.events import TrackEvents
from traceconv.formats.perfetto_proto.reader import PerfettoReader

perfetto_trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
BASE = 1_720_000_000_123_456_789
WORDS = ["", "a", "b", 'quo"te\n', "é", "text " * 20]
JSON_TEXTS = [
    "0",
    "-0",
    "null",
    "true",
    '"é"',
    '{"a":[1,{"b":2.5e3}],"c":"x\\n"}',
    " [1, 2]\n",
    '{"a":1,"a":2}',
    "1e99",
    "1" * 199,
]
#: They are not JSON, have numbers that may not fit a double, or are nested deeply.
OTHER_TEXTS = [
    "", "{", "{'a':1}", "[1,]", "1 2", "NaN", "01", '"\\ud800"', "1e400", "-2E+308", "1" * 250 + "e60", "1" * 400,
    '"1e999"', "[" * 300 + "]" * 300,
]  # fmt: skip
NUMBERS = [0, 1, 2, 127, 128, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1]

#: Fields of events that are messages, with fields of all types.
TYPED = [
    field.name
    for field in perfetto_trace_pb2.TrackEvent.DESCRIPTOR.fields
    if field.message_type is not None and field.name not in ("debug_annotations", "legacy_event")
]
#: Lists of interned data.
LISTS = [
    "event_names",
    "event_categories",
    "debug_annotation_names",
    "debug_annotation_string_values",
    "source_locations",
    "log_message_body",
]
#: 21 has a multiplier, 22 and 23 have differences, 23 and 24 are a thread's time and instructions.
COUNTERS = range(20, 25)


def number(rng: random.Random) -> int:
    return rng.choice([rng.randrange(300), rng.choice(NUMBERS)])


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def annotate(rng: random.Random, note: Any, depth: int = 0) -> None:
    if rng.random() < 0.5:
        note.name_iid = rng.randrange(1, 5)
    else:
        note.name = rng.choice(WORDS)
    kind = rng.randrange(12 if depth < 2 else 9)
    if kind == 0:
        note.bool_value = rng.random() < 0.5
    elif kind == 1:
        note.uint_value = number(rng)
    elif kind == 2:
        note.int_value = signed(number(rng))
    elif kind == 3:
        note.double_value = rng.choice([0.1, -0.0, 1e300, float("nan"), float("inf"), rng.random()])
    elif kind == 4:
        note.string_value = rng.choice(WORDS)
    elif kind == 5:
        note.pointer_value = number(rng)
    elif kind == 6:
        note.string_value_iid = rng.randrange(5)
    elif kind == 7:
        note.legacy_json_value = rng.choice([*JSON_TEXTS, *OTHER_TEXTS])
    elif kind == 8:
        nest(rng, note.nested_value)
    elif kind == 9:
        for _ in range(rng.randrange(3)):
            annotate(rng, note.dict_entries.add(), depth + 1)
    elif kind == 10:
        for _ in range(rng.randrange(3)):
            annotate(rng, note.array_values.add(), depth + 1)


def nest(rng: random.Random, value: Any, depth: int = 0) -> None:
    """A NestedValue: an object, an array or a single value; sometimes more than one of them."""
    form = rng.randrange(3 if depth < 3 else 1)
    if form or rng.random() < 0.1:
        value.nested_type = form
    for _ in range(rng.randrange(4) if form == 1 or rng.random() < 0.03 else 0):
        value.dict_keys.append(rng.choice(["a", "b", "c", *WORDS]))
        if rng.random() < 0.97:
            nest(rng, value.dict_values.add(), depth + 1)
    for _ in range(rng.randrange(4) if form == 2 or rng.random() < 0.03 else 0):
        nest(rng, value.array_values.add(), depth + 1)
    if not form or rng.random() < 0.03:
        kind = rng.randrange(5)
        if kind == 0:
            value.int_value = signed(number(rng))
        elif kind == 1:
            value.double_value = rng.choice([0.1, -0.0, 1e300, float("nan"), float("inf"), rng.random()])
        elif kind == 2:
            value.bool_value = rng.random() < 0.5
        elif kind == 3:
            value.string_value = rng.choice(WORDS)


def tell(rng: random.Random, event: Any) -> None:
    """Something for a TrackEvent to say; mostly what most events say."""
    event.type = rng.choice([1, 1, 1, 2, 2, 3, 4, 4, 0])
    if rng.random() < 0.8:
        event.track_uuid = rng.choice([0, 10, 11, 12, 20, 21, 22, 99])
    if event.type == 4:
        for _ in range(rng.choice([1, 1, 1, 0, 2])):
            if rng.random() < 0.6:
                event.counter_value = signed(number(rng))
            else:
                event.double_counter_value = rng.choice([0.5, -1e9, float("nan")])
    if event.type != 4 or rng.random() < 0.1:
        name = rng.random()
        if name < 0.5:
            event.name_iid = rng.randrange(1, 6)
        elif name < 0.9:
            event.name = rng.choice(WORDS)
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            if rng.random() < 0.7:
                event.category_iids.append(rng.randrange(4))
            else:
                event.categories.append(rng.choice(WORDS))
        for _ in range(rng.choice([0, 0, 1, 2, 14])):
            annotate(rng, event.debug_annotations.add())
    if rng.random() < 0.15:
        event.flow_ids.extend(rng.choices(NUMBERS, k=rng.randrange(1, 3)))
        event.terminating_flow_ids.extend(rng.choices(NUMBERS, k=rng.randrange(2)))
    if rng.random() < 0.05:
        event.flow_ids_old.append(number(rng))
    if rng.random() < 0.3:
        add_typed(rng, event)
    more = rng.randrange(40)
    if more == 0:
        event.timestamp_delta_us = rng.randrange(50)
    elif more == 1:
        event.timestamp_absolute_us = rng.randrange(2**40)
    elif more == 2:
        event.legacy_event.phase = ord(rng.choice("XbesfC"))
        event.legacy_event.duration_us = rng.randrange(50)
        event.legacy_event.unscoped_id = number(rng)
    elif more == 3:
        event.extra_counter_track_uuids.append(rng.choice(COUNTERS))
        event.extra_counter_values.append(rng.randrange(100))
    elif more == 4:
        event.source_location_iid = 1
    elif more in (6, 7, 8, 9, 10, 11):
        event.extra_counter_values.extend(rng.choices([3, -2, 2**39], k=rng.randrange(1, 4)))
    elif more == 12:
        event.extra_counter_values.extend(signed(number(rng)) for _ in range(rng.choice([1, 2, 9])))
    elif more == 5:
        event.correlation_id = number(rng)


def add_typed(rng: random.Random, event: Any) -> None:
    """Fields that only become args, few of them different; some refer to what may be interned later, or again."""
    what = rng.randrange(10)
    if what >= 7:
        field = event.DESCRIPTOR.fields_by_name[rng.choice(TYPED)]
        fill(rng, getattr(event, field.name))
    elif what == 0:
        event.chrome_histogram_sample.name_hash, event.chrome_histogram_sample.sample = 7, rng.randrange(3)
    elif what == 1:
        event.source_location_iid = rng.randrange(1, 4)
    elif what == 2:
        event.task_execution.posted_from_iid = rng.randrange(1, 4)
    elif what == 3:
        event.chrome_mojo_event_info.mojo_interface_method_iid = rng.randrange(1, 3)
        event.chrome_mojo_event_info.payload_size = rng.randrange(3)
    elif what == 4:
        event.log_message.body_iid, event.log_message.source_location_iid = rng.randrange(1, 3), rng.randrange(1, 4)
    elif what == 5:
        event.chrome_latency_info.trace_id = rng.randrange(3)
        event.chrome_latency_info.component_info.add().time_us = rng.randrange(2)
    else:
        event.callstack_iid = 1
    if rng.random() < 0.1:
        event.callstack.frames.add().function_name = "f"


def fill(rng: random.Random, message: Any, depth: int = 0) -> None:
    """Random fields of a message, and some that it doesn't have."""
    fields = list(message.DESCRIPTOR.fields)
    for field in rng.sample(fields, min(len(fields), rng.randrange(5))):
        is_list = isinstance(getattr(message, field.name), MutableSequence)
        for _ in range(rng.randrange(1, 4) if is_list else 1):
            if field.message_type is not None:
                if depth < 3:
                    inner = getattr(message, field.name)
                    fill(rng, inner.add() if is_list else inner, depth + 1)
                continue
            value = value_of(rng, field)
            if is_list:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    message.SetInParent()
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        message.MergeFromString(rng.choice([b"\xf8\x7f\x05", b"\xfa\x7f\x02\xff\x00", b"\xf1\x7f" + b"\xff" * 8]))


def value_of(rng: random.Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    if kind == field.CPPTYPE_STRING:
        return rng.choice(WORDS) if field.type == field.TYPE_STRING else rng.choice([b"", b"\xff\x00a"])
    if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return rng.choice([0.5, -0.0, 1.1, 3e38, float("nan"), float("inf")])
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    sizes = {field.CPPTYPE_INT32: 31, field.CPPTYPE_UINT32: 32, field.CPPTYPE_INT64: 63, field.CPPTYPE_UINT64: 64}
    value = rng.choice([0, 1, 127, 300, 2 ** sizes[kind] - 1])
    return -value if kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) and rng.random() < 0.3 else value


def intern(rng: random.Random, interned: Any) -> None:
    for _ in range(rng.randrange(1, 4)):
        listed = rng.choice(LISTS)
        entry = getattr(interned, listed).add()
        entry.iid = rng.randrange(1, 5)
        text = rng.choice(WORDS)
        if listed.endswith("values"):
            entry.str = text.encode() if rng.random() < 0.8 else b"\xff"
        elif listed == "log_message_body":
            entry.body = text
        elif listed == "source_locations":
            entry.file_name, entry.line_number = text, rng.randrange(2)
            if rng.random() < 0.5:
                entry.function_name = rng.choice(WORDS)
        else:
            entry.name = text


def turn(rng: random.Random, packet: Any) -> None:
    """A change of the sequence's state."""
    what = rng.randrange(6)
    if what in (0, 1):
        packet.sequence_flags = 1
        packet.trace_packet_defaults.timestamp_clock_id = rng.choice([0, 6, 3, 64, 64])
        packet.trace_packet_defaults.track_event_defaults.track_uuid = rng.choice([0, 10, 11])
        extra = rng.choices(COUNTERS, k=rng.randrange(4))
        packet.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.extend(extra)
    elif what == 2:
        packet.previous_packet_dropped = 1
    elif what == 3:
        packet.thread_descriptor.pid, packet.thread_descriptor.tid = 5, rng.randrange(50, 52)
        packet.thread_descriptor.reference_timestamp_us = 77
    else:
        for clock in rng.sample([6, 3, 64, 65], 3):
            one = packet.clock_snapshot.clocks.add()
            one.clock_id, one.timestamp = clock, rng.choice([BASE + rng.randrange(1000), rng.randrange(1000)])
            if clock == 64:
                one.is_incremental = rng.random() < 0.7
                one.unit_multiplier_ns = rng.choice([1, 1000, 2**62])


def describe(trace: Any) -> None:
    for uuid in (10, 11):
        track = trace.packet.add().track_descriptor
        track.uuid, track.thread.pid, track.thread.tid, track.thread.thread_name = uuid, 7, uuid, f"t{uuid}"
    track = trace.packet.add().track_descriptor
    track.uuid, track.name = 12, "line"
    for uuid in COUNTERS:
        track = trace.packet.add().track_descriptor
        track.uuid, track.name, track.parent_uuid = uuid, "count", 10
        track.counter.unit_multiplier = 3 if uuid == 21 else 1
        track.counter.is_incremental = uuid in (22, 23)
        track.counter.type = {23: 1, 24: 2}.get(uuid, 0)


def trace_of(rng: random.Random) -> bytes:
    trace = perfetto_trace_pb2.Trace()
    describe(trace)
    odd = rng.random() < 0.5
    for _ in range(rng.randrange(5, 120)):
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = rng.choice([1, 1, 1, 1, 2, 3])
        if rng.random() < 0.06:
            turn(rng, packet)
        if rng.random() < 0.1:
            intern(rng, packet.interned_data)
        if rng.random() < 0.9:
            packet.timestamp = rng.choice(NUMBERS) if odd and rng.random() < 0.05 else rng.randrange(2000)
            if rng.random() < 0.1:
                packet.timestamp_clock_id = rng.choice([3, 6, 5, 64, 66])
        if rng.random() < 0.5:
            packet.sequence_flags |= 2
        if rng.random() < 0.93:
            tell(rng, packet.track_event)
    data = bytearray(trace.SerializeToString())
    for _ in range(rng.choice([0, 0, 0, 1, 4])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def columns(batch: TraceBatch) -> dict[str, Any]:
    found, count = batch.columns, batch.columns.count
    content: dict[str, Any] = {field: list(found.label(field)) for field in LABEL_FIELDS}
    for field in ("ts", "dur", "tts", "tdur", "args", "id"):
        if field in found.raw:
            found.raw[field].validate(full=True)
        missing = b"" if field in ("args", "id") else None
        content[field] = found.raw[field].to_pylist() if field in found.raw else [missing] * count
    content["extra"] = [
        None if not one else {key: bytes(value) for key, value in one.items()} for one in found.extra or ()
    ]
    flows = found.flows
    if flows is not None:
        content["flows"] = list(
            zip(flows.places.tolist(), flows.keys.tolist(), flows.steps.tolist(), flows.texts, strict=True)
        )
    content["batch"] = batch.first_ordinal, batch.byte_offset, batch.byte_count, batch.names, count
    return content


def read(path: Path) -> Iterator[Any]:
    log, accounts = ImportLog(), Accounts()
    reader = PerfettoReader(ReadRequest(path, log, accounts))
    try:
        yield from map(columns, reader.batches())
    except InputError as error:
        yield str(error)
    yield reader.blocks
    yield [str(entry) for entry in log]
    yield {name: str(account) for name, account in accounts.by_record.items()}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_in_c_or_in_python(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "batches.pftrace"
    path.write_bytes(trace_of(random.Random(seed)))
    with pytest.MonkeyPatch.context() as patch:
        batches = []
        for in_c in (native.AVAILABLE, False):
            patch.setattr(translate, "IN_C", in_c)
            patch.setattr(native, "AVAILABLE", in_c)
            batches.append(list(read(path)))
    assert batches[0] == batches[1]


@pytest.mark.skipif(not native.AVAILABLE, reason="without C, Python takes all events")
def test_annotations_with_json_are_taken_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all args are that export perfetto writes: Python takes more than ten times as long."""
    trace, path = perfetto_trace_pb2.Trace(), tmp_path / "json.pftrace"
    describe(trace)
    for number, text in enumerate([*JSON_TEXTS, *OTHER_TEXTS]):
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id, packet.timestamp = 1, number
        packet.track_event.type, packet.track_event.track_uuid = 3, 10
        note = packet.track_event.debug_annotations.add()
        note.name, note.legacy_json_value = "args", text
    path.write_bytes(trace.SerializeToString())
    left: list[bytes] = []
    args_of = TrackEvents.args_of

    def noted(self: TrackEvents, sequence: Any, data: bytes) -> str | None:
        left.append(data)
        return args_of(self, sequence, data)

    monkeypatch.setattr(TrackEvents, "args_of", noted)
    in_c = list(read(path))
    assert len(left) == len(OTHER_TEXTS)
    assert all(text.encode("utf-8", "surrogateescape") in data for text, data in zip(OTHER_TEXTS, left, strict=True))
    monkeypatch.setattr(translate, "IN_C", False)
    assert in_c == list(read(path))


@pytest.mark.parametrize("in_c", [True, False])
def test_what_the_library_does_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_c: bool) -> None:
    if in_c and not native.AVAILABLE:
        pytest.skip("without the C extension")
    monkeypatch.setattr(translate, "IN_C", in_c)
    monkeypatch.setattr(native, "AVAILABLE", in_c)
    sample, latency = (28, pb.message((2, "a"))), (29, pb.message((1, 5)))
    one, two = pb.message((10, "k"), (4, 1)), pb.message((4, 2))
    notes = [
        (sample, latency),
        (latency, sample),  # args are in the order of the numbers
        ((4, pb.message((10, "track_event"), (4, 3))), sample),
        ((4, pb.message((10, "both"), (11, one), (12, two))),),
        ((4, pb.message((10, "both"), (12, two), (11, one))),),
        ((4, pb.message((10, "list"), (12, two), (12, pb.message((12, two))), (12, pb.message((7, 16))))),),
    ]
    path = tmp_path / "odd.pftrace"
    path.write_bytes(b"".join(pb.event(ts, (9, 3), (11, 1), *fields) for ts, fields in enumerate(notes, 1)))
    batch = next(batch for batch in read(path) if isinstance(batch, dict) and "args" in batch)
    typed = '{"chrome_histogram_sample":{"name":"a"},"chrome_latency_info":{"trace_id":5}}'
    assert [args.decode() for args in batch["args"]] == [
        f'{{"track_event":{typed}}}',
        f'{{"track_event":{typed}}}',
        '{"track_event":[3,{"chrome_histogram_sample":{"name":"a"}}]}',
        '{"both":{"k":1}}',
        '{"both":{"k":1}}',
        '{"list":[2,[2],"0x10"]}',
    ]


@pytest.mark.skipif(not native.AVAILABLE, reason="without C, Python takes all events")
def test_args_are_made_again_when_what_they_refer_to_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, path = perfetto_trace_pb2.Trace(), tmp_path / "typed.pftrace"
    describe(trace)

    def add(*, name: str | None = None, is_cleared: bool = False) -> None:
        for number in range(3):
            packet = trace.packet.add()
            packet.trusted_packet_sequence_id, packet.timestamp = 1, len(trace.packet)
            packet.sequence_flags = int(is_cleared and number == 0)
            if name is not None and number == 0:
                for listed in (packet.interned_data.source_locations, packet.interned_data.log_message_body):
                    listed.add().iid = 1
                packet.interned_data.source_locations[0].file_name = name
                packet.interned_data.log_message_body[0].body = name
            event = packet.track_event
            event.type, event.track_uuid = 3, 10
            if number == 0:
                event.log_message.body_iid = 1
            elif number == 1:
                event.task_execution.posted_from_iid = 1
            else:
                event.chrome_message_pump.io_handler_location_iid = 1

    add(is_cleared=True)
    add(name="one")
    add(name="two")
    add(name="two")
    add(is_cleared=True)
    path.write_bytes(trace.SerializeToString())
    batches = []
    for in_c in (True, False):
        monkeypatch.setattr(translate, "IN_C", in_c)
        batches.append(list(read(path)))
    assert batches[0] == batches[1]
    texts = [
        args.decode() for batch in batches[0] if isinstance(batch, dict) and "args" in batch for args in batch["args"]
    ]
    assert [("one" in text, "two" in text) for text in texts] == (
        [(False, False)] * 3 + [(True, False)] * 3 + [(False, True)] * 6 + [(False, False)] * 3
    )
