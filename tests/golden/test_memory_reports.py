"""Memory reports: worked out by hand, and compared with a sweep over random blocks and with the allocator's totals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from commands import Command
from stores import query as ask

from traceconv.pipeline.ingest import ingest
from traceconv.runtime.record import RecordOptions, record

MakeStore = Callable[..., Path]


def block(id_: int, size: int, alloc: int | None, free: int | None, **more: object) -> dict[str, object]:
    return {"block_id": id_, "size_bytes": size, "alloc_ns": alloc, "free_ns": free, "kind": "block", **more}


def test_peaks_by_hand(make_store: MakeStore) -> None:
    store = make_store(
        op=[{"op_id": 7, "name": "conv"}],
        memory=[
            block(1, 2_000, 0, None, kind="segment", pool="a"),
            block(2, 1_000, 10, 50, pool="a", op_id=7, tensor_name="x"),
            block(3, 500, 20, 30, pool="a", op_id=7, purpose="workspace"),
            block(4, 400, 30, None, pool="b", tensor_name="w"),
            block(5, 100, None, 30, pool="b"),
        ],
    )
    columns = "level, pool, peak_used_bytes, peak_ns, reserved_bytes, fragmentation_bytes, peak_reserved_bytes"
    assert ask(store, f"SELECT {columns}, live_count, peak_op, top_live FROM memory_peak") == [
        ("device", None, 1_600, 20, 2_000, 400, 2_000, 3, "conv", "x (conv) = 1000; workspace (conv) = 500; ? = 100"),
        ("pool", "a", 1_500, 20, 2_000, 500, 2_000, 2, "conv", "x (conv) = 1000; workspace (conv) = 500"),
        ("pool", "b", 400, 30, 0, -400, 0, 1, None, "w = 400"),
    ]
    live = ask(store, "SELECT block_id, size_bytes, share_percent, peak_ns FROM memory_live")
    assert live == [(2, 1_000, 62.5, 20), (3, 500, 31.25, 20), (5, 100, 6.25, 20)]
    usage = ask(store, "SELECT ts_ns, used_bytes, reserved_bytes FROM memory_usage WHERE level = 'device' ORDER BY 1")
    # At 30 ns, the end: 500 and 100 are freed, 400 is in use.
    assert usage == [(0, 100, 2_000), (10, 1_100, 2_000), (20, 1_600, 2_000), (30, 1_400, 2_000), (50, 400, 2_000)]


def test_steps_are_times(make_store: MakeStore, command: Command) -> None:
    """Reports without steps select the time from the start of the first one to the end of the last one's tasks."""
    store = make_store(
        step=[{"step_id": n, "start_ns": 100 * n, "end_ns": 100 * n + 80, "device_id": 0} for n in (1, 2, 3)],
        task=[{"id": 1, "step_id": 2, "start_ns": 250, "dur_ns": 60, "device_id": 0}],
        memory=[block(n, 10**n, at, at + 50) for n, at in ((1, 0), (2, 130), (3, 240), (4, 300), (5, 310))],
    )

    def peaks(*options: object) -> list[int]:
        rows = json.loads(command("report", "memory-peak", "--db", store, "--format", "json", *options).out)
        return [row["peak_used_bytes"] for row in rows if row["level"] == "device"]

    assert peaks("--step", 1) == [100]
    assert peaks("--steps", "1-2") == peaks("--from", 100, "--to", 310) == [10_000]
    assert peaks("--steps", "3-") == peaks("--steps", "3-", "--run", "all") == [110_000]
    for options, error in (
        (("--steps", "4"), "the run has steps 1 to 3; --steps selects none"),
        (("--step", "1", "--to", "1ms"), "select --steps, or a window with --from and --to"),
    ):
        assert error in command("report", "memory-peak", "--db", store, *options, code=2).err


def test_unknown_values_stay_unknown(make_store: MakeStore) -> None:
    store = make_store(
        memory=[
            block(1, 5, None, None),
            block(2, 0, 4, 4, pool="empty"),
            block(3, 7, 9, 3, run_id=2),  # freed before its alloc: invalid, counts as never freed
            block(1, 2**61, 1, None, run_id=3, device_id=1),
            block(2, 2**61, 2, None, run_id=3, device_id=1),
        ],
        run=[{"run_id": 1, "start_ns": 2}, {"run_id": 2}, {"run_id": 3}],
    )
    columns = "run_id, device_id, level, pool, peak_used_bytes, peak_ns, reserved_bytes, fragmentation_bytes"
    assert ask(store, f"SELECT {columns} FROM memory_peak") == [
        (1, 0, "device", None, 5, 3, None, None),
        (1, 0, "pool", "empty", 0, 4, None, None),
        (1, 0, "pool", None, 5, 3, None, None),
        (2, 0, "device", None, 7, 9, None, None),
        (3, 1, "device", None, 2**62, 2, None, None),
    ]
    assert ask(store, "SELECT count(*) FROM memory_peak(run := 3, device := 0)") == [(0,)]


def test_pools_of_a_window_before_others(make_store: MakeStore) -> None:
    """A source that names pools has a row for blocks without one, also before the first block of a named pool."""
    store = make_store(memory=[block(1, 5, 0, None), block(2, 7, 9, None, pool="a")])
    assert ask(store, "SELECT level, pool, peak_used_bytes FROM memory_peak(to_ns := 5)") == [
        ("device", None, 5),
        ("pool", None, 5),
    ]
    for report in ("memory_peak", "memory_live", "memory_statistic"):
        assert ask(store, f"FROM {report}(from_ns := 6, to_ns := 6)") == [], "an empty window has no rows"


def test_a_recorded_run_agrees_with_its_allocator(tmp_path: Path) -> None:
    """The log has the allocator's totals after each event; the reports compute theirs from the blocks."""
    record(RecordOptions("mini_transformer", tmp_path / "raw", iterations=2, devices=2, deterministic=True))
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path / "raw"], store)
    counters = ask(
        store,
        "SELECT device_id, max(value_int) FILTER (WHERE name = 'Memory used'), "
        "max(value_int) FILTER (WHERE name = 'Memory reserved') "
        "FROM counter JOIN track USING (run_id, track_id) WHERE name LIKE 'Memory %' GROUP BY ALL ORDER BY ALL",
    )
    columns = "device_id, peak_used_bytes, peak_reserved_bytes"
    assert ask(store, f"SELECT {columns} FROM memory_peak WHERE level = 'device'") == counters
    assert len(counters) == 2
    [(rows, tasks)] = ask(store, "SELECT (SELECT count(*) FROM memory_trace), count(*) FROM task WHERE op_id >= 0")
    assert rows == tasks > 0
    # An op's scratch memory exists at its launch, and none exists at the end of the run.
    [(low, high, peak)] = ask(
        store,
        "SELECT min(t.used_bytes - o.output_bytes - o.workspace_bytes), max(t.used_bytes), "
        "(SELECT max(peak_used_bytes) FROM memory_peak) FROM memory_trace AS t JOIN op AS o USING (run_id, op_id)",
    )
    assert low >= 0
    assert high <= peak
    scratch = ask(
        store,
        "SELECT count(*), count(*) FILTER (WHERE m.op_id IS NULL OR m.size_bytes < o.workspace_bytes) "
        "FROM memory AS m LEFT JOIN op AS o USING (run_id, op_id) WHERE m.purpose = 'workspace'",
    )
    [(needed,)] = ask(store, "SELECT count(*) FROM task JOIN op USING (run_id, op_id) WHERE workspace_bytes > 0")
    assert scratch == [(needed, 0)] and needed > 0


def test_memory_trace_is_at_the_time_of_the_launch(make_store: MakeStore) -> None:
    store = make_store(
        op=[{"op_id": 1, "name": "a", "op_type": "Add"}],
        memory=[block(1, 10, 5, 100), block(2, 4, 20, 30)],
        task=[
            {"id": 1, "op_id": 1, "submit_ns": 6, "start_ns": 60, "step_id": 1},
            {"id": 2, "op_id": 1, "submit_ns": 20, "start_ns": 90, "step_id": 2},
            {"id": 3, "op_id": 1, "start_ns": 101},
            {"id": 4, "op_id": None, "start_ns": 1},
            {"id": 5, "op_id": 9, "name": "k", "start_ns": 4},
            {"id": 6, "op_id": 1},
            {"id": 7, "op_id": 1, "start_ns": 8, "device_id": 3},
        ],
    )
    columns = "id, op_name, at_ns, used_bytes, reserved_bytes, used_change_bytes"
    assert ask(store, f"SELECT {columns} FROM memory_trace") == [
        (5, "k", 4, None, None, None),
        (1, "a", 6, 10, None, None),
        (2, "a", 20, 14, None, 4),
        (3, "a", 101, 0, None, -14),
    ]
    assert ask(store, "SELECT id, used_change_bytes FROM memory_trace(step := 2)") == [(2, 4)]
