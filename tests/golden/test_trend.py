"""trend: a store of a few runs, and the expected rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stores import query as ask

MakeStore = Callable[..., Path]
Rows = dict[str, list[dict[str, object]]]
DAY_NS = 86_400 * 10**9


def test_runs_are_compared_with_the_one_before_in_their_series(make_store: MakeStore) -> None:
    rows: Rows = {"run": [], "step": [], "task": [], "memory": []}

    def add(run_id: int, day: int, tasks: list[int], steps: Iterable[int] = (), group: str | None = "nightly") -> None:
        """Steps of these durations in µs, one after the other, each of which begins with a task; or only tasks."""
        start = day * DAY_NS
        run = {"run_id": run_id, "label": f"r{run_id}", "group_label": group, "start_ns": start, "epoch_offset_ns": 0}
        rows["run"].append({**run, "source_format": "f", "end_ns": start + 10**6})
        block = {"run_id": run_id, "block_id": 1, "kind": "block", "size_bytes": run_id, "alloc_ns": start}
        rows["memory"] += [block, {**block, "block_id": 2, "device_id": -1, "size_bytes": 100}]  # of the host
        lengths = list(steps) or list(tasks)
        for place, (length, dur) in enumerate(zip(lengths, tasks, strict=True)):
            task = {"id": place, "start_ns": start, "dur_ns": dur * 1000, "kind": "compute", "device_id": 0}
            rows["task"].append({**task, "run_id": run_id, "stream_id": 7})
            if steps:
                step = {"step_id": place, "iteration": place, "start_ns": start, "end_ns": start + length * 1000}
                rows["step"].append({**step, "run_id": run_id})
            start += length * 1000

    # The first step of each is a warm-up. Run 3 was recorded first; run 4 computes longer, run 5 idles longer.
    add(1, 2, tasks=[30, 30, 31, 31, 32], steps=(90, 40, 41, 42, 43))
    add(2, 3, tasks=[30, 30, 30, 31, 31], steps=(99, 41, 40, 42, 42))
    add(3, 1, tasks=[30, 30, 31, 31, 31], steps=(95, 40, 40, 41, 42))
    add(4, 4, tasks=[40, 40, 40, 41, 41], steps=(90, 50, 50, 51, 51))
    add(5, 5, tasks=[30, 30, 30, 30, 30], steps=(90, 60, 60, 61, 61))
    # Others: no group, and a run without steps in the same one.
    add(6, 6, tasks=[10, 10], group=None)
    add(7, 7, tasks=[10, 20])
    add(8, 8, tasks=[10, 30])
    for run_id, second in ((9, 30), (10, 10)):
        start = {"start_ns": second * 10**9, "end_ns": (second + 5) * 10**9, "epoch_offset_ns": 0}
        rows["run"].append({"run_id": run_id, "label": f"r{run_id}", "rank": 5, **start})
    store = make_store(**rows)
    columns = "run_id, recorded[:10], measured, time_ns // 1000, previous_run_id, round(change_percent, 1)"
    found = ask(store, f"SELECT {columns}, is_shifted, changed_in FROM trend WHERE group_label = 'nightly'")
    assert found == [
        (3, "1970-01-02", "step", 41, None, None, None, None),
        (1, "1970-01-03", "step", 42, 3, 2.4, False, None),
        (2, "1970-01-04", "step", 42, 1, 0.0, False, None),
        (4, "1970-01-05", "step", 51, 2, 21.4, True, "compute"),
        (5, "1970-01-06", "step", 61, 4, 19.6, True, "idle"),
        (7, "1970-01-08", "tasks", 30, None, None, None, None),
        (8, "1970-01-09", "tasks", 40, 7, 33.3, None, "compute"),
    ]
    # Runs 9 and 10 of one minute: the later one was ingested first.
    assert ask(store, "SELECT run_id, place FROM trend WHERE rank = 5") == [(10, 1), (9, 2)]
    assert ask(store, "SELECT run_id, since_first_percent FROM trend WHERE group_label IS NULL AND rank IS NULL") == [
        (6, None)
    ]
    peaks = ask(store, "SELECT run_id, peak_used_bytes FROM trend WHERE rank IS NULL ORDER BY run_id")
    of_device = "FROM memory_peak WHERE device_id = 0 AND level = 'device'"
    assert peaks == ask(store, f"SELECT run_id, peak_used_bytes {of_device} ORDER BY run_id")
    assert peaks == [(n, n) for n in range(1, 9)]
    assert ask(store, "SELECT time_ns // 1000, idle_ns // 1000 FROM trend(run := 5, first_step := 3)") == [(61, 31)]
    # Nothing is measured instead of steps or tasks of which none is chosen.
    columns = "SELECT run_id, measured, step_count, time_ns FROM trend"
    assert ask(store, f"{columns}(first_step := 9) WHERE rank IS NULL AND run_id > 4 ORDER BY run_id") == [
        (5, "step", 0, None), (6, "tasks", 0, None), (7, "tasks", 0, None), (8, "tasks", 0, None),
    ]  # fmt: skip
    assert ask(store, f"{columns}(run := 5, from_ns := {5 * DAY_NS + 250_000})") == [(5, "step", 1, 61_000)]
    assert ask(store, f"{columns}(run := 5, to_ns := {5 * DAY_NS})") == [(5, "step", 0, None)]
    window = f"from_ns := {12 * 10**9}, to_ns := {14 * 10**9}"
    assert ask(store, f"{columns}({window}) WHERE rank = 5") == [(10, "run", 0, 2 * 10**9), (9, "run", 0, None)]
    assert ask(store, f"{columns}(run := 8, device := 1)") == [(8, "tasks", 0, None)]
