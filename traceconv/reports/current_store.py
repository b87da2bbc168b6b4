"""Opens stores and lakes for reading, including stores of older schema versions, which get the current reports."""

from __future__ import annotations

from pathlib import Path

import duckdb

from traceconv.lake.folder import is_lake
from traceconv.store.database import OlderStoreError, open_store


def open_current_store(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the store or lake at `path` for reading; migrate an older store first, with a StoreMigrated warning.

    Raises StoreError as `open_store` does, InputError for a lake that can't be read.
    """
    if is_lake(path):
        from traceconv.lake.views import open_lake

        return open_lake(path)
    try:
        return open_store(path)
    except OlderStoreError:
        from traceconv.reports.statements import report_statements
        from traceconv.store.migrate import open_migrated

        return open_migrated(path, report_statements())
