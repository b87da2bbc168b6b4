"""Base of the readers of SQLite files: the tables of one file → batches of events, in integer ns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.events.trace import (
    Coded,
    EventColumns,
    EventFlows,
    Label,
    NamedTrack,
    TraceBatch,
    TrackName,
    coded,
    combined,
)
from traceconv.formats.common.columns import durations, integers
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import SQLITE_MAGIC, STDIN, container_of, file_size, opened
from traceconv.formats.common.sqlite_database import Damage, Database
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.format import ReadRequest

#: Only tables of events have one of these columns.
_TIME_COLUMNS = frozenset(("start", "startedAt", "timestamp", "rawTimestamp", "startNs", "timestampNs"))


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a table, as columns of one length."""

    phases: Sequence[str]
    names: Sequence[str]
    pids: Sequence[Label]
    tids: Sequence[Label | NamedTrack]
    starts: Values
    ends: Values
    args: pa.Array


class SqliteReader(FileReader, ABC):
    """Reads one file, as `TraceSource` describes.

    place  table and rowids of the events of the last batch, of readers that note it
    """

    def __init__(self, request: ReadRequest, what: str, export: str) -> None:
        """`what`: the kind of file; `export`: how to make one."""
        super().__init__(request)
        self._what, self._export = what, export
        self._advance = request.advance
        self.place: tuple[str, Sequence[int]] = ("", ())
        self._source.size_bytes = file_size(request.path)

    @property
    def digest(self) -> None:
        """Not computed: a database is not read from start to end."""

    def batches(self) -> Iterator[TraceBatch]:
        """All events, table by table. Raises InputError if the file is of another kind."""
        with self._file() as path:
            _check_file(path, self._what, self._export)
            self._db = Database(path)
        self._check_journal()
        try:
            yield from self._batches()
        finally:
            self._db.close()

    def row(self, table: str, rowid: int) -> dict[str, object]:
        """Return the values of a row that are not NULL, by column, while the batches are read."""
        return self._db.row(table, rowid)

    def _file(self) -> AbstractContextManager[Path]:
        """The SQLite file, which may be deleted once it is open."""
        return nullcontext(self._path)

    def _check_journal(self) -> None:
        for kind in ("wal", "journal"):
            if file_size(self._path.with_name(f"{self._path.name}-{kind}")):
                message = f"the last rows may be in the file's -{kind}, which is not read: its writer was interrupted"
                message += "; open the database with sqlite3 once, and ingest it again"
                self._log.add(Code.MISSING_RECORDS, message, source_id=SOURCE_ID)

    @abstractmethod
    def _batches(self) -> Iterator[TraceBatch]: ...

    # -- progress, provenance, accounting --

    def _shares(self, tables: Sequence[str]) -> dict[str, int]:
        """The bytes that count as read with each table, by its share of the rows."""
        counts = {table: self._db.row_count(table) for table in tables if table in self._db.tables}
        total = sum(counts.values()) or 1
        return {table: self.size_bytes * count // total for table, count in counts.items()}

    def _noted(self, table: str, batches: Iterator[TraceBatch], shares: Mapping[str, int]) -> Iterator[TraceBatch]:
        if table not in self._db.tables:
            return
        done, share, total = 0, shares.get(table, 0), self._db.row_count(table) or 1
        for batch in batches:
            step = min(share - done, share * batch.columns.count // total)
            done += step
            self._advance(step)
            yield batch
        self._advance(share - done)

    def _report(self, damage: Damage) -> None:
        where = f"after row {damage.after}" if damage.after is not None else "from the first row on"
        until = f" up to row {damage.before}" if damage.before is not None else ""
        message = f"{damage.table}: rows {where}{until} can't be read ({damage.reason})"
        self._lose(damage.table, damage.count, Code.DAMAGED_BLOCK, message)

    def _lose(self, table: str, count: int | None, code: Code, message: str) -> None:
        self._log.add(code, message, source_id=SOURCE_ID, event_count=count)
        if count:
            self._accounts[f"{table} rows"].add(lost=count)

    def _count_unread(self, tables: Sequence[str], views: Sequence[str]) -> None:
        """Report tables and views that no reader knows; their rows are lost if they may be events."""
        for table in tables:
            count = sum(len(rows) for rows in self._db.scan(table, (), self._report))
            message = f"{printable(table)}: unknown table, not read"
            if count and not _TIME_COLUMNS.isdisjoint(self._db.columns(table)):
                self._lose(table, count, Code.UNKNOWN_RECORD, message)
            else:
                self._log.count(Code.NOT_READ, message, count, SOURCE_ID)
        for view in sorted(views)[: ImportLog.LIMIT]:
            message = f"{printable(view)}: views and virtual tables are not read"
            self._log.add(Code.NOT_READ, message, source_id=SOURCE_ID)

    # -- batches --

    def _batch(
        self,
        category: str | Coded,
        events: Events,
        flows: EventFlows | None = None,
        track_names: Sequence[TrackName] = (),
    ) -> TraceBatch:
        self._track_names += track_names
        count = len(events.names)
        cat = category if isinstance(category, Coded) else same(category, count)
        labels = {"ph": events.phases, "name": events.names, "cat": cat, "pid": events.pids, "tid": events.tids}
        start = integers(events.starts)
        raw = {"ts": start, "dur": durations(start, events.ends), "args": events.args}
        return self._next_batch(EventColumns(count, labels, raw, None, flows), None, None)


def launch_flows(
    places: NDArray[np.intp], keys: NDArray[np.int64], numbers: NDArray[np.int64], step: int
) -> EventFlows | None:
    """The flows of events at these places from calls to what they launched; the source's keys are `numbers`."""
    if not len(places):
        return None
    steps = np.full(len(places), step, np.int32)
    return EventFlows(places, keys, steps, "launch", pa.array(numbers).cast(pa.string()))


def same(value: str | None, count: int) -> Coded:
    """A column of one value."""
    return Coded(np.zeros(count, np.int32), [value])


def renamed(column: Coded, name_of: Callable[[Any], Any]) -> Coded:
    """The names of a column's values, each name once."""
    names = coded([name_of(value) for value in column.distinct])
    return Coded(names.codes[column.codes], names.distinct)


def without(column: Values, value: int) -> Values:
    """A column with NULL in place of a value."""
    if isinstance(column, pa.Array):
        return pc.if_else(pc.equal(column, value), None, column)
    return renamed(coded(column), lambda one: None if one == value else one)


def taken(column: Values, rows: NDArray[np.intp]) -> Values:
    """Some rows of a column."""
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    return column.take(rows) if isinstance(column, Coded) else [column[row] for row in rows.tolist()]


def pairs_of(pair_of: Callable[..., tuple[Any, Any]], *columns: Values) -> tuple[Coded, Coded]:
    """The pair of values for each row of columns, as two columns; each distinct row is looked up once."""
    keys = combined([coded(column) for column in columns])
    pairs = [pair_of(*key) for key in keys.distinct]
    first, second = coded([pair[0] for pair in pairs]), coded([pair[1] for pair in pairs])
    return Coded(first.codes[keys.codes], first.distinct), Coded(second.codes[keys.codes], second.distinct)


def _check_file(path: Path, what: str, export: str) -> None:
    shown = printable(str(path))
    if path == STDIN:
        raise InputError(f"{what} can't be read from standard input; specify the file")
    with opened(path) as stream:
        head = stream.read(16)
    if container_of(head) != "plain":
        raise InputError(f"{shown} is compressed ({container_of(head)}); decompress it first")
    if not head.startswith(SQLITE_MAGIC):
        raise InputError(f"{shown} is not a SQLite file; {export}")
