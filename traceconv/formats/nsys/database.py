"""An untrusted SQLite file → rows of its plain tables, read-only, as far as they can be read."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from traceconv.base.errors import InputError, printable

Row: TypeAlias = "tuple[Any, ...]"

#: Raised for damaged files: sqlite3 also fails to decode messages and names that are not UTF-8, and reports text that
#: it can't reach as lack of memory.
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
#: Rows that are read at once.
ROWS = 16384
#: Largest value; names and JSON payloads are far smaller.
_VALUE_BYTES = 64 << 20
#: Statements may only read: no functions, no attaching, no writing.
_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA))


class Database:
    """The tables of one file. Views, virtual tables and computed columns are never read: they would run SQL.

    Raises InputError if the file is not a database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
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
        self.tables = [name for name, kind, page in found if kind == "table" and page and isinstance(name, str)]
        self.views = [name for name, kind, page in found if kind == "view" or (kind == "table" and not page)]
        self._columns: dict[str, list[str]] = {}

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._connection is not None
        return self._connection.execute(sql, parameters)

    def columns(self, table: str) -> list[str]:
        """The names of a table's stored columns; none if it doesn't exist or its schema is damaged."""
        if table not in self.tables:
            return []
        if table not in self._columns:
            try:
                listed = self._execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
            except ERRORS:
                listed = []
            self._columns[table] = [row[1] for row in listed if row[6] == 0]
        return self._columns[table]

    def row_count(self, table: str) -> int:
        """An estimate of the number of rows, from the last rowid."""
        try:
            row = self._execute(f"SELECT rowid FROM {_quoted(table)} ORDER BY rowid DESC LIMIT 1").fetchone()  # noqa: S608 - quoted
        except ERRORS:
            return 0
        return int(row[0]) if row is not None and isinstance(row[0], int) and 0 < row[0] < 1 << 48 else 0

    def scan(
        self,
        table: str,
        columns: Sequence[str],
        on_damage: Callable[[Damage], None] = lambda damage: None,
        *,
        numbered: bool = False,
    ) -> Iterator[list[Row]]:
        """Yield all readable rows, in lists of tuples. Columns that the table doesn't have are None.

        After a damaged page, reading continues from the end of the table; `on_damage` is called for the rows between.
        `numbered`: each row begins with its rowid.
        """
        have = set(self.columns(table))
        wanted = ", ".join(("rowid", *(_quoted(column) if column in have else "NULL" for column in columns)))
        sql = f"SELECT {wanted} FROM {_quoted(table)}"  # noqa: S608 - quoted names of the file's own tables
        last: int | None = None
        skip = 0 if numbered else 1
        try:
            cursor = self._execute(sql)
            while rows := cursor.fetchmany(ROWS):
                last = rows[-1][0]
                yield rows if numbered else [row[1:] for row in rows]
            return
        except ERRORS as error:
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
