"""Spans of a program: threads, asyncio, generators, streams; and the modules of a model."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import traceconv
from traceconv import native
from traceconv.base.errors import UsageError
from traceconv.runtime.event_log import RangeBegin
from traceconv.runtime.live import PROCESS
from traceconv.runtime.spans import args_text
from traceconv.runtime.stream_spans import Piece, range_events

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
    assert (outer["name"], outer["depth"], outer["track"]) == ("outer", 0, "channel")
    assert [row["parent_span_id"] for row in (first, second)] == [outer["span_id"]] * 2
    assert [row["depth"] for row in (first, second)] == [1, 1]
    assert json.loads(outer["args"]) == {"epoch": 3, "note": "ä\u202e", "other": "{1, 2}", "bad": "nan"}
    assert outer["start_ns"] <= first["start_ns"]
    assert second["start_ns"] + second["dur_ns"] <= outer["start_ns"] + outer["dur_ns"]


def test_without_a_profile_a_span_does_nothing() -> None:
    with traceconv.span("nowhere"):
        assert PROCESS.captures == ()
    with traceconv.span("begun before"), traceconv.profile() as p, traceconv.span("inside"):
        pass
    assert [(row["name"], row["parent_span_id"]) for row in spans(p)] == [("inside", None)]


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension: python setup.py build_ext --inplace")
def test_spans_pass_from_c_to_python_and_back_while_they_are_open(tmp_path: Path) -> None:
    def in_c() -> list[str]:
        return [name for _, _, name, *_ in PROCESS.span_log.opened()]

    with traceconv.profile() as p:
        with traceconv.span("outer", a=1), traceconv.span("first"):
            assert in_c() == ["outer", "first"]
            with traceconv.profile(tmp_path), traceconv.span("in both"):
                assert in_c() == []
            with traceconv.span("again"):
                assert in_c() == ["again"]
            p.pause()
            with traceconv.span("paused"):
                assert in_c() == []
            p.resume()
            with traceconv.Session("mini_resnet", compute=False) as session, traceconv.span("runs"):
                session.run(session.random_inputs())
                assert in_c() == ["runs"]
            thread = threading.Thread(target=traceconv.span("thread").__enter__)
            thread.start()
            thread.join()
            with pytest.raises(KeyError), traceconv.span("raises"):
                assert in_c() == ["thread", "raises"]
                raise KeyError
            assert in_c() == []
        rest = [traceconv.span(f"apart {number}") for number in range(2)]
        for one in rest:
            one.__enter__()
        for one in rest:
            one.__exit__(None, None, None)
    rows = p.arrow(
        "SELECT r.name, q.name AS parent, r.depth, r.dur_ns IS NULL AS open, r.exception, r.kind FROM range r "
        "LEFT JOIN range q ON q.span_id = r.parent_span_id WHERE r.kind IN ('annotation', 'inference') "
        "ORDER BY r.start_ns, r.id"
    ).to_pylist()
    assert [(row["name"], row["parent"], row["depth"], row["open"], row["exception"]) for row in rows] == [
        ("outer", None, 0, False, None),
        ("first", "outer", 1, False, None),
        ("in both", "first", 2, False, None),
        ("again", "first", 2, False, None),
        ("outer", None, 0, False, None),
        ("first", "outer", 1, False, None),
        ("runs", "first", 2, False, None),
        ("Inference", "runs", 3, False, None),
        ("thread", None, 0, True, None),
        ("raises", "first", 2, False, "KeyError"),
        ("apart 0", None, 0, False, None),
        ("apart 1", "apart 0", 0, False, None),
    ]
    assert p.arrow("FROM import_log WHERE severity <> 'info'").to_pylist() == []


def test_a_span_takes_one_name() -> None:
    assert traceconv.span(name="x", stream=None)._name == "x"
    for wrong in ((), ("x", "y")):
        with pytest.raises(TypeError, match="argument"):
            traceconv.span(*wrong)  # type: ignore[arg-type, call-arg]
    with pytest.raises(TypeError, match="multiple values"):
        traceconv.span("x", name="y")  # type: ignore[misc]


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


def test_one_span_object_of_several_threads_and_generators() -> None:
    shared = traceconv.span("shared")
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def generator(name: str) -> Iterator[None]:
        with shared, traceconv.span(f"in {name}"):
            yield
        order.append(name)

    def work() -> None:
        with shared:
            entered.set()
            leave.wait()

    before = generator("before")
    next(before)
    stack = ExitStack()
    with traceconv.profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
        made = [generator(name) for name in "abc"]
        for one in made:
            next(one)
        stack.enter_context(shared)
        for one in (made[0], before, made[2]):
            assert list(one) == []
        stack.close()
        with traceconv.span("a and c and the stack have ended"):
            pass
        leave.set()
        thread.join()
        with traceconv.span("the thread has ended"):
            pass
        assert list(made[1]) == []
    assert order == ["a", "before", "c", "b"]
    rows = [row for row in spans(p) if row["name"] == "shared"]
    begun = {row["name"]: row["start_ns"] for row in spans(p)}
    ends = [row["start_ns"] + row["dur_ns"] for row in rows]
    # Of the thread, a, b, c and the stack, in the order of their begin.
    marks = begun["a and c and the stack have ended"], begun["the thread has ended"]
    assert [[end < mark for mark in marks] for end in ends] == [
        [False, True], [True, True], [False, False], [True, True], [True, True],
    ]  # fmt: skip


def test_one_span_object_that_many_threads_enter_at_once() -> None:
    shared, together = traceconv.span("shared"), threading.Barrier(4)

    def work() -> None:
        for _ in range(50):
            together.wait()
            with shared:
                pass

    with traceconv.profile() as p:
        threads = [threading.Thread(target=work, name=f"thread {number}") for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = spans(p)
    assert sorted(row["track"] for row in rows) == [f"thread {number}" for number in range(4) for _ in range(50)]
    assert all(row["dur_ns"] is not None and row["depth"] == 0 for row in rows)


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


def test_each_thread_has_its_own_track_and_parents() -> None:
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
        ("channel", "main"), ("zero", "work 0"), ("zero", "part"), ("one", "work 1"), ("one", "part"),
    }  # fmt: skip
    assert rows["zero", "work 0"]["parent_span_id"] is None
    assert rows["one", "work 1"]["parent_span_id"] == rows["channel", "main"]["span_id"]
    for track, name in (("zero", "work 0"), ("one", "work 1")):
        assert rows[track, "part"]["parent_span_id"] == rows[track, name]["span_id"]
        assert rows[track, name]["depth"] == 0


def test_interleaved_asyncio_tasks_have_separate_tracks() -> None:
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


def test_a_span_that_ends_before_one_inside_it_leaves_that_one_intact() -> None:
    def generator() -> Iterator[int]:
        with traceconv.span("generator"):
            yield 1

    with traceconv.profile() as p:
        with traceconv.span("around"):
            made = generator()
            next(made)
            with traceconv.span("in both"):
                pass
        with traceconv.span("in one"):
            pass
        assert list(made) == []
    rows = {row["name"]: row for row in spans(p)}
    around, made_row = rows["around"], rows["generator"]
    assert {name: row["depth"] for name, row in rows.items()} == {
        "around": 0, "generator": 0, "in both": 2, "in one": 1,
    }  # fmt: skip
    assert around["start_ns"] < made_row["start_ns"] < around["start_ns"] + around["dur_ns"]
    assert around["start_ns"] + around["dur_ns"] < made_row["start_ns"] + made_row["dur_ns"]
    assert made_row["args"] is None


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


def test_ranges_of_a_stream_are_one_each_whatever_their_order() -> None:
    pieces = [
        Piece(0, 10, 1, "a"), Piece(5, 20, 2, "b", '{"k": 1}', cut=True), Piece(10, 12, 3, "c", exception="KeyError"),
        Piece(5, None, 4, "open"),
    ]  # fmt: skip
    assert [(event.ticks, event.span_id, event.half) for event in range_events(pieces)] == [
        (0, 1, 0), (5, 4, 0), (5, 2, 3), (10, 1, 2), (10, 3, 0), (12, 3, 1), (20, 2, 1),
    ]  # fmt: skip
    assert [event.name for event in range_events(pieces)] == ["a", "open", "b", "", "c", "KeyError", ""]


def test_modules_of_a_model_are_nested_ranges_on_two_threads() -> None:
    with traceconv.Session("mini_resnet") as session, traceconv.profile() as p:
        session.run(session.random_inputs())
        paths = {op.scope_path for op in session.loaded.program.ops}
    rows = p.arrow(
        "SELECT r.*, t.name AS track FROM range AS r JOIN track AS t USING (run_id, track_id) WHERE r.kind = 'module'"
    ).to_pylist()
    wanted = {"/".join(path.split("/")[: n + 1]) for path in paths if path for n in range(len(path.split("/")))}
    for track in ("channel", "worker"):
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


def test_attributes_that_json_cannot_represent() -> None:
    assert args_text({"a": 1}) == ('{"a": 1}', False)
    loop: list[object] = []
    loop.append(loop)
    text, is_cut = args_text({"loop": loop, "ok": [1]})
    assert (json.loads(text), is_cut) == ({"loop": "[[...]]", "ok": [1]}, False)
    text, is_cut = args_text({"of a set": set(range(1000))})
    assert (len(json.loads(text)["of a set"]), is_cut) == (len(repr(set(range(1000)))), False)


# What became of a span


def test_a_span_that_is_open_when_the_profile_ends_has_no_duration() -> None:
    ended, paused = traceconv.profile(), traceconv.profile()
    ended.start()
    paused.start()
    with traceconv.span("open"):
        with traceconv.span("done"):
            pass
        with traceconv.span("ends while paused"):
            paused.pause()
        ended.stop()
        paused.stop()
    for p in (ended, paused):
        rows = {row["name"]: row for row in spans(p)}
        assert {name for name, row in rows.items() if row["dur_ns"] is None} == {"open"}
        assert [rows[name]["depth"] for name in ("open", "done", "ends while paused")] == [0, 1, 1]
        unfinished = [row for row in p.arrow("import_log").to_pylist() if row["code"] == "unfinished"]
        assert [row["event_count"] for row in unfinished] == [1]
        assert {row["name"]: row["unfinished_count"] for row in p.report("range-statistic")}["open"] == 1


def test_a_span_that_is_left_by_an_exception_has_its_type() -> None:
    class Own(BaseException):
        pass

    def generator() -> Iterator[int]:
        with traceconv.span("closed"):
            yield 1

    async def cancelled() -> None:
        with traceconv.span("cancelled"):
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(cancelled())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with traceconv.Session("mini_resnet", compute=False) as session, traceconv.profile() as p:
        for error in (KeyError("x"), Own()):
            with pytest.raises(type(error)), traceconv.span("outer"), traceconv.span("inner", stream=0):
                session.run(session.random_inputs())
                raise error
        with traceconv.span("handles"), suppress(ValueError), traceconv.span("raises"):
            raise ValueError
        made = generator()
        next(made)
        made.close()  # type: ignore[attr-defined]
        asyncio.run(main())
    rows = p.arrow("SELECT name, exception FROM range WHERE kind = 'annotation' ORDER BY start_ns").to_pylist()
    assert sorted((row["name"], row["exception"]) for row in rows if row["exception"]) == [
        ("cancelled", "CancelledError"), ("closed", "GeneratorExit"), ("inner", "KeyError"), ("inner", "Own"),
        ("outer", "KeyError"), ("outer", "Own"), ("raises", "ValueError"),
    ]  # fmt: skip
    assert len(rows) == 8
    exported: Any = p.get()
    marked = [one["args"].get("exception") for one in exported["traceEvents"] if one["name"] == "raises"]
    assert marked == ["ValueError"]


@pytest.mark.parametrize("stream", [None, 0])
def test_texts_that_a_log_rejects_are_reported_as_lost(stream: int | None) -> None:
    with traceconv.Session("mini_resnet", compute=False) as session, traceconv.profile() as p:
        inputs = session.random_inputs()
        named = traceconv.span("n" * 5_000, stream=stream, short=1)
        texts = [traceconv.span(letter, stream=stream, text=letter * n) for letter, n in (("x", 40_000), ("z", 80_000))]
        with named, texts[0], texts[1]:
            session.run(inputs)
    rows = {
        row["name"][:1]: row
        for row in p.arrow("SELECT name, args FROM range WHERE kind = 'annotation'").to_pylist()
    }  # fmt: skip
    assert json.loads(rows["x"]["args"]) == {"text": "x" * 40_000}
    assert list(json.loads(rows["z"]["args"])) == ["cut"]
    losses = p.arrow("SELECT code, event_count FROM import_log WHERE severity <> 'info'").to_pylist()
    assert losses == [{"code": "cut_text", "event_count": 2}]


def test_a_generator_that_ends_during_a_run_does_not_truncate_the_run() -> None:
    def generator() -> Iterator[int]:
        with traceconv.span("around"):
            yield 1

    with traceconv.Session("mini_resnet", compute=False) as session, traceconv.profile() as p:
        made = generator()
        next(made)
        with session._running():  # as when the garbage collector finishes it there
            begun = PROCESS._new_id()
            begin = RangeBegin(PROCESS.clock.now(), begun, PROCESS.threads.current(), "module", "run", "", step_id=1)
            session._log.range_begin(begin, 0)
            made.close()  # type: ignore[attr-defined]
            session._log.range_end(PROCESS.clock.now(), begun, PROCESS.threads.current(), "module")
    rows = p.arrow("SELECT name, dur_ns FROM range WHERE name IN ('run', 'around')").to_pylist()
    assert len(rows) == 2 and all(row["dur_ns"] > 0 for row in rows)
    assert not [row for row in p.arrow("import_log").to_pylist() if row["severity"] != "info"]


# In programs that are in a bad way


class Hostile:
    """Has no useful repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class HostileDict(dict[str, int]):
    def items(self) -> Any:
        raise KeyError("no items")


def test_no_name_and_no_attribute_ends_the_program() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    texts = {
        "object": (Hostile(), "<Hostile>"), "list": ([Hostile()], "<list>"), "dict": (HostileDict(a=1), "{'a': 1}"),
        "deep": (deep, "<list>"), "huge": (10**5_000, hex(10**5_000)), "large": (10**500, 10**500), "ok": ([1], [1]),
    }  # fmt: skip
    names: list[Any] = [Hostile(), 5, None, b"x", "half \ud800"]
    with traceconv.profile() as p:
        with traceconv.span("all", **{name: value for name, (value, _) in texts.items()}):
            pass
        for name in names:
            with traceconv.span(name):
                pass
    found = p.arrow("SELECT name, args, dur_ns FROM range ORDER BY start_ns").to_pylist()
    assert [row["name"] for row in found] == ["all", "<Hostile>", "5", "None", "b'x'", "half ?"]
    assert json.loads(found[0]["args"]) == {name: text for name, (_, text) in texts.items()}
    assert None not in [row["dur_ns"] for row in found]
    del deep, texts  # before what compares values of a failed test meets them


@pytest.mark.parametrize("argv", [None, [], [None], [b"x"], [""]])
def test_a_program_without_a_name_is_python(argv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if argv is None:
        monkeypatch.delattr("sys.argv")
    else:
        monkeypatch.setattr("sys.argv", argv)
    with traceconv.profile() as p, traceconv.span("here"):
        pass
    assert p.arrow("SELECT name FROM process").to_pylist() == [{"name": "python"}]


def test_static_and_class_methods_keep_their_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    p = traceconv.profile(tmp_path / "out")

    class Model:
        @traceconv.span("of none")
        @staticmethod
        def plain(number: int) -> int:
            return number

        @p
        @traceconv.span("of the class")
        @classmethod
        def made(cls) -> type:
            return cls

        @traceconv.profile
        @classmethod
        def without_parentheses(cls) -> type:
            return cls

    assert (Model.plain(3), Model().plain(4), Model.made(), Model().made()) == (3, 4, Model, Model)
    assert Model.without_parentheses() is Model
    assert Model.made.profiler is p  # type: ignore[attr-defined]  # what the decorator adds
    assert p.arrow("SELECT name FROM range").to_pylist() == [{"name": "of the class"}] * 2


def test_asyncio_that_another_thread_is_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))
    with traceconv.profile() as p, traceconv.span("here"):
        pass
    assert [row["track"] for row in spans(p)] == ["channel"]


def test_a_span_in_a_signal_handler_during_emulation_takes_no_time() -> None:
    with traceconv.profile() as p, PROCESS.clock.stopped(), traceconv.span("inside"):
        pass
    assert p.arrow("SELECT name, dur_ns FROM range").to_pylist() == [{"name": "inside", "dur_ns": 0}]


#: Meanwhile the garbage collector ends a span, or a signal's handler begins and ends one.
INTERRUPTED = """
import asyncio, faulthandler, gc, itertools, signal, sys
import traceconv

faulthandler.dump_traceback_later(60, exit=True)  # where it waits for itself
numbers, handled, handling = itertools.count(), 0, True

def generator():
    with traceconv.span(f"collected {next(numbers)}"):
        yield

def cycle():
    made = generator()
    next(made)
    around = [made]
    around.append(around)

def handle(*_):
    global handled
    handled += 1
    with traceconv.span(f"handled {handled}"):
        pass
    if handling:  # the next only now: a handler that is slower than the timer would never end
        signal.setitimer(signal.ITIMER_REAL, 0.003)

async def work():
    for _ in range(60):
        if sys.argv[1] == "collector":
            cycle()
        with traceconv.span(f"worked {next(numbers)}"):
            await asyncio.sleep(0)

async def main():
    await asyncio.gather(*(work() for _ in range(60)))

with traceconv.profile() as p:
    if sys.argv[1] == "collector":
        gc.set_threshold(7, 2, 2)
    else:
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
    asyncio.run(main())
    handling = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.set_threshold(700, 10, 10)
    gc.collect()
rows = p.arrow("SELECT split_part(name, ' ', 1) AS what, count(dur_ns) AS n FROM range GROUP BY 1").to_pylist()
expected = {"worked": 3600} | ({"collected": 3600} if sys.argv[1] == "collector" else {"handled": handled})
found = {row["what"]: row["n"] for row in rows}
assert found == expected, (found, expected)
assert not p.arrow("FROM import_log WHERE severity <> 'info'").to_pylist()
"""


@pytest.mark.parametrize("by", ["collector", "signal"])
def test_spans_that_end_during_another_span(by: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, by]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
