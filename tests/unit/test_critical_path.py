"""Critical paths and what-if answers: small stores worked out by hand, the ground truth, and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import Command

import traceconv
from traceconv.analysis import (
    critical_path,
    dependency_graph,
    dependency_kinds,
    faster_slices,
    path_names,
    slices,
    what_if,
)
from traceconv.base.errors import InputError, UsageError
from traceconv.cli.app import run
from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.truth import TRUTH
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
TRACKS = [{"track_id": 1, "kind": "thread"}, {"track_id": 7, "kind": "stream"}, {"track_id": 8, "kind": "stream"}]


def call(id_: int, name: str, start_ns: int, dur_ns: int, **more: object) -> dict[str, object]:
    return {"id": id_, "track_id": 1, "name": name, "start_ns": start_ns, "dur_ns": dur_ns, "depth": 0, **more}


def task(id_: int, start_ns: int, dur_ns: int, **more: object) -> dict[str, object]:
    of = {"track_id": 7, "stream_id": 0, "kind": "compute", "name": f"k{id_}", "depth": 0}
    return {"id": id_, "start_ns": start_ns, "dur_ns": dur_ns, **of, **more}


def parts(path: Any) -> list[tuple[Any, ...]]:
    columns = ("kind", "slice_id", "start_ns", "dur_ns", "dependency")
    return list(zip(*(path.parts[name].to_pylist() for name in columns), strict=True))


@pytest.fixture
def two_kernels(make_store: MakeStore) -> Path:
    """Two launches, kernels of 500 and 200 ns one after the other, and a synchronisation.

    launch 1: 0–50, launch 2: 60–110, synchronise: 120–900; k11: 100–600, k12: 610–810
    """
    return make_store(
        track=TRACKS,
        api=[call(1, "Launch", 0, 50), call(2, "Launch", 60, 50), call(3, "cudaDeviceSynchronize", 120, 780)],
        task=[
            task(11, 100, 500, submit_ns=0, api_id=1, step_id=5),
            task(12, 610, 200, submit_ns=60, api_id=2, step_id=5),
        ],
        step=[{"step_id": 5, "start_ns": 0, "end_ns": 900}],
    )


def test_the_path_goes_from_launch_to_kernels_to_the_call_that_waits(two_kernels: Path) -> None:
    with traceconv.open_store(two_kernels) as store:
        path = store.critical_path()
        assert parts(path) == [
            ("launch", 11, 0, 100, "recorded"),
            ("compute", 11, 100, 500, "recorded"),
            ("stream", 12, 600, 10, "recorded"),
            ("compute", 12, 610, 200, "recorded"),
            ("host_wait", 3, 810, 90, "inferred"),
        ]
        assert [(one.kind, one.total_ns) for one in path.kinds] == [
            ("compute", 700), ("launch", 100), ("host_wait", 90), ("stream", 10),
        ]  # fmt: skip
        assert path.inferred_ns == 90
        # The table has the same rows, once.
        store.critical_path()
        rows = "SELECT kind, slice_id, start_ns, dur_ns, dependency FROM critical_path ORDER BY step_id, path_index"
        assert store.query(rows).fetchall() == parts(path)


def test_a_backward_pass_is_on_the_thread_that_works(make_store: MakeStore) -> None:
    """The thread that calls it has no slice of its own meanwhile, or only one without slices inside."""
    forward, backward = call(2, "aten::mm", 10, 30, depth=1, parent_id=1), {"track_id": 2, "kind": "host_op"}
    store = make_store(
        track=[*TRACKS, {"track_id": 2, "kind": "thread"}],
        range=[
            call(1, "step", 0, 300), forward, call(3, "zero_grad", 250, 30, depth=1, parent_id=1),
            call(4, "MmBackward0", 60, 80, **backward), call(5, "AccumulateGrad", 150, 70, **backward),
        ],
        api=[
            call(6, "Launch", 15, 10, depth=2, parent_id=2),
            call(7, "Launch", 65, 10, depth=1, parent_id=4, track_id=2),
        ],
        task=[task(11, 30, 5, submit_ns=15, api_id=6, step_id=5), task(12, 80, 5, submit_ns=65, api_id=7, step_id=5)],
        step=[{"step_id": 5, "start_ns": 0, "end_ns": 300}],
    )  # fmt: skip
    with traceconv.open_store(store) as opened:
        assert [(kind, start, dur) for kind, _, start, dur, _ in parts(opened.critical_path())] == [
            ("host", 0, 10), ("host", 10, 5), ("host", 15, 10), ("host", 25, 15), ("thread", 40, 20), ("host", 60, 5),
            ("host", 65, 10), ("host", 75, 65), ("gap", 140, 10), ("host", 150, 70), ("thread", 220, 30),
            ("host", 250, 30), ("host", 280, 20),
        ]  # fmt: skip


def test_names_with_equal_hashes(make_store: MakeStore) -> None:
    """DuckDB's hash has no key: a file can have two such names."""
    names = ["aten::conv2d", "h+YVV:TNedq:"]
    store = make_store(track=TRACKS, task=[task(n + 1, 100 * n, 50 + n, name=name) for n, name in enumerate(names)])
    with traceconv.open_store(store) as opened:
        path = opened.critical_path()
    assert list(dict.fromkeys(one for one in path.parts["name"].to_pylist() if one in names)) == names
    assert {one.name: one.total_ns for one in path.ops if one.kind == "compute"} == dict(
        zip(names, (50, 51), strict=True)
    )


def test_what_if_replays_what_depends_on_the_change(two_kernels: Path) -> None:
    with traceconv.open_store(two_kernels) as store:
        answer = store.what_if(op_type="k11", speed_up=2)
        assert (answer.measured_ns, answer.replayed_ns, answer.predicted_ns) == (900, 900, 650)
        # k11 ends at 101; k12 was launched at 60 and needs 100 ns from its launch.
        assert store.what_if(op_type="k11", speed_up="500").predicted_ns == 160 + 200 + 90
        # The second launch comes at 10; k11 still needs its 100 ns from the first.
        assert store.what_if(no_launch_cost=True).predicted_ns == 900
        # The step lasts until the end of its last task.
        assert store.what_if(no_host_waits=True).predicted_ns == 810
        with pytest.raises(UsageError, match="no op of the type or name 'k1'"):
            store.what_if(op_type="k1", speed_up=2)


def test_gaps_after_a_late_launch_are_not_what_a_stream_needs(make_store: MakeStore) -> None:
    """Each task ends after the next one's launch began, but the next one starts when its launch permits it."""
    store = make_store(
        track=TRACKS,
        api=[call(n, "Launch", n * 1_000, 50) for n in range(1, 10)],
        task=[task(10 + n, n * 1_000 + 500, 600, submit_ns=n * 1_000, api_id=n, name="k") for n in range(1, 10)],
    )
    with traceconv.open_store(store) as opened:
        assert opened.what_if(op_type="k", speed_up="0.8").predicted_ns == 8_500 + 750


def test_collectives_of_several_devices_begin_when_all_have_arrived(make_store: MakeStore) -> None:
    store = make_store(
        track=TRACKS,
        task=[
            task(1, 100, 800, device_id=0, name="slow"), task(2, 100, 200, device_id=1, track_id=8),
            task(3, 910, 300, device_id=0, kind="collective"),
            task(4, 310, 900, device_id=1, track_id=8, kind="collective"),
            task(5, 1_220, 100, device_id=1, track_id=8),
        ],
    )  # fmt: skip
    with traceconv.open_store(store) as opened:
        answer = opened.what_if(op_type="slow", speed_up=2)
        assert (answer.measured_ns, answer.replayed_ns, answer.predicted_ns) == (1_220, 1_220, 820)
        # The path leads over the device that came last.
        assert [one[:4] for one in parts(opened.critical_path(save=False))] == [
            ("compute", 1, 100, 800), ("stream", 3, 900, 10), ("collective", 4, 910, 300), ("stream", 5, 1_210, 10),
            ("compute", 5, 1_220, 100),
        ]  # fmt: skip


def test_the_delay_of_launches_that_are_never_last(make_store: MakeStore) -> None:
    """Tasks end right after the next one's launch began, but this takes longer than the launches of copies."""
    starts = {n: n * 1_000 for n in range(1, 9)} | {9: 8_500}
    store = make_store(
        track=TRACKS,
        api=[
            *(call(n, "Launch", start, 50) for n, start in starts.items()),
            *(call(20 + n, "Copy", n * 1_000 + 200, 50) for n in range(1, 9)),
        ],
        task=[
            *(
                task(40 + n, start + (500 if n < 9 else 530), 520, submit_ns=start, api_id=n, name="k")
                for n, start in starts.items()
            ),
            *(
                task(60 + n, n * 1_000 + 300, 9, submit_ns=n * 1_000 + 200, api_id=20 + n, kind="copy", track_id=8)
                for n in range(1, 9)
            ),
        ],
    )
    with traceconv.open_store(store) as opened:
        assert opened.what_if(op_type="k", speed_up=2).predicted_ns == 8_500 + 500 + 260 - 1_000


def test_steps_whose_launches_are_unknown_last_from_their_first_task_to_their_last(make_store: MakeStore) -> None:
    """Their tasks came ever earlier than the host's start of the step, until steps ended before they began."""
    starts = range(0, 5_000, 1_000)
    store = make_store(
        track=TRACKS,
        api=[call(n, "cudaDeviceSynchronize", n + 10, 890) for n in starts],
        task=[
            task(n + at, n + at, 400, step_id=step, name="k") for step, n in enumerate(starts) for at in (50, 460)
        ],
        step=[{"step_id": step, "start_ns": n, "end_ns": n + 900} for step, n in enumerate(starts)],
    )  # fmt: skip
    with traceconv.open_store(store) as opened:
        answer = opened.what_if(op_type="k", speed_up=2)
    assert [step.replayed_ns for step in answer.steps] == [900] * 5
    assert [step.predicted_ns for step in answer.steps] == [50 + 410 + 40] * 5
    assert answer.total_predicted_ns == 5 * 410 + 4 * 190 + 90
    assert "10 of 10 tasks have no known launch" in str(answer)


def test_an_op_type_is_any_name_that_reports_show(make_store: MakeStore) -> None:
    names = ["hcom_allReduce__586_0_1", "hcom_allReduce__586_0_2", "hcom_allGather__1", "mm_12"]
    path = make_store(
        track=TRACKS,
        task=[
            *(task(n, n * 100, 80, kind="collective", name=name) for n, name in enumerate(names[:3])),
            task(3, 300, 80, name=names[3]), task(4, 400, 80, op_id=0), task(5, 500, 80, op_id=1),
        ],
        op=[{"op_id": n, "name": name, "op_type": "MatMulV2"} for n, name in enumerate(("/ffn/up", "/ffn/down"))],
    )  # fmt: skip
    with open_store(path) as connection:
        for name, ids in (
            ("hcom_allReduce_", [0, 1]), (names[0], [0]), ("mm", [3]), ("MatMulV2", [4, 5]), ("/ffn/up", [4]),
        ):  # fmt: skip
            assert faster_slices.faster_slices(connection, 1, "op_type", name).tolist() == ids


@pytest.mark.parametrize(("most", "waits"), [(8, 8), (7, 4)])
def test_waits_that_an_earlier_call_implies(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, most: int, waits: int
) -> None:
    """With calls times streams beyond a limit, a thread waits for each task once: 6,000 of each took 1.9 GB."""
    monkeypatch.setattr(dependency_graph, "_MOST_WAITS", most)
    sync = "cudaDeviceSynchronize"
    store = make_store(
        track=[*TRACKS, {"track_id": 2, "kind": "thread"}],
        api=[
            call(1, "Launch", 0, 10), call(2, "Launch", 10, 10), call(3, sync, 20, 180), call(4, sync, 220, 5),
            call(5, sync, 230, 5), {**call(6, sync, 20, 185), "track_id": 2},
        ],
        task=[
            task(11, 30, 70, submit_ns=0, api_id=1),
            task(12, 30, 150, submit_ns=10, api_id=2, track_id=8, stream_id=1),
        ],
        step=[{"step_id": 5, "start_ns": 0, "end_ns": 235}],
    )  # fmt: skip
    with traceconv.open_store(store) as opened:
        assert [one[:2] for one in parts(opened.critical_path(save=False))] == [
            ("host", 1), ("launch", 12), ("compute", 12), ("host_wait", 3), ("gap", None), ("host", 4),
            ("gap", None), ("host", 5),
        ]  # fmt: skip
    with open_store(store) as connection:
        [window] = slices.load_slices(connection, 1, [(0, 235)])
        assert (dependency_graph.build_graph(window).edge_kinds == dependency_kinds.SYNC).sum() == waits


def test_the_waits_of_streams_and_copies(make_store: MakeStore) -> None:
    """A copy that blocks its call, and a stream that waits for an event of the other."""
    store = make_store(
        track=TRACKS,
        api=[call(1, "Copy", 0, 400), call(2, "Launch", 500, 10)],
        task=[
            task(11, 100, 200, kind="copy", submit_ns=0, api_id=1),
            task(12, 600, 100, submit_ns=500, api_id=2),
            task(13, 700, 10, kind="sync", task_type="EVENT_RECORD"),
            task(14, 100, 620, kind="sync", task_type="EVENT_WAIT", track_id=8, stream_id=1),
            task(15, 725, 100, track_id=8, stream_id=1),
        ],
    )
    with traceconv.open_store(store) as opened:
        assert parts(opened.critical_path(save=False)) == [
            ("launch", 11, 0, 100, "recorded"),
            ("copy", 11, 100, 200, "recorded"),
            ("host_wait", 1, 300, 100, "recorded"),
            ("gap", None, 400, 100, "recorded"),
            ("launch", 12, 500, 100, "recorded"),
            ("compute", 12, 600, 100, "recorded"),
            ("sync", 13, 700, 10, "recorded"),
            ("event", 14, 710, 10, "inferred"),
            ("stream", 15, 720, 5, "recorded"),
            ("compute", 15, 725, 100, "recorded"),
        ]
        assert opened.query("FROM critical_path").fetchall() == []


def test_extreme_and_damaged_rows_give_a_path_or_an_error(make_store: MakeStore) -> None:
    far = 2**63 - 10
    damaged = make_store(track=TRACKS, task=[task(1, far, 5), task(2, -far, 5)])
    with traceconv.open_store(damaged) as opened, pytest.raises(InputError, match="longer than 36 years"):
        opened.critical_path()
    store = make_store(
        track=TRACKS,
        task=[
            task(3, 0, None),
            task(4, 0, 0),
            task(5, 3, 4, api_id=77),
            task(6, 4, 9, track_id=99),
            task(7, 3, 7, depth=1, api_id=5),
        ],
        flow=[{"flow_id": 1, "kind": "other", "src_id": 5, "src_ns": 0, "dst_id": 4, "dst_ns": 100}],
    )
    with traceconv.open_store(store) as opened:
        assert (
            sum(opened.critical_path().parts["dur_ns"].to_pylist()) == opened.what_if(no_launch_cost=True).replayed_ns
        )
    with traceconv.open_store(make_store(track=TRACKS)) as opened, pytest.raises(InputError, match="no tasks"):
        opened.critical_path()
    empty = make_store(track=TRACKS, task=[task(8, 0, 9)], step=[{"step_id": 1, "start_ns": 50, "end_ns": 60}])
    with traceconv.open_store(empty) as opened:
        answer = opened.what_if(no_launch_cost=True)
        # Columns without any text are columns of texts, too.
        parts_of = opened.critical_path(save=False).parts
        assert {parts_of.schema.field(name).type.value_type for name in ("name", "op_type")} == {pa.string()}
    assert (answer.measured_ns, answer.replayed_ns, answer.predicted_ns) == (10, 10, 10)


def test_rows_in_any_order_and_groups_of_any_size_give_the_same_graph(
    two_kernels: Path, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is open during all steps, steps inside one another, and rows in reverse order."""
    api = [call(0, "all", 0, 9_000), *(call(n, "Launch", n * 100, 40, depth=1, parent_id=0) for n in range(1, 80))]
    tasks = [task(100 + n, n * 100 + 50, 130, api_id=n, track_id=7 + n % 2) for n in range(1, 80)]
    steps = [{"step_id": n, "start_ns": n * 1_000, "end_ns": n * 1_000 + 900} for n in range(1, 8)]
    steps.append({"step_id": 8, "start_ns": 2_500, "end_ns": 8_000})
    found = []
    for rows, step in ((1, 1), (-1, -1)):
        store = make_store(track=TRACKS, api=api[::rows], task=tasks[::rows], step=steps[::step])
        for size in (1, 60, 10**6):
            monkeypatch.setattr(critical_path, "_GROUP_SLICES", size)
            with traceconv.open_store(store) as opened:
                found.append(parts(opened.critical_path(save=False)))
                answer = opened.what_if(no_launch_cost=True)
            assert all(one.replayed_ns == one.measured_ns for one in answer.steps)
    assert found[0] and found[:3] == found[3:]


def test_steps_are_grouped_by_their_own_slices(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of a long run are one group."""
    tasks = [task(n, n * 10, 5) for n in range(1, 400)]
    steps = [{"step_id": n, "start_ns": n * 40, "end_ns": n * 40 + 39} for n in range(1, 100)]
    loaded = []

    def load(*given: object, **more: object) -> Iterator[slices.Slices]:
        loaded.append(len(given[2]))  # type: ignore[arg-type]
        return load_slices(*given, **more)  # type: ignore[arg-type]

    load_slices = critical_path.load_slices
    monkeypatch.setattr(critical_path, "load_slices", load)
    monkeypatch.setattr(critical_path, "_GROUP_SLICES", 100)
    with traceconv.open_store(make_store(track=TRACKS, task=tasks, step=steps)) as opened:
        opened.what_if(no_launch_cost=True, steps="3-12")
        opened.what_if(no_launch_cost=True)
    assert loaded == [1, 4]


@pytest.mark.parametrize("most", [2**26, 2])
def test_ids_are_found_among_others(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "_MOST_IDS", most)
    wanted, ids = np.array([-4, 3, 5, 9, 2**62]), np.array([5, 4, -4, 3, 3, 8])
    assert what_if._are_among(ids, wanted).tolist() == np.isin(ids, wanted).tolist()
    assert what_if._are_among(ids, wanted[-1:]).tolist() == [False] * 6
    assert what_if._are_among(ids[:0], wanted).tolist() == []


def test_a_window_instead_of_steps(two_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with traceconv.open_store(two_kernels) as opened:
        path = opened.critical_path(from_ns=550, to_ns="700", save=False)
        assert [(step.step_id, step.start_ns, step.end_ns) for step in path.steps] == [(None, 550, 700)]
        assert sum(path.parts["dur_ns"].to_pylist()) == 150
        answer = opened.what_if(op_type="k12", speed_up=2, from_ns=300)
        assert (answer.measured_ns, answer.replayed_ns, answer.predicted_ns) == (510, 510, 410)
        with pytest.raises(UsageError, match="from 0 to 810 ns; the window contains none"):
            opened.critical_path(from_ns=810)
        with pytest.raises(UsageError, match="or a window with"):
            opened.what_if(no_launch_cost=True, steps=5, to_ns=700)
        monkeypatch.setattr(slices, "MOST_SLICES", 4)
        with pytest.raises(InputError, match=r"has 5 slices, .* a part of it with from_ns and to_ns"):
            opened.critical_path()
        assert opened.what_if(no_launch_cost=True, to_ns=110).measured_ns == 110


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A store of runs with several streams that wait for one another, and the truth about its tasks."""
    return recorded(tmp_path_factory.mktemp("truth"), "mini_transformer")


def recorded(folder: Path, model: str, **more: Any) -> tuple[Path, list[dict[str, Any]]]:
    options = RecordOptions(model, folder / "raw", iterations=3, batch=64, deterministic=True, truth=True, **more)
    made = record(options).folder
    traceconv.ingest(made, db=folder / "t.duckdb")
    lines = map(json.loads, (made / TRUTH).read_text(encoding="utf-8").splitlines())
    return folder / "t.duckdb", [line for line in lines if line["kind"] == "task"]


@pytest.mark.parametrize("model", ["mini_transformer", pytest.param("inception_v1", marks=pytest.mark.long)])
def test_dependencies_and_paths_are_those_of_the_truth(
    model: str, capture: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Each task has the predecessors that the device knew, and the path leads to the one that it waited for last.

    The truth's own `critical_path` is another one: the longest sum of durations, as if no task had to be launched.
    """
    path, truth = capture if model == "mini_transformer" else recorded(tmp_path, model)
    true = {line["task_id"]: line for line in truth}
    with traceconv.open_store(path) as store:
        found = store.critical_path(save=False)
        task_id = dict(store.query("SELECT id, source_task_id FROM task").fetchall())
        event = dict(store.query("SELECT id, event_id FROM event_wait").fetchall())
        started = store.query("SELECT id, stream_id FROM task ORDER BY source_task_id").fetchall()
    last: dict[int, int] = {}
    for id_, stream in started:
        before = [last.get(stream), event.get(id_)]
        assert sorted(task_id[one] for one in before if one is not None) == true[task_id[id_]]["after"]
        last[stream] = id_
    assert len(started) == len(true) and len(event) > 10
    assert sum(found.parts["dur_ns"].to_pylist()) == sum(step.dur_ns for step in found.steps)
    seen = {"launch": 0, "stream": 0, "event": 0}
    then = None
    for kind, slice_id, *_, dependency in parts(found):
        if kind in seen:
            assert dependency == "recorded"
            now = true[task_id[slice_id]]
            assert now["blocked_by"] == kind
            if kind != "launch":
                (waited_for,) = (
                    one for one in now["after"] if (true[one]["stream_id"] == now["stream_id"]) != (kind == "event")
                )
                assert then == waited_for
            seen[kind] += 1
        then = task_id.get(slice_id)
    assert seen["launch"] > 1 and seen["stream"] > 50 and seen["event"] > 3


@pytest.mark.parametrize("name", ["t.json", "t.pftrace"])
def test_a_run_from_an_export_has_the_same_events_and_path(
    name: str, capture: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Without the events, waits would be inferred, and paths and predictions differ from those of the capture."""
    with open_store(capture[0]) as connection:
        (export_chrome if name.endswith("json") else export_perfetto)(connection, 1, tmp_path / name)
    traceconv.ingest(tmp_path / name, db=tmp_path / "t.duckdb")
    events = (
        "SELECT w.source_task_id, e.source_task_id FROM event_wait AS p JOIN task AS w USING (run_id, id) "
        "LEFT JOIN task AS e ON e.run_id = p.run_id AND e.id = p.event_id ORDER BY ALL"
    )
    found = []
    for path in (capture[0], tmp_path / "t.duckdb"):
        with traceconv.open_store(path) as store:
            parts_of = store.critical_path(save=False).parts.select(["kind", "start_ns", "dur_ns", "dependency"])
            found.append((store.query(events).fetchall(), parts_of.to_pylist()))
    assert len(found[0][0]) > 10
    assert found[0] == found[1]


#: Models and op types that take much of their time, on several streams at once where the model has branches. The next
#: step waits for the device if inputs are not copied ahead.
PREDICTED = [
    ("mini_resnet", "Conv2D", 1),
    ("mini_transformer", "MatMulV2", 1),
    ("mini_transformer", "MatMulV2", 2),
    ("mini_transformer", "MatMulV2", 4),
    ("mini_transformer", "MatMulV2", "no prefetch"),
    ("mini_lstm", "LSTM", "training"),
    *(
        pytest.param(model, op_type, streams, marks=pytest.mark.long)
        for model, op_types in (
            ("mini_transformer", ("Transpose", "LayerNormV3")),
            ("inception_v1", ("Conv2D", "MaxPoolV3", "ConcatD")),
            ("squeezenet", ("Conv2D",)),
        )
        for op_type in op_types
        for streams in (1, 2, 4)
    ),
]


@pytest.mark.parametrize(("model", "op_type", "how"), PREDICTED)
def test_a_prediction_is_what_the_device_does_with_the_faster_op(
    model: str, op_type: str, how: int | str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Within 1 %, for each step and all of them, also with streams that wait for one another and share the device."""
    percents = (
        (150, 200, 400)
        if request.node.get_closest_marker("long")
        else {"training": (200, 50), 2: (1000,)}.get(how, (200,))
    )
    for percent in (100, *percents):
        spec = tmp_path / f"{percent}.toml"
        spec.write_text(f"[op_speed_percent]\n{op_type} = {percent}\n", encoding="utf-8")
        made = traceconv.record(
            model,
            tmp_path / str(percent),
            iterations=3,
            batch=8 if how == "training" else 64,
            deterministic=True,
            streams=how if isinstance(how, int) else 1,
            prefetch=how != "no prefetch",
            train=how == "training",
            device_spec=spec,
        )
        traceconv.ingest(made, db=tmp_path / f"{percent}.duckdb")
    with traceconv.open_store(tmp_path / "100.duckdb") as base:
        for percent in percents:
            answer = base.what_if(op_type=op_type, speed_up=percent / 100)
            with traceconv.open_store(tmp_path / f"{percent}.duckdb") as fast:
                steps = fast.critical_path(save=False).steps
            for step, simulated in zip(answer.steps, steps, strict=True):
                assert step.replayed_ns == step.measured_ns
                assert abs(step.predicted_ns - simulated.dur_ns) < simulated.dur_ns / 100
            total_ns = steps[-1].end_ns - steps[0].start_ns
            assert abs(answer.total_predicted_ns - total_ns) < total_ns / 100
            assert abs(answer.total_predicted_ns - total_ns) < abs(answer.total_measured_ns - total_ns)


def test_faster_tasks_during_collectives(tmp_path: Path, command: Command) -> None:
    """Gradients that ask for more of the memory while others are exchanged. The forward pass has no collectives."""
    made = traceconv.record(
        "mini_transformer", tmp_path, iterations=1, batch=64, deterministic=True, devices=2, train=True
    )
    with traceconv.open_store(made, cache=False) as store:
        assert store.what_if(op_type="MulGrad", speed_up=10).during_collectives
        assert not store.what_if(op_type="MulGrad", speed_up="0.1").during_collectives
        assert not store.what_if(op_type="MatMulV2", speed_up=10).during_collectives
    output = command("analyze", "what-if", made, "--op-type", "MulGrad", "--speed-up", "10").out
    assert "steps may take longer than predicted" in output


def test_the_commands(two_kernels: Path, tmp_path: Path, command: Command) -> None:
    db = ["--db", str(two_kernels)]
    assert "critical path of step 5: 900 ns" in command("analyze", "critical-path", *db).out
    header, first, *_ = command("analyze", "critical-path", *db, "--format", "csv", "--no-save").out.splitlines()
    assert header.startswith("run_id,step_id,device_id,path_index,kind,slice_id,name,op_type,start_ns,dur_ns")
    assert first == "1,5,0,0,launch,11,k11,,0,100,recorded"
    command("analyze", "critical-path", *db, "-o", tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["version"] == 1 and document["ops"][0]["total_ns"] == 500
    done = command("analyze", "what-if", *db, "--op-type", "k11", "--speed-up", "2", "--format", "json")
    document = json.loads(done.out)
    assert (document["measured_ns"], document["predicted_ns"], document["change"]["speed_up"]) == (900, 650, 2.0)
    done = command("analyze", "critical-path", *db, "--from", "600", "--no-save")
    assert "critical path of a window of the run: 210 ns" in done.out
    for arguments, words in (
        ([], "pass what would change"),
        (["--op-type", "k11"], "--speed-up needs one of"),
        (["--op-type", "k", "--category", "gemm", "--speed-up", "2"], "--speed-up needs one of"),
        (["--op-type", "k11", "--speed-up", "0"], "needs a factor"),
        (["--op-type", "k11", "--speed-up", "fast"], "needs a factor"),
        (["--no-launch-cost", "--steps", "9-"], "has steps 5 to 5; --steps selects none"),
    ):
        output = command("analyze", "what-if", *db, *arguments, code=2)
        assert words in output.err and output.err.count("\n") == 1 and output.out == ""


def test_exports_show_the_path_as_arrows_and_can_be_read_back(
    capture: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    rows = "SELECT kind, src_ns, dst_ns, count(*) FROM flow GROUP BY ALL ORDER BY ALL"
    with traceconv.open_store(capture[0]) as store:
        expected = store.query(rows).fetchall()
        path = store.critical_path()
        store.export_chrome(tmp_path / "c.json", critical_path=True)
        store.export_perfetto(tmp_path / "p.pftrace", critical_path=True)
        slice_count = len(store.query("FROM slice").fetchall())
    running = [part for part in parts(path) if part[0] in ("compute", "copy", "sync", "host")]
    document = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    arrows = [one["args"] for one in document["traceEvents"] if one["ph"] == "s" and one["cat"] == "critical_path"]
    assert 100 < len(arrows) < len(running)
    assert {one["src_id"] for one in arrows} | {one["dst_id"] for one in arrows} <= {part[1] for part in running}
    assert all(one["src_id"] != one["dst_id"] for one in arrows)
    for name in ("c.json", "p.pftrace"):
        with traceconv.open_store(tmp_path / name, cache=False) as read:
            assert read.query(rows).fetchall() == expected, name
            assert len(read.query("FROM slice").fetchall()) == slice_count


def test_an_export_of_a_path_that_was_not_found_is_an_error(two_kernels: Path, tmp_path: Path) -> None:
    with traceconv.open_store(two_kernels) as store, pytest.raises(InputError, match="has no critical path"):
        store.export_perfetto(tmp_path / "p.pftrace", critical_path=True)


def test_kernels_of_one_template_have_different_labels() -> None:
    names = [f"void at::native::vectorized_elementwise_kernel<4, {functor}<float> >(int)" for functor in ("Add", "Mul")]
    ops = tuple(critical_path.Share(name, None, "compute", 5, 50.0) for name in names)
    path = critical_path.CriticalPath(1, (critical_path.Step(1, 0, 0, 10),), pa.table({}), 0, (), ops)
    shown = [line.split("  ")[0] for line in repr(path).splitlines() if "kernel" in line]
    assert shown == ["vectorized_elementwise_kernel<Add>", "vectorized_elementwise_kernel<Mul>"]
    assert path._repr_html_().startswith("<pre style")


def test_names_are_the_same_if_few_fit_in_memory(two_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critical_path, "_GROUP_SLICES", 1)
    with traceconv.open_store(two_kernels) as store:
        whole = store.critical_path(save=False)
        monkeypatch.setattr(path_names, "_MOST_KNOWN", 0)
        again = store.critical_path(save=False)
    assert again.parts.to_pylist() == whole.parts.to_pylist()
    assert len({*whole.parts["name"].to_pylist()}) > 2


@pytest.mark.parametrize("command", ["critical-path", "what-if --no-launch-cost", "graph-replays"])
def test_answers_of_a_damaged_trace_are_printed(
    command: str, tmp_path: Path, own_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 1, "tid": 1, "args": {"correlation": 1}}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "args": {"correlation": 1, "device": 0}}
    flow = {"cat": "ac2g", "name": "ac2g", "id": 1}
    events = [
        {**call, "ts": 1, "dur": 2},
        {**kernel, "ts": 5, "dur": 9},
        {**flow, "ph": "s", "pid": 1, "tid": 1, "ts": 1},
        {**flow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": 5},
        {**call, "ts": 30, "dur": 2},
    ]
    trace = tmp_path / "t.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events})[:-20])
    assert run(["analyze", *command.split(), str(trace)]) == 3
    output = capfd.readouterr()
    assert output.out and "the text ends inside an event" in output.err
