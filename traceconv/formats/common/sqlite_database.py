"""An untrusted SQLite file → rows of its plain tables, or columns of many rows, as far as they can be read."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from traceconv import native
from traceconv.base.errors import InputError, printable
from traceconv.formats.common.sqlite_pages import ROWIDS, Pages, Values
from traceconv.schema.ddl import quote_identifier

Row: TypeAlias = "tuple[Any, ...]"

#: Raised for damaged files: sqlite3 also fails to decode messages and names that are not UTF-8, and reports text that
#: it can't reach as lack of memory.
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
#: Rows that are read at once.
ROWS = 16384
#: Largest value; names and JSON payloads are far smaller.
_VALUE_BYTES = 64 << 20
#: Values in one statement; SQLite takes at least 999.
_PARAMETERS = 500
#: Parts of types by which SQLite stores and reads floats.
_FLOATS = ("REAL", "FLOA", "DOUB")
#: Requests the rowids as a column.
ROWID = "rowid"
#: Statements may only read: no functions, no attaching, no writing.
_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA))


class Database:
    """The tables of one file. Views, virtual tables and computed columns are never read: they would run SQL.

    Raises InputError if the file is not a database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._pages: Pages | None = None
        try:
            # immutable: no journal, no locks, and no files next to it.
            uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True)
            self._connection.text_factory = _text
            for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON", "mmap_size=0"):
                self._connection.execute(f"PRAGMA {pragma}")
            if sys.version_info >= (3, 11):
                self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
            self._connection.set_authorizer(_authorize)
            found = self._connection.execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
        except (*ERRORS, OSError) as error:
            self.close()
            raise InputError(
                f"can't read {printable(str(path))} as SQLite: {printable(str(error)) or 'it is damaged'}"
            ) from error
        # Python calls a function for each text otherwise.
        self._connection.text_factory = str
        self._roots = {name: page for name, kind, page in found if kind == "table" and page}
        self.tables = [name for name, kind, page in found if kind == "table" and page and isinstance(name, str)]
        self.views = [name for name, kind, page in found if kind == "view" or (kind == "table" and not page)]
        self._columns: dict[str, list[str]] = {}
        #: Tables that `Pages` can read: the place of each column, and whether it has floats.
        self._places: dict[str, dict[str, tuple[int, bool]]] = {}
        if native.AVAILABLE:
            with contextlib.suppress(OSError, ValueError):
                self._pages = Pages(path)

    def close(self) -> None:
        """Close the file."""
        if self._pages is not None:
            self._pages.close()
            self._pages = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(sql, parameters)

    def _fetched(self, sql: str, parameters: Sequence[object] = (), most: int = -1) -> list[Row]:
        """Return the rows of a statement, or at most some of them."""
        try:
            cursor = self._execute(sql, parameters)
            return cursor.fetchall() if most < 0 else cursor.fetchmany(most)
        except ERRORS:
            if not self._start_replacing():
                raise
            return self._fetched(sql, parameters, most)

    def _start_replacing(self) -> bool:
        """Replace what is not UTF-8 in texts from now on; return False if that is done already."""
        assert self._connection is not None
        before, self._connection.text_factory = self._connection.text_factory, _text
        return before is not _text

    def columns(self, table: str) -> list[str]:
        """The names of a table's stored columns; none if it doesn't exist or its schema is damaged."""
        if table not in self.tables:
            return []
        if table not in self._columns:
            try:
                listed = self._fetched(f"PRAGMA table_xinfo({quote_identifier(table)})")
            except ERRORS:
                listed = []
            self._columns[table] = [row[1] for row in listed if row[6] == 0]
            # A computed column is not stored, and a key of one integer is stored as the rowid.
            keys = [row[2] for row in listed if row[5]]
            if all(row[6] == 0 for row in listed) and (not keys or self._is_rowid(table, keys)):
                places = {row[1]: (ROWIDS if row[5] else row[0], _has_floats(row[2])) for row in listed}
                self._places[table] = {ROWID: (ROWIDS, False), **places}
        return self._columns[table]

    def _is_rowid(self, table: str, kinds: Sequence[object]) -> bool:
        """Whether a primary key of columns with these types is another name of the rowid: otherwise it has an index."""
        try:
            indexes = self._fetched(f"PRAGMA index_list({quote_identifier(table)})")
        except ERRORS:
            return False
        return len(kinds) == 1 and str(kinds[0]).upper() == "INTEGER" and all(index[3] != "pk" for index in indexes)

    def row_count(self, table: str) -> int:
        """An estimate of the number of rows, from the last rowid."""
        try:
            row = self._execute(f"SELECT rowid FROM {quote_identifier(table)} ORDER BY rowid DESC LIMIT 1").fetchone()  # noqa: S608 - quoted
        except ERRORS:
            return 0
        return int(row[0]) if row is not None and isinstance(row[0], int) and 0 < row[0] < 1 << 48 else 0

    def columns_of(
        self, table: str, columns: Sequence[str], on_damage: Callable[[Damage], None] = lambda damage: None
    ) -> Iterator[tuple[int, list[Values]]]:
        """Yield the same rows as `scan` as columns: the number of rows, and the values of each column."""
        have = self.columns(table)
        stored = [column for column in columns if column in have or column == ROWID]
        last: int | None = None
        done = 0
        if self._pages is not None and stored and table in self._places:
            # A key may be another name of the rowid.
            wanted = {self._places[table][column]: column for column in stored}
            same = {column: wanted[self._places[table][column]] for column in stored}
            for count, until, values in self._pages.rows(self._roots[table], list(wanted), ROWS):
                if values is None:
                    rows = self.rows_between(table, list(wanted.values()), last, until) if count else []
                    if not count or len(rows) != count:
                        break
                    values = list(zip(*rows, strict=True))
                last, done = until, done + count
                read = dict(zip(wanted.values(), values, strict=True))
                by_name = {column: read[other] for column, other in same.items()}
                missing = (None,) * (count if len(stored) < len(columns) else 0)
                yield count, [by_name.get(column, missing) for column in columns]
            else:
                return
        for rows in self.scan(table, columns, on_damage, after=(last, done)):
            yield len(rows), list(zip(*rows, strict=True))

    def columns_between(
        self, table: str, columns: Sequence[str], bounds: tuple[int, int], count: int
    ) -> list[Values] | None:
        """Return columns of the rows with rowids after one up to another; NULLs for columns that the table lacks.

        None if they can't be read, or if their number is another one.
        """
        after, until = bounds
        have = self.columns(table)
        stored = [column for column in columns if column in have or column == ROWID]
        read: dict[str, Values] | None = None
        if self._pages is not None and table in self._places:
            # A key may be another name of the rowid.
            places = [self._places[table][column] for column in stored]
            wanted = list(dict.fromkeys(places))
            pages = self._pages.rows(self._roots[table], wanted, count, after)
            found, last, values = next(pages, (0, after, None))
            if values is not None and (found, last) == (count, until):
                read = {column: values[wanted.index(place)] for column, place in zip(stored, places, strict=True)}
        if read is None:
            rows = self.rows_between(table, stored, after, until)
            if len(rows) != count:
                return None
            read = dict(zip(stored, zip(*rows, strict=True), strict=True)) if rows else {}
        return [read.get(column, (None,) * count) for column in columns]

    def rows_between(self, table: str, columns: Sequence[str], after: int | None, until: int) -> list[Row]:
        """Return the rows with rowids after one up to another; none if they can't be read."""
        wanted = ", ".join(map(quote_identifier, columns))
        sql = f"SELECT {wanted} FROM {quote_identifier(table)} WHERE rowid > ? AND rowid <= ? ORDER BY rowid"  # noqa: S608 - quoted
        try:
            return self._fetched(sql, (-(2**63) if after is None else after, until))
        except ERRORS:
            return []

    def row(self, table: str, rowid: int) -> dict[str, object]:
        """Return the values of a row that are not NULL, by column."""
        columns = self.columns(table)
        rows = self.rows_between(table, columns, rowid - 1, rowid)
        return {name: value for row in rows for name, value in zip(columns, row, strict=True) if value is not None}

    def scan(
        self,
        table: str,
        columns: Sequence[str],
        on_damage: Callable[[Damage], None] = lambda damage: None,
        *,
        numbered: bool = False,
        after: tuple[int | None, int] = (None, 0),
    ) -> Iterator[list[Row]]:
        """Yield all readable rows, in lists of tuples; none if there is no such table. Columns that it lacks are None.

        After a damaged page, reading continues from the end of the table; `on_damage` is called for the rows between.
        `numbered`: each row begins with its rowid. `after`: the last rowid and the number of the rows to skip.
        """
        if table not in self.tables:
            return
        have = {ROWID, *self.columns(table)}
        wanted = ", ".join(("rowid", *(quote_identifier(column) if column in have else "NULL" for column in columns)))
        sql = f"SELECT {wanted} FROM {quote_identifier(table)}"  # noqa: S608 - quoted names of the file's own tables
        last, done = after
        skip = 0 if numbered else 1
        try:
            # Damaged tables may not be in the order of their rowids.
            cursor = self._execute(f"{sql} NOT INDEXED LIMIT -1 OFFSET ?", (done,)) if done else self._execute(sql)
            while rows := cursor.fetchmany(ROWS):
                last, done = rows[-1][0], done + len(rows)
                yield rows if numbered else [row[1:] for row in rows]
            return
        except ERRORS as error:
            if self._start_replacing():
                yield from self.scan(table, columns, on_damage, numbered=numbered, after=(last, done))
                return
            reason = str(error)
        first: int | None = None
        try:
            # Row by row, to keep the rows of a portion before its damage.
            cursor = self._execute(f"{sql} WHERE rowid > ? ORDER BY rowid", (-(2**63) if last is None else last,))
            places: list[int] = []
            yield from self._salvaged(cursor, places, skip)
            last = places[-1] if places else last
            cursor = self._execute(f"{sql} WHERE rowid > ? ORDER BY rowid DESC", (-(2**63) if last is None else last,))
            places = []
            yield from self._salvaged(cursor, places, skip)
            first = places[-1] if places else None
        except ERRORS as error:
            reason = str(error)
        lost = first - last - 1 if first is not None and last is not None else None
        on_damage(Damage(table, reason, last, first, lost))

    def joined(
        self, table: tuple[str, str], other: tuple[str, str], columns: Sequence[str], rowids: range, most: int
    ) -> list[Row] | None:
        """Return the rows of another table that belong to rows with these rowids, each after the rowid.

        They are in the order of both rowids.

        table, other  the names of the tables, and of the columns that are equal

        None if they can't be read, if there are more than `most`, or if the other column is not indexed, which would
        take a pass over the other table for each row.
        """
        if table[1] not in self.columns(table[0]) or not {other[1], *columns} <= set(self.columns(other[0])):
            return None
        wanted = ", ".join(("m.rowid", *(f"o.{quote_identifier(column)}" for column in columns)))
        sql = (
            # CROSS keeps the order of the tables.
            f"SELECT {wanted} FROM {quote_identifier(table[0])} AS m CROSS JOIN {quote_identifier(other[0])} AS o "  # noqa: S608 - quoted
            f"WHERE o.{quote_identifier(other[1])} = m.{quote_identifier(table[1])} AND m.rowid >= ? AND m.rowid < ? "
            "ORDER BY m.rowid, o.rowid"
        )
        bounds = (rowids.start, rowids.stop)
        try:
            plan = self._fetched(f"EXPLAIN QUERY PLAN {sql}", bounds)
            if any("AUTOMATIC" in str(step[3]) or str(step[3]).startswith("SCAN") for step in plan):
                return None
            found = self._fetched(sql, bounds, most + 1)
        except ERRORS:
            return None
        return found if len(found) <= most else None

    def matching(self, table: str, key: str, values: Sequence[int], columns: Sequence[str]) -> list[Row] | None:
        """Return the rows of a table whose key is one of these values, each after its key.

        None if they can't be read, if a key belongs to several rows, or if the column of keys is not indexed, which
        would take a pass over the table for each portion.
        """
        if not {key, *columns} <= set(self.columns(table)):
            return None
        found: list[Row] = []
        wanted = ", ".join(map(quote_identifier, (key, *columns)))
        for at in range(0, len(values), _PARAMETERS):
            some = values[at : at + _PARAMETERS]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT {wanted} FROM {quote_identifier(table)} WHERE {quote_identifier(key)} IN ({marks})"  # noqa: S608 - quoted
            try:
                if not at and any(
                    step[3].startswith("SCAN") for step in self._fetched(f"EXPLAIN QUERY PLAN {sql}", some)
                ):
                    return None
                rows = self._fetched(sql, some, len(some) + 1)
            except ERRORS:
                return None
            if len(rows) > len(some):
                return None
            found += rows
        return found

    def _salvaged(self, cursor: sqlite3.Cursor, places: list[int], skip: int) -> Iterator[list[Row]]:
        rows: list[Row] = []
        while True:
            try:
                row = cursor.fetchone()
            except ERRORS:
                row = None
            if row is None:
                break
            places[:] = [row[0]]
            rows.append(row[skip:])
            if len(rows) >= ROWS:
                yield rows
                rows = []
        if rows:
            yield rows


def table_names(path: Path) -> bytes:
    """Return lines `CREATE TABLE NAME (`, at most 64 KiB; empty if the file can't be read."""
    with contextlib.suppress(InputError):
        db = Database(path)
        db.close()
        return "".join(f"\nCREATE TABLE {name} (" for name in db.tables).encode("utf-8", "replace")[: 1 << 16]
    return b""


@dataclass(frozen=True, slots=True)
class Damage:
    """Unreadable rows of a table: the rowids around them, and their number (None: unknown)."""

    table: str
    reason: str
    after: int | None
    before: int | None
    count: int | None


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _has_floats(kind: str) -> bool:
    """Whether a column of this type may have floats that are stored as integers."""
    return any(part in kind.upper() for part in _FLOATS)
