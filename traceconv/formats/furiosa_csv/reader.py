"""The CSV of Furiosa's profiler, a record for each span → events, with unquoted names restored.

The native writer quotes nothing. A name with a comma has too many cells, and one with a line feed is split into two
records; the number of cells on both sides of the name is known, so nothing is lost. The event's name is what any CSV
reader would read, and its complete text is in args as `unquoted_name`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from traceconv.base.diagnostics import Account, Code
from traceconv.events.trace import EventColumns, Segment, TraceBatch, binary_column
from traceconv.formats.common.columns import durations, integers, slices
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest
from traceconv.formats.furiosa_csv.format import BEGINS, HEAD
from traceconv.formats.vendor_folder.records import MAX_RECORD_BYTES, CsvRecords, RecordBatch

_NAME = HEAD.index("name")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
#: An integer in a column that pandas read as floats because it has empty cells.
_FLOAT = re.compile(r"^(-?[0-9]{1,19})\.0$")
#: As in Furiosa's own Chrome export, the tracks of processing elements come after all threads.
_NPU_TID = 10_000_000


@dataclass(slots=True)
class _Cut:
    """A record whose name is split by a line feed: its cells so far.

    lines  lines of the name
    size   their length
    """

    offset: int
    line: int
    row: list[str]
    lines: list[str]
    size: int


class FuriosaCsvReader(FileReader):
    """Reads one file, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._damaged = Account()
        self._records = CsvRecords(self._source.chunks(), self._log, self._damaged, self._path.name, ragged=BEGINS)
        self._right: tuple[str, ...] = ()
        self._tids: set[int] = set()
        self._cut: _Cut | None = None

    def batches(self) -> Iterator[TraceBatch]:
        """All spans, in the order of the file, and names of the tracks of processing elements."""
        header = self._records.open()
        if header[: len(HEAD)] != HEAD:
            return
        self._right = header[len(HEAD) :]
        self.found_events = bool(self._right)
        end = 0
        for batch in self._records.batches():
            spans = self._spans(batch)
            end = batch.byte_offset + batch.byte_count
            if spans:
                yield self._batch(batch.byte_offset, batch.byte_count, spans)
        if self._cut is not None:
            self._lose_cut("ends before its thread")
        if self._damaged.records:
            self._accounts.by_record["damaged records"] = self._damaged
        if self._tids:
            yield self._names(end)

    def _spans(self, batch: RecordBatch) -> list[tuple[list[str], str | None]]:
        """The spans of a batch: cells, and the complete name if it was split."""
        width = len(HEAD) + len(self._right)
        spans: list[tuple[list[str], str | None]] = []
        for row, offset, line in zip(batch.rows, batch.offsets, batch.lines, strict=True):
            begins = len(row) > _NAME and _INTEGER.fullmatch(row[3]) and _INTEGER.fullmatch(row[4])
            if self._cut is not None and begins:
                self._lose_cut("has fewer cells than the header")
            elif self._cut is None and not begins:
                self._lose(offset, line, row, "has no start and end")
                continue
            if self._cut is None:
                if len(row) < width:
                    name = ",".join(row[_NAME:])
                    self._cut = _Cut(offset, line, row, [name], len(name))
                    continue
            else:
                cut, self._cut = self._cut, None
                row = self._goes_on(cut, row)
                if not row:
                    continue
            right = len(row) - len(self._right)
            full = ",".join(row[_NAME:right])
            first = re.split(r"[,\n]", full, maxsplit=1)[0] if right > _NAME + 1 or "\n" in full else full
            cells = [_FLOAT.sub(r"\1", cell) for cell in row[right:]]
            spans.append(([*row[:_NAME], first, *cells], None if first == full else full))
        return spans

    def _goes_on(self, cut: _Cut, row: list[str]) -> list[str]:
        """Add the next line of a record's name; return the cells after its last line, none before."""
        self._accounts["line breaks inside names"].add(paired=1)
        last = len(row) - len(self._right)
        text = ",".join(row if last < 1 else row[:last])
        cut.lines.append(text)
        cut.size += len(text) + 1
        if last >= 1:
            return [*cut.row[:_NAME], "\n".join(cut.lines), *row[last:]]
        self._cut = cut
        if cut.size > MAX_RECORD_BYTES:
            self._lose_cut(f"has a name of more than {MAX_RECORD_BYTES} bytes")
        return []

    def _lose_cut(self, why: str) -> None:
        if self._cut is not None:
            self._lose(self._cut.offset, self._cut.line, self._cut.row, why)
            self._cut = None

    def _lose(self, offset: int, line: int, row: Sequence[str], why: str) -> None:
        self._damaged.add(lost=1)
        message = f"line {line}: a record of {len(row)} cells {why}"
        self._log.add(Code.DAMAGED_EVENT, message, source_id=SOURCE_ID, byte_offset=offset, event_count=1)

    def _batch(self, offset: int, size: int, spans: Sequence[tuple[list[str], str | None]]) -> TraceBatch:
        times = integers([int(row[3]) for row, _ in spans])
        ends = [int(row[4]) for row, _ in spans]
        columns = slices(
            [row[_NAME] for row, _ in spans],
            [row[5] for row, _ in spans],
            [1] * len(spans),
            [self._tid(row) for row, _ in spans],
            times,
            durations(times, ends),
            [json.dumps(self._args(row, full), ensure_ascii=False).encode() for row, full in spans],
        )
        return self._made(offset, size, columns)

    def _tid(self, row: Sequence[str]) -> int | str:
        cells = dict(zip(self._right, row[len(HEAD) :], strict=True))
        element = cells.get("pe_index", "")
        if row[5] == "NPU" and _INTEGER.fullmatch(element):
            self._tids.add(int(element))
            return _NPU_TID + int(element)
        thread = cells.get("thread.id", "")
        return int(thread) if _INTEGER.fullmatch(thread) else thread

    def _args(self, row: Sequence[str], full: str | None) -> dict[str, object]:
        args: dict[str, object] = {column: row[place] for place, column in enumerate(HEAD[:3]) if row[place]}
        for column, cell in zip(self._right, row[len(HEAD) :], strict=True):
            if cell and not (column == "dur" and cell == str(int(row[4]) - int(row[3]))):
                args[column] = int(cell) if _INTEGER.fullmatch(cell) else cell
        if full is not None:
            args["unquoted_name"] = full
        return args

    def _names(self, offset: int) -> TraceBatch:
        """The names of the tracks of processing elements, which are not in the file."""
        elements = sorted(self._tids)
        labels: dict[str, Sequence[object]] = {
            "name": ["thread_name"] * len(elements),
            "ph": ["M"] * len(elements),
            "pid": [1] * len(elements),
            "tid": [_NPU_TID + element for element in elements],
        }
        args = [json.dumps({"name": f"NPU {element}"}).encode() for element in elements]
        return self._made(offset, 0, EventColumns(len(elements), labels, {"args": binary_column(args)}, None))

    def _made(self, offset: int, size: int, columns: EventColumns) -> TraceBatch:
        return self._next_batch(columns, offset, size, segments=(Segment(offset, b"", columns.count),))
