"""`traceconv ingest`: logs into the store."""

from __future__ import annotations

from pathlib import Path

import typer


def ingest(paths: list[Path] = typer.Argument(..., help="Captures, or folders that hold some.")) -> None:
    """Normalise logs into a DuckDB store."""
