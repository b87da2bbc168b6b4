"""Compare runs of a store with the recount of their files, apart from the explained differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import duckdb

from recount.stored import tallies
from recount.tally import Tally, differences

_EXPLAINED = Path(__file__).with_name("explained.txt")


def explained() -> dict[tuple[str, str], int]:
    """(file, table) → number of rows that differ for a known reason."""
    lines = [line.split("|") for line in _EXPLAINED.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) <= 20
    assert all(len(line) == 4 and line[3].strip() for line in lines)
    return {(path.strip(), table.strip()): int(count) for path, table, count, _ in lines}


def disagreements(store: Path, counted: dict[Path, Tally], top: Path) -> list[str]:
    """Return the unexplained differences between the runs of a store and the recount of their files.

    A file without a run is empty or a copy of another.
    """
    stored = tallies(store)
    with duckdb.connect(str(store), read_only=True) as connection:
        runs = connection.execute("SELECT source_path, run_id, source_digest FROM run").fetchall()
    run_of = {path: run for path, run, _ in runs}
    bytes_of = {Path(path).read_bytes(): run for path, run, _ in runs if Path(path).is_file()}
    found: Counter[tuple[str, str]] = Counter()
    shown: dict[tuple[str, str], str] = {}
    for path, tally in counted.items():
        run = run_of.get(str(path), bytes_of.get(path.read_bytes() if path.is_file() else b""))
        for table, text in differences(tally, stored[run] if run is not None else Tally()):
            key = (path.relative_to(top).as_posix(), table)
            found[key] += 1
            shown.setdefault(key, text)
    known = {key: count for key, count in explained().items() if (top / key[0]) in counted}
    return [
        f"{path}: {table}: {found[path, table]} differ, {known.get((path, table), 0)} explained; "
        f"{shown.get((path, table), '')}"
        for path, table in sorted(found.keys() | known.keys())
        if found[path, table] != known.get((path, table), 0)
    ]


def statistic(store: Path, key: str, report: str) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Two columns of a report with sums → count, total, minimum and maximum, over all devices."""
    query = f"SELECT {key}, sum(count), sum(total_ns), min(min_ns), max(max_ns) FROM {report} GROUP BY ALL"
    with duckdb.connect(str(store), read_only=True) as connection:
        rows = connection.execute(query).fetchall()
    return {(first, second): tuple(map(int, rest)) for first, second, *rest in rows}


def sums(durations: Mapping[tuple[object, ...], list[int]]) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Count, total, minimum and maximum of durations."""
    return {key: (len(durs), sum(durs), min(durs), max(durs)) for key, durs in durations.items()}
