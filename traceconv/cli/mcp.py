"""`traceconv mcp`: answer an assistant."""

from __future__ import annotations

from pathlib import Path

from traceconv.cli import options


def mcp(paths: list[Path] | None = options.FILES, db: Path | None = options.DB, cache: bool = options.CACHE) -> None:
    """Let an assistant ask about runs (Model Context Protocol).

    The assistant's program starts this command and talks to it over standard input and output. Its tools are reports,
    advise, compare, the critical path, what-if, and SQL. They change nothing, and read the store, FILE, or other files
    that the assistant names. What they return goes to the assistant's provider. Install the package first:
    pip install 'traceconv[mcp]'.

    \b
    Examples:
      traceconv mcp
      traceconv mcp --db trace.duckdb
      traceconv mcp rank0.pt.trace.json.gz
    """
    from traceconv.mcp import serve

    serve(*(paths or ()), db=db, cache=cache)
