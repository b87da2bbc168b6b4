"""A memory budget for state that is carried from batch to batch; what exceeds it spills to a temporary database.

Every structure that grows with the number of distinct names, tracks or open events joins a `Budget` and reports how
many entries it keeps in memory. When all of them together exceed the budget, the largest one spills: its entries move
to a SQLite database in the temporary folder, where they are found by key. Results do not change.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from pickle import dumps, loads
from threading import RLock
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from traceconv.normalize.sort.spool import spilling

if TYPE_CHECKING:
    import sqlite3

#: Entries that an ingest keeps in memory; an entry takes about 300 bytes.
MEMORY_ENTRIES = 1 << 17
#: Cache of the temporary database, in KiB.
_CACHE_KB = 8 << 10
#: Bits of the Bloom filter that answers for most new keys without a look-up.
_FILTER_BITS = 1 << 24
#: Rows of a batch that is read back.
_BATCH_ROWS = 1 << 13

Row = TypeVar("Row")
Key = tuple[Any, ...]


class Spilling(Protocol):
    """A structure that is bounded by a budget."""

    @property
    def entries(self) -> int:
        """The number of entries in memory."""

    def spill(self) -> None:
        """Move all entries out of memory."""


class Budget:
    """Bounds the entries that several structures keep in memory together.

    lock  hold it while changing or reading a structure of this budget: growth of one may spill another
    """

    def __init__(self, entries: int | None = None) -> None:
        """`entries`: the limit; None: the default."""
        self.limit = MEMORY_ENTRIES if entries is None else entries
        self._parts: list[Spilling] = []
        self._database: sqlite3.Connection | None = None
        self.lock = RLock()

    def join(self, part: Spilling) -> None:
        """Add a structure."""
        self._parts.append(part)

    @property
    def entries(self) -> int:
        """The number of entries in memory."""
        return sum(part.entries for part in self._parts)

    def check(self) -> None:
        """Spill if there are too many entries. Call it after a structure has grown."""
        while self.entries > self.limit:
            with self.lock:
                max(self._parts, key=lambda part: part.entries).spill()

    def database(self) -> sqlite3.Connection:
        """Return the temporary database. Use it under the lock; any thread will do."""
        if self._database is None:
            import sqlite3

            with spilling_to_database():
                descriptor, path = tempfile.mkstemp(prefix="traceconv-")
                os.close(descriptor)
                self._path = Path(path)
                self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._database.execute("PRAGMA journal_mode = OFF")
                self._database.execute("PRAGMA synchronous = OFF")
                self._database.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
                self._database.execute("BEGIN EXCLUSIVE")
                with suppress(OSError):  # some systems do not let open files be unlinked
                    self._path.unlink()
        return self._database

    def close(self) -> None:
        """Free the disk space, and the structures, which refer to this object."""
        with self.lock:
            self._parts = []
            if self._database is not None:
                self._database.close()
                self._database = None
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)


@contextmanager
def spilling_to_database() -> Iterator[None]:
    """Turn a failed write to the temporary database into an OutputError with a remedy."""
    import sqlite3

    with spilling():
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(errno.ENOSPC, str(error)) from error


class NumberedRows(Generic[Row]):
    """Rows of a dataclass, each with a key, numbered from 1 in the order of the first use of their keys.

    The first field of the class is the number. On disk, a table has the key and the other fields of each number, and
    another one the numbers by hash of the key: short rows in order, where long keys would be inserted anywhere.
    """

    def __init__(self, budget: Budget, table: str, kind: type[Row]) -> None:
        """`table`: the name of the rows' table in the budget's database."""
        self._budget = budget
        self._table = table
        self._kind: Callable[..., Row] = kind
        self._columns = [field.name for field in fields(kind)]  # type: ignore[arg-type] # a dataclass
        self._numbers: dict[Key, int] = {}
        self._rows: dict[int, Row] = {}
        #: Rows in memory that the database does not have (with their keys), and rows that are outdated there.
        self._new: dict[int, Key] = {}
        self._changed: set[int] = set()
        self._seen: bytearray | None = None
        self.count = 0
        budget.join(self)

    @property
    def entries(self) -> int:
        return len(self._numbers) + len(self._rows)

    @property
    def spilled(self) -> bool:
        """Whether any row was ever spilled."""
        return self._seen is not None

    def number(self, key: Key, *values: object) -> int:
        """Return the number of the row with this key. A new row gets the values, which follow the number."""
        found = self._numbers.get(key)
        return self._find(key, values) if found is None else found

    def skip(self, count: int) -> int:
        """Leave out the next `count` numbers, for rows that are kept elsewhere. Return the first."""
        with self._budget.lock:
            self.count += count
            return self.count - count + 1

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
        key_hash = hash(key)
        one, two = _bits(key_hash)
        if not self._seen[one >> 3] >> (one & 7) & self._seen[two >> 3] >> (two & 7) & 1:
            return None
        with spilling_to_database():
            statement = f"SELECT number, key FROM {self._table}_key JOIN {self._table} USING (number) WHERE hash = ?"  # noqa: S608 - our own names
            found = self._budget.database().execute(statement, (key_hash,)).fetchall()
        text = repr(key)
        return next((int(number) for number, other in found if other == text), None)

    def at(self, number: int) -> Row:
        """Return the row with a number. Do not change it."""
        found = self._rows.get(number)
        if found is None:
            with self._budget.lock:
                self.load([number])
                found = self._rows[number]
                self._budget.check()
        return found

    def change(self, number: int, **values: object) -> None:
        """Set fields of a row."""
        with self._budget.lock:
            row = self.at(number)
            for name, value in values.items():
                setattr(row, name, value)
            self._rows[number] = row  # reading it may have spilled it
            self._changed.add(number)

    def load(self, numbers: Sequence[int]) -> None:
        """Read rows together before they are needed; those of a batch are close to each other."""
        if self._seen is None:
            return
        with self._budget.lock, spilling_to_database():
            self._budget.check()
            missing = sorted(number for number in numbers if number not in self._rows)[: self._budget.limit // 2 + 1]
            statement = f"SELECT number, fields FROM {self._table} WHERE number "  # noqa: S608
            database = self._budget.database()
            for first in range(0, len(missing), _BATCH_ROWS):
                some = missing[first : first + _BATCH_ROWS]
                if some[-1] - some[0] < 4 * len(some):
                    rows: Iterable[Any] = database.execute(statement + "BETWEEN ? AND ?", (some[0], some[-1]))
                else:
                    rows = (database.execute(statement + "= ?", (number,)).fetchone() for number in some)
                for number, values in rows:
                    if number not in self._rows:
                        self._rows[number] = self._kind(number, *loads(values))

    def rows(self) -> Iterator[list[Row]]:
        """Yield all rows in the order of their numbers, in one list or more. Do not change rows meanwhile."""
        # Not under the lock: a generator may be resumed in another thread.
        at = 0
        while True:
            with self._budget.lock:
                found = self._stored_after(at)
                if not found:
                    last = [self._rows[number] for number in self._new]
                    break
                at = found[-1][0]
                some = [self._rows.get(number) or self._kind(number, *loads(values)) for number, values in found]
            yield some
        yield last

    def _stored_after(self, number: int) -> list[tuple[int, bytes]]:
        if self._seen is None:
            return []
        statement = f"SELECT number, fields FROM {self._table} WHERE number > ? ORDER BY number LIMIT {_BATCH_ROWS}"  # noqa: S608
        with spilling_to_database():
            return self._budget.database().execute(statement, (number,)).fetchall()

    def spill(self) -> None:
        with self._budget.lock, spilling_to_database():
            database = self._budget.database()
            if self._seen is None:
                self._seen = bytearray(_FILTER_BITS >> 3)
                database.execute(f"CREATE TABLE {self._table} (number INTEGER PRIMARY KEY, key TEXT, fields BLOB)")
                columns = "hash INTEGER, number INTEGER, PRIMARY KEY (hash, number)"
                database.execute(f"CREATE TABLE {self._table}_key ({columns}) WITHOUT ROWID")
            values = attrgetter(*self._columns[1:])
            new = ((number, repr(key), dumps(values(self._rows[number]))) for number, key in self._new.items())
            database.executemany(f"INSERT INTO {self._table} VALUES (?, ?, ?)", new)  # noqa: S608
            hashes = sorted((hash(key), number) for number, key in self._new.items())
            database.executemany(f"INSERT INTO {self._table}_key VALUES (?, ?)", hashes)  # noqa: S608
            changed = ((dumps(values(self._rows[number])), number) for number in self._changed - self._new.keys())
            database.executemany(f"UPDATE {self._table} SET fields = ? WHERE number = ?", changed)  # noqa: S608
            for key_hash, _ in hashes:
                for bit in _bits(key_hash):
                    self._seen[bit >> 3] |= 1 << (bit & 7)
            for kept in (self._numbers, self._rows, self._new, self._changed):
                kept.clear()


def _bits(key_hash: int) -> tuple[int, int]:
    """Return the positions of a key's hash in the filter."""
    return key_hash % _FILTER_BITS, (key_hash >> 32) % _FILTER_BITS
