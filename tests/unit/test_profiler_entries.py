"""One profiler entered many times at once: each exit ends the profile of its entry, in any thread."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import traceconv
from traceconv.base.errors import UsageError
from traceconv.runtime.capture import Capture
from traceconv.runtime.live import PROCESS
from traceconv.runtime.rwlock import Gate


def latest() -> Capture:
    return PROCESS.captures[-1]


def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def block(p: traceconv.Profiler, begun: list[Capture]) -> Iterator[None]:
    """A block that is entered by the first step and left by the second."""
    with p:
        begun.append(latest())
        yield


def ended(capture: Capture) -> str:
    return str(json.loads((capture.folder / "manifest.json").read_text())["ended"])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("how", ["threads", "tasks", "generators", "collected", "in other threads"])
def test_an_exit_ends_the_profile_of_its_entry(how: str, order: tuple[int, ...]) -> None:
    p = traceconv.profile()
    begun: list[Capture] = []
    left: list[Callable[[], object]]
    if how == "threads":
        left = [stepped_in_a_thread(p, begun) for _ in order]
    elif how == "tasks":
        asyncio.run(leave_tasks(p, begun, order))
        left = []
    else:
        blocks = {number: block(p, begun) for number in order}
        for number in sorted(blocks):
            next(blocks[number])
        if how == "generators":
            left = [lambda made=made: next(made, None) for _, made in sorted(blocks.items())]  # type: ignore[misc]
        elif how == "collected":
            left = [lambda number=number: (blocks.pop(number), gc.collect(0)) for number in sorted(blocks)]  # type: ignore[misc]
        else:
            left = [lambda made=made: in_thread(made.close) for _, made in sorted(blocks.items())]  # type: ignore[attr-defined, misc]
    for done, number in enumerate(order if left else (), 1):
        left[number]()
        assert [capture.closed for capture in begun] == [place in order[:done] for place in range(3)]
    assert p.captures == [begun[number].folder for number in order]
    assert PROCESS.captures == ()


def stepped_in_a_thread(p: traceconv.Profiler, begun: list[Capture]) -> Callable[[], object]:
    """A block in a thread of its own, which the result leaves."""
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with p:
            begun.append(latest())
            entered.set()
            leave.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    return lambda: (leave.set(), thread.join())


async def leave_tasks(p: traceconv.Profiler, begun: list[Capture], order: tuple[int, ...]) -> None:
    leave = [asyncio.Event() for _ in order]

    async def one(number: int) -> None:
        with p:
            begun.append(latest())
            await leave[number].wait()

    tasks = [asyncio.create_task(one(number)) for number in range(len(order))]
    while len(begun) < len(order):
        await asyncio.sleep(0)
    for done, number in enumerate(order, 1):
        leave[number].set()
        await tasks[number]
        assert [capture.closed for capture in begun] == [place in order[:done] for place in range(3)]


def test_blocks_without_a_with_statement_end_by_thread_and_place() -> None:
    p = traceconv.profile(format="pandas")
    begun: list[Capture] = []
    stack = ExitStack()
    stack.enter_context(p)
    begun.append(latest())
    with p:
        begun.append(latest())
        other = stepped_in_a_thread(p, begun)
        stack.close()
        assert [capture.closed for capture in begun] == [True, False, False]
    assert [capture.closed for capture in begun] == [True, True, False]
    other()
    moved = ExitStack()
    moved.enter_context(p)
    in_thread(moved.close)
    assert PROCESS.captures == ()
    with pytest.raises(UsageError, match="has not started"):
        p.__exit__(None, None, None)


def test_many_threads_at_once_each_get_their_own() -> None:
    p = traceconv.profile()
    together = threading.Barrier(6)

    def work(number: int) -> None:
        for turn in range(4):
            together.wait()
            with suppress(KeyError), p:
                with traceconv.span(f"{number} {turn}"):
                    together.wait()
                if number % 2:
                    raise KeyError(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PROCESS.captures == ()
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in p.captures]
    assert sorted(manifest["ended"] for manifest in manifests) == 12 * ["KeyError"] + 12 * ["end of the block"]
    assert len({manifest["writer_id"] for manifest in manifests}) == 24
    # Every thread's span is in every profile of its turn that had begun by then, its own among them.
    names = p.arrow("SELECT run_id, list(name) AS names FROM range GROUP BY ALL").to_pylist()
    assert len(names) == 24
    assert all(len({name.split()[1] for name in row["names"]}) == 1 for row in names)


def test_functions_of_all_kinds_are_profiled_to_their_end() -> None:
    p = traceconv.profile(format="pandas")
    seen: dict[str, Capture] = {}

    @p
    async def coroutine(name: str, gate: asyncio.Event) -> str:
        seen[name] = latest()
        await gate.wait()
        if name == "fails":
            raise LookupError(name)
        return name

    @p
    def generator() -> Iterator[int]:
        seen["generator"] = latest()
        yield from range(3)

    @p
    async def values() -> AsyncIterator[Any]:
        seen["values"] = latest()
        try:
            got = yield 1
            while True:
                try:
                    got = yield got
                except KeyError as error:
                    got = str(error)
        finally:
            seen["closed inside"] = latest()

    class Called:
        async def __call__(self) -> None:
            seen["called"] = latest()
            await asyncio.sleep(0)
            assert not seen["called"].closed

    async def main() -> None:
        gates = [asyncio.Event() for _ in range(3)]
        tasks = [asyncio.create_task(coroutine(n, g)) for n, g in zip(("a", "b", "fails"), gates, strict=True)]
        await asyncio.sleep(0)
        gates[0].set()
        assert await tasks[0] == "a"
        assert [seen[name].closed for name in ("a", "b", "fails")] == [True, False, False]
        gates[2].set()
        with pytest.raises(LookupError):
            await tasks[2]
        assert [seen[name].closed for name in ("a", "b", "fails")] == [True, False, True]
        gates[1].set()
        await tasks[1]
        stream: Any = values()
        assert await stream.asend(None) == 1
        assert await stream.asend("sent") == "sent"
        assert await stream.athrow(KeyError("thrown")) == "'thrown'"
        await stream.aclose()
        assert seen["closed inside"] is seen["values"] and seen["values"].closed
        await p(Called())()
        assert seen["called"].closed

    asyncio.run(main())
    made = generator()
    assert next(made) == 0 and not seen["generator"].closed
    assert list(made) == [1, 2] and seen["generator"].closed
    assert (ended(seen["fails"]), ended(seen["values"]), ended(seen["a"])) == (
        "LookupError", "GeneratorExit", "end of the block",
    )  # fmt: skip


def test_one_of_several_concurrent_starts_succeeds() -> None:
    p = traceconv.profile(format="pandas")
    together = threading.Barrier(4)
    refused: list[str] = []

    def work(call: Callable[[], None]) -> None:
        together.wait()
        try:
            call()
        except UsageError as error:
            refused.append(str(error))

    for call, message in ((p.start, "has started already"), (p.stop, "has not started")):
        threads = [threading.Thread(target=work, args=(call,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 3 and all(message in text for text in refused)
        refused.clear()
    assert len(p.captures) == 1


def test_start_and_stop_are_independent_of_blocks() -> None:
    p = traceconv.profile(format="pandas")
    with p:
        with pytest.raises(UsageError, match="has not started"):
            p.stop()
        p.start()
        started = latest()
    assert not started.closed and len(p.captures) == 1
    p.stop()
    assert started.closed and len(p.captures) == 2


def test_a_thread_pauses_the_profiles_around_it() -> None:
    p = traceconv.profile(format="pandas")
    begun: list[Capture] = []
    other = stepped_in_a_thread(p, begun)
    with p:
        begun.append(latest())
        p.pause()
        assert [capture.paused for capture in begun] == [False, True]
        p.resume()
        in_thread(p.pause)  # around none: all
        assert [capture.paused for capture in begun] == [True, True]
    other()


def test_a_thread_does_not_wait_for_itself() -> None:
    """A signal or the garbage collector may end a profile during a run, or while another profile begins."""
    gate = Gate()
    passed = []

    def work() -> None:
        with gate.shared(), gate.exclusive(), gate.exclusive(), gate.shared():
            passed.append("inside")
        with gate.exclusive():
            passed.append("after")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert passed == ["inside", "after"]


def test_two_exports_at_once_write_their_own_profiles(tmp_path: Any) -> None:
    together = threading.Barrier(3)

    def work(number: int) -> None:
        with traceconv.profile(tmp_path / f"{number}.json"), traceconv.span(f"mine {number}"):
            together.wait()

    shared = traceconv.profile(tmp_path / "all", format="chrome_timeline.json")

    def use_shared(number: int) -> None:
        for turn in range(2):
            together.wait()
            with shared, traceconv.span(f"shared {number} {turn}"):
                together.wait()

    for target in (work, use_shared):
        threads = [threading.Thread(target=target, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number in range(3):
        assert f"mine {number}" in (tmp_path / f"{number}.json").read_text()
    files = sorted((tmp_path / "all").iterdir())
    assert [path.name.partition(".")[2] for path in files] == ["chrome_timeline.json"] * 6
    assert sorted(path.name.partition(".")[0] for path in files) == sorted(path.name for path in shared.captures)
    assert not list(tmp_path.glob("*.raw"))
