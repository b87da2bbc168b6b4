"""Records of a table of Nsight Compute → kernel launches.

The page raw has a record per launch, its units in the record after the header. The page details has a record per metric
or result of a rule; its metrics have labels, which are unique within a section. Other lines, before the header and
between the records, are ncu's messages and the program's output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import NamedTuple

from traceconv.base.diagnostics import Account, Code, ImportLog
from traceconv.formats.common.limits import Limits
from traceconv.formats.ncu_csv.values import DECIMAL_COMMA, unit_of, value_of
from traceconv.formats.vendor_folder.records import CsvRecords

#: A line that begins a header, the units or a record.
_BEGINS = re.compile(rb'"(?:\d+|ID|)",|(?:\d+|ID),')
#: Columns that describe a launch; those of NVTX ranges are recognised by their names.
_NUMBERED = frozenset(("ID", "Process ID", "Context", "Stream", "Device"))
_DESCRIBING = _NUMBERED | frozenset(
    ("Process Name", "Host Name", "Kernel Name", "Kernel Time", "Block Size", "Grid Size", "CC", "API Name")
)
_SPEEDUP = "Estimated Speedup"
_RESULT = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", _SPEEDUP)
_METRIC = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
#: Metrics and labels that are the duration, in order of preference.
_DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max", "Duration")
#: A number whose text is its JSON.
_PLAIN = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?", re.ASCII)
#: Records of the page raw can have thousands of cells.
_BATCH_ROWS = 32
#: Processes and metrics whose last ID and unit are known, and the longest name of a metric among them.
_MOST_KNOWN, _MOST_CHARACTERS = 1 << 14, 1 << 10
#: The form of numbers is found in this much text.
_HEAD_BYTES = 1 << 20


class _Column(NamedTuple):
    """A column of a header; of a metric if `key`, its name as JSON, is followed by values with units."""

    name: str
    key: str
    is_metric: bool


@dataclass(slots=True)
class Launch:
    """A launch of a kernel.

    offset, byte_count  of its records in the text
    line                the line on which they begin, from 1
    cells               columns that describe it
    args                key → JSON text: these, and its metrics in base units
    duration            in ns, and the unit in which it was printed in ns
    bad_values          values that are not numbers although they have digits only
    size                of args and rules, at most that of an event; `is_cut`: it had more
    duration_rank       place of the metric that it is from in _DURATIONS
    """

    offset: int
    byte_count: int
    line: int
    cells: dict[str, str]
    args: dict[str, str]
    duration: tuple[Decimal, Decimal] | None = None
    rules: list[str] = field(default_factory=list)
    bad_values: int = 0
    duration_rank: int = len(_DURATIONS)
    size: int = 0
    is_cut: bool = False

    def json(self) -> str:
        """Return the args as a JSON object."""
        rules = [f'"rules":[{",".join(self.rules)}]'] if self.rules else []
        return "{" + ",".join(chain((f"{key}:{value}" for key, value in self.args.items()), rules)) + "}"


class Launches:
    """Iterates over the launches in chunks of a file's text.

    units           of each metric so far
    metric_records  records of the page details so far
    other_lines     lines after the header that are no records
    repeated        launches whose ID is not above that of an earlier one of the process
    """

    def __init__(self, chunks: Iterable[bytes], log: ImportLog, account: Account, name: str, limits: Limits) -> None:
        self._most_bytes = limits.event_bytes
        self._chunks, self._log, self._account, self._name = chunks, log, account, name
        self._comma = False
        self._columns: tuple[_Column, ...] | None = None
        self._places: dict[str, int] = {}
        self._row_units: list[str] | None = None
        #: Of the page raw, by column: the key, once a plain number in its cell is known to be the value.
        self._plain_keys: list[str | None] = []
        self._last_ids: dict[str, int] = {}
        self.units: dict[str, str] = {}
        self.metric_records = self.other_lines = self.repeated = 0

    @property
    def found_table(self) -> bool:
        """Whether there is a header."""
        return self._columns is not None

    def __iter__(self) -> Iterator[Launch]:
        pending: Launch | None = None
        records = CsvRecords(self._with_form(), self._log, self._account, self._name, _BEGINS, batch_rows=_BATCH_ROWS)
        for batch in records.batches():
            ends = [*batch.offsets[1:], batch.byte_offset + batch.byte_count]
            for row, offset, end, line in zip(batch.rows, batch.offsets, ends, batch.lines, strict=True):
                if not self._is_record(row, offset, line):
                    continue
                is_next = pending is None or "Metric Name" not in self._places or not self._continues(pending, row)
                if pending is not None and is_next:
                    yield self._numbered(pending)
                if pending is None or is_next:
                    pending = self._launch(row, offset, line)
                pending.byte_count = end - pending.offset
                if "Metric Name" in self._places:
                    self.metric_records += 1
                    pending.size += sum(map(len, row[self._places["Metric Name"] :]))
                    pending.is_cut = pending.is_cut or pending.size > self._most_bytes
                    if not pending.is_cut:
                        self._add_record(pending, row)
        if pending is not None:
            yield self._numbered(pending)

    def _with_form(self) -> Iterator[bytes]:
        """Yield the text, after the form of its numbers is known."""
        rest, first = iter(self._chunks), b""
        while len(first) < _HEAD_BYTES and (chunk := next(rest, b"")):
            first += chunk
        self._comma = DECIMAL_COMMA.search(first) is not None
        yield first
        yield from rest

    def _is_record(self, row: list[str], offset: int, line: int) -> bool:
        """Whether a row is one of the table; headers and units are noted, other lines and damaged records counted."""
        head = row[0].removeprefix("\ufeff") if row else ""
        if head == "ID" and "Kernel Name" in row:
            self._places = {name.strip(): place for place, name in reversed(list(enumerate(["ID", *row[1:]])))}
            self._columns = tuple(_column(name.strip()) for name in ["ID", *row[1:]])
            self._row_units, self._plain_keys = None, [None] * len(self._columns)
            return False
        if self._columns is None:
            return False
        is_details = "Metric Name" in self._places
        if head == "" and not is_details and self._row_units is None and len(row) >= len(self._columns):
            self._row_units, self._plain_keys = row, [None] * len(self._columns)
            return False
        number = head.strip('"')  # a record that is cut inside a cell has quotes
        if not (number.isascii() and number.isdigit()) or (head == number and len(row) < 3):
            self.other_lines += 1
            return False
        needed = self._places.get("Metric Value", 0) + 1 if is_details else len(self._columns)
        if head == number and len(row) >= needed and not any(row[len(self._columns) :]):
            return True
        self._account.add(lost=1)
        message = f"line {line}: a record of {len(row)} cells has not those of the header"
        self._log.add(Code.DAMAGED_EVENT, message, source_id=1, byte_offset=offset, event_count=1)
        return False

    def _cell(self, row: list[str], name: str) -> str:
        place = self._places.get(name)
        return row[place] if place is not None and place < len(row) else ""

    def _continues(self, launch: Launch, row: list[str]) -> bool:
        return all(launch.cells.get(name, "") == self._cell(row, name) for name in ("ID", "Process ID", "Kernel Name"))

    def _launch(self, row: list[str], offset: int, line: int) -> Launch:
        assert self._columns is not None
        launch = Launch(offset, 0, line, {}, {})
        is_details = "Metric Name" in self._places
        units = self._row_units or [""] * len(row)
        cells = zip(self._columns, self._plain_keys, row, units, strict=False)
        for place, (column, key, cell, unit) in enumerate(cells):
            if key is not None and _PLAIN.fullmatch(cell):
                launch.args[key] = cell
            elif column.is_metric and not is_details:
                self._add_metric(launch, column.name, column.name, column.key, cell, unit)
                if self._is_plain(column, unit, place):
                    self._plain_keys[place] = column.key
            elif not column.is_metric and cell and column.name not in _METRIC:
                launch.cells[column.name] = cell
                if column.name == "Kernel Name":
                    continue
                is_number = column.name in _NUMBERED and cell.isascii() and cell.isdigit() and len(cell) < 19
                launch.args[column.key] = str(int(cell)) if is_number else json.dumps(cell)
        return launch

    def _is_plain(self, column: _Column, unit: str, place: int) -> bool:
        """Whether the JSON of a number in this column is its text: in the base unit, of no duration, of one column."""
        factor, base = unit_of(unit)
        is_known = self.units.get(column.name) == base and column.name not in _DURATIONS
        return is_known and factor == 1 and self._places[column.name] == place and not self._comma

    def _add_record(self, launch: Launch, row: list[str]) -> None:
        """Add a record of the page details: a metric, or a result of a rule."""
        section, label, unit, value = (self._cell(row, name) for name in _METRIC)
        if label:
            # Metrics have two underscores; labels are those of a section.
            name = label if "__" in label else f"{section}: {label}"
            self._add_metric(launch, name, label, json.dumps(name), value, unit)
        elif self._cell(row, "Rule Name"):
            texts = {name: json.dumps(text) for name in _RESULT if (text := self._cell(row, name))}
            if _SPEEDUP in texts:
                texts[_SPEEDUP] = self._value(launch, self._cell(row, _SPEEDUP), "%") or "null"
            launch.rules.append("{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}")

    def _add_metric(self, launch: Launch, name: str, label: str, key: str, text: str, unit: str) -> None:
        value = self._value(launch, text, unit)
        if not value:
            return
        base = unit_of(unit).base
        if len(self.units) < _MOST_KNOWN and len(name) < _MOST_CHARACTERS:
            self.units.setdefault(name, base)
        if self.units.get(name, base) != base:  # values of one key have one unit
            key = json.dumps(f"{name} [{base}]")
        if launch.args.setdefault(key, value) != value:
            launch.args[json.dumps(f"{json.loads(key)} #{len(launch.args)}")] = value
        rank = _DURATIONS.index(label) if label in _DURATIONS else len(_DURATIONS)
        if rank < launch.duration_rank and base == "ns" and not value.startswith('"'):
            launch.duration, launch.duration_rank = (Decimal(value), unit_of(unit).factor), rank

    def _value(self, launch: Launch, text: str, unit: str) -> str:
        found = value_of(text, unit, has_decimal_comma=self._comma)
        launch.bad_values += found.is_bad
        return found.json

    def _numbered(self, launch: Launch) -> Launch:
        number, process = launch.cells["ID"], launch.cells.get("Process ID", "")
        if len(self._last_ids) > _MOST_KNOWN:
            self._last_ids.clear()
        last, self._last_ids[process] = self._last_ids.get(process, -1), int(number[:18])
        self.repeated += self._last_ids[process] <= last
        return launch


def _column(name: str) -> _Column:
    is_metric = not (name in _DESCRIBING or name in _RESULT or name in _METRIC or name.endswith(":Msg_Type:Msg"))
    return _Column(name, json.dumps(name), is_metric)
