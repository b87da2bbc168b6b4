"""The runs of a store, summed by plain SQL."""

from __future__ import annotations

from pathlib import Path

import duckdb

from recount.tally import Slices, Tally


def tallies(store: Path) -> dict[int, Tally]:
    """Run → sums of its rows."""
    with duckdb.connect(str(store), read_only=True) as connection:

        def rows(sql: str) -> list[tuple]:  # type: ignore[type-arg]
            return connection.execute(sql).fetchall()

        found = {run: Tally() for (run,) in rows("SELECT run_id FROM run")}
        for table, kind, place in (
            ("task", "kind", "device_id, stream_id"),
            ("api", "level", "NULL, NULL"),
            ("range", "kind", "NULL, NULL"),
        ):
            sums = "count(*), count(dur_ns), sum(start_ns)::HUGEINT, coalesce(sum(dur_ns), 0)::HUGEINT"
            for run, *key, count, timed, start_ns, dur_ns in rows(
                f"SELECT run_id, {kind}, {place}, name, {sums} FROM {table} GROUP BY ALL"
            ):
                found[run].slices[(table, *key)] = Slices(count, timed, int(start_ns), int(dur_ns))
        for run, track, series, ts_ns, value, whole in rows(
            "SELECT run_id, t.name, c.series, c.ts_ns, c.value, c.value_int FROM counter AS c "
            "JOIN track AS t USING (run_id, track_id)"
        ):
            samples = found[run].counters[track, series]
            samples.count += 1
            samples.ts_ns += ts_ns
            samples.values.append(value)
            samples.whole_count += whole is not None
            samples.whole_sum += whole or 0
        for run, category, name, count, ts_ns in rows(
            "SELECT run_id, category, name, count(*), sum(ts_ns)::HUGEINT FROM marker GROUP BY ALL"
        ):
            found[run].markers[category, name] = [count, int(ts_ns or 0)]
        for run, category, name, count, length in rows(
            "SELECT run_id, category, name, count(*), sum(dst_ns - src_ns)::HUGEINT FROM flow GROUP BY ALL"
        ):
            found[run].flows[category, name] = [count, int(length or 0)]
        for run, *step in rows("SELECT DISTINCT run_id, iteration, start_ns, end_ns FROM step"):
            found[run].steps.add(tuple(step))
        for run, device, count, size in rows(
            "SELECT run_id, device_id, count(*), sum(size_bytes)::HUGEINT FROM memory GROUP BY ALL"
        ):
            found[run].memory[(device,)] = [count, int(size)]
    return found


def runs_by_path(store: Path) -> dict[str, int]:
    """Path of the source → its run."""
    with duckdb.connect(str(store), read_only=True) as connection:
        return dict(connection.execute("SELECT source_path, run_id FROM run").fetchall())
