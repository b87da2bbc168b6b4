"""Opens stores for reading, including those of older schema versions, which get the current reports."""

from __future__ import annotations

from pathlib import Path

import duckdb

from traceconv.store.database import OlderStoreError, open_store


def open_current_store(path: Path) -> duckdb.DuckDBPyConnection:
    """Open the store at `path` for reading; migrate an older one first, with a StoreMigrated warning.

    Raises StoreError as `open_store` does.
    """
    try:
        return open_store(path)
    except OlderStoreError:
        from traceconv.reports.catalog import report_statements
        from traceconv.store.migrate import open_migrated

        return open_migrated(path, report_statements())
