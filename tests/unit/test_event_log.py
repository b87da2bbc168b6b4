"""Buffered events: calls of every kind, and events that are added while others are taken."""

from __future__ import annotations

import itertools
import struct
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from runtime_reader import Capture

from traceconv import native
from traceconv.runtime import event_log, ranges
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.device import EVENT, Device, Task
from traceconv.runtime.event_log import (
    CALL_BEGINS,
    CALL_ENDS,
    CALL_IN_CALL,
    NONE32,
    WHOLE_CALL,
    Buffer,
    CaptureIds,
    EventLog,
    EventStore,
    TaskOrigin,
    append,
)
from traceconv.runtime.host import live_host
from traceconv.runtime.launch import Run
from traceconv.runtime.live import PROCESS
from traceconv.runtime.memory import MemoryEvent, Origin, use_of
from traceconv.runtime.ranges import moves_between
from traceconv.runtime.recorder import Recorder
from traceconv.runtime.spec import reference_npu

LAUNCH = (("launch", "node"), ("LaunchKernel", "runtime"))


def calls(folder: Path) -> list[tuple[int, int, str, int, int, int, str]]:
    """(time, correlation_id, name, op_index, step_id, event, level) of each record, in the order of the log."""
    capture = Capture(folder)
    rows, names, levels = capture["api"], capture.text(capture["api"]["name"]), capture.enum("api", "level")
    return [
        (int(row["host_ns"]), int(row["correlation_id"]), name, int(row["op_index"]), int(row["step_id"]),
         int(row["event"]), level)
        for row, name, level in zip(rows, names, levels, strict=True)
    ]  # fmt: skip


def test_calls_of_all_shapes_become_begins_and_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "capture")
    outer = 4 * recorder.call_head("ModelExecute", 7, NONE32, "model")
    leaf = 4 * recorder.call_head("OpDispatch", 7, 3, "node")
    launch = 4 * recorder.call_heads(LAUNCH, 8, 3)
    append(recorder.calls, 10, 0, 0, 2, outer + CALL_BEGINS, 5)
    append(recorder.calls, 11, 12, 0, 4, leaf + WHOLE_CALL, 5)
    append(recorder.calls, 13, 14, 16, 6, launch + CALL_IN_CALL, 5)
    append(recorder.calls, 17, 0, 0, 2, outer + CALL_ENDS, NONE32)
    recorder.close({})
    assert calls(tmp_path / "capture") == [
        (10, 2, "ModelExecute", NONE32, 5, 0, "model"),
        (11, 4, "OpDispatch", 3, 5, 0, "node"),
        (12, 4, "", NONE32, NONE32, 1, "node"),
        (13, 6, "launch", 3, 5, 0, "node"),
        (14, 5, "LaunchKernel", 3, 5, 0, "runtime"),
        (16, 5, "", NONE32, NONE32, 1, "runtime"),
        (16, 6, "", NONE32, NONE32, 1, "node"),
        (17, 2, "", NONE32, NONE32, 1, "model"),
    ]


def test_events_added_while_others_are_taken_are_not_lost() -> None:
    store = EventStore()
    logs = [EventLog(store, op_base=100 * number) for number in range(3)]
    each = 2_000
    taken: list[tuple[int, int]] = []

    def add(number: int) -> None:
        for count in range(each):
            origin = use_of(f"pool {count % 5}", "input", None, number)
            logs[number].memory([MemoryEvent(count, number, 0, 1, 1, 1, origin)], 0)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(len(logs))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or store.pending:
        for found in store.taken():
            for host_ns, block_id, *_, head in found.get(("memory", None), np.empty((0, 7), np.int64)).tolist():
                taken.append((block_id, host_ns))
                pool, _, _, op_index, *_ = store.heads["memory"][head]
                assert (pool, op_index) == (f"pool {host_ns % 5}", 101 * block_id)
    for number in range(len(logs)):
        assert [host_ns for block_id, host_ns in taken if block_id == number] == list(range(each))


def test_many_events_are_taken_in_pieces_once_each_and_in_order() -> None:
    store, found, pieces = EventStore(), [], 0
    for number in range(40_000):
        store.add("clock_stop", None, number, 0, 0)
        if number % 40 == 0:
            store.add("sync", number % 3, number, 0, 0)
    for taken in store.taken():
        pieces += 1
        found += [(kind, device_id, row[0]) for (kind, device_id), rows in taken.items() for row in rows.tolist()]
        store.add("sync", 1, 40_000, 0, 0)  # by another thread: it may be taken now, or the next time
    for taken in store.taken():
        found += [("sync", 1, row[0]) for row in taken["sync", 1].tolist()]
    assert pieces > 1
    assert [row[2] for row in found if row[0] == "clock_stop"] == list(range(40_000))
    for device_id in range(3):
        expected = list(range(0, 40_000, 40))[device_id::3] + [40_000] * pieces * (device_id == 1)
        assert [row[2] for row in found if row[:2] == ("sync", device_id)] == expected


def test_excluded_events_are_not_buffered() -> None:
    store = EventStore(on=False, tasks_on=False, memory_on=False, steps_on=False)
    log = EventLog(store)
    log.memory([MemoryEvent(1, 1, 0, 1, 0, 1, Origin("free", "block", "input"))], 0)
    device = Device(reference_npu(), DeviceClock(0, 0, 10**9, 0))
    log.tasks(device, [device.submit(0, 5, EVENT)])
    log.sync(0, 1, 2, 3)
    log.counter(0, 1, "HBM Used", "byte", 5)
    log.step_mark(0, 1, 1, 1, 1, "start")
    assert store.pending == 0


def taken(buffer: Buffer, size: int) -> bytes:
    out = np.empty(size, np.uint8)
    return out[: buffer.take(out)].tobytes()


def test_words_are_appended_completely_or_not_at_all() -> None:
    buffer = Buffer()
    buffer.extend(b"before")
    words = (0, -1, 2**63 - 1, -(2**63), NONE32)
    append(buffer, *words)
    appended = b"before" + struct.pack("5q", *words)
    for wrong in (2**63, "1", None):
        with pytest.raises((OverflowError, TypeError, struct.error)):
            append(buffer, 1, wrong)  # type: ignore[arg-type]
    assert (taken(buffer, 8), taken(buffer, 99), len(buffer), taken(buffer, 9)) == (appended[:8], appended[8:], 0, b"")
    big = bytes(range(256)) * 40_000  # more than a buffer keeps
    for _ in range(2):
        buffer.extend(big)
        assert taken(buffer, len(big) // 2) == big[: len(big) // 2]
        append(buffer, 7)
        buffer.extend(big)
        assert len(buffer) == 3 * len(big) // 2 + 8
        assert taken(buffer, len(buffer)) == big[len(big) // 2 :] + struct.pack("q", 7) + big


def some_tasks(device: Device) -> list[Task]:
    """Tasks with and without an op, a size and a wait."""
    tasks = [device.submit(0, 0, EVENT), device.submit(1, 0, EVENT)]
    tasks += [device.submit(stream, 5, EVENT, event=tasks[0]) for stream in (1, 2)]
    device.run_all()
    origins = [TaskOrigin(name, NONE32, "SDMA") for name in ("Load", "Store")]
    for number, task in enumerate(tasks):
        size = None if number % 2 else 2**40
        task.note = origins[number // 2], size, number, 7, NONE32
    return tasks


def some_memory() -> list[MemoryEvent]:
    """Two pairs of an alloc and a free."""
    alloc = MemoryEvent(5, 1, 2**44, 512, 512, 2**21, use_of("stream 0", "activation", "x", 3))
    free = MemoryEvent(9, 1, 2**44, 512, 0, 2**21, Origin("free", "block", "stream 0"))
    other = Origin("free", "block", "input")
    return [alloc, free, alloc._replace(host_ns=2**62, block_id=2), free._replace(host_ns=-1, origin=other)]


def test_c_and_python_log_the_same_tasks_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(reference_npu(), DeviceClock(0, 0, 10**9, 0))
    tasks, memory, found = some_tasks(device), some_memory(), []
    for is_native in (native.AVAILABLE, False):
        monkeypatch.setattr(event_log.native, "AVAILABLE", is_native)
        log = EventLog(EventStore(), op_base=10)
        log_memory = log.memory_log(1)
        for _ in range(2):  # new heads, then known ones
            log.tasks(device, tasks)
            log.memory(memory[:2], 1)
            for event in memory:
                log_memory(*event)
        for events in log.store.taken():
            found.append(({key: words.tolist() for key, words in events.items()}, log.store.heads))
    assert found[0] == found[1]
    words, heads = found[0]
    assert [len(words["task", 0]), len(words["event_wait", 0]), len(words["memory", None])] == [8, 4, 12]
    assert [len(heads["task"]), len(heads["memory"])] == [2, 3]
    assert words["event_wait", 0][0] == [tasks[2].end, tasks[2].task_id, tasks[0].task_id]


class TaskWithProperty:
    """Not what C reads tasks from."""

    __slots__ = ("start",)

    @property
    def end(self) -> int:
        return 1


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension: python setup.py build_ext --inplace")
def test_tasks_and_memory_that_c_cannot_convert_are_not_logged() -> None:
    device = Device(reference_npu(), DeviceClock(0, 0, 10**9, 0))
    tasks, events, log = some_tasks(device), some_memory(), EventLog(EventStore())
    log.tasks(device, tasks)
    log.memory(events, 0)
    for _ in log.store.taken():
        pass
    tasks[3].start = None
    with pytest.raises(TypeError):
        log.tasks(device, tasks)
    tasks[3].note = tasks[3].note[:4]
    with pytest.raises(TypeError, match="5 fields"):
        log.tasks(device, tasks)
    for other, error in (
        (object(), "start"),
        (SimpleNamespace(start=1), "start"),
        (TaskWithProperty(), "end is not a slot"),
    ):
        with pytest.raises((AttributeError, TypeError), match=error):
            native.append_tasks(Buffer(), Buffer(), [tasks[0], other], log._task_heads)
    with pytest.raises(OverflowError):
        log.memory_log(0)(*events[0]._replace(address=2**63))
    with pytest.raises(TypeError, match="7 fields"):
        native.append_memory(Buffer(), {}, *events[0][:6])
    with pytest.raises(KeyError):
        native.append_memory(Buffer(), {}, *events[0])
    assert log.store.pending == 0
    log.tasks(device, tasks[:3])  # the slots of their class are found again
    assert log.store.pending == 4


def test_c_and_python_log_the_same_calls_and_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times, found = itertools.count(1_000, 7), []
    monkeypatch.setattr(PROCESS.clock, "source", lambda: next(times))
    monkeypatch.setattr(PROCESS.clock, "stopped_ns", 0)
    for is_native in (native.AVAILABLE, False):
        times = itertools.count(1_000, 7)
        monkeypatch.setattr(event_log.native, "AVAILABLE", is_native)
        folder = tmp_path / str(len(found))
        recorder = Recorder(folder)
        host = live_host(recorder, (1, 2, 3), ("channel", "worker", "device"), PROCESS.clock, CaptureIds())
        log = ranges.RangeLog(host, Device(reference_npu(), DeviceClock(0, 0, 10**9, 0)), CaptureIds())
        change = log.modules(host.channel, Run({}, {}, 7, 0, [], span_id=99))
        handed: list[int] = []
        dispatch = host.dispatcher(7)
        for op, move in moves_between([("a", "a/b"), ("a", "a/c"), (), tuple(map(str, range(200)))]).items():
            change(*move)
            dispatch(op, partial(handed.append, op))
        assert host.call_log is not None
        host.call_log.enter()
        number = host.call_log.launched(1_234, 4 * recorder.call_heads(LAUNCH, 2, 3) + CALL_IN_CALL, 7)
        with host.call(host.worker, "runtime", "EventRecord", step_id=8) as other, pytest.raises(KeyError):
            raise KeyError
        with host.calls(("acl", "aclrtMemcpyAsync"), ("model", "InputCopy"), step_id=9), pytest.raises(KeyError):
            raise KeyError
        assert (number, other) == (11, 14)
        host.drain()
        host.stop()
        recorder.close({})
        capture = Capture(folder)
        found.append((calls(folder), capture["range"].tolist(), capture.text(capture["range"]["args"])))
        assert handed == [0, 1, 2, 3, 4]
    assert found[0] == found[1]
    assert [call[1:] for call in found[0][0][-4:]] == [
        (16, "aclrtMemcpyAsync", NONE32, 9, 0, "acl"),
        (15, "InputCopy", NONE32, 9, 0, "model"),
        (15, "", NONE32, NONE32, 1, "model"),
        (16, "", NONE32, NONE32, 1, "acl"),
    ]
    begun, parents, paths = [1, 2, 2, 3, 3, 1], [99, 1, 0, 1, 0, 0], ['{"path": "a"}', '{"path": "a/b"}']
    assert [(row[1], row[2]) for row in found[0][1][:6]] == list(zip(begun, parents, strict=True))
    deep = [*range(4, 204), *range(203, 3, -1)]
    assert [(row[1], row[2]) for row in found[0][1][6:]] == list(
        zip(deep, [99, *range(4, 203), *[0] * 200], strict=True)
    )
    assert found[0][2][:2] == paths
