"""The format of events in our own exports: what their args contain, and columns built from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import GenericAlias
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, UnsetType

from traceconv.events.trace import ABSENT
from traceconv.schema import table
from traceconv.schema.arrow import arrow_schema
from traceconv.schema.model import Column

#: `form` in the header of exports, Chrome and Perfetto traces, and those that can be read back.
FORM, PACKET_FORM = 3, 4
FORMS = (FORM, PACKET_FORM)
#: Displayed name of an event whose name is NULL; its args then contain `"name":null`.
NO_NAME = "(no name)"
#: Columns of an op that its tasks display; they are read from the op itself.
OP_MEMBERS = ("op_name", "op_type", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes")
#: Tables whose rows each belong to the task with their ID.
TASK_TABLES = ("task_pmu", "event_wait")
#: Tables whose rows are in metadata events, each event with many rows.
ROW_TABLES = ("op", "fusion", *TASK_TABLES)
#: The same for Perfetto traces; of marker and step only rows without a time.
PACKET_TABLES = ("marker", "step", "counter", "memory", "flow", *ROW_TABLES)
#: Name of the metadata event of Perfetto traces that has the number of counter events, which are only for viewers.
DRAWN = "drawn"
#: Kind of the flows that show a critical path, which are only for viewers.
PATH_FLOW = "critical_path"
#: Name of the metadata event of a marker without a timestamp. Its ID is that of its event, so each has its own.
TIMELESS = "marker"
#: Tables whose rows are in `otherData`.
HEADER_TABLES = ("run", "device", "process", "track")
#: Column that `cat` displays for a row without a category; its args then contain `"category":null`.
SHOWN_CATEGORY = {"task": "task_type", "api": "level"}

SLICES = ("range", "api", "task")
EVENT_TABLES = (*SLICES, "marker", "step", "counter", "memory", "flow", *ROW_TABLES)
#: Columns that are elsewhere in an event than in its args.
_OUTSIDE: dict[str, set[str]] = {
    **{name: {"track_id", "name", "start_ns", "dur_ns", "category"} for name in SLICES},
    "marker": {"track_id", "ts_ns", "name", "category"},
    "step": {"device_id"},
    "memory": {"device_id", "alloc_ns"},
    "flow": {"src_ns", "dst_ns"},
    **{name: set() for name in HEADER_TABLES},
}
#: Columns that may be null in args, which means that the value elsewhere is only displayed.
_NULLED = ("name", "category", "ts_ns", "src_ns")
#: Annotation of a slice in Perfetto traces whose category is only displayed.
NO_CATEGORY = "no_category"
#: Annotation of the events in Perfetto traces where flows back in time start.
REVERSED_NOTE = "starts_arrow_back"
#: Columns that contain the ID of a task, API call, range or marker.
_REFERENCES = {"parent_id", "src_id", "dst_id", "api_id", "event_id"}
_TYPES: dict[str, Any] = {
    "i32": int | str | None,
    "i64": int | str | None,
    "u64": int | str | None,
    "f64": float | str | None,
    "bool": bool | None,
    "str": str | None,
    "json": Raw,
}


class NotAsWritten(Exception):
    """The file claims to be our own export, but contains something that we do not write."""


def references(name: str) -> set[str]:
    """Return the columns of a table that contain the ID of a row of another table."""
    return {"id", *_REFERENCES} if name in TASK_TABLES else _REFERENCES


def _args_type(name: str, outside: Collection[str], more: Collection[tuple[str, Any, Any]] = ()) -> Any:
    fields: list[tuple[str, Any, Any]] = [*more]
    for column in table(name).columns:
        if column.name not in outside:
            fields.append((column.name, _TYPES[column.type], ABSENT if column.type == "json" else None))
        elif column.name in _NULLED:
            fields.append((column.name, None | UnsetType, UNSET))
    names = {one[0] for one in fields}
    if name == "flow":
        fields.append(("reversed", bool, False))
    fields += [(one, str | None, None) for one in OP_MEMBERS if name in ("task", "api") and one not in names]
    return msgspec.defstruct(f"{name}_args", fields, forbid_unknown_fields=True, gc=False)


class ThreadArgs(msgspec.Struct):
    """The rows of a thread: their table, and their track or (for step and memory) device."""

    table: str
    name: str | None = None
    track_id: int | None = None
    device_id: int | None = None

    @property
    def owner(self) -> int | None:
        """The track or the device."""
        return self.device_id if self.table in ("step", "memory") else self.track_id


class PacketThread(ThreadArgs, kw_only=True):
    """A track of a Perfetto trace. `tid`: its UUID, which is also the tid of a thread."""

    pid: int
    tid: int


def _list_decoder(row_type: Any) -> Any:
    return msgspec.json.Decoder(list[row_type])


def _packet_args_type(name: str) -> Any:
    is_slice = name in SLICES
    more: list[tuple[str, Any, Any]] = [(REVERSED_NOTE, Raw, ABSENT)] if name != "step" else []
    if is_slice:
        more.append((NO_CATEGORY, bool, False))
    return _args_type(name, _OUTSIDE[name] - {"dur_ns"}, more)


THREAD = msgspec.json.Decoder(list[ThreadArgs])
DRAWN_COUNTERS = msgspec.json.Decoder(tuple[int])
MEMBERS = msgspec.json.Decoder(dict[str, Raw])
NUMBER = msgspec.json.Decoder(int | float | str | None)


@cache  # most traces are not exports of ours
def decoders(*, in_packets: bool) -> dict[str, Any]:
    """Return decoders of the args of events and of rows in the header, by table. `in_packets`: of Perfetto traces."""
    if in_packets:
        return {name: _list_decoder(_packet_args_type(name)) for name in (*SLICES, "marker", "step")}
    return {name: _list_decoder(_args_type(name, _OUTSIDE[name])) for name in _OUTSIDE}


def decoded(decoder: Any, texts: Sequence[bytes | Raw]) -> list[Any]:
    """Decode JSON objects. Raises NotAsWritten."""
    found: list[Any] = decoded_list(decoder, b"[" + b",".join(texts) + b"]")
    if len(found) != len(texts):
        raise NotAsWritten("an event without args")
    return found


def decoded_list(decoder: Any, text: bytes) -> Any:
    """Decode a JSON array. Raises NotAsWritten."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAsWritten(str(error)) from error


class _Rows(msgspec.Struct, forbid_unknown_fields=True):
    """Rows of a table in a metadata event: for each row the values of the listed columns; the others are NULL.

    values  an array for each column instead; unsigned integers beyond 63 bits are negative there
    """

    columns: list[str]
    rows: Raw = ABSENT
    values: Raw = ABSENT


_ROWS = msgspec.json.Decoder(_Rows)


@cache
def _tuples_decoder(types: tuple[str, ...]) -> Any:
    """Return a decoder of a list of rows with columns of these types."""
    row: Any = GenericAlias(tuple, tuple(_TYPES[one] for one in types))
    return _list_decoder(row)


@cache
def _columns_decoder(types: tuple[str, ...]) -> Any:
    """Return a decoder of the values of columns of these types."""
    return msgspec.json.Decoder(GenericAlias(tuple, tuple(GenericAlias(list, _TYPES[one]) for one in types)))


def rows_of(name: str, text: bytes) -> tuple[int, dict[str, list[Any]]]:
    """Return the number of rows in a metadata event, and the values of the columns in it. Raises NotAsWritten."""
    found = decoded_list(_ROWS, text)
    types = {column.name: column.type for column in table(name).columns if column.name != "run_id"}
    if not types.keys() >= set(found.columns) or len(set(found.columns)) < len(found.columns):
        raise NotAsWritten(f"columns that {name} has not, or has once")
    kinds = tuple(types[column] for column in found.columns)
    if found.values != ABSENT:
        values = decoded_list(_columns_decoder(kinds), found.values)
        if not values or len(set(map(len, values))) > 1:
            raise NotAsWritten("columns of different lengths")
        for place, kind in enumerate(kinds):
            if kind == "u64":
                values[place][:] = [one if one is None or one >= 0 else one + (1 << 64) for one in values[place]]
        return len(values[0]), dict(zip(found.columns, values, strict=True))
    rows = decoded_list(_tuples_decoder(kinds), found.rows)
    return len(rows), dict(zip(found.columns, map(list, zip(*rows, strict=True)), strict=False))


def row_arrays(
    name: str, count: int, values: Mapping[str, list[Any]], outside: Mapping[str, pa.Array]
) -> list[pa.Array]:
    """Return all columns of a table but run_id, of the rows in a metadata event or from `outside`."""
    return [
        outside[column.name] if column.name in outside else _array(values.get(column.name, [None] * count), column)
        for column in table(name).columns
        if column.name != "run_id"
    ]


def plain_schema(name: str) -> pa.Schema:
    """Return the schema of a table without run_id and without dictionaries."""
    fields = (field for field in arrow_schema(name) if field.name != "run_id")
    return pa.schema(
        [(one.name, one.type.value_type if pa.types.is_dictionary(one.type) else one.type) for one in fields]
    )


def arrays(name: str, rows: Sequence[Any], outside: Mapping[str, pa.Array]) -> list[pa.Array]:
    """Return all columns of a table but run_id: those from `outside` of args, the others from the decoded args."""
    return [
        outside[column.name] if column.name in outside else _array(list(map(attrgetter(column.name), rows)), column)
        for column in table(name).columns
        if column.name != "run_id"
    ]


def _array(values: list[Any], column: Column) -> pa.Array:
    if column.type == "json":
        return pa.array([_text(value) for value in values], pa.string())
    if column.type in ("i32", "i64", "u64"):
        return ints(values, {"i32": pa.int32(), "i64": pa.int64(), "u64": pa.uint64()}[column.type])
    if column.type == "f64":
        return pa.array([None if value is None else _float(value) for value in values], pa.float64())
    return pa.array(values, {"str": pa.string(), "bool": pa.bool_()}[column.type])


def _text(value: Raw | None) -> str | None:
    """Return JSON text as the column had it; text that is not valid JSON was exported as a string."""
    text = bytes(value or b"")
    if not text or text == b"null":
        return None
    if text.startswith(b'"'):
        return str(msgspec.json.decode(text))
    return text.decode()


def ints(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of integers, some of which may be text. Raises NotAsWritten."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        try:
            return pa.array([None if value is None else integer(value) for value in values], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise NotAsWritten(str(error)) from error


def integer(value: object) -> int:
    """Return an integer, which is exported as a string if a double can't represent it."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value)
    if type(value) is int:
        return value
    raise NotAsWritten("text instead of an integer")


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # a number or text
    except (TypeError, ValueError) as error:
        raise NotAsWritten("text instead of a number") from error
