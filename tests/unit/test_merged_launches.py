"""Correlation IDs repeat in traces merged from several processes: no task gets the launch of another process."""

from __future__ import annotations

import json
import random
from pathlib import Path

import nsys_builder
from ingest_checks import taken
from stores import query

from traceconv.pipeline.ingest import ingest

Event = dict[str, object]


def rank(host: int, device: int, launched: dict[int, int], delay_us: int) -> list[Event]:
    """Return events of a PyTorch process: calls at these times by correlation ID, later kernels, and flows."""
    found: list[Event] = []
    for number, at in launched.items():
        call = {"pid": host, "tid": 1, "ts": at}
        work = {"pid": device, "tid": 7, "ts": at + delay_us}
        args = {"correlation": number, "External id": number, "n": number}
        found += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **call, "dur": 2, "args": args},
            {"ph": "X", "cat": "kernel", "name": f"k{host}", **work, "dur": 3,
             "args": {**args, "device": device, "stream": 7}},
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": number, **call},
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": number, "bp": "e", **work},
        ]  # fmt: skip
    return found


def stored(folder: Path, events: list[Event]) -> Path:
    return taken({"schemaVersion": 1, "traceEvents": events}, folder)[1]


LAUNCHES = "SELECT name, correlation_id, submit_ns, start_ns - submit_ns FROM task ORDER BY ALL"
ONE = rank(1000, 0, {1: 10, 2: 100, 3: 200, 7: 300, 8: 400, 9: 500}, 50)
OTHER = rank(2000, 1, {1: 20, 2: 90, 3: 260, 4: 400, 5: 500, 6: 600}, 500)


def test_ids_used_by_two_processes(tmp_path: Path) -> None:
    """Six IDs occur in one process only: these show whose streams they are, and then all launches are known."""
    known = [("k1000", 1000, n) for n in (1, 2, 3, 7, 8, 9)] + [("k2000", 2000, n) for n in range(1, 7)]
    launched = """
SELECT t.name, p.pid_text::BIGINT, t.correlation_id FROM task AS t JOIN {} JOIN api AS a ON a.id = l.src_id
JOIN track AS k ON k.track_id = a.track_id JOIN process AS p ON p.process_id = k.process_id ORDER BY ALL"""
    by_id = launched.format("(SELECT id AS dst_id, api_id AS src_id FROM task) AS l ON l.dst_id = t.id")
    by_flow = launched.format("flow AS l ON l.dst_id = t.id")
    for number, events in enumerate((ONE + OTHER, OTHER + ONE)):
        (tmp_path / str(number)).mkdir()
        store = stored(tmp_path / str(number), events)
        assert query(store, by_id) == query(store, by_flow) == known
        assert query(store, "SELECT count(*) FROM import_log WHERE code = 'unclear_launch'") == [(0,)]
        assert len(query(store, "FROM launch_delay")) == len(query(store, "FROM launching_range")) == 12


def test_streams_whose_process_is_known_by_the_times_of_calls(tmp_path: Path) -> None:
    """A call after a task didn't launch it. With correlation IDs and flows, and with flows alone."""
    one = rank(1000, 0, {n: 100 * n for n in range(9)}, 50)
    early, late, same = (
        rank(2000, device, {n: 100 * n + at for n in range(9)}, 60) for device, at in ((1, 2), (1, 55), (0, 55))
    )
    other = [{**event, "tid": 9} if event["tid"] == 7 else event for event in same]  # another stream of the device
    cases = (early, ()), (late, ("k1000", "k2000")), (same, ("k1000",)), (other, ("k1000",))
    for number, (more, names) in enumerate(cases):
        for events in ([*one, *more], without_correlation([*one, *more])):
            (folder := tmp_path / f"{number} {len(str(events))}").mkdir()
            store = stored(folder, events)
            known = [(f"k{pid}", pid, 9) for pid in (1000, 2000) if f"k{pid}" in names]
            for rows in ("SELECT id AS dst_id, api_id AS src_id FROM task WHERE submit_ns IS NOT NULL", "FROM flow"):
                launches = query(
                    store,
                    f"""
SELECT t.name, p.pid_text::BIGINT, count(*) FROM ({rows}) AS f JOIN task AS t ON t.id = dst_id
JOIN api AS a ON a.id = src_id JOIN track AS k ON k.track_id = a.track_id JOIN process AS p USING (process_id)
WHERE (a.args->>'n') = (t.args->>'n') GROUP BY ALL ORDER BY ALL""",
                )
                assert launches == known
                assert query(store, f"SELECT count(*) FROM ({rows})") == [(9 * len(known),)]


def without_correlation(events: list[Event]) -> list[Event]:
    args = [{key: value for key, value in event.get("args", {}).items() if key[0] in "nds"} for event in events]  # type: ignore[attr-defined]
    return [{**event, "args": own} if own else event for event, own in zip(events, args, strict=True)]


def test_ranks_whose_pids_have_labels(tmp_path: Path) -> None:
    """As SGLang merges them: all IDs are those of both ranks, and the device is the one with the label of the call."""
    launched = {n: 100 * n for n in range(1, 6)}
    events = [
        {**event, "pid": f"[TP0{number}] {event['pid']}"}
        for number, delay_us in enumerate((60, 63))
        for event in rank(1000 + number, number, launched, delay_us)
    ]
    wanted = [(f"k100{number}", 60_000 + 3000 * number) for number in (0, 1) for _ in launched]
    for number, some in enumerate((events, without_correlation(events))):
        (tmp_path / str(number)).mkdir()
        store = stored(tmp_path / str(number), some)
        assert query(store, "SELECT name, start_ns - submit_ns FROM task ORDER BY ALL") == wanted
        by_flow = "SELECT t.name, t.start_ns - a.start_ns FROM flow JOIN api AS a ON a.id = src_id JOIN task AS t "
        assert query(store, by_flow + "ON t.id = dst_id ORDER BY ALL") == wanted


def test_flows_from_a_call_that_starts_with_the_launch_are_not_launches(tmp_path: Path) -> None:
    """A flow that starts with two calls starts in the inner one, even if it lasts 0 µs. The IDs of flows are unique."""
    wait: Event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1000, "tid": 1, "ts": 10,
                   "dur": 0, "args": {"correlation": 30}}  # fmt: skip
    other = [{**event, "id": f"2000/{event['id']}"} if event["ph"] in ("s", "f") else event for event in OTHER]
    store = stored(tmp_path, [*ONE, wait, *other])
    submits = [(event["ts"] * 1000,) for event in [*ONE, *other] if event["ph"] == "s"]  # type: ignore[operator]
    assert query(store, "SELECT submit_ns FROM task ORDER BY ALL") == sorted(submits)
    assert query(store, "SELECT src_ns FROM flow WHERE kind = 'launch' ORDER BY ALL") == sorted(submits)


def test_a_task_in_the_process_of_its_call_has_a_launch(tmp_path: Path) -> None:
    events = [event for host, at in ((1000, 10), (2000, 12)) for event in rank(host, host, {1: at, 2: at + 7}, 40)]
    for event in events:
        if event["cat"] == "kernel":
            event["args"] = {**event["args"], "device": 0}
    store = stored(tmp_path, events)
    wanted = [(f"k{host}", number, at * 1000, 40_000) for host, first in ((1000, 10), (2000, 12))
              for number, at in ((1, first), (2, first + 7))]  # fmt: skip
    assert query(store, LAUNCHES) == wanted
    assert query(store, "SELECT count(*) FROM import_log WHERE code = 'unclear_launch'") == [(0,)]


def test_the_call_of_another_process_with_the_id_of_a_lost_one_is_no_launch(tmp_path: Path) -> None:
    """20 IDs occur in one process only. The process of a container may have the number of another one's device."""
    for number, (host, device) in enumerate(((1000, 0), (2, 3), (1, 2))):
        one = rank(host, device, {n: 10 + 30 * n for n in range(25)}, 50)
        other = rank(host + 1, 1, {n: 12 + 30 * n for n in (*range(5), *range(50, 70))}, 500)
        # The call 2 and the start of its flow are lost, and the task that only the other process has: a task of the
        # first one has the ID of that call, as task 2 has, but another External id.
        lost = [event for event in one[8:12] if event["pid"] == host] + [other[-3]]
        events = [event for event in one + other if event not in lost]
        args = {**other[-4]["args"], "External id": 1}  # type: ignore[dict-item]
        events.append({**one[1], "ts": 5000, "args": {**args, "device": device}})
        (tmp_path / str(number)).mkdir()
        store = stored(tmp_path / str(number), events)
        found = query(store, "SELECT name, correlation_id FROM task WHERE submit_ns IS NOT NULL ORDER BY ALL")
        known = [(f"k{host}", n) for n in range(25) if n != 2]
        assert found == [*known, *((f"k{host + 1}", n) for n in (*range(5), *range(50, 69)))]
        for rows in ("SELECT id AS dst_id, api_id AS src_id FROM task WHERE api_id IS NOT NULL", "FROM flow"):
            launches = query(
                store,
                f"""
SELECT t.name, p.pid_text FROM ({rows}) AS f JOIN task AS t ON t.id = f.dst_id JOIN api AS a ON a.id = f.src_id
JOIN track AS k ON k.track_id = a.track_id JOIN process AS p ON p.process_id = k.process_id""",
            )
            assert len(launches) == len(found)
            assert all(name == f"k{pid}" for name, pid in launches)
        assert query(store, "SELECT event_count FROM import_log WHERE code = 'unclear_launch'") == [(2,)]


def test_ids_that_one_process_uses_again_are_not_launches(tmp_path: Path) -> None:
    """Such as 0, or IDs of ranks whose processes have one number. A call inside of another one has its ID."""
    events = [*rank(1000, 0, {1: 10, 2: 200}, 50), *rank(1000, 0, {1: 30}, 70)]
    inner = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 1000, "tid": 1, "ts": 200.5, "dur": 1}
    inner["args"] = {"correlation": 2}
    for number, found in enumerate(([*events, inner], [inner, *reversed(events)])):
        (tmp_path / str(number)).mkdir()
        store = stored(tmp_path / str(number), found)
        unknown = ("k1000", 1, None, None)
        assert query(store, LAUNCHES) == [unknown, unknown, ("k1000", 2, 200_000, 50_000)]
        sql = "SELECT count, total_count FROM trust WHERE finding = 'unclear_launches'"
        assert query(store, sql) == [(2, 3)]
        assert query(store, "SELECT src_ns, dst_ns FROM flow WHERE kind = 'launch'") == [(200_000, 250_000)]


def test_ids_that_are_used_again_after_their_tasks_are_launches(tmp_path: Path) -> None:
    """As in recordings that follow each other in a file: all calls with an ID are followed by tasks with it.

    Also next to another process with the IDs. Tasks are in the steps of their calls, on devices without other tasks.
    """
    inner = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 1000, "tid": 1, "ts": 500.5, "dur": 1}
    inner["args"] = {"correlation": 1}
    events = [*rank(1000, 0, {1: 10, 2: 30}, 50), *rank(1000, 0, {1: 500, 2: 530}, 40), inner]
    graph = {**events[1], "ts": 64, "name": "k1000"}  # a second kernel of the first call
    steps = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1000, "tid": 1, "ts": ts, "dur": dur}
        for n, ts, dur in ((0, 0, 45), (1, 45, 460), (2, 505, 200))
    ]
    other = rank(2000, 1, dict.fromkeys(range(1, 9), 900), 1)
    known = [(1, 10_000, 50_000), (1, 10_000, 54_000), (1, 500_000, 40_000), (2, 30_000, 50_000), (2, 530_000, 40_000)]
    for number, more in enumerate(([], other)):
        (tmp_path / str(number)).mkdir()
        store = stored(tmp_path / str(number), [*events, *steps, graph, *more])
        assert query(store, LAUNCHES)[:5] == [("k1000", *row) for row in known]
        assert query(store, "SELECT count(*) FROM import_log WHERE code = 'unclear_launch'") == [(0,)]
        assert query(store, "SELECT count(*) FROM trust WHERE finding = 'unclear_launches'") == [(0,)]
        assert len(query(store, "FROM launch_delay")) == 5 + len(more) // 4
        assert query(store, "SELECT step_id, device_id FROM step ORDER BY ALL") == [(0, 0), (1, 0), (2, 0)]


def test_tasks_whose_args_show_their_calls_are_in_the_steps_of_these(tmp_path: Path) -> None:
    events = rank(1000, 0, {1: 90}, 50)[:2]
    for event in events:
        event["args"] = {"External id": 1, **({"device": 0, "stream": 7} if event["cat"] == "kernel" else {})}
    events += [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1000, "tid": 1,
         "ts": step * 100, "dur": 100}
        for step in (0, 1)
    ]  # fmt: skip
    store = stored(tmp_path, events)
    assert query(store, "SELECT submit_ns, step_id FROM task") == [(90_000, 0)]
    assert query(store, "SELECT step_id, device_id FROM step ORDER BY ALL") == [(0, 0), (1, None)]


def test_a_step_without_tasks_is_on_the_devices_of_its_process(tmp_path: Path) -> None:
    def steps(host: int) -> list[Event]:
        return [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": host, "tid": 1, "ts": at,
             "dur": 1000}
            for number, at in ((1, 0), (2, 2000))
        ]  # fmt: skip

    one, other = rank(1000, 0, {1: 10}, 50), rank(2000, 1, {2: 20}, 50)
    store = stored(tmp_path, one + other + steps(1000) + steps(2000))
    wanted = [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert query(store, "SELECT iteration, device_id FROM step ORDER BY ALL") == wanted
    assert query(store, "SELECT iteration, device_id FROM step_breakdown ORDER BY ALL") == wanted


def test_trust_names_devices_of_several_ranks_with_one_number(tmp_path: Path) -> None:
    def merged(*ranks: tuple[int, int]) -> list[Event]:
        """Return the events of ranks (host, device), whose processes of devices have names."""
        return [
            {**event, "pid": f"rank {host} GPU" if event["pid"] == device else host}
            for host, device in ranks
            for event in rank(host, device, {host: 10}, 50)
        ]

    sql = "SELECT count, total_count, affected_ns FROM trust WHERE finding = 'shared_streams'"
    one = stored(tmp_path, merged((1000, 0), (2000, 0)))
    assert query(one, "SELECT device_id, task_count FROM breakdown") == [(0, 2)]
    assert query(one, sql) == [(2, 2, 6000)]
    one.unlink()
    assert query(stored(tmp_path, merged((1000, 0), (2000, 1))), sql) == []


def test_a_thread_with_the_numbers_of_a_stream_has_its_own_track(tmp_path: Path) -> None:
    """The process of a container has number 1, like a device: its rows are those that another thread would have."""
    rows = """
SELECT s.kind, s.name, s.start_ns, s.dur_ns, s.self_ns, s.depth, p.start_ns, k.kind, k.device_id, k.stream_id
FROM (FROM range UNION ALL BY NAME FROM api UNION ALL BY NAME FROM task UNION ALL BY NAME
      SELECT track_id, ts_ns AS start_ns, name FROM marker WHERE ts_ns > 0) AS s
JOIN track AS k ON k.track_id = s.track_id
LEFT JOIN (SELECT id, start_ns FROM range UNION ALL SELECT id, start_ns FROM api) AS p ON p.id = s.parent_id
ORDER BY ALL"""
    flows = "SELECT src_ns, dst_ns FROM flow JOIN task AS t ON t.id = dst_id JOIN api AS a ON a.id = src_id"
    host: list[Event] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 9, "dur": 51.5},
        {"ph": "X", "cat": "python_function", "name": "forward", "ts": 3, "dur": 102},
        {"ph": "X", "cat": "overhead", "name": "Lazy Loading", "ts": 58, "dur": 9},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 9.5, "s": "t"},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 77, "ts": 11, "bp": "e"},  # such as that of a wait of the host
    ]
    events = [*rank(1000, 1, {1: 10, 2: 20, 3: 55}, 50), *({**event, "pid": 1000} for event in host)]
    chance = random.Random(3)
    for number in range(3):
        found = []
        for tid in (7, 8):
            (folder := tmp_path / f"{number}_{tid}").mkdir()
            shown = [{**event, "pid": 1, "tid": tid} if event["pid"] == 1000 else event for event in events]
            store = stored(folder, shown)
            assert len(query(store, flows)) == 3
            assert query(store, "SELECT count(*) FROM track") == [(2,)]
            found.append((query(store, rows), query(store, f"{flows} ORDER BY ALL")))
        assert found[0] == found[1]
        chance.shuffle(events)


def test_equal_ids_in_two_files_are_independent(tmp_path: Path) -> None:
    paths = []
    for name, events in (("rank0", ONE), ("rank1", OTHER)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    store = tmp_path / "s.duckdb"
    ingest(paths, store)
    found = query(
        store, "SELECT run_id, count(*), min(delay_ns), max(delay_ns) FROM launch_delay GROUP BY ALL ORDER BY 1"
    )
    assert found == [(1, 6, 50_000, 50_000), (2, 6, 500_000, 500_000)]


def test_rows_of_nsys_reports_are_matched_by_process(tmp_path: Path) -> None:
    """Each row has its process, so all 8 launches are found in any order."""
    path, store = tmp_path / "r.sqlite", tmp_path / "s.duckdb"
    db = nsys_builder.new_report(path)
    times = {(100, 1): 10, (200, 1): 12, (200, 2): 20, (100, 2): 31, (300, 1): 11}
    kernels = [nsys_builder.kernel(at + pid, at + pid + 3, 1, number, pid) for (pid, number), at in times.items()]
    calls = [nsys_builder.call(at, at + 1, 10, number, pid, pid) for (pid, number), at in reversed(times.items())]
    nsys_builder.insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    nsys_builder.insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
    db.commit()
    db.close()
    ingest([path], store)
    found = query(store, "SELECT start_ns, submit_ns FROM task ORDER BY ALL")
    assert found == sorted((at + pid, at) for (pid, _), at in times.items())
    assert query(store, "SELECT dst_ns, src_ns FROM flow ORDER BY ALL") == found


def test_a_task_that_only_a_flow_launches_is_in_the_step_of_its_call(tmp_path: Path) -> None:
    events = rank(1000, 0, {1: 10, 2: 20}, 120)
    for event in events:
        if "args" in event:
            event["args"] = {"device": 0, "stream": 7} if event["cat"] == "kernel" else {"cbid": 211}
    events += [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1000, "tid": 1,
         "ts": step * 100, "dur": 100}
        for step in (0, 1)
    ]  # fmt: skip
    # Two flows lead to the second kernel: what launched it is unknown.
    events += [{**event, "id": 3} for event in events[6:8]]
    store = stored(tmp_path, events)
    found = query(store, "SELECT submit_ns, call_ns, step_id, api_id IN (SELECT id FROM api) FROM task ORDER BY id")
    assert found == [(10_000, 2_000, 0, True), (None, None, 1, None)]
    assert query(store, "SELECT step_id, device_id FROM step ORDER BY step_id") == [(0, 0), (1, 0)]
