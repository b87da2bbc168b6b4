"""Fill the table graph_replay, and the operators of its tasks, by aligning them with those that operators launched."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.normalize.sequence_alignment import NOTHING, Pairs, Reference
from traceconv.store.arrow_rows import execute_with
from traceconv.store.catalogue import define
from traceconv.store.operator_tables import TASK_RANK
from traceconv.store.path_tables import PATH_NAME
from traceconv.store.sections import section

#: Whether a call of this name launches a graph. `contains` is faster and excludes most names.
IS_LAUNCH = "contains({name}, 'GraphLaunch') AND regexp_matches({name}, '^(cuda|cu|hip)GraphLaunch')"
#: Kernels of a reference that are looked through: the first ones.
_MOST_REFERENCES = 2_000_000
#: Places of a sequence whose operators must agree, if it occurs more often.
_MOST_PLACES = 100
#: Enclosing slices; Python stacks are less deep.
_MAX_LEVELS = 512
_UNNAMED = -2

# The keys of PyTorch, of nsys, of rocprofv3 and of Perfetto's GPU packets.
_SIZE = """coalesce(nullif(array_to_string(json_extract(t.args, [
  '$.grid', '$.block', '$.gridX', '$.gridY', '$.gridZ', '$.blockX', '$.blockY', '$.blockZ',
  '$.dispatch_info.grid_size', '$.dispatch_info.workgroup_size',
  '$.launch.grid_size', '$.launch.workgroup_size'])::VARCHAR[], ' '), ''),
  t.size_bytes::VARCHAR, t.block_count::VARCHAR)"""
_sql = partial(
    section, __name__, size=_SIZE, is_launch=IS_LAUNCH.format(name="name"), is_launch_a=IS_LAUNCH.format(name="a.name"),
    most_references=_MOST_REFERENCES, nothing=NOTHING, unnamed=_UNNAMED, path_name=PATH_NAME, rank=TASK_RANK,
)  # fmt: skip
_TEMPORARY = (
    "replayed", "replayed_name", "replayed_kernel", "eligible", "pair", "place_of", "launched", "frontier", "reached",
    "enclosing", "launch_chain", "launch_path", "agreed", "captured", "aligned", "replayed_operator",
)  # fmt: skip


def fill_replays(connection: duckdb.DuckDBPyConnection, runs: Iterable[int], reference: int | None = None) -> None:
    """Fill the table for runs that have no rows in it, and add their operators to operator and task_operator.

    reference  run in which the operators were called; None: each run itself
    """
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    with_graphs = connection.execute(_sql("runs", runs=chosen)).fetchall() if chosen else []
    for (run_id,) in with_graphs:
        _fill(connection, run_id, run_id if reference is None else reference)
    for name in _TEMPORARY if with_graphs else ():
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def clear_replays(connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Delete what `fill_replays` added for a run. Operators that an enclosing range had before stay unknown."""
    for statement in (
        "DELETE FROM graph_replay WHERE run_id = ?",
        "DELETE FROM task_operator WHERE run_id = ? AND attribution = 'replay'",
        "DELETE FROM operator AS o WHERE run_id = ? AND operator_id NOT IN "
        "(SELECT operator_id FROM task_operator WHERE run_id = o.run_id)",
    ):
        connection.execute(statement, [run_id])


def _fill(connection: duckdb.DuckDBPyConnection, run: int, reference: int) -> None:
    """Fill the table for one run."""
    within = {"run": run, "reference": reference}
    connection.execute(_sql("replayed", **within))
    _find_enclosing(connection, run)
    connection.execute(_sql("launch_paths"))
    [(depth,)] = connection.execute("SELECT max(depth) FROM temp.launch_chain").fetchall()
    for level in range(0 if depth is None else depth + 1):
        connection.execute(_sql("step_down", level=level, run=run))
    _align(connection)
    connection.execute(_sql("launched", reference=reference))
    _find_enclosing(connection, reference)
    has_nodes = bool(connection.execute(_sql("has_nodes", run=run)).fetchall())
    if has_nodes:
        define(connection, "graph_node_range")
    connection.execute(_sql("captured" if has_nodes else "none_captured", run=run))
    connection.execute(_sql("aligned", **within))
    if connection.execute(_sql("has_operators", reference=reference)).fetchall():
        define(connection, "kernel_category")
        connection.execute(_sql("operators", **within))


def _find_enclosing(connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Fill `enclosing` with the ranges around the slices of `frontier`; the innermost has the lowest level."""
    connection.execute(_sql("enclosing"))
    for level in range(_MAX_LEVELS):
        connection.execute(_sql("step_up", level=level, run=run_id))
        [(rest,)] = connection.execute("SELECT count(*) FROM temp.frontier").fetchall()
        if not rest:
            break


def _align(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill `pair` with the kernels of each distinct sequence and those of the reference that they may be.

    `place_of` has the sequence and the place of each replayed task.
    """
    replayed = connection.sql(_sql("sequences")).to_arrow_table()
    ids, names, kernels = (replayed.column(name).to_numpy() for name in ("id", "name_id", "kernel_id"))
    firsts = np.flatnonzero(replayed.column("begins").to_numpy())
    ends = np.append(firsts, len(ids))[1:]
    numbers: dict[tuple[bytes, bytes], int] = {}
    sequence_of = np.zeros(len(ids), np.int64)
    distinct: list[tuple[Int64, Int64]] = []
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        key = names[first:end].tobytes(), kernels[first:end].tobytes()
        if key not in numbers:
            distinct.append((names[first:end], kernels[first:end]))
        sequence_of[first:end] = numbers.setdefault(key, len(numbers))
    places = np.arange(len(ids)) - np.repeat(firsts, ends - firsts)
    _make(connection, "CREATE OR REPLACE TEMP TABLE place_of AS", id=ids, sequence=sequence_of, place=places)
    reference = connection.sql(_sql("reference")).to_arrow_table()
    begins = np.flatnonzero(reference.column("begins").to_numpy())
    of_id, of_name, of_kernel = (
        np.insert(reference.column(name).to_numpy(), begins, NOTHING) for name in ("id", "name_id", "kernel_id")
    )
    by_kernel, by_name = Reference(of_kernel), Reference(of_name)
    for number, (own_names, own_kernels) in enumerate(distinct):
        pairs = _pairs(by_kernel, by_name, own_kernels, own_names)
        if pairs is not None:
            _make(
                connection,
                "INSERT INTO temp.pair BY NAME",
                sequence=np.full(len(pairs.places), number),
                place=pairs.places,
                reference=pairs.references,
                reference_id=of_id[pairs.references],
                is_same_size=own_kernels[pairs.places] == of_kernel[pairs.references],
            )


def _pairs(by_kernel: Reference, by_name: Reference, kernels: Int64, names: Int64) -> Pairs | None:
    """Return the kernels of the reference that those of a sequence may be; None if most don't occur there."""
    found = by_kernel.occurrences(kernels) or by_name.occurrences(names)
    if found is not None:
        return _fewer(found, len(names))
    similar, of_any_size = by_kernel.similar(kernels), by_name.similar(names)
    # If more kernels match without their sizes, the sizes differ because the shapes do.
    if similar is not None and of_any_size is not None and similar[0] >= of_any_size[0]:
        return similar[1]
    return None if of_any_size is None else of_any_size[1]


def _fewer(pairs: Pairs, length: int) -> Pairs:
    """Return the pairs of some of the places where a sequence occurs, if they are many."""
    count = len(pairs.places) // length
    if count <= _MOST_PLACES:
        return pairs
    kept = np.linspace(0, count - 1, _MOST_PLACES).astype(np.int64)
    return Pairs(*(column.reshape(count, length)[kept].ravel() for column in (pairs.places, pairs.references)))


def _make(connection: duckdb.DuckDBPyConnection, statement: str, **columns: Int64) -> None:
    """Make a table of columns, or add them to it."""
    rows = pa.table({name: pa.array(values) for name, values in columns.items()})
    execute_with(connection, f"{statement} SELECT * FROM made_rows", "made_rows", rows)  # noqa: S608 - our own words
