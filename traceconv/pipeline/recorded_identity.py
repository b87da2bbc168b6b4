"""The host and rank of a run, from its stored rows."""

from __future__ import annotations

import re
from collections.abc import Collection

from traceconv.pipeline.run_sql import RunSql

_RANK = re.compile(r"rank[ _:=-]*([0-9]{1,9})", re.IGNORECASE)


def host_and_rank(
    target: RunSql, program: object, process_names: Collection[str | None]
) -> tuple[str | None, int | None]:
    """Return (host, rank) of a run from its rows; None if they have none or several.

    program        writer of the trace, as in run.writer. DFTracer has the host in metadata (`HH`), and older versions
                   in the args of every call
    process_names  names of its processes: a single process may be named by its rank
    """
    rank = None
    (name,) = process_names if len(process_names) == 1 else (None,)
    if name is not None:
        match = _RANK.fullmatch(name.strip())
        rank = int(match[1]) if match is not None else None
    if program != "DFTracer":
        return None, rank
    found = target.fetch(
        "SELECT DISTINCT json_extract_string(args, '$.name') AS host FROM marker "
        "WHERE run_id = $run AND name = 'HH' AND json_valid(args) LIMIT 2"
    )
    if not found:
        found = target.fetch(
            "SELECT DISTINCT json_extract_string(args, '$.hostname') AS host FROM api "
            """WHERE run_id = $run AND args LIKE '%"hostname"%' AND json_valid(args) LIMIT 2"""
        )
    return (found[0][0] if len(found) == 1 else None), rank
