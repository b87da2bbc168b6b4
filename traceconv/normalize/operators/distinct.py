"""Number the operators that differ in their arguments or work, from calls in the order of names and arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.operators.described import described
from traceconv.normalize.operators.registry import work_of
from traceconv.normalize.trace.distinct import distinct_rows
from traceconv.schema.dtypes import RecordArray, gather

#: The operator of a call; bare_id: the same operator without work, for calls whose work is done by an operator inside.
CALL = np.dtype(
    [("run_id", "<i8"), ("id", "<i8"), ("operator_id", "<i8"), ("bare_id", "<i8"), ("is_composite", "?"),
     ("is_matrix", "?")]
)  # fmt: skip
OPERATOR_SCHEMA = pa.schema(
    [
        ("operator_id", pa.int64()),
        ("run_id", pa.int64()),
        ("name", pa.int64()),
        ("input_shapes", pa.string()),
        ("input_dtypes", pa.string()),
        ("category", pa.string()),
        ("compute_type", pa.string()),
        ("flops", pa.int64()),
        ("read_bytes", pa.int64()),
        ("write_bytes", pa.int64()),
    ]
)
_MATRIX = ("gemm", "conv", "attention")

#: Category, compute type, operations, bytes read and written; None if all are unknown.
_Numbers: TypeAlias = "tuple[str | None, str | None, int | None, int | None, int | None] | None"
_Key: TypeAlias = "tuple[str | None, str | None, _Numbers]"


class DistinctOperators:
    """Takes batches of calls in the order of run, name, dims, types and values; IDs are given in that order."""

    def __init__(self, names: Mapping[int, str]) -> None:
        """`names`: those with a formula, by their numbers."""
        self._names = names
        #: Number of IDs given, which start at 1.
        self.count = 0
        self._group: tuple[int, int] | None = None
        #: IDs of the operators with the last run and name: others don't occur again.
        self._ids: dict[_Key, int] = {}

    def take(self, calls: pa.RecordBatch) -> tuple[RecordArray, list[pa.Array]]:
        """Return the operator of each call as CALL, and the columns of new operators, as in OPERATOR_SCHEMA.

        calls  run_id, id, name (its number), dims, types, values: texts of JSON or NULL
        """
        run_ids, ids, names = (column.to_numpy() for column in calls.columns[:3])
        begins = np.append(True, (np.diff(run_ids) != 0) | (np.diff(names) != 0))
        begins[0] = (int(run_ids[0]), int(names[0])) != self._group
        self._group = int(run_ids[-1]), int(names[-1])
        changed = np.append(True, begins[1:])
        for column in calls.columns[3:]:
            texts = column.fill_null("")  # JSON is not empty
            changed[1:] |= pc.not_equal(texts[1:], texts[:-1]).to_numpy(zero_copy_only=False)
        first = np.flatnonzero(changed)
        operators, added = self._number(calls.take(pa.array(first)), begins[first])
        rows = gather(operators, np.cumsum(changed) - 1)
        rows["run_id"], rows["id"] = run_ids, ids
        return rows, added

    def _number(self, calls: pa.RecordBatch, begins: Mask) -> tuple[RecordArray, list[pa.Array]]:
        """Return the operator of each call, and the columns of new operators.

        begins  whether a call is the first with its run and name
        """
        is_known = pc.and_(calls.column("dims").is_valid(), calls.column("types").is_valid())
        texts = _described(calls, is_known)
        works, bare, numbers, operators = self._works(calls, is_known)
        # A composite call has two operators.
        composite = operators["is_composite"]
        calls_of = np.repeat(np.arange(len(begins)), 1 + composite)
        second = np.append(False, calls_of[1:] == calls_of[:-1])
        works_of = np.where(second, bare[calls_of], works[calls_of])
        groups = np.cumsum(begins) - int(begins[0])
        codes = [groups, *(text.dictionary_encode(null_encoding="encode").indices.to_numpy() for text in texts)]
        first, places = distinct_rows(*(code[calls_of] for code in codes), works_of)
        at = calls_of[first]

        def keys(of: Int64) -> Iterable[_Key]:
            shown = (text.take(pa.array(at[of])).to_pylist() for text in texts)
            return zip(*shown, (numbers[work] for work in works_of[first[of]].tolist()), strict=True)

        ids = np.zeros(len(at), np.int64)
        continued = np.flatnonzero(groups[at] == 0) if not begins[0] else np.zeros(0, np.int64)
        ids[continued] = [self._ids.get(key, 0) for key in keys(continued)]
        new = np.flatnonzero(ids == 0)
        ids[new] = np.arange(self.count + 1, self.count + 1 + len(new))
        self.count += len(new)
        if begins.any():
            self._ids.clear()
        last = np.flatnonzero(groups[at] == groups[-1])
        self._ids.update(zip(keys(last), ids[last].tolist(), strict=True))
        operators["operator_id"] = ids[places[~second]]
        operators["bare_id"] = operators["operator_id"]
        operators["bare_id"][composite] = ids[places[second]]
        rows = pa.array(at[new])
        added = [
            pa.array(ids[new]),
            *(column.take(rows) for column in (*calls.select(["run_id", "name"]).columns, *texts)),
        ]
        of_new = pa.array(works_of[first[new]])
        for number, kind in enumerate(OPERATOR_SCHEMA.types[len(added) :]):
            added.append(pa.array([one and one[number] for one in numbers], kind).take(of_new))
        return operators, added

    def _works(
        self, calls: pa.RecordBatch, is_known: pa.BooleanArray
    ) -> tuple[Int64, Int64, list[_Numbers], RecordArray]:
        """Return places of each call's work and of the same without numbers, the works, and rows of CALL with flags."""
        works, bare = np.zeros(calls.num_rows, np.int64), np.zeros(calls.num_rows, np.int64)
        operators = np.zeros(calls.num_rows, CALL)
        known: dict[_Numbers, int] = {None: 0}
        has_formula = np.isin(calls.column("name").to_numpy(), list(self._names))
        places = np.flatnonzero(has_formula & is_known.to_numpy(zero_copy_only=False))
        rows = calls.select(["name", "dims", "types", "values"]).take(pa.array(places))
        for place, name, *arguments in zip(
            places.tolist(), *(column.to_pylist() for column in rows.columns), strict=True
        ):
            work = work_of(self._names[name], *arguments)
            if work is not None:
                kind = (work.category, work.compute_type)
                works[place] = known.setdefault((*kind, work.flops, work.read_bytes, work.write_bytes), len(known))
                bare[place] = known.setdefault((*kind, None, None, None), len(known))
                operators["is_composite"][place] = work.is_composite
                operators["is_matrix"][place] = work.category in _MATRIX and work.flops is not None
        return works, bare, list(known), operators


def _described(calls: pa.RecordBatch, is_known: pa.BooleanArray) -> list[pa.StringArray]:
    """Return the shapes and types of the arguments of each call; NULL for unknown ones."""
    found = described(*(calls.column(name).filter(is_known) for name in ("dims", "types")))
    nothing = pa.nulls(calls.num_rows, pa.string())
    return [pc.replace_with_mask(nothing, is_known, texts) for texts in found]
