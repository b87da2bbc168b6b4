"""The columns of slices that rules take from names and args."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.normalize.rows import ColumnData
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.args import has_none
from traceconv.normalize.trace.binary import codes_of
from traceconv.normalize.trace.classify import OP_COLUMNS, Rule
from traceconv.normalize.trace.column_builder import NUMBER_TYPES, Rows, Values, new_column, same
from traceconv.normalize.trace.signature import SIGNATURE_COLUMNS, of_tensors, signature
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.schema import table as table_schema


class RuleColumns:
    """Makes these columns of batches. `filled`: the columns of each table that any of the rules fills."""

    def __init__(self, rules: Sequence[Rule], filled: Mapping[str, Sequence[str]], tracks: TraceTracks) -> None:
        self._rules = rules
        self._filled = filled
        self._tracks = tracks
        self._arg_readers: dict[int, ArgColumns] = {}
        self._signature_readers: dict[str, ArgColumns] = {}

    def of_batch(self, table: str, batch: pa.RecordBatch, codes: NDArray[np.int16]) -> dict[str, ColumnData]:
        """Return the columns that the rules of these rows take from names and args."""
        types = {column.name: column.type for column in table_schema(table).columns}
        types.update({name: "str" for name in OP_COLUMNS if table == "task"})
        count = batch.num_rows
        # All batches of a table have the same columns, whatever their rules.
        columns = {name: new_column(types[name], count) for name in self._filled[table]}
        if "name" in columns:
            names = dictionary_of(batch.column("name"))
            columns["name"].put(None, Values(codes_of(names), names.dictionary.to_pylist()))
        tracks = batch.column("track_id").to_numpy()
        for number in np.unique(codes).tolist():
            rule = self._rules[number]
            rows = np.flatnonzero(codes == number)
            own = None if len(rows) == count else rows
            for column, value in rule.set.items():
                columns[column].put(own, same(value, len(rows)))
            of_kind = own if "kind" in rule.set else rows[:0]
            if rule.set_if_no_args:
                bare = rows[has_none(batch.column("args").take(pa.array(rows)))]
                of_kind = bare if "kind" in rule.set_if_no_args and "kind" not in rule.set else of_kind
                for column, value in rule.set_if_no_args.items():
                    columns[column].put(bare, same(value, len(bare)))
            if table == "task":
                # A pattern that any name matches, such as one that removes an ending, also matches none.
                by_name = rule.name is not None and rule.name.fullmatch("") is None
                length = len(rows if of_kind is None else of_kind)
                columns["kind_source"].put(of_kind, same("name" if by_name else "recorded", length))
            for column, values in self._from_names(rule, tracks[rows]):
                columns[column].put(own, values)
            for column, values in _from_own_names(rule, batch.column("name"), rows):
                columns[column].put(own, values)
            if rule.signature is not None:
                for column, values in self._signatures(rule.signature, batch.column("args"), own):
                    columns[column].put(own, values)
            if rule.args:
                for column, given in self._arg_columns(number, types).read(batch.column("args"), own):
                    if column in SIGNATURE_COLUMNS and isinstance(given, Values):
                        texts = [of_tensors(column, value) for value in given.distinct]
                        given = Values(given.codes, texts)
                    columns[column].put(own, given)
        return {name: column.column() for name, column in columns.items()}

    def _from_names(self, rule: Rule, tracks: NDArray[np.int32]) -> Iterator[tuple[str, Values]]:
        """Yield the columns from the names of the tracks' processes and threads."""
        groups = rule.track_groups
        if not groups:
            return
        distinct, codes = np.unique(tracks, return_inverse=True)
        self._tracks.load(distinct)
        named = [rule.named(*self._tracks.names_of(track)) or {} for track in distinct.tolist()]
        for group in groups:
            yield group, Values(codes.astype(np.int32), [one.get(group) for one in named])

    def _arg_columns(self, number: int, types: Mapping[str, str]) -> ArgColumns:
        """Return the reader of the args of a rule's events."""
        found = self._arg_readers.get(number)
        if found is None:
            fields = self._rules[number].args
            numbers = {column for column in fields if types[column] in NUMBER_TYPES}
            found = self._arg_readers[number] = ArgColumns(fields, numbers)
        return found

    def _signatures(self, key: str, args: pa.Array, rows: Rows) -> Iterator[tuple[str, Values]]:
        """Yield shapes and types of inputs and outputs."""
        reader = self._signature_readers.setdefault(key, ArgColumns({key: (key,)}, ()))
        for _, texts in reader.read(args, rows):
            assert isinstance(texts, Values)  # not requested as a number
            found = [signature(text) if isinstance(text, str) else {} for text in texts.distinct]
            for column in SIGNATURE_COLUMNS:
                yield column, Values(texts.codes, [one.get(column) for one in found])


def _from_own_names(rule: Rule, names: pa.Array, rows: NDArray[np.intp]) -> Iterator[tuple[str, Values]]:
    """Yield the columns from the names of events. If that replaces the name of a call, its own name is kept."""
    groups = rule.name_groups
    if rule.name is None or not groups:
        return
    coded = dictionary_of(names)
    texts = coded.dictionary.to_pylist()
    used, codes = np.unique(codes_of(coded, len(texts))[rows], return_inverse=True)
    own = [*texts, None]
    found = [None if own[code] is None else rule.name.fullmatch(own[code]) for code in used.tolist()]
    for group in groups:
        yield group, Values(codes.astype(np.int32), [match and match[group] for match in found])
    if "name" in groups and rule.table == "api":
        yield "source_name", Values(codes.astype(np.int32), [own[code] for code in used.tolist()])


def dictionary_of(column: pa.Array) -> pa.Array:
    """Return a text column as codes and a dictionary."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
