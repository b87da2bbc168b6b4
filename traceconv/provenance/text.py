"""The origin of a row as text for people and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from traceconv.base.errors import printable

if TYPE_CHECKING:
    from traceconv.formats.locate import Evidence
    from traceconv.provenance.answer import Answer

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|"')
_HEX_LINE = 16
#: Lines and characters shown per piece; --json has all.
_MAX_LINES = 60
_MAX_CHARACTERS = 400
#: Longer JSON is not reformatted.
_MAX_PRETTY = 8192
_SHORT = 72
_MAX_INDENT = 80
#: Longer texts in a row are truncated.
_MAX_VALUE = 8192


def lines_of(answer: Answer) -> Iterator[str]:
    """Describe the answer for people."""
    label = printable(answer.run_label)
    for row in answer.rows[:8]:
        yield f"{answer.table} {printable(answer.id)} of run {answer.run_id} ({label}){_title(row)}"
    if len(answer.rows) > 8:
        yield f"… and {len(answer.rows) - 8} more rows with this id"
    for number, piece in enumerate(answer.evidence, 1):
        yield ""
        yield from _piece(number, piece)
    if answer.made_of:
        yield ""
        yield "Derived from:"
        for ref in answer.made_of[:8]:
            yield f"  {ref.table} {ref.id}: {ref.role} (traceconv why {ref.table} {ref.id})"
    if answer.notes:
        yield ""
        yield "Derivation:"
        width = max(len(column) for column, _ in answer.notes)
        for column, how in answer.notes:
            yield f"  {column:<{width}}  {how}" if width else f"  {how}"


def as_json(answer: Answer) -> str:
    """Return the answer as a JSON object."""
    return json.dumps(
        {
            "table": answer.table,
            "id": answer.id,
            "run_id": answer.run_id,
            "run": answer.run_label,
            "rows": [_plain(row) for row in answer.rows],
            "evidence": [_evidence(piece) for piece in answer.evidence],
            "made_of": [{"table": ref.table, "id": ref.id, "role": ref.role} for ref in answer.made_of],
            "notes": [{"column": column or None, "how": how} for column, how in answer.notes],
            "problems": list(answer.problems),
        },
        indent=2,
        default=str,
    )


def pretty(text: str) -> str:
    """Add line breaks to JSON text, without changing numbers, escapes or the order of keys.

    Short or deeply nested arrays and objects stay on one line. Malformed JSON is returned unchanged.
    """
    tokens: list[str] = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r'("(?:[^"\\]|\\.)*")|\s+', lambda match: match[1] or "", text):
        return text
    laid_out, indent, at = "", "", 0
    while at < len(tokens):
        token, end = tokens[at], _end(tokens, at)
        flat = "".join(token + (" " if token in (",", ":") else "") for token in tokens[at:end])
        if len(flat) > _SHORT and token in ("{", "[") and len(indent) < _MAX_INDENT:
            indent += "  "
            laid_out += f"{token}\n{indent}"
            at += 1
            continue
        if token in ("}", "]"):
            indent = indent[:-2]
            laid_out += f"\n{indent}"
        laid_out += f",\n{indent}" if token == "," else flat
        at = end
    return laid_out


def _end(tokens: list[str], at: int) -> int:
    """Return the position after the value or the punctuation mark at a position."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += (tokens[place] in ("{", "[")) - (tokens[place] in ("}", "]"))
        if depth <= 0:
            return place + 1
    return len(tokens)


def _title(row: Mapping[str, object]) -> str:
    name = row.get("name") or row.get("tensor_name") or row.get("original_name") or row.get("label")
    return f": {printable(str(name), 120)}" if name is not None else ""


def _piece(number: int, piece: Evidence) -> Iterator[str]:
    yield f"{number}. {piece.role}: {printable(piece.source.name)}{_place(piece)}"
    yield f"   {printable(piece.source.format)}" + (f", {printable(piece.where)}" if piece.where else "")
    if piece.fields:
        width = min(max(len(printable(name)) for name in piece.fields), 40)
        for name, value in list(piece.fields.items())[:200]:
            if not re.fullmatch(r"pad[0-9]*", name) and value not in ("",):
                shown = "NULL" if value is None else printable(str(value), _MAX_CHARACTERS)
                unit = piece.units.get(name, "")
                unit = f" {unit}" if unit in ("ns", "tick", "byte", "cycle", "hz") and value is not None else ""
                yield f"     {printable(name):<{width}}  {shown}{unit}"
    if not piece.data:
        return
    shown_lines = list(_text(piece) if piece.is_text else _hex(piece.data))
    for line in shown_lines[:_MAX_LINES]:
        yield f"   | {printable(line, _MAX_CHARACTERS)}"
    if len(shown_lines) > _MAX_LINES:
        yield f"   | … {len(shown_lines) - _MAX_LINES} more lines (--json has them)"
    if piece.cut and piece.byte_count is not None:
        yield f"   | … {piece.byte_count - len(piece.data):,} more bytes"


def _place(piece: Evidence) -> str:
    if piece.byte_offset is None or piece.byte_count is None:
        return ""
    inside = "" if piece.source.container == "plain" else f" of the decompressed {piece.source.container} data"
    end = piece.byte_offset + piece.byte_count
    return f", bytes {piece.byte_offset:,} to {end:,}{inside} ({piece.byte_count:,} bytes)"


def _text(piece: Evidence) -> Iterator[str]:
    text = piece.data.decode("utf-8", "backslashreplace")
    is_complete = not piece.cut and len(text) <= _MAX_PRETTY and text[:1] in ("{", "[")
    yield from (pretty(text) if is_complete else text).split("\n")


def _hex(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), _HEX_LINE):
        part = data[at : at + _HEX_LINE]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at:04x}  {part.hex(' '):<{_HEX_LINE * 3}} {plain}"


def _evidence(piece: Evidence) -> dict[str, object]:
    return {
        "role": piece.role,
        "source_id": piece.source.source_id,
        "file": piece.source.name,
        "path": str(piece.source.path),
        "format": piece.source.format,
        "container": piece.source.container,
        "byte_offset": piece.byte_offset,
        "byte_count": piece.byte_count,
        "where": piece.where,
        "fields": _plain(piece.fields),
        "hex": None if piece.is_text else piece.data.hex(),
        "text": piece.data.decode("utf-8", "backslashreplace") if piece.is_text and piece.data else None,
        "cut": piece.cut,
    }


def _plain(row: Mapping[str, object]) -> dict[str, object]:
    return {name: _short(value) for name, value in row.items() if value is not None}


def _short(value: object) -> object:
    """Truncate a long text; the store has all of it."""
    if isinstance(value, str) and len(value) > _MAX_VALUE:
        return f"{value[:_MAX_VALUE]}… ({len(value) - _MAX_VALUE:,} more characters)"
    return value
