"""State that is carried from batch to batch, within one budget: what exceeds it moves to a temporary database.

Every structure that grows with the number of distinct names, tracks or open events joins a `Budget` and states how many
entries it keeps in memory. When all of them together exceed the budget, the largest one spills: its entries move to a
SQLite database in the temporary folder, where they are found by key. Nothing is approximated: results are the same.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from traceconv.normalize.sort.spool import room_needed

if TYPE_CHECKING:
    import sqlite3

#: Entries that all carried state of an ingest keeps in memory; an entry takes about 300 bytes.
CARRIED_ENTRIES = 1 << 17
#: Cache of the temporary database, in KiB.
_CACHE_KB = 8 << 10
#: Bits of the filter that tells most keys which were never seen without a look-up.
_FILTER_BITS = 1 << 24
#: Rows of a batch that is read back.
_BATCH_ROWS = 1 << 13

Row = TypeVar("Row")
Key = tuple[Any, ...]


class Spilling(Protocol):
    """A structure that answers to a budget. `held`: entries in memory."""

    @property
    def held(self) -> int: ...

    def spill(self) -> None:
        """Moves all entries out of memory."""


class Budget:
    """Bounds the entries that several structures keep in memory together.

    lock  to be held by whoever changes or reads a structure of this budget: growth of one may spill another
    """

    def __init__(self, entries: int | None = None) -> None:
        """`entries`: None for the default."""
        self.entries = CARRIED_ENTRIES if entries is None else entries
        self._parts: list[Spilling] = []
        self._database: sqlite3.Connection | None = None
        self.lock = RLock()

    def join(self, part: Spilling) -> None:
        """Adds a structure."""
        self._parts.append(part)

    @property
    def held(self) -> int:
        """Entries in memory."""
        return sum(part.held for part in self._parts)

    def check(self) -> None:
        """To be called when a structure has grown."""
        while self.held > self.entries:
            with self.lock:
                max(self._parts, key=lambda part: part.held).spill()

    def database(self) -> sqlite3.Connection:
        """The temporary database; to be used under the lock, in whatever thread."""
        if self._database is None:
            import sqlite3

            with room_in_database():
                descriptor, path = tempfile.mkstemp(prefix="traceconv-")
                os.close(descriptor)
                self._path = Path(path)
                self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._database.execute("PRAGMA journal_mode = OFF")
                self._database.execute("PRAGMA synchronous = OFF")
                self._database.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
                self._database.execute("BEGIN EXCLUSIVE")
                with suppress(OSError):  # a system where open files keep their names
                    self._path.unlink()
        return self._database

    def close(self) -> None:
        """Frees the disk space."""
        with self.lock:
            if self._database is not None:
                self._database.close()
                self._database = None
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)


@contextmanager
def room_in_database() -> Iterator[None]:
    """OutputError, which says what to do, when the temporary database can't be written."""
    import sqlite3

    with room_needed():
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(errno.ENOSPC, str(error)) from error


class NumberedRows(Generic[Row]):
    """Rows of a dataclass, each with a key, numbered from 1 in the order in which their keys come first.

    The first field of the class is the number.
    """

    def __init__(self, budget: Budget, table: str, kind: type[Row]) -> None:
        """`table`: a name for the rows in the budget's database."""
        self._budget = budget
        self._table = table
        self._kind: Callable[..., Row] = kind
        self._columns = [field.name for field in fields(kind)]  # type: ignore[arg-type] # a dataclass
        self._numbers: dict[Key, int] = {}
        self._rows: dict[int, Row] = {}
        #: Of rows in memory: those that the database has not, with their keys, and those that differ there.
        self._new: dict[int, Key] = {}
        self._changed: set[int] = set()
        self._seen: bytearray | None = None
        self.count = 0
        budget.join(self)

    @property
    def held(self) -> int:
        return len(self._numbers) + len(self._rows)

    @property
    def spilled(self) -> bool:
        """Whether some rows are not in memory."""
        return self._seen is not None

    def number(self, key: Key, *values: object) -> int:
        """The number of the row with this key; a new one is made of the values, which follow the number."""
        found = self._numbers.get(key)
        return self._find(key, values) if found is None else found

    def _find(self, key: Key, values: Sequence[object]) -> int:
        with self._budget.lock:
            found = self._number_on_disk(key) if self._seen is not None else None
            if found is None:
                self.count += 1
                found = self.count
                self._rows[found] = self._kind(found, *values)
                self._new[found] = key
            self._numbers[key] = found
            if not len(self._numbers) & 63:
                self._budget.check()
        return found

    def _number_on_disk(self, key: Key) -> int | None:
        assert self._seen is not None
        one, two = _bits(key)
        if not self._seen[one >> 3] >> (one & 7) & self._seen[two >> 3] >> (two & 7) & 1:
            return None
        with room_in_database():
            statement = f"SELECT {self._columns[0]} FROM {self._table} WHERE key = ?"  # noqa: S608 - our own names
            found = self._budget.database().execute(statement, (repr(key),)).fetchone()
        return None if found is None else int(found[0])

    def at(self, number: int) -> Row:
        """The row with a number; not to be changed."""
        found = self._rows.get(number)
        if found is None:
            with self._budget.lock:
                self.load([number])
                found = self._rows[number]
                self._budget.check()
        return found

    def change(self, number: int, **values: object) -> None:
        """Sets fields of a row."""
        with self._budget.lock:
            row = self.at(number)
            for name, value in values.items():
                setattr(row, name, value)
            self._rows[number] = row  # reading it may have spilled it
            self._changed.add(number)

    def load(self, numbers: Sequence[int]) -> None:
        """Reads rows that will be asked for, together; those of a batch are near each other."""
        if self._seen is None:
            return
        with self._budget.lock, room_in_database():
            self._budget.check()
            missing = sorted(number for number in numbers if number not in self._rows)[: self._budget.entries // 2 + 1]
            statement = f"SELECT {', '.join(self._columns)} FROM {self._table} WHERE {self._columns[0]} "  # noqa: S608
            database = self._budget.database()
            for first in range(0, len(missing), _BATCH_ROWS):
                some = missing[first : first + _BATCH_ROWS]
                if some[-1] - some[0] < 4 * len(some):
                    rows: Iterable[Any] = database.execute(statement + "BETWEEN ? AND ?", (some[0], some[-1]))
                else:
                    rows = (database.execute(statement + "= ?", (number,)).fetchone() for number in some)
                for values in rows:
                    self._rows.setdefault(values[0], self._kind(*values))

    def rows(self) -> Iterator[list[Row]]:
        """All rows in the order of their numbers, in lists of a few thousand; not to be changed meanwhile."""
        # Not under the lock: a generator may go on in another thread.
        if self._seen is None:
            every = iter(list(self._rows.values()))
            while some := list(islice(every, _BATCH_ROWS)):
                yield some
            return
        at = 0
        statement = (
            f"SELECT {', '.join(self._columns)} FROM {self._table} WHERE {self._columns[0]} > ? "  # noqa: S608
            f"ORDER BY {self._columns[0]} LIMIT {_BATCH_ROWS}"
        )
        while True:
            with self._budget.lock, room_in_database():
                self.spill()
                found = self._budget.database().execute(statement, (at,)).fetchall()
            if not found:
                return
            at = found[-1][0]
            yield [self._kind(*values) for values in found]

    def spill(self) -> None:
        with self._budget.lock, room_in_database():
            database = self._budget.database()
            if self._seen is None:
                self._seen = bytearray(_FILTER_BITS >> 3)
                number, *rest = self._columns
                made = ", ".join([f"{number} INTEGER PRIMARY KEY", "key TEXT UNIQUE", *rest])
                database.execute(f"CREATE TABLE {self._table} ({made})")
            marks = ", ".join("?" * (len(self._columns) + 1))
            names = ", ".join(["key", *self._columns])
            values = attrgetter(*self._columns)
            new = ((repr(key), *values(self._rows[number])) for number, key in self._new.items())
            database.executemany(f"INSERT INTO {self._table} ({names}) VALUES ({marks})", new)  # noqa: S608
            changes = ", ".join(f"{name} = ?" for name in self._columns)
            changed = ((*values(self._rows[number]), number) for number in self._changed - self._new.keys())
            database.executemany(f"UPDATE {self._table} SET {changes} WHERE {self._columns[0]} = ?", changed)  # noqa: S608
            for key in self._new.values():
                for bit in _bits(key):
                    self._seen[bit >> 3] |= 1 << (bit & 7)
            for kept in (self._numbers, self._rows, self._new, self._changed):
                kept.clear()


def _bits(key: Key) -> tuple[int, int]:
    """The places of a key in the filter."""
    word = hash(key)
    return word % _FILTER_BITS, (word >> 32) % _FILTER_BITS
