"""Trace files given to a command instead of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS
from traceconv.cli.output import print_message

if TYPE_CHECKING:
    import duckdb

    from traceconv.cli.first_answers import FirstAnswers
    from traceconv.pipeline.result import Observer


@contextmanager
def asked_store(
    db: Path | None, paths: Sequence[Path], *, cache: bool = True, first: FirstAnswers | None = None
) -> Iterator[Path]:
    """Yield the store of `paths`, or --db or the default one if there are none.

    first  what to show while the files are ingested, if they are not in the cache

    Losses are reported each time, and end the command with exit code 3. Raises UsageError if both are given, InputError
    if nothing can be used.
    """
    from traceconv.pipeline.trace_store import store_of

    with store_of(paths, db, cache=cache, observed=lambda: _observed(first)) as store:
        for line in (*store.losses, *store.notes):
            print_message(line)
        yield store.path
    if store.losses:
        raise typer.Exit(EXIT_DATA_LOSS)


@contextmanager
def asked_run(store: Path, run: str | None, what: str) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
    """Yield a connection to a store, and the number of the run for `what`; a default is reported."""
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.fetch import reading
    from traceconv.reports.run_choice import one_run

    with open_current_store(store) as connection, reading():
        run_id, note = one_run(connection, run, what)
        if note is not None:
            print_message(note)
        yield connection, run_id


@contextmanager
def _observed(first: FirstAnswers | None) -> Iterator[Observer]:
    from traceconv.base.malloc_tuning import limit_arenas, require_address_space

    require_address_space()
    limit_arenas()
    from traceconv.cli.progress import ingest_progress

    if first is None:
        with ingest_progress() as observer:
            yield observer
        return
    with first.running(), ingest_progress(first) as observer:
        yield observer
