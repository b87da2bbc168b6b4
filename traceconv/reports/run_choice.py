"""The runs that a report is on: by number, label, rank or host, or the latest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.reports.fetch import fetch
from traceconv.reports.render import Row

NO_RUNS = "the store has no runs; ingest one with: traceconv ingest PATH"
#: Runs that an error lists.
_LISTED_RUNS = 8


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The runs that a report is on, none for all; `note` is for a user who did not choose."""

    run_ids: tuple[int, ...] = ()
    note: str | None = None

    @property
    def parameters(self) -> dict[str, int]:
        """The parameter of the macro, which selects a single run."""
        return {"run": self.run_ids[0]} if len(self.run_ids) == 1 else {}


def choose_run(connection: duckdb.DuckDBPyConnection, wanted: str | None) -> RunChoice:
    """Return the run that `wanted` names: a number, a label, rank=N, host=NAME or `all`; the latest for None.

    Names separated by commas are several runs. A number is taken as a label if no run has it. Raises UsageError if
    there is no such run, or several with a name.
    """
    rows = connection.execute("SELECT run_id, label, rank, host FROM run ORDER BY run_id").fetchall()
    if (wanted == "all" and len(rows) != 1) or (wanted is None and not rows):
        return RunChoice()
    if wanted in (None, "all"):
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
    known = list(dict.fromkeys(row[place] for row in rows if row[place] is not None)) if place is not None else []
    if known:
        values = ", ".join(printable(str(one), 40) for one in known[:_LISTED_RUNS])
        more = f", … and {len(known) - _LISTED_RUNS} more" if len(known) > _LISTED_RUNS else ""
        raise UsageError(f"unknown run '{printable(wanted)}'. Known for {what}: {values}{more}")
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
            else NO_RUNS
        )
    return choice.run_ids[0], choice.note


def chosen_runs(
    connection: duckdb.DuckDBPyConnection, wanted: str | None, what: str, *, several: bool, default: str | None = None
) -> tuple[tuple[int, ...], str | None]:
    """Return the run of `one_run` with its note; if `what` can be of several runs, those that `wanted` names.

    default  is used if `wanted` is None
    """
    wanted = default if wanted is None else wanted
    if not several or wanted is None:
        run_id, note = one_run(connection, wanted, what)
        return (run_id,), note
    run_ids = choose_run(connection, wanted).run_ids
    if not run_ids:
        rows = connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall()
        run_ids = tuple(run_id for (run_id,) in rows)
    if not run_ids:
        raise UsageError(NO_RUNS)
    return run_ids, None


def recorded_groups(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[str, bool]:
    """Return the recorded counter groups of some runs, of all if there are none, and whether they have vendor_values.

    Raises StoreError.
    """
    sql = (
        "SELECT metric_group, count(vendor_values) > 0 FROM task_pmu "  # noqa: S608 - integers
        f"WHERE metric_group IS NOT NULL AND {in_runs(run_ids)} GROUP BY metric_group"
    )
    return {str(group): bool(has_values) for batch in fetch(connection, sql, []) for group, has_values in batch}


def run_origins(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, int]:
    """Return the starts of some runs in ns, of all if there are none, by run_id. Unknown starts are omitted."""
    sql = f"SELECT run_id, start_ns FROM run WHERE start_ns IS NOT NULL AND {in_runs(run_ids)} ORDER BY run_id"  # noqa: S608 - integers
    return dict(connection.execute(sql).fetchall())


def in_runs(run_ids: Sequence[int]) -> str:
    """Return the SQL condition on rows of some runs; of all if there are none."""
    return f"run_id IN ({', '.join(f'{run_id:d}' for run_id in run_ids)})" if run_ids else "true"
