"""The host and rank of a run, from its stored rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from traceconv.normalize.trace.classify import HostArg
from traceconv.pipeline.run_sql import RunSql

_RANK = re.compile(r"rank[ _:=-]*([0-9]{1,9})", re.IGNORECASE)


def host_and_rank(
    target: RunSql, hosts: Iterable[HostArg], process_names: Collection[str | None]
) -> tuple[str | None, int | None]:
    """Return (host, rank) of a run from its rows; None if they have none or several.

    hosts          args that may contain the host, by the rules of the writer
    process_names  names of its processes: a single process may be named by its rank
    """
    (name,) = process_names if len(process_names) == 1 else (None,)
    match = _RANK.fullmatch(name.strip()) if name is not None else None
    rank = int(match[1]) if match is not None else None
    for place in hosts:
        found = target.fetch(
            f"SELECT DISTINCT json_extract_string(args, '$.' || to_json($arg)) FROM {place.table} "  # noqa: S608 - checked
            "WHERE run_id = $run AND ($name IS NULL OR name = $name) AND contains(args, to_json($arg)) "
            "AND json_valid(args) LIMIT 2",
            arg=place.arg,
            name=place.name,
        )
        if found:
            return (found[0][0] if len(found) == 1 else None), rank
    return None, rank
