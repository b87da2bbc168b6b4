"""Furiosa's tables of spans: a record starts with three IDs, a start and an end, whatever its name contains."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from recount import writers
from recount.chrome import Slice
from recount.tally import Tally

_BEGINS = re.compile(r"^[^,\n]*,[^,\n]*,[^,\n]*,(-?\d{1,19}),(-?\d{1,19}),([^,\n]*),", re.ASCII | re.MULTILINE)
_BEFORE_NAME = 6


def _complete(text: str, right: int) -> str:
    """The name and the cells after it, up to the first line that has them all: what follows is a damaged record."""
    lines = text.split("\n")
    records = ["\n".join(lines[:count]) for count, line in enumerate(lines, 1) if line.count(",") >= right]
    quoted = (record for record in records if record.startswith('"') and record.count('"') % 2 == 0)
    return next(quoted, records[0] if records else "")


def add_up(path: Path) -> Tally:
    """The complete spans of a table. An unquoted name ends at its first comma or line feed."""
    tally = Tally()
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read().replace("\r\n", "\n")
    begins = list(_BEGINS.finditer(text))
    header = text[: begins[0].start() if begins else len(text)].split("\n")[0].split(",")
    right = header[_BEFORE_NAME + 1 :]
    for place, found in enumerate(begins):
        record = text[found.start() : begins[place + 1].start() if place + 1 < len(begins) else len(text)].rstrip("\n")
        rest = _complete(record[found.end() - found.start() :], len(right))
        quoted = next(csv.reader([rest], strict=True)) if rest.startswith('"') and rest.count('"') % 2 == 0 else []
        if len(quoted) == 1 + len(right):
            name, *behind = quoted
        else:
            whole, *behind = rest.rsplit(",", len(right))
            name = re.split("[,\n]", whole)[0]
        if len(behind) == len(right):
            start_ns, end_ns = int(found[1]), int(found[2])
            args = dict(zip(right, behind, strict=True))
            one = Slice((), found[3], name, None, None, args, start_ns, end_ns - start_ns)
            row = writers.furiosa(one)
            dur_ns = end_ns - start_ns if end_ns >= start_ns else None
            tally.slice((row.table, row.kind, row.device, row.stream, name), start_ns, dur_ns)
    return tally
