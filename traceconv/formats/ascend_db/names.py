"""What describes the events of a database: texts, enums, facts about tasks, call stacks, and who recorded it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, coded, combined
from traceconv.formats.ascend_db.tables import (
    COMPUTE,
    CONNECTIONS,
    COPIES,
    COUNTS,
    ENUMS,
    FACTS,
    NONE,
    OLDER_FACTS,
    SCHEDULE,
    STACKS,
    STRINGS,
)
from traceconv.formats.chrome_json.patch import patch
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import Damage, Database
from traceconv.formats.common.sqlite_names import ById, SqliteNames
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import renamed

#: Distinct facts and call stacks that are kept.
_MOST_DISTINCT = 1 << 20
#: Further frames of a stack are dropped, if they are read later.
_MOST_FRAMES = 1 << 14
_NOTHING = frozenset(("", "N/A", "NULL"))
_ABOUT = {
    "META_DATA": ("name", "value"),
    "HOST_INFO": ("hostUid", "hostName"),
    "SESSION_TIME_INFO": ("startTimeNs", "endTimeNs"),
    "RANK_DEVICE_MAP": ("rankId", "deviceId"),
    "NPU_INFO": ("id", "name"),
}


class Names(SqliteNames):
    """These descriptions in one database. `about`: its small tables."""

    def __init__(self, db: Database, log: ImportLog, accounts: Accounts) -> None:
        super().__init__(db, log, accounts, STRINGS)
        self._accounts = accounts
        self._enums: dict[str, dict[Any, str]] = {}
        self._fact_of, self._facts = ById(), dict[tuple[Any, ...], int]()
        self._stack_of, self._stacks = ById(), dict[bytes, int]()
        self._connection_of, self._copy_sizes, self._copy_kinds = ById(), ById(), ById()
        self.about = self._read_about()
        for table in (COMPUTE, SCHEDULE):
            self._read_facts(table)
        self._read_stacks()
        for _, (ids, connections) in self._rows(CONNECTIONS, ("id", "connectionId")):
            self._connection_of.add(integer_array(ids), integer_array(connections))
        for _, (ids, sizes, kinds) in self._rows(COPIES, ("globalTaskId", "size", "memcpyOperation")):
            self._copy_sizes.add(integer_array(ids), integer_array(sizes))
            self._copy_kinds.add(integer_array(ids), integer_array(kinds))
        for found in (self._fact_of, self._stack_of, self._connection_of, self._copy_sizes, self._copy_kinds):
            found.sort()
        self._known_facts, self._known_stacks = list(self._facts), list(self._stacks)

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Values]]]:
        """Yield the rows of a table as columns; they are accounted for as used."""
        if table not in self._db.tables:
            return

        def report(damage: Damage) -> None:
            self._report(damage)
            if damage.count:
                account.add(lost=damage.count)

        account = self._accounts[f"{table} rows"]
        for count, found in self._db.columns_of(table, columns, report):
            account.add(used=count)
            yield count, found

    def _read_about(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for table, columns in _ABOUT.items():
            rows = [
                tuple(None if isinstance(cell, bytes) else cell for cell in row)
                for row in self.all_rows(table, columns)
            ]
            if rows and table == "META_DATA":
                found[table] = {str(name): _decoded(value) for name, value in rows}
            elif rows:
                found[table] = [dict(zip(columns, row, strict=True)) for row in rows]
        return found

    def _read_facts(self, table: str) -> None:
        facts = FACTS if "blockNum" in self._db.columns(table) or table == SCHEDULE else OLDER_FACTS
        lost = 0
        for count, (ids, *columns) in self._rows(table, ("globalTaskId", *facts.values())):
            keys = combined([coded(column) for column in columns])
            numbers = self._numbered(self._facts, keys.distinct)
            kept = np.flatnonzero(numbers[keys.codes] >= 0)
            if not self._fact_of.add(integer_array(ids)[kept], numbers[keys.codes][kept]):
                kept = kept[:0]
            lost += count - len(kept)
        self._lose(table, lost)

    def _read_stacks(self) -> None:
        lost = 0
        before: list[Int64] = []  # the rows of the last stack so far
        for columns in (*(found for _, found in self._rows(STACKS, ("id", "stackDepth", "stack"))), None):
            if columns is not None:
                rows = [integer_array(column) for column in columns]
                rows = [np.concatenate(parts) for parts in zip(before, rows, strict=True)] if before else rows
            elif not before:
                break
            else:
                rows = before
            ids, depths, texts = rows
            starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
            ends = [*starts[1:].tolist(), len(ids)]
            complete = len(starts) if columns is None else len(starts) - 1
            before = [column[starts[-1] :][:_MOST_FRAMES] for column in rows]
            order = np.lexsort((depths, np.cumsum(np.diff(ids, prepend=ids[0]) != 0)))
            texts = texts[order]
            keys = [texts[start:end].tobytes() for start, end in zip(starts.tolist(), ends, strict=True)][:complete]
            numbers = self._numbered(self._stacks, keys)
            kept = np.flatnonzero(numbers >= 0)
            if not self._stack_of.add(ids[starts[:complete]][kept], numbers[kept]):
                kept = kept[:0]
            lost += complete - len(kept)
        self._lose(STACKS, lost)

    def _numbered(self, known: dict[Any, int], keys: Sequence[Any]) -> Int64:
        """Return the number of each key; -1 for those that are not kept."""
        found = []
        for key in keys:
            number = known.get(key, -1)
            if number < 0 and len(known) < _MOST_DISTINCT:
                number = known[key] = len(known)
            found.append(number)
        return np.array(found, np.int64)

    def _lose(self, table: str, count: int) -> None:
        message = f"{table}: more than is kept; what it describes is unknown"
        self._log.count(Code.TOO_MUCH_TEXT, message, count, SOURCE_ID)

    # -- look-ups --

    def known(self, number: Any) -> str | None:
        """The text of an ID; None for an unknown ID and for texts that mean nothing."""
        text = self._texts.get(number)
        return None if text in _NOTHING else text

    def enum(self, table: str, number: Any) -> str | None:
        """The name of a value of an enum; None for unknown ones."""
        if table not in self._enums:
            rows = self.all_rows(table, ("id", "name"))
            own = {row[0]: row[1] for row in rows if isinstance(row[1], str)}
            self._enums[table] = {**ENUMS.get(table, {}), **own}
        name = self._enums[table].get(number)
        return None if name in _NOTHING else name

    def facts(self, task_ids: Int64) -> dict[str, Coded]:
        """What is known about each task, by key in its args."""
        used, codes = np.unique(self._fact_of.find(task_ids), return_inverse=True)
        nothing = (None,) * len(FACTS)
        rows = [nothing if number < 0 else self._known_facts[number] for number in used.tolist()]
        return {
            key: Coded(codes.astype(np.int32), [self._fact(key, row[place]) for row in rows])
            for place, key in enumerate(FACTS)
        }

    def _fact(self, key: str, number: Any) -> object:
        if key in COUNTS:
            return None if number == NONE else number
        text = self.known(number)
        if text is not None and key == "HF32 Eligible":
            return {"YES": True, "NO": False}.get(text, text)
        # Shapes are quoted, as in CSV.
        return text.replace('"', "") if text is not None and key.endswith("Shapes") else text

    def copies(self, task_ids: Int64) -> dict[str, Values]:
        """The size and direction of copies, by key in their args."""
        if not len(self._copy_sizes.ids):
            return {}
        sizes, kinds = self._copy_sizes.find(task_ids), coded(pa.array(self._copy_kinds.find(task_ids)))
        names = renamed(kinds, lambda kind: self.enum("ENUM_MEMCPY_OPERATION", kind))
        return {"size(B)": pa.array(sizes, mask=sizes < 0), "operation": names}

    def stacks(self, numbers: Values) -> Coded:
        """The call stacks of IDs."""
        used, codes = np.unique(self._stack_of.find(integer_array(numbers)), return_inverse=True)
        return Coded(codes.astype(np.int32), [self._stack(number) for number in used.tolist()])

    def _stack(self, number: int) -> str | None:
        if number < 0:
            return None
        frames = np.frombuffer(self._known_stacks[number], np.int64).tolist()
        return ";\r\n".join(self._texts.get(frame, "") for frame in frames)

    def connections(self, ids: Int64) -> tuple[Int64, Int64]:
        """The connections of IDs, each with the place of its ID."""
        low = np.searchsorted(self._connection_of.ids, ids, "left")
        counts = np.searchsorted(self._connection_of.ids, ids, "right") - low
        counts[ids < 0] = 0
        places = np.repeat(np.arange(len(ids)), counts)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self._connection_of.numbers[low[places] + offsets]

    @property
    def connected(self) -> Int64:
        """All connections of CONNECTION_IDS."""
        return self._connection_of.numbers


def _decoded(value: object) -> object:
    """The value of JSON text, such as the environment's variables."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(patch(value.encode()).text)
    except (ValueError, RecursionError):
        return value
