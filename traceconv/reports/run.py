"""Running a report: choosing the run, the statement for the rows in their order, and the rows in batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from traceconv.base.errors import OutputError, StoreError, UsageError, option, printable, suggestion
from traceconv.reports.catalog import Report, define_known_part, define_part, reports
from traceconv.reports.filters import Filter, Value, conditions
from traceconv.reports.render import Row
from traceconv.reports.units import moment
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import OrderTerm, SqlColumn
from traceconv.store.memory_limit import sorted_on_disk

#: Rows fetched at once.
BATCH_ROWS = 4096
#: Up to this many rows, the rows are picked before their columns are computed: see `_picked`.
_PICK_LIMIT = 10_000
#: IDs of tasks in a range that is joined at once: the most that DuckDB joins by an array instead of a hash table; the
#: number of ranges; and of those in a statement, which keep all threads busy.
_ID_RANGE, _ID_RANGES, _RANGES_AT_ONCE = 1 << 20, 256, 4
#: Runs that an error lists.
_LISTED_RUNS = 8
#: The column that a parameter filters in tables of single tasks (none: the time that orders the report), and how.
_PARAMETER_CONDITIONS = {
    "run": ("run_id", "="), "device": ("device_id", "="), "step": ("step_id", "="), "first_step": ("step_id", ">="),
    "last_step": ("step_id", "<="), "from_ns": ("", ">="), "to_ns": ("", "<"),
}  # fmt: skip
#: What the parameters are called for users.
OPTION_NAMES = {"first_step": "steps", "last_step": "steps", "from_ns": "from", "to_ns": "to"}

_PEAKS, _LARGEST_PEAK = ("peak_tflops", "peak_gbps"), 1_000_000


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The runs that a report is on, none for all; `note` is for a user who did not choose."""

    run_ids: tuple[int, ...] = ()
    note: str | None = None

    @property
    def parameters(self) -> dict[str, int]:
        """The parameter of the macro, which selects a single run."""
        return {"run": self.run_ids[0]} if len(self.run_ids) == 1 else {}


@dataclass(frozen=True, slots=True)
class Question:
    """A report with its parameters and the requested rows and columns.

    parameters  of the macro, by name; omitted ones select everything
    runs        only rows of these runs; none: all of `parameters`
    filters     that each row must match
    order       takes precedence over the report's own order
    top         only the first rows by `order`, or the largest by the report's measure if there is no `order`
    own_order   whether the rows selected by `top` are in the report's own order
    table       a table with the rows of the report for these parameters, computed by another engine
    """

    report: Report
    parameters: Mapping[str, float]
    columns: tuple[SqlColumn, ...]
    runs: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    order: tuple[OrderTerm, ...] = ()
    top: int | None = None
    own_order: bool = False
    table: str | None = None


def find_report(name: str) -> Report:
    """Return a report by name, with - or _. Raises UsageError with the nearest name."""
    known = reports()
    # DuckDB has a function `summary`, so the macro has another name.
    sql_name = "run_summary" if name == "summary" else name.replace("-", "_")
    report = known.get(sql_name) or next((one for one in known.values() if one.formerly == sql_name), None)
    if report is None:
        if sql_name in {*tables(), *views()}:
            query = option(f'traceconv query "FROM {sql_name}"', f'Store.query("FROM {sql_name}")')
            raise UsageError(f"{sql_name} is not a report but a table or view; read it with: {query}")
        dashed = ["summary", *(key.replace("_", "-") for key in known)]
        near = suggestion(name.replace("_", "-"), dashed)
        listing = option("traceconv report --list", "Store.reports()")
        raise UsageError(f"unknown report '{printable(name)}'.{near} List them with: {listing}")
    return report


def check_engine(engine: str) -> None:
    """Raise UsageError unless this is the name of an engine for reports."""
    if engine not in ("duckdb", "spark"):
        raise UsageError(f"unknown engine '{printable(engine, 40)}'; engines: duckdb, spark")


def given_parameters(report: Report, **values: float | None) -> dict[str, float]:
    """Return the parameters that are not None.

    Raises UsageError for one that the report doesn't have, and for a peak that is not positive.
    """
    given = {name: value for name, value in values.items() if value is not None}
    known = [parameter.name for parameter in report.parameters]
    for name in given:
        if name not in known:
            has = ", ".join(dict.fromkeys(OPTION_NAMES.get(one, one) for one in known))
            raise UsageError(f"the report {report.name} has no {OPTION_NAMES.get(name, name)} parameter; it has: {has}")
        if name in _PEAKS and not 0 < given[name] <= _LARGEST_PEAK:
            raise UsageError(f"{name} must be more than 0 and at most {_LARGEST_PEAK}, not {given[name]}")
    return given


def given_steps(steps: str | None) -> dict[str, int | None]:
    """Parse `3-5`, `3-`, `-5` or `4` into the parameters of a report. Raises UsageError."""
    if steps is None:
        return {}
    match = re.fullmatch(r"\s*([0-9]{0,18})\s*(-?)\s*([0-9]{0,18})\s*", steps)
    if not match or not (match[1] or match[3]) or not (match[2] or (match[1] and not match[3])):
        raise UsageError(f"steps needs a range such as 3-5, 3- or -5, not '{printable(steps, 60)}'")
    last = match[3] if match[2] else match[1]
    if match[1] and last and int(match[1]) > int(last):
        raise UsageError(f"steps {match[1]}-{last}: the first step is after the last")
    return {"first_step": int(match[1]) if match[1] else None, "last_step": int(last) if last else None}


def given_times(
    connection: duckdb.DuckDBPyConnection, choice: RunChoice, start: str | None, end: str | None
) -> dict[str, int | None]:
    """Return the parameters of a window of time. Times with a unit are relative to the start of the run.

    Raises UsageError for an invalid time, and for a relative one with several runs.
    """
    found: dict[str, int | None] = {}
    for name, text in (("from_ns", start), ("to_ns", end)):
        if text is None:
            continue
        time_ns, relative = moment(text)
        if relative:
            origins = run_origins(connection, choice.run_ids)
            if len(choice.run_ids) != 1:
                raise UsageError(f"{printable(text)} is relative to the start of a run; select one run, or pass ns")
            if choice.run_ids[0] not in origins:
                raise UsageError(f"{printable(text)}: the start of run {choice.run_ids[0]} is unknown; pass ns")
            time_ns += origins[choice.run_ids[0]]
        found[name] = time_ns
    if len(found) == 2 and (found["from_ns"] or 0) >= (found["to_ns"] or 0):
        raise UsageError(f"the time window is empty: {printable(start or '')} is not before {printable(end or '')}")
    return found


def choose_run(connection: duckdb.DuckDBPyConnection, wanted: str | None) -> RunChoice:
    """Return the run that `wanted` names: a number, a label, rank=N, host=NAME or `all`; the latest for None.

    Names separated by commas are several runs. A number is taken as a label if no run has it. Raises UsageError if
    there is no such run, or several with a name.
    """
    rows = connection.execute("SELECT run_id, label, rank, host FROM run ORDER BY run_id").fetchall()
    if wanted == "all" or (wanted is None and not rows):
        return RunChoice()
    if wanted is None:
        run_id, label = rows[-1][:2]
        note = f"run {run_id} ({printable(str(label))}), the latest of {len(rows)}; select another with --run N"
        return RunChoice((run_id,), note if len(rows) > 1 else None)
    one_name = "," not in wanted or any(row[1] == wanted for row in rows)
    names = [wanted] if one_name else [name.strip() for name in wanted.split(",")]
    return RunChoice(tuple(dict.fromkeys(_find_run(rows, name) for name in names)))


def wanted_run(run: str | None, rank: str | None) -> str | None:
    """Return `run`, or what `rank` means as one. Raises UsageError if both are given."""
    if run is not None and rank is not None:
        several = option("--run rank=N,rank=M", "run='rank=N,rank=M'")
        raise UsageError(
            f"{option('--run')} and {option('--rank')} exclude each other; use {several} for several ranks"
        )
    return run if rank is None else ",".join(f"rank={one.strip()}" for one in rank.split(","))


def _find_run(rows: Sequence[Row], wanted: str) -> int:
    """Return the ID of the run that `wanted` names. `rows`: run_id, label, rank and host of each."""
    what, _, value = wanted.partition("=")
    place = {"rank": 2, "host": 3}.get(what)
    by_number = [row for row in rows if wanted.lstrip("0") == str(row[0])]
    by_label = [row for row in rows if row[1] == wanted]
    by_origin = [row for row in rows if place is not None and row[place] is not None and str(row[place]) == value]
    found = by_number or by_label or by_origin
    if len(found) == 1:
        return int(str(found[0][0]))
    if found:
        numbers = ", ".join(str(row[0]) for row in found[:20]) + (", …" if len(found) > 20 else "")
        raise UsageError(f"{len(found)} runs match '{printable(wanted)}'; select one with {option('--run')} {numbers}")
    listed = ", ".join(f"{row[0]} ({printable(str(row[1]), 40)})" for row in rows[:_LISTED_RUNS])
    listing = option("traceconv runs list", "Store.runs()")
    more = f", … and {len(rows) - _LISTED_RUNS} more ({listing})" if len(rows) > _LISTED_RUNS else ""
    near = suggestion(wanted, [str(row[1]) for row in rows])
    if any(wanted == str(row[2]) for row in rows):
        near = f" Did you mean '{option(f'--rank {wanted}', f'rank={wanted}')}'?"
    raise UsageError(f"unknown run '{printable(wanted)}'.{near} Runs in the store: {listed or 'none'}{more}")


def one_run(connection: duckdb.DuckDBPyConnection, wanted: str | None, what: str) -> tuple[int, str | None]:
    """Return the run that `wanted` names, and the note of that choice. `what` needs a single run.

    Raises UsageError as `choose_run` does, and if the store is empty or `wanted` is several runs.
    """
    choice = choose_run(connection, wanted)
    if len(choice.run_ids) != 1:
        raise UsageError(
            f"{what} needs a single run; select it by number or label ({option('--run N', 'run=N')})"
            if wanted is not None
            else "the store has no runs; ingest one with: traceconv ingest PATH"
        )
    return choice.run_ids[0], choice.note


def chosen_runs(
    connection: duckdb.DuckDBPyConnection, wanted: str | None, what: str, *, several: bool
) -> tuple[tuple[int, ...], str | None]:
    """Return the run of `one_run` with its note; if `what` can be of several runs, those of `wanted`, None for all."""
    if not several:
        run_id, note = one_run(connection, wanted, what)
        return (run_id,), note
    run_ids = choose_run(connection, "all" if wanted is None else wanted).run_ids
    if not run_ids:
        rows = connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall()
        run_ids = tuple(run_id for (run_id,) in rows)
    if not run_ids:
        raise UsageError("the store has no runs; ingest one with: traceconv ingest PATH")
    return run_ids, None


def recorded_groups(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[str, bool]:
    """Return the recorded counter groups of some runs, of all if there are none, and whether they have vendor_values.

    Raises StoreError.
    """
    sql = (
        "SELECT metric_group, count(vendor_values) > 0 FROM task_pmu "  # noqa: S608 - integers
        f"WHERE metric_group IS NOT NULL AND {_in_runs(run_ids)} GROUP BY metric_group"
    )
    return {str(group): bool(has_values) for batch in fetch(connection, sql, []) for group, has_values in batch}


def run_origins(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, int]:
    """Return the starts of some runs in ns, of all if there are none, by run_id. Unknown starts are omitted."""
    sql = f"SELECT run_id, start_ns FROM run WHERE start_ns IS NOT NULL AND {_in_runs(run_ids)} ORDER BY run_id"  # noqa: S608 - integers
    return dict(connection.execute(sql).fetchall())


def _in_runs(run_ids: Sequence[int]) -> str:
    return f"run_id IN ({', '.join(f'{run_id:d}' for run_id in run_ids)})" if run_ids else "true"


def answer(connection: duckdb.DuckDBPyConnection, question: Question) -> Iterator[Sequence[Row]]:
    """Yield the rows in batches, in their order. Raises StoreError if the store can't be read."""
    sql, values = statement(connection, question)
    return fetch(connection, sql, values)


def fetch(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value]) -> Iterator[Sequence[Row]]:
    """Run a statement and yield its rows in batches; only one batch is in memory."""

    def ask() -> Iterator[Sequence[Row]]:
        connection.execute(sql, list(values))
        while batch := connection.fetchmany(BATCH_ROWS):
            yield batch

    with reading():
        yield from sorted_on_disk(connection, ask)


@contextmanager
def reading() -> Iterator[None]:
    """Turn DuckDB's errors on reading a store into StoreErrors, and its interrupt into KeyboardInterrupt."""
    try:
        yield
    except (duckdb.CatalogException, duckdb.BinderException) as error:
        raise StoreError(
            f"the store was written by another version of traceconv ({_first_line(error)}); "
            "ingest its sources into a new store"
        ) from error
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except duckdb.OutOfMemoryException as error:
        raise StoreError(f"not enough memory or disk space: {_first_line(error)}") from error
    except duckdb.DataError as error:  # a value out of range or of another type
        raise StoreError(f"the store has invalid values: {_first_line(error)}") from error
    except duckdb.Error as error:
        raise StoreError(f"can't read the store; it may be damaged: {_first_line(error)}") from error


def _first_line(error: duckdb.Error) -> str:
    return printable(next(iter(str(error).splitlines()), "unknown error"), 300)


def write_parquet(connection: duckdb.DuckDBPyConnection, sql: str, values: Sequence[Value], path: Path) -> None:
    """Write the rows of a statement to a Parquet file, with 128-bit integers as exact decimals.

    Raises OutputError if the file can't be written.
    """
    connection.execute(f"DESCRIBE {sql}", list(values))
    wide = [row[0] for row in connection.fetchall() if row[1] in ("HUGEINT", "UHUGEINT")]
    if wide:
        casts = ", ".join(f"{quote_identifier(n)}::DECIMAL(38,0) AS {quote_identifier(n)}" for n in wide)
        sql = f"SELECT * REPLACE ({casts}) FROM ({sql}\n)"  # noqa: S608 - the statement is the caller's to run
    try:
        connection.execute(
            f"COPY ({sql}\n) TO {quote_text(str(path.absolute()))} (FORMAT parquet, USE_TMP_FILE false)",
            list(values),
        )
    except (duckdb.IOException, duckdb.PermissionException) as error:
        raise OutputError(f"can't write {printable(str(path))}: {_first_line(error)}") from error


def statement(
    connection: duckdb.DuckDBPyConnection, question: Question, select: str | None = None
) -> tuple[str, list[Value]]:
    """Return the SQL statement for a question, and its values. `select`: expressions instead of the columns."""
    report = question.report
    order = _sql_order(_order(question))
    picked = _picked(connection, question)
    chosen, values = _filter_conditions(connection, question)
    if question.table is not None:
        source = quote_identifier(question.table)
    else:
        columns = {column.name for column in question.columns} | {term.column for term in _order(question)}
        part = define_part(connection, report, columns | _filtered(question))
        source, values = _call(question, part), [*question.parameters.values(), *values]
    if picked is not None:
        # The IDs are integers from the store, so they are safe in the statement. A list of them filters only one side
        # of a join; DuckDB applies bounds to the other side too, which saves most of its scan.
        ids = ", ".join(str(id_) for id_ in picked) or "NULL"
        bounds = f"id BETWEEN {min(picked)} AND {max(picked)}" if picked else "false"
        chosen = [*chosen, bounds, f"id IN ({ids})"]
    if len(question.runs) > 1:
        chosen = [*chosen, _in_runs(question.runs)]
    selected = select or ", ".join(quote_identifier(column.name) for column in question.columns)
    rows = f"FROM {source}{_where(chosen)} ORDER BY {order}"
    if question.top is not None:
        rows += f" LIMIT {question.top:d}"
        if question.own_order:
            rows = f"FROM ({rows}) ORDER BY {_sql_order(report.order)}"
    return f"SELECT {selected} {rows}", values


def _picked(connection: duckdb.DuckDBPyConnection, question: Question) -> list[int] | None:
    """Return the IDs of the rows that `top` selects; None if they can't be found faster than by the report.

    DuckDB joins and computes all rows of a report before it takes the first ones. Those of reports on single tasks are
    found without the joins that their order doesn't need, or in a table with the same rows (`top_from`).
    """
    report = question.report
    if question.top is None or question.top > _PICK_LIMIT or question.table is not None:
        return None
    if not (report.joined or report.top_from):
        return None
    if "run" not in question.parameters:
        return None  # an ID is only unique in its run
    terms = _picking_order(question)
    known = _first_known(connection, question) if report.joined else None
    ids = known or []
    if known is not None:
        terms = terms[1:]  # the value is NULL in all other rows
    if len(ids) == question.top:
        return ids
    if report.top_from and not _has_all(report.top_from, question):
        # The table has no rows of a run without tasks; those of the report have no ID.
        return _ids_in_ranges(connection, question, define_part(connection, report, set()), question.top) or None
    chosen, values = _filter_conditions(connection, question)
    if report.top_from:
        source = quote_identifier(report.top_from)
        for name, value in question.parameters.items():
            column, operator = _condition(question, name)
            chosen.append(f"{quote_identifier(column)} {operator} ?")
            values.append(value)
    else:
        columns = {"id", *(term.column for term in terms), *_filtered(question)}
        source = _call(question, define_part(connection, report, columns))
        values = [*question.parameters.values(), *values]
    if ids:
        chosen.append(f"id NOT IN ({', '.join(map(str, ids))})")
    sql = f"SELECT id FROM {source}{_where(chosen)} ORDER BY {_sql_order(terms)} LIMIT {question.top - len(ids):d}"  # noqa: S608 - names from our own headers
    rows = [row for batch in fetch(connection, sql, values) for row in batch]
    if report.top_from and (not rows or (None,) in rows):
        return None  # the table has no rows of this run; those of the report have no ID
    return ids + [id_ for (id_,) in rows if isinstance(id_, int)]


def _first_known(connection: duckdb.DuckDBPyConnection, question: Question) -> list[int] | None:
    """Return the IDs of the first rows in which the column of the order is not NULL, at most `top`.

    None if that column doesn't come from one joined table. Tasks are joined with it in ranges of IDs, which takes
    a third to two thirds of the time of one join.
    """
    report, terms, top = question.report, _picking_order(question), question.top or 0
    column, run_id = report.column(terms[0].column), int(question.parameters["run"])
    groups = recorded_groups(connection, [run_id]) if column.group else {}
    if column.group and column.group != "any" and column.group not in groups:
        return []
    columns = {"id", *(term.column for term in terms), *_filtered(question)}
    device = _only_device(connection, run_id)
    known = define_known_part(connection, report, columns, column.name, groups, device)
    if known is None:
        return None
    part, is_alone = known
    if is_alone:
        return _ids_within_limit(connection, question, part, top)
    return _ids_in_ranges(connection, question, part, top, is_known=True)


def _only_device(connection: duckdb.DuckDBPyConnection, run_id: int) -> dict[str, int | None]:
    """Return the numbers of the device that all tasks of a run are on; none if they are on several."""
    [(low, high, unknown)] = connection.execute(
        "SELECT min(device_id), max(device_id), count(*) - count(device_id) FROM task WHERE run_id = ?", [run_id]
    ).fetchall()
    if low is None or low != high or unknown:
        return {}
    row = connection.execute("FROM device WHERE run_id = ? AND device_id = ?", [run_id, low]).fetchone()
    names = [name for name, *_ in connection.description or ()]
    return {name: value for name, value in zip(names, row or (), strict=False) if isinstance(value, int | None)}


def _ids_within_limit(connection: duckdb.DuckDBPyConnection, question: Question, part: str, top: int) -> list[int]:
    """Return the IDs of the first rows of a macro whose first column, which must be known, comes from one joined table.

    The last of the first rows in a few ranges of IDs limits that column: DuckDB filters its table before the join.
    """
    terms, run_id = _picking_order(question), int(question.parameters["run"])
    name, better = quote_identifier(terms[0].column), ">" if terms[0].descending else "<"
    first: list[Row] = []
    for ids in _id_ranges(connection, run_id):
        first += [row for row in _rows_within(connection, question, part, [ids], top) if row[0] is not None]
        if len(first) >= top:
            break
    first = _in_order(first, terms)[:top]
    if len(first) < top:
        return _ids(first)
    last: Sequence[Any] = first[-1]
    value, *others = last
    rows = _rows_within(connection, question, part, [], top, f"{name} {better} ?", [value])
    if len(rows) < top:
        # Many rows may have the same value, but few of them come before the last one: bounds of their IDs filter both
        # sides of the join.
        rest, limits = _up_to(terms[1:], others)
        source = define_part(connection, question.report, {"id", *(term.column for term in terms[1:])})
        sql = f"SELECT min(id), max(id) FROM {_call(question, source)} WHERE {rest}"  # noqa: S608 - names from our own headers
        [(low, high)] = connection.execute(sql, [*question.parameters.values(), *limits]).fetchall()
        same = f"{name} = ? AND {rest}"
        rows += _rows_within(connection, question, part, [(low, high)], top, same, [value, *limits])
    return _ids(rows[:top])


def _up_to(terms: Sequence[OrderTerm], values: Sequence[Any]) -> tuple[str, list[Value]]:
    """Return a condition, and its values, for rows that come before the one with these values, and for that one."""
    if not terms:
        return "true", []
    (term, *others), (value, *rest) = terms, values
    condition, limits = _up_to(others, rest)
    name = quote_identifier(term.column)
    if value is None:
        return f"({name} IS NOT NULL OR {condition})", limits
    better = ">" if term.descending else "<"
    return f"({name} {better} ? OR {name} = ? AND {condition})", [value, value, *limits]


def _rows_within(
    connection: duckdb.DuckDBPyConnection,
    question: Question,
    part: str,
    ranges: Sequence[tuple[int, int]],
    top: int,
    condition: str = "true",
    limits: Sequence[Value] = (),
) -> list[Sequence[Any]]:
    """Return the values that order the first rows of a macro, of which the last is their ID.

    ranges  bounds of these IDs; none: all
    """
    terms = _picking_order(question)
    chosen, values = _filter_conditions(connection, question)
    names = ", ".join(quote_identifier(term.column) for term in terms)
    bounds = [f"id BETWEEN {low:d} AND {high:d}" for low, high in ranges] or ["true"]
    rows = " UNION ALL ".join(
        f"SELECT {names} FROM {_call(question, part)}{_where([*chosen, bound, condition])}"  # noqa: S608 - names from our own headers
        for bound in bounds
    )
    sql = f"FROM ({rows}) ORDER BY {_sql_order(terms)} LIMIT {top:d}"
    with _joins_as_written(connection):
        batches = fetch(connection, sql, [*question.parameters.values(), *values, *limits] * len(bounds))
        return [row for batch in batches for row in batch]


def _ids_in_ranges(
    connection: duckdb.DuckDBPyConnection, question: Question, part: str, top: int, *, is_known: bool = False
) -> list[int]:
    """Return the IDs of the first rows of a macro, of those with a known value of the first column if `is_known`."""
    terms = _picking_order(question)
    rows: list[Row] = []
    ranges = _id_ranges(connection, int(question.parameters["run"]))
    for place in range(0, len(ranges), _RANGES_AT_ONCE):
        rows += _rows_within(connection, question, part, ranges[place : place + _RANGES_AT_ONCE], top)
        rows = _in_order([row for row in rows if row[0] is not None or not is_known], terms)[:top]
    return _ids(rows)


def _ids(rows: Sequence[Row]) -> list[int]:
    return [id_ for *_, id_ in rows if isinstance(id_, int)]


@contextmanager
def _joins_as_written(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Join tables as they are written: the second one, of which fewer rows or columns are read, is the hash table."""
    connection.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    try:
        yield
    finally:
        with suppress(duckdb.ConnectionException):  # closed by another thread
            connection.execute("RESET disabled_optimizers")


def _in_order(rows: list[Row], terms: Sequence[OrderTerm]) -> list[Row]:
    """Sort rows that begin with the values of these terms."""
    for place, term in reversed(list(enumerate(terms))):
        known = [row for row in rows if row[place] is not None]
        # DuckDB takes NaN for the largest number.
        known.sort(key=lambda row: (row[place] != row[place], row[place]), reverse=term.descending)
        rows = known + [row for row in rows if row[place] is None]
    return rows


def _id_ranges(connection: duckdb.DuckDBPyConnection, run_id: int) -> list[tuple[int, int]]:
    """Divide the IDs of a run's tasks into ranges; a single one if they are of many files."""
    [(low, high)] = connection.execute("SELECT min(id), max(id) FROM task WHERE run_id = ?", [run_id]).fetchall()
    if low is None:
        return []
    if high - low >= _ID_RANGE * _ID_RANGES:
        return [(low, high)]
    return [(first, first + _ID_RANGE - 1) for first in range(low, high + 1, _ID_RANGE)]


def _call(question: Question, macro: str) -> str:
    named = ", ".join(f"{quote_identifier(name)} := ?" for name in question.parameters)
    return f"{quote_identifier(macro)}({named})"


def _filtered(question: Question) -> set[str]:
    return {one.column.name for one in question.filters}


def _has_all(table: str, question: Question) -> bool:
    """Whether a table has the columns that order and filter the rows."""
    needed = _filtered(question) | {term.column for term in _picking_order(question)}
    needed |= {_condition(question, name)[0] for name in question.parameters}
    return needed <= {column.name for column in tables()[table].columns}


def _condition(question: Question, parameter: str) -> tuple[str, str]:
    """Return the column that a parameter filters in tables of single tasks, and the operator."""
    column, operator = _PARAMETER_CONDITIONS[parameter]
    return column or next(term.column for term in question.report.order if term.column.endswith("_ns")), operator


def _filter_conditions(connection: duckdb.DuckDBPyConnection, question: Question) -> tuple[list[str], list[Value]]:
    relative = any(one.relative for one in question.filters)
    return conditions(question.filters, run_origins(connection, question.runs) if relative else {})


def _where(chosen: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(chosen)}" if chosen else ""


def _order(question: Question) -> list[OrderTerm]:
    """Return a total order of the rows."""
    report, first = question.report, question.order
    if not first and question.top is not None and report.measure is not None:
        first = (OrderTerm(report.measure, descending=True),)
    terms: list[OrderTerm] = []
    for term in (*first, *report.order):
        if all(term.column != known.column for known in terms):
            terms.append(term)
    return terms


def _picking_order(question: Question) -> list[OrderTerm]:
    """Return the same for rows of one run with an ID, among which no two have the same."""
    terms = _order(question)
    return terms[: 1 + next(place for place, term in enumerate(terms) if term.column == "id")]


def _sql_order(terms: Sequence[OrderTerm]) -> str:
    return ", ".join(
        f"{quote_identifier(term.column)} {'DESC' if term.descending else 'ASC'} NULLS LAST" for term in terms
    )
