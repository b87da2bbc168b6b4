"""Buffered events: calls of every kind, and events that are added while others are taken."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest
from runtime_reader import Capture

from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.device import EVENT, Device
from traceconv.runtime.event_log import (
    CALL_BEGINS,
    CALL_ENDS,
    CALL_IN_CALL,
    NONE32,
    WHOLE_CALL,
    EventLog,
    EventStore,
    append,
)
from traceconv.runtime.memory import MemoryEvent
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
            event = MemoryEvent(count, "alloc", "block", number, 0, 1, 1, 1, f"pool {count % 5}", "input", None, number)
            logs[number].memory([event], 0)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(len(logs))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or store.pending:
        for words in store.take().values():
            for host_ns, block_id, *_, head in words.tolist():
                taken.append((block_id, host_ns))
                pool, _, _, op_index, *_ = store.heads["memory"][head]
                assert (pool, op_index) == (f"pool {host_ns % 5}", 101 * block_id)
    for number in range(len(logs)):
        assert [host_ns for block_id, host_ns in taken if block_id == number] == list(range(each))


def test_excluded_events_are_not_buffered() -> None:
    store = EventStore(on=False, tasks_on=False, memory_on=False, steps_on=False)
    log = EventLog(store)
    log.memory([MemoryEvent(1, "free", "block", 1, 0, 1, 0, 1, "input", "allocator", None, None)], 0)
    device = Device(reference_npu(), DeviceClock(0, 0, 10**9, 0))
    log.tasks(device, [device.submit(0, 5, EVENT)])
    log.sync(0, 1, 2, 3)
    log.counter(0, 1, "HBM Used", "byte", 5)
    log.step_mark(0, 1, 1, 1, 1, "start")
    assert store.pending == 0


def test_words_are_appended_completely_or_not_at_all() -> None:
    buffer = bytearray(b"before")
    words = (0, -1, 2**63 - 1, -(2**63), NONE32)
    append(buffer, *words)
    appended = b"before" + struct.pack("5q", *words)
    assert buffer == appended
    for wrong in (2**63, "1", None):
        with pytest.raises((OverflowError, TypeError, struct.error)):
            append(buffer, 1, wrong)  # type: ignore[arg-type]
    with memoryview(buffer), pytest.raises(BufferError):
        append(buffer, 1)
    assert buffer == appended
