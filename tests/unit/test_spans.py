"""Spans of a program: threads, asyncio, generators, streams; and the modules of a model."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import traceconv
from traceconv.errors import UsageError
from traceconv.runtime.live import PROCESS
from traceconv.runtime.spans import args_text
from traceconv.runtime.stream_spans import _Piece, nested

SPANS = """
SELECT r.name, r.depth, t.name AS track, r.span_id, r.parent_span_id, r.args, r.start_ns, r.dur_ns
FROM range AS r JOIN track AS t USING (run_id, track_id) WHERE r.kind = 'annotation' ORDER BY r.start_ns, r.depth
"""


def spans(profiler: traceconv.Profiler) -> list[dict[str, Any]]:
    losses = profiler.arrow("SELECT * FROM import_log WHERE severity <> 'info'").to_pylist()
    assert losses == []
    return list(profiler.arrow(SPANS).to_pylist())


def test_spans_nest_and_have_attributes() -> None:
    with traceconv.profile() as p, traceconv.span("outer", epoch=3, note="ä\u202e", other={1, 2}, bad=float("nan")):
        with traceconv.span("inner"):
            pass
        with traceconv.span("inner"):
            pass
    outer, first, second = spans(p)
    assert (outer["name"], outer["depth"], outer["track"]) == ("outer", 0, "MainThread")
    assert [row["parent_span_id"] for row in (first, second)] == [outer["span_id"]] * 2
    assert [row["depth"] for row in (first, second)] == [1, 1]
    assert json.loads(outer["args"]) == {"epoch": 3, "note": "ä\u202e", "other": "{1, 2}", "bad": "nan"}
    assert outer["start_ns"] <= first["start_ns"]
    assert second["start_ns"] + second["dur_ns"] <= outer["start_ns"] + outer["dur_ns"]


def test_without_a_profile_a_span_is_nothing() -> None:
    with traceconv.span("nowhere"):
        assert PROCESS.captures == ()
    with traceconv.span("begun before"), traceconv.profile() as p, traceconv.span("inside"):
        pass
    assert [(row["name"], row["parent_span_id"]) for row in spans(p)] == [("inside", None)]


def test_one_span_entered_before_in_and_after_a_profile() -> None:
    again = traceconv.span("again")
    with again:
        with traceconv.profile() as p, again, again:
            pass
        with again:
            pass
    with again:
        pass
    assert [row["name"] for row in spans(p)] == ["again", "again"]


def test_decorated_functions_of_all_kinds() -> None:
    @traceconv.span("plain")
    def plain(times: int) -> int:
        return 1 if not times else plain(times - 1)

    @traceconv.span("generator")
    def generator() -> Iterator[int]:
        got = yield 1
        assert got == "sent"
        yield 2

    @traceconv.span("coroutine")
    async def coroutine() -> int:
        await asyncio.sleep(0)
        return 5

    @traceconv.span("async generator")
    async def async_generator() -> AsyncIterator[int]:
        yield 1

    async def main() -> int:
        async for value in async_generator():
            assert value == 1
        return await coroutine()

    with traceconv.profile() as p:
        assert plain(1) == 1
        made = generator()
        assert (next(made), made.send("sent")) == (1, 2)  # type: ignore[attr-defined]
        assert list(made) == []
        assert asyncio.run(main()) == 5
    assert [row["name"] for row in spans(p)] == ["plain", "plain", "generator", "async generator", "coroutine"]


def test_threads_have_lines_and_parents_of_their_own() -> None:
    ready = threading.Barrier(3)

    def work(number: int) -> None:
        with traceconv.span(f"work {number}"):
            ready.wait()
            with traceconv.span("part"):
                ready.wait()

    with traceconv.profile() as p, traceconv.span("main"):
        copy = contextvars.copy_context()
        threads = [
            threading.Thread(target=work, args=(0,), name="zero"),
            threading.Thread(target=copy.run, args=(work, 1), name="one"),
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        ready.wait()
        for thread in threads:
            thread.join()
    rows = {(row["track"], row["name"]): row for row in spans(p)}
    assert set(rows) == {
        ("MainThread", "main"), ("zero", "work 0"), ("zero", "part"), ("one", "work 1"), ("one", "part"),
    }  # fmt: skip
    assert rows["zero", "work 0"]["parent_span_id"] is None
    assert rows["one", "work 1"]["parent_span_id"] == rows["MainThread", "main"]["span_id"]
    for track, name in (("zero", "work 0"), ("one", "work 1")):
        assert rows[track, "part"]["parent_span_id"] == rows[track, name]["span_id"]
        assert rows[track, name]["depth"] == 0


def test_asyncio_tasks_that_take_turns_have_lines_of_their_own() -> None:
    async def one(number: int, order: list[asyncio.Event]) -> None:
        with traceconv.span(f"task {number}"):
            order[number].set()
            await order[2].wait()
            with traceconv.span(f"part {number}"):
                await asyncio.sleep(0)

    async def main() -> None:
        order = [asyncio.Event() for _ in range(3)]
        with traceconv.span("main"):
            tasks = [asyncio.create_task(one(number, order)) for number in range(2)]
            await order[0].wait()
            await order[1].wait()
            order[2].set()
            await asyncio.gather(*tasks)
        with traceconv.span("later"):
            await asyncio.sleep(0)

    with traceconv.profile() as p:
        asyncio.run(main())
    rows = {row["name"]: row for row in spans(p)}
    assert len({rows[name]["track"] for name in ("main", "task 0", "task 1")}) == 3
    for number in range(2):
        assert rows[f"task {number}"]["parent_span_id"] == rows["main"]["span_id"]
        assert rows[f"part {number}"]["parent_span_id"] == rows[f"task {number}"]["span_id"]
        assert rows[f"part {number}"]["depth"] == 1
    assert rows["later"]["track"] in {row["track"] for row in rows.values() if row["name"] != "later"}


def test_a_span_that_ends_before_one_inside_it_cuts_that_one() -> None:
    def generator() -> Iterator[int]:
        with traceconv.span("generator"):
            yield 1

    with traceconv.profile() as p:
        with traceconv.span("around"):
            made = generator()
            next(made)
        assert list(made) == []
    around, first, second = spans(p)
    assert (around["name"], first["name"], second["name"]) == ("around", "generator", "generator")
    assert (first["depth"], second["depth"]) == (1, 0)
    assert json.loads(second["args"]) == {"continues": int(first["span_id"])}
    assert first["start_ns"] + first["dur_ns"] == around["start_ns"] + around["dur_ns"] == second["start_ns"]


def test_spans_on_a_stream_cover_its_tasks() -> None:
    with traceconv.Session("mini_resnet") as session, traceconv.profile() as p:
        inputs = session.random_inputs()
        with traceconv.span("all", stream=session.stream("compute 0"), number=7):
            with traceconv.span("one", stream=0):
                session.run(inputs)
            with traceconv.span("two", stream="compute 0"):
                session.run(inputs)
            with traceconv.span("nothing", stream=0):
                pass
        with pytest.raises(UsageError, match="no stream 'compute 9'"):
            session.stream("compute 9")
        with traceconv.Session("mini_resnet"), pytest.raises(UsageError, match="2 sessions"):
            traceconv.span("which", stream=0).__enter__()
    rows = spans(p)
    assert [(row["name"], row["depth"], row["track"]) for row in rows] == [
        ("all", 0, "compute 0"), ("one", 1, "compute 0"), ("two", 1, "compute 0"),
    ]  # fmt: skip
    assert json.loads(rows[0]["args"]) == {"number": 7}
    tasks = p.arrow(
        "SELECT k.step_id, min(k.start_ns) AS first, max(k.start_ns + k.dur_ns) AS last FROM task AS k "
        "JOIN track AS t USING (run_id, track_id) WHERE t.name = 'compute 0' AND k.step_id IS NOT NULL "
        "GROUP BY ALL ORDER BY first"
    ).to_pylist()
    found = [(row["start_ns"], row["start_ns"] + row["dur_ns"]) for row in rows]
    assert found[1:] == [(row["first"], row["last"]) for row in tasks]
    assert found[0] == (tasks[0]["first"], tasks[1]["last"])


def test_pieces_on_a_stream_nest_whatever_they_were() -> None:
    ids = iter(range(100, 200))
    pieces = [_Piece(0, -10, 1, "a", ""), _Piece(5, -20, 2, "b", '{"k": 1}'), _Piece(10, -12, 3, "c", "")]
    events = list(nested(pieces, lambda: next(ids)))
    assert [(tick, name, ends) for tick, _, name, _, ends in events] == [
        (0, "a", False), (5, "b", False), (10, "b", True), (10, "a", True),
        (10, "b", False), (10, "c", False), (12, "c", True), (20, "b", True),
    ]  # fmt: skip
    assert json.loads(events[4][3]) == {"k": 1, "continues": 2}


def test_modules_of_a_model_are_nested_ranges_on_two_threads() -> None:
    with traceconv.Session("mini_resnet") as session, traceconv.profile() as p:
        session.run(session.random_inputs())
        paths = {op.scope_path for op in session.program.ops}
    rows = p.arrow(
        "SELECT r.*, t.name AS track FROM range AS r JOIN track AS t USING (run_id, track_id) WHERE r.kind = 'module'"
    ).to_pylist()
    wanted = {"/".join(path.split("/")[: n + 1]) for path in paths if path for n in range(len(path.split("/")))}
    for track in ("MainThread", "worker"):
        mine = {row["span_id"]: row for row in rows if row["track"] == track}
        assert {json.loads(row["args"])["path"] for row in mine.values()} == wanted
        for row in mine.values():
            path = json.loads(row["args"])["path"]
            assert row["name"] == path.rsplit("/", 1)[-1]
            parent = mine.get(row["parent_span_id"])
            if parent is not None:
                assert json.loads(parent["args"])["path"] == path.rsplit("/", 1)[0]
                assert parent["start_ns"] <= row["start_ns"]
                assert row["start_ns"] + row["dur_ns"] <= parent["start_ns"] + parent["dur_ns"]
            else:
                assert "/" not in path


def test_attributes_that_json_has_no_word_for() -> None:
    assert args_text({"a": 1}) == '{"a": 1}'
    loop: list[object] = []
    loop.append(loop)
    assert json.loads(args_text({"loop": loop, "ok": [1]})) == {"loop": "[[...]]", "ok": [1]}
    assert len(args_text({"long": "x" * 200_000})) < 60_000
