"""What an event of our own exports holds in its args, and the columns of a table that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, UnsetType

from traceconv.events.trace import ABSENT
from traceconv.schema import table
from traceconv.schema.arrow import arrow_schema
from traceconv.schema.model import Column

#: `otherData.form` of the files that can be read back.
FORM = 2
#: What a viewer shows for an event whose name is not known; its args then have `"name":null`.
NO_NAME = "(no name)"
#: Columns of an op that its tasks show; they are read from the op itself.
OP_MEMBERS = ("op_name", "op_type", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes")
#: Tables whose rows are metadata events.
ROW_TABLES = ("op", "fusion")
#: The name of a metadata event that is a marker without a time.
TIMELESS = "marker"
#: Tables whose rows are in `otherData`.
HEADER_TABLES = ("run", "device", "process", "track")
#: Column that `cat` shows of a row without a category; its args then have `"category":null`.
SHOWN_CATEGORY = {"task": "task_type", "api": "level"}

SLICES = ("range", "api", "task")
LANES = (*SLICES, "marker", "step", "counter", "memory", "flow", *ROW_TABLES)
#: Columns that have a place elsewhere in an event than its args.
_PLACED = {
    **{name: {"track_id", "name", "start_ns", "dur_ns", "category"} for name in SLICES},
    "marker": {"track_id", "ts_ns", "name", "category"},
    "step": {"device_id"},
    "memory": {"device_id", "alloc_ns"},
    "flow": {"src_ns", "dst_ns"},
    "op": set[str](),
    "fusion": set[str](),
}
#: Columns that may be null in args, to say that what stands elsewhere is not the column's value.
_NULLED = ("name", "category", "ts_ns", "src_ns")
#: Columns that hold an id of task, api, range or marker.
REFERENCES = {"parent_id", "src_id", "dst_id"}
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
    """The file says that it is an export of ours, and something in it is not as we write it."""


def _args_type(name: str, placed: frozenset[str] | set[str]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []
    for column in table(name).columns:
        if column.name in placed:
            if column.name in _NULLED:
                fields.append((column.name, None | UnsetType, UNSET))
        else:
            fields.append((column.name, _TYPES[column.type], ABSENT if column.type == "json" else None))
    taken = {one[0] for one in fields}
    if name == "flow":
        fields.append(("reversed", bool, False))
    fields += [(one, str | None, None) for one in OP_MEMBERS if name in ("task", "api") and one not in taken]
    return msgspec.defstruct(f"{name}_args", fields, forbid_unknown_fields=True, gc=False)


class _ThreadArgs(msgspec.Struct):
    table: str
    name: str | None = None
    track_id: int | None = None
    device_id: int | None = None


THREAD = msgspec.json.Decoder(list[_ThreadArgs])
DECODERS: dict[str, Any] = {name: msgspec.json.Decoder(list[_args_type(name, _PLACED[name])]) for name in _PLACED}  # type: ignore[misc] # made above
TIMELESS_ROW: Any = msgspec.json.Decoder(list[_args_type(TIMELESS, frozenset())])  # type: ignore[misc] # made above
MEMBERS = msgspec.json.Decoder(dict[str, Raw])
NUMBER = msgspec.json.Decoder(int | float | str | None)


def decoded(decoder: Any, texts: Sequence[bytes]) -> list[Any]:
    found: list[Any] = decoder.decode(b"[" + b",".join(texts) + b"]")
    if len(found) != len(texts):
        raise NotAsWritten("an event without args")
    return found


def lane_schema(name: str) -> pa.Schema:
    plain = {
        one.name: one.type.value_type if pa.types.is_dictionary(one.type) else one.type for one in arrow_schema(name)
    }
    return pa.schema([(one, kind) for one, kind in plain.items() if one != "run_id"])


def arrays(name: str, rows: Sequence[Any], placed: Mapping[str, pa.Array]) -> list[pa.Array]:
    """All columns of a table but run_id: those that are placed, the others from args."""
    return in_order(
        name,
        {
            column.name: placed[column.name]
            if column.name in placed
            else _array(list(map(attrgetter(column.name), rows)), column)
            for column in table(name).columns
            if column.name != "run_id"
        },
    )


def in_order(name: str, columns: Mapping[str, pa.Array]) -> list[pa.Array]:
    return [columns[one] for one in lane_schema(name).names]


def _array(values: list[Any], column: Column) -> pa.Array:
    if column.type == "json":
        return pa.array([_text(value) for value in values], pa.string())
    if column.type in ("i32", "i64", "u64"):
        return ints(values, {"i32": pa.int32(), "i64": pa.int64(), "u64": pa.uint64()}[column.type])
    if column.type == "f64":
        return pa.array([None if value is None else _float(value) for value in values], pa.float64())
    return pa.array(values, {"str": pa.string(), "bool": pa.bool_()}[column.type])


def _text(value: Raw) -> str | None:
    """JSON text as the column had it: what is no JSON by the letter stands in a string."""
    text = bytes(value)
    if not text or text == b"null":
        return None
    if text.startswith(b'"'):
        return str(msgspec.json.decode(text))
    return text.decode()


def ints(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        try:
            return pa.array([None if value is None else whole(value) for value in values], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise NotAsWritten(str(error)) from error


def whole(value: object) -> int:
    """A whole number, which is a string where doubles would not hold it."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value)
    if type(value) is int:
        return value
    raise NotAsWritten("text in the place of a whole number")


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # a number or text
    except (TypeError, ValueError) as error:
        raise NotAsWritten("text in the place of a number") from error


_CHECKS: Mapping[str, Callable[[Any], object]] = {"i32": whole, "i64": whole, "u64": whole, "f64": _float}


def typed_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Rows of `otherData`, with values of the types of their columns."""
    columns = [column for column in table(name).columns if column.name != "run_id"]
    names = tuple(column.name for column in columns)
    unknown = {key for row in rows for key in row} - {"run_id", *names}
    if unknown:
        raise NotAsWritten(f"{name} with columns that are not known")
    found = []
    for row in rows:
        values: list[object] = []
        for column in columns:
            value = row.get(column.name)
            if value is not None:
                value = _checked(value, column)
            values.append(value)
        found.append(tuple(values))
    return names, found


def _checked(value: Any, column: Column) -> object:
    if column.type in _CHECKS:
        number = _CHECKS[column.type](value)
        limits = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63), "u64": (0, 2**64)}.get(column.type)
        if limits is not None and not limits[0] <= number < limits[1]:  # type: ignore[operator] # a whole number
            raise NotAsWritten("a number that its column does not hold")
        return number
    if not isinstance(value, bool if column.type == "bool" else str):
        raise NotAsWritten(f"{column.name} is of another type")
    return value
