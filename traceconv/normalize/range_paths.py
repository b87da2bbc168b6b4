"""The chain of names of each slice, and sums per chain, step and device: what native/paths.c does, for few rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST

#: NULL in a column of integers.
NULL = -(2**63)
#: Bits of a kind: an operator, another range except functions, on a track of the host; then its number.
OPERATOR, OTHER_RANGE, HOST, KIND_SHIFT = 1, 2, 4, 3
#: The kind of a call, and the name of all names beyond the limit.
CALL, OTHER_NAMES = -1, 1
#: Names of a chain; those inside are OTHER_NAMES.
MOST_DEPTH = 1024

PATH_DTYPE = np.dtype([(name, "<i8") for name in ("parent", "name", "run_id", "depth", "first_id", "kind")])
SUM_DTYPE = np.dtype([(name, "<i8") for name in (
    "path", "device_id", "step_id", "range_count", "ended_count", "host_total_ns", "host_self_ns", "task_count",
    "task_ns",
)])  # fmt: skip


@dataclass(slots=True)
class _Slice:
    """A slice. path: None until it is placed, and if a slice around it is unknown."""

    run_id: int
    id: int
    parent_id: int
    name: int
    kind: int
    step_id: int
    start_ns: int
    dur_ns: int
    self_ns: int
    is_seen: bool = False
    path: int | None = None
    bits: int = 0

    @property
    def end_ns(self) -> int:
        return LARGEST if NULL in (self.start_ns, self.dur_ns) else self.start_ns + self.dur_ns


class Paths:
    """As native.Paths, whose methods are documented there."""

    def __init__(self) -> None:
        self._most_paths = LARGEST
        self._open: dict[tuple[int, int], _Slice] = {}
        self._new: list[_Slice] = []
        #: Values of PATH_DTYPE. The kind of a run's root, whose parent is -1, is the number of paths of the run.
        self._paths: list[list[int]] = []
        self._place_of: dict[tuple[int, int], int] = {}
        #: Values of SUM_DTYPE by path, device and step. A sum of more than 64 bits continues in another row.
        self._sums: dict[tuple[int, int, int], list[list[int]]] = {}
        self._missing: list[tuple[int, int]] = []

    @property
    def counts(self) -> tuple[int, int, int, int]:
        sums = sum(map(len, self._sums.values()))
        return len(self._open) + len(self._new), len(self._paths), sums, len(self._missing)

    def limit(self, count: int) -> None:
        self._most_paths = count

    def feed(self, *columns: Int64) -> None:
        self._new += [_Slice(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]

    def place(self, start_ns: int) -> None:
        new, self._new = sorted(self._new, key=lambda one: (one.start_ns, one.id)), []
        self._open = {key: one for key, one in self._open.items() if one.end_ns >= start_ns}
        self._open |= {(one.run_id, one.id): one for one in new}
        for one in new:
            self._place_with_parents(one)
            if one.path is not None and one.kind != CALL and one.kind & HOST:
                dur_ns, self_ns = (0 if ns == NULL else ns for ns in (one.dur_ns, one.self_ns))
                self._add((one.path, NULL, one.step_id), 1, int(one.dur_ns != NULL), dur_ns, self_ns, 0, 0)

    def look_up(self, run_ids: Int64, ids: Int64) -> bytes:
        paths, bits = [], []
        for run_id, id_ in zip(run_ids.tolist(), ids.tolist(), strict=True):
            one, root = self._find(run_id, id_), self._path(-1, run_id, run_id)
            path = root if one is None or one.path is None else one.path
            paths.append(path)
            bits.append(-1 if one is None or path == root else one.bits)
        return np.array([paths, bits], np.int64).tobytes()

    def add(self, paths: Int64, device_ids: Int64, step_ids: Int64, durs: Int64) -> None:
        columns = (column.tolist() for column in (paths, device_ids, step_ids, durs))
        for path, device_id, step_id, dur_ns in zip(*columns, strict=True):
            self._add((path, device_id, step_id), 0, 0, 0, 0, 1, 0 if dur_ns == NULL else dur_ns)

    def sums(self) -> bytes:
        rows = [(*key, *row) for key, some in self._sums.items() for row in some]
        self._sums = {}
        return np.array(rows, np.int64).tobytes()

    def paths(self) -> bytes:
        return np.array(self._paths, np.int64).tobytes()

    def missing(self) -> bytes:
        return np.array(self._missing, np.int64).tobytes()

    def _find(self, run_id: int, id_: int) -> _Slice | None:
        """Return an open slice; note an unknown one as missing."""
        one = self._open.get((run_id, id_))
        if one is None and id_ != NULL:
            self._missing.append((run_id, id_))
        return one

    def _place_with_parents(self, one: _Slice) -> None:
        waiting: list[_Slice] = []
        at: _Slice | None = one
        while at is not None and not at.is_seen:
            at.is_seen = True
            waiting.append(at)
            at = self._find(at.run_id, at.parent_id)
        for inner in reversed(waiting):
            around = self._open.get((inner.run_id, inner.parent_id))
            if inner.parent_id == NULL:
                inner.path = self._path(-1, inner.run_id, inner.run_id)
            elif around is not None:
                inner.path, inner.bits = around.path, around.bits
            if inner.path is None or inner.kind == CALL:
                continue
            inner.bits |= inner.kind & (OPERATOR | OTHER_RANGE)
            inner.path = self._path(inner.path, inner.name, inner.run_id)
            if inner.kind & HOST:  # a path has the least ID and kind of the host's slices
                of = self._paths[inner.path]
                for place, value in ((4, inner.id), (5, inner.kind >> KIND_SHIFT or NULL)):
                    of[place] = max(of[place], value) if NULL in (of[place], value) else min(of[place], value)

    def _path(self, parent: int, name: int, run_id: int) -> int:
        depth = -1 if parent < 0 else self._paths[parent][3] + 1
        if depth > MOST_DEPTH:
            return parent
        if depth == MOST_DEPTH:
            name = OTHER_NAMES
        found = self._place_of.get((parent, name))
        if found is not None:
            return found
        kind = 0
        if parent >= 0:
            root = self._paths[self._path(-1, run_id, run_id)]
            if name != OTHER_NAMES and root[5] >= self._most_paths:
                return self._path(parent, OTHER_NAMES, run_id)
            root[5] += 1
            kind = NULL
        self._paths.append([parent, name, run_id, depth, NULL, kind])
        return self._place_of.setdefault((parent, name), len(self._paths) - 1)

    def _add(self, key: tuple[int, int, int], *values: int) -> None:
        rows = self._sums.setdefault(key, [])
        for row in rows:
            more = [one + other for one, other in zip(row, values, strict=True)]
            if all(NULL <= value <= LARGEST for value in more):
                row[:] = more
                return
        rows.append(list(values))
