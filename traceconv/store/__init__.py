"""The store: a DuckDB file with documented tables and views."""
