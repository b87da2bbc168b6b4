"""Small tables of a SQLite file, which name what is in others, and the IDs in a column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, coded
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import Damage, Database
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import renamed

#: Maximum size of all texts in memory; further ones are unknown.
_MAX_TEXT = 1 << 30
#: IDs below this are in a bit table.
_MOST_IDS = 1 << 26
#: IDs with a number that are kept, 16 bytes each.
_MOST_NUMBERED = 1 << 27


class SqliteNames:
    """The texts by ID in one table (id, value), and the rows of other small tables."""

    def __init__(self, db: Database, log: ImportLog, accounts: Accounts, table: str) -> None:
        self._db = db
        self._log = log
        self._texts: dict[Any, str] = {}
        if table not in db.tables:
            return
        size = count = kept = 0
        for rows in db.scan(table, ("id", "value"), self._report):
            count += len(rows)
            if size > _MAX_TEXT:
                continue
            for number, text in rows:
                if isinstance(text, str):
                    self._texts[number] = text
                    size += len(text) + 64
            kept += len(rows)
        accounts[f"{table} rows"].add(used=kept, lost=count - kept)
        log.count(Code.TOO_MUCH_TEXT, f"{table}: more text than is kept", count - kept, SOURCE_ID)

    def all_rows(self, table: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return all rows of a table that is small in every valid file; at most about a million."""
        found: list[tuple[Any, ...]] = []
        if table not in self._db.tables:
            return found
        for rows in self._db.scan(table, columns, self._report):
            found.extend(rows)
            if len(found) > 1_000_000:
                self._log.add(Code.TOO_MUCH_TEXT, f"{table} has more rows than are kept", source_id=SOURCE_ID)
                break
        return found

    def _report(self, damage: Damage) -> None:
        message = f"{damage.table}: rows can't be read ({damage.reason}); names may be missing"
        self._log.add(Code.DAMAGED_BLOCK, message, source_id=SOURCE_ID, event_count=damage.count)

    def text(self, number: Any) -> str | None:
        """The text of an ID; None for an unknown ID."""
        return self._texts.get(number)

    def texts(self, numbers: Values) -> Coded:
        """The texts of several IDs."""
        return renamed(coded(numbers), self._texts.get)


@dataclass(slots=True)
class ById:
    """Numbers by ID, added in any order, then sorted."""

    _parts: list[tuple[Int64, Int64]] = field(default_factory=list)
    ids: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    count: int = 0

    def add(self, ids: Int64, numbers: Int64) -> bool:
        """Add numbers; return whether they were kept."""
        self.count += len(ids)
        if self.count > _MOST_NUMBERED:
            return False
        self._parts.append((ids, numbers))
        return True

    def sort(self) -> None:
        """Prepare to look up. Of equal IDs, the first is found."""
        if self._parts:
            self.ids, self.numbers = (np.concatenate(part) for part in zip(*self._parts, strict=True))
            self._parts = []
        if np.any(self.ids[1:] < self.ids[:-1]):
            order = np.argsort(self.ids, kind="stable")
            self.ids, self.numbers = self.ids[order], self.numbers[order]

    def find(self, ids: Int64) -> Int64:
        """Return the number of each ID, -1 if it has none."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.numbers[places], -1)

    def repeated(self, ids: Int64) -> Mask:
        """Whether each ID has several numbers."""
        found: Mask = np.searchsorted(self.ids, ids, "right") - np.searchsorted(self.ids, ids, "left") > 1
        return found


class IdSet:
    """A set of IDs, which are not negative. Very large ones count as members, so that the set stays small."""

    def __init__(self) -> None:
        self._bits = np.zeros(0, np.bool_)

    def add(self, ids: Int64) -> None:
        """Add IDs."""
        ids = ids[(ids >= 0) & (ids < _MOST_IDS)]
        top = int(ids.max(initial=-1)) + 1
        if len(self._bits) < top:
            grown = np.zeros(max(top, 2 * len(self._bits)), np.bool_)
            grown[: len(self._bits)] = self._bits
            self._bits = grown
        self._bits[ids] = True

    def has(self, ids: Int64) -> Mask:
        """Whether each ID is a member."""
        found: Mask = ids >= _MOST_IDS
        known = (ids >= 0) & (ids < len(self._bits))
        found[known] = self._bits[ids[known]]
        return found
