"""One DuckDB file: created, opened, loaded, finished."""
