"""Print the records of a log as text.

Independent of `normalize`, so that sums over a dump can be compared with the reports. Values are formatted by column:
a block of records is one template, filled by zip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError, UsageError, printable, reason_of, suggestion
from traceconv.formats.npulog.blocks import blocks_of, dictionary_of, part_of, read_header, schema_of
from traceconv.formats.npulog.discover import CaptureFolder, LogFile, find_captures
from traceconv.formats.npulog.ranges import Ranges, unseen
from traceconv.schema import Field, RecordSchema, record, records
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.frames import BLOCK_HEADER_BYTES, Block, Damage, FrameDecoder

_PART_RECORDS = 1 << 14
_SHOWN_TEXT = 60
_DICTIONARY = record("dictionary")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to print, and how.

    record     the only record type; None: all
    limit      number of records over all files; None: all
    as_json    one JSON object per line, with every field; otherwise columns
    on_damage  called with a sentence for everything that can't be read
    """

    record: str | None = None
    limit: int | None = None
    as_json: bool = False
    on_damage: Callable[[str], None] = lambda message: None


def captures_with(paths: Sequence[Path], record_type: str | None) -> list[CaptureFolder]:
    """Return the captures at or below `paths`. Raises InputError, and UsageError for a type that none can have."""
    captures = find_captures(paths)
    known = {*records(), *(name for capture in captures for name in record_types(capture))}
    if record_type is not None and record_type not in known:
        near = suggestion(record_type, sorted(known))
        hint = "List those of a capture with: traceconv info PATH"
        raise UsageError(f"unknown record type '{printable(record_type)}'.{near} {hint}")
    return captures


def dump_captures(captures: Iterable[CaptureFolder], options: DumpOptions) -> Iterator[str]:
    """Yield the lines of all captures in blocks; `options.limit` is for all together."""
    left = options.limit
    for capture in captures:
        for count, text in dump_capture(capture, replace(options, limit=left)):
            yield text
            left = None if left is None else left - count


def dump_capture(capture: CaptureFolder, options: DumpOptions) -> Iterator[tuple[int, str]]:
    """Yield (number of records, their lines), some thousand records at a time, in the order of the files.

    JSON keys that begin with '_' locate a record: type, file, sequence in its stream, byte offset in the file. A str
    field is its text, or the number of its hash if the dictionary doesn't contain it, or null.
    """
    texts = dictionary_of(capture)
    left = options.limit
    if left == 0:
        return
    for problem in problems_of(capture):
        options.on_damage(problem)
    seen: dict[tuple[int | None, int], Ranges] = {}
    for file in capture.files:
        for count, text in _dump_file(file, options, texts, left, seen):
            yield count, text
            left = None if left is None else left - count
        if left == 0:
            return


def problems_of(capture: CaptureFolder) -> Iterator[str]:
    """The problems of a capture other than damage in its files, a sentence each."""
    name = printable(capture.path.name)
    if capture.manifest_problem is not None:
        yield f"{name}: manifest.json is {capture.manifest_problem}"
    for path in capture.missing:
        yield f"{name}: {printable(path)} is missing, though the manifest lists it"
    for path in capture.unreadable:
        yield f"{name}: {printable(path)} can't be listed"


def record_types(capture: CaptureFolder) -> set[str]:
    """The record types in the files of a capture, by their headers."""
    types: set[str] = set()
    for file in capture.files:
        header = read_header(file.path)
        types.update([schema.name for schema in header.schemas] if header else [file.record])
    return types


def describe_damage(damage: Damage) -> str:
    """Damage as a sentence: what, where, how much."""
    place = f"byte {damage.byte_offset:,}"
    if damage.byte_count:
        place += f" to {damage.byte_offset + damage.byte_count:,}"
    lost = "unknown number of records" if damage.event_count is None else f"{damage.event_count:,} records"
    return f"{damage.message} ({place}; {lost})"


def _dump_file(
    file: LogFile,
    options: DumpOptions,
    texts: Mapping[int, str],
    limit: int | None,
    seen: dict[tuple[int | None, int], Ranges],
) -> Iterator[tuple[int, str]]:
    """(number of records, their lines) for each block. `seen`: records not printed yet, by device and tag."""
    decoder = FrameDecoder(any_order=True)
    columns: _Columns | None = None
    name = printable(file.relative_path)
    try:
        for item in blocks_of(file.path, decoder):
            if isinstance(item, Damage):
                options.on_damage(f"{name}: {describe_damage(item)}")
                continue
            schema = schema_of(item, decoder.header)
            if options.record is not None and schema.name != options.record:
                continue
            device_id = decoder.header.device_id if decoder.header else file.device_id
            end = item.sequence + item.record_count
            fresh = seen.setdefault((device_id, item.tag), unseen()).cut(item.sequence, end)
            repeated = item.record_count - sum(stop - first for first, stop in fresh)
            if repeated:
                message = f"repeats {repeated:,} records (byte {item.byte_offset:,})"
                options.on_damage(f"{name}: {message}")
            for part in _parts(item, fresh, limit):
                rows = np.frombuffer(part.payload, dtype_of(schema, part.record_size))
                if options.as_json:
                    yield len(rows), _json_lines(rows, schema, part, file, texts)
                else:
                    cells = _text_cells(rows, schema, part, texts)
                    head = ""
                    if columns is None or columns.schema != schema:
                        columns = _Columns.fit(schema, cells)
                        head = f"# {name}: {schema.name}\n{columns.head()}\n"
                    yield len(rows), head + columns.lines(cells)
                if limit is not None:
                    limit -= len(rows)
            if limit == 0:
                return
    except OSError as error:
        options.on_damage(f"{name}: can't be read: {reason_of(error)}")
    except InputError as error:
        options.on_damage(f"{name}: {error}")


def _parts(block: Block, ranges: Iterable[tuple[int, int]], limit: int | None) -> Iterator[Block]:
    """The first `limit` records of a block that are in `ranges`, as blocks of at most `_PART_RECORDS`.

    Text takes more memory than records.
    """
    for first, end in ranges:
        end = end if limit is None else min(end, first + limit)
        limit = None if limit is None else limit - (end - first)
        for start in range(first, end, _PART_RECORDS):
            part = part_of(block, start, min(start + _PART_RECORDS, end))
            yield replace(part, byte_offset=block.byte_offset + (start - block.sequence) * block.record_size)


#: A column of a block: a value for each record, or one text if all are equal.
_Cells = list[Any] | str


@dataclass(frozen=True, slots=True)
class _Style:
    """How values of each type are written."""

    null: str
    text: Callable[[str], str]
    unknown_text: Callable[[int], str]
    plain_bytes: Callable[[bytes, Field], str]
    real: Callable[[float], str]


def _json_real(value: float) -> str:
    return repr(value) if np.isfinite(value) else f'"{value}"'


def _shown_bytes(value: bytes, field: Field) -> str:
    if field.unit != "text":
        return value.hex()
    return printable(value.rstrip(b"\0").decode("utf-8", "backslashreplace"), _SHOWN_TEXT)


_JSON = _Style("null", json.dumps, str, lambda value, field: f'"{value.hex()}"', _json_real)
_TEXT = _Style("NULL", lambda text: printable(text, _SHOWN_TEXT), lambda value: f"0x{value:016x}", _shown_bytes, repr)


def _cells(column: NDArray[Any], field: Field, texts: Mapping[int, str], style: _Style) -> _Cells:
    """A column's values as text."""
    if field.type.startswith("bytes"):
        return [style.plain_bytes(value, field) for value in column.tolist()]
    if field.type == "f64":
        return [style.real(value) for value in column.tolist()]
    same = len(column) > 1 and bool((column == column[0]).all())
    values = column[:1] if same else column
    cells: list[Any]
    if field.type == "str":
        distinct, inverse = np.unique(values, return_inverse=True)
        written = np.array([_text_cell(value, texts, style) for value in distinct.tolist()], object)
        cells = written[inverse].tolist()
    else:
        cells = values.tolist()
        if field.values is not None:
            names = {value: style.text(name) for value, name in field.values.items()}
            cells = [names.get(value, value) for value in cells]
        if field.null is not None:
            cells = [style.null if value == field.null else value for value in cells]
    return str(cells[0]) if same else cells


def _text_cell(text_hash: int, texts: Mapping[int, str], style: _Style) -> str:
    if text_hash == 0:
        return style.null
    text = texts.get(text_hash)
    return style.unknown_text(text_hash) if text is None else style.text(text)


def _json_lines(rows: RecordArray, schema: RecordSchema, block: Block, file: LogFile, texts: Mapping[int, str]) -> str:
    first = block.byte_offset + BLOCK_HEADER_BYTES
    columns: list[tuple[str, _Cells | range]] = [
        ("_type", json.dumps(schema.name)),
        ("_file", json.dumps(file.relative_path)),
        ("_sequence", range(block.sequence, block.sequence + len(rows))),
        ("_offset", range(first, first + len(rows) * block.record_size, block.record_size)),
    ]
    columns += [(field.name, _cells(rows[field.name], field, texts, _JSON)) for field in schema.fields]
    if schema.tag == _DICTIONARY.tag and "hash" in (rows.dtype.names or ()):
        values = [json.dumps(texts.get(value)) for value in rows["hash"].tolist()]
        columns.append(("_text", values))
    parts = [f'"{name}":{_constant(cells)}' for name, cells in columns]
    return _fill("{" + ",".join(parts) + "}\n", [cells for _, cells in columns], len(rows))


def _text_cells(
    rows: RecordArray, schema: RecordSchema, block: Block, texts: Mapping[int, str]
) -> list[_Cells | range]:
    cells: list[_Cells | range] = [range(block.sequence, block.sequence + len(rows))]
    return cells + [_cells(rows[field.name], field, texts, _TEXT) for field in _shown_fields(schema)]


def _shown_fields(schema: RecordSchema) -> list[Field]:
    return [field for field in schema.fields if not re.fullmatch(r"pad[0-9]*", field.name)]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a file, as wide as the first block needs, with numbers aligned to the right."""

    schema: RecordSchema
    names: tuple[str, ...]
    widths: tuple[int, ...]  # negative: to the left, as in a format

    @classmethod
    def fit(cls, schema: RecordSchema, cells: list[_Cells | range]) -> _Columns:
        fields = _shown_fields(schema)
        names = ("# sequence", *(field.name for field in fields))
        left = (False, *(field.type == "str" or field.values is not None for field in fields))
        widths = []
        for name, column, to_left in zip(names, cells, left, strict=True):
            longest = len(column) if isinstance(column, str) else max(len(str(cell)) for cell in column)
            width = max(len(name), longest)
            widths.append(-width if to_left else width)
        if widths[-1] < 0:
            widths[-1] = 0  # no blanks at the end of a line
        return cls(schema, names, tuple(widths))

    def head(self) -> str:
        return "  ".join(f"%{width}s" % name for name, width in zip(self.names, self.widths, strict=True)).rstrip()

    def lines(self, cells: list[_Cells | range]) -> str:
        parts = []
        for column, width in zip(cells, self.widths, strict=True):
            parts.append((f"%{width}s" % column).replace("%", "%%") if isinstance(column, str) else f"%{width}s")
        count = len(cells[0])
        return _fill("  ".join(parts) + "\n", cells, count)


def _constant(cells: _Cells | range) -> str:
    """A column's part of a template: its one text, or a placeholder."""
    return cells.replace("%", "%%") if isinstance(cells, str) else "%s"


def _fill(template: str, columns: list[_Cells | range], count: int) -> str:
    varying = [cells for cells in columns if not isinstance(cells, str)]
    lines = "".join(map(template.__mod__, zip(*varying, strict=True)))
    assert len(varying[0]) == count
    return lines
