"""Nesting compared with a short oracle: any sequence of begins and ends, split anywhere, on several threads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv import native
from traceconv.normalize.npulog.nesting import BEGIN, END, END_APART, NO_PARENT, Nester, Slices
from traceconv.normalize.trace.flows import _order
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of

DTYPE = dtype_of(record("api"))

#: (thread, key, whether it is not an end, an end, or one that leaves others open, ns)
Event = tuple[int, int, int, int]
#: The Python way, and the C way where there was a compiler.
IN_C = [False, *([True] if native.AVAILABLE else [])]
#: id → (begin ns, dur or None, self or None, depth, parent id)
Rows = dict[int, tuple[int, int | None, int | None, int, int]]

event = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(0, 2), st.integers(-30, 100))


@st.composite
def intact_logs(draw: st.DrawFn) -> list[Event]:
    """Matched begins and ends on each thread, in order of time; some begins may stay open."""
    log: list[Event] = []
    stacks: dict[int, list[int]] = {}
    ns = 0
    for key in range(draw(st.integers(0, 40))):
        thread = draw(st.integers(1, 3))
        ns += draw(st.integers(0, 5))
        stack = stacks.setdefault(thread, [])
        if stack and draw(st.booleans()):
            log.append((thread, stack.pop(), END, ns))
        else:
            stack.append(key)
            log.append((thread, key, BEGIN, ns))
    return log


def oracle(log: list[Event]) -> tuple[Rows, int, int, int]:
    """Rows, unmatched ends, negative durations, merged ends: an end closes the nearest begin with its key."""
    # Begins above it lost their ends, unless this end leaves them open.
    rows: Rows = {}
    stacks: dict[int, list[int]] = {}
    children: dict[int, int] = {}
    unmatched = negative = merged = 0

    def put(place: int, stack: list[int], dur: int | None) -> None:
        own = None if dur is None else dur - children.get(place, 0)
        rows[place] = (log[place][3], dur, own, len(stack), stack[-1] if stack else NO_PARENT)

    for place, (thread, key, half, ns) in enumerate(log):
        stack = stacks.setdefault(thread, [])
        if half == BEGIN:
            stack.append(place)
            continue
        if all(log[begin][1] != key for begin in stack):
            unmatched += 1
            continue
        at = max(at for at, begin in enumerate(stack) if log[begin][1] == key)
        above = stack[at + 1 :]
        begin = stack[at]
        del stack[at:]
        if half == END:
            for number, lost in enumerate(above):
                put(lost, [*stack, begin, *above[:number]], None)
        merged += 1
        dur = ns - log[begin][3]
        negative += dur < 0
        if dur >= 0 and stack:
            children[stack[-1]] = children.get(stack[-1], 0) + dur
        put(begin, stack, dur if dur >= 0 else None)
        if half == END_APART:
            stack += above
    for stack in stacks.values():
        while stack:
            put(stack.pop(), stack, None)
    return rows, unmatched, negative, merged


def nested(log: list[Event], cuts: list[int], in_c: bool) -> tuple[Rows, int, int, int]:
    """Return the same from Nester, with the log cut at `cuts`."""
    nester = Nester("thread_id", "correlation_id", DTYPE)
    rows: Rows = {}
    merged = 0
    bounds = [0, *sorted(cut % (len(log) + 1) for cut in cuts), len(log)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", in_c)
        parts = [nester.feed(*arrays(log, first, last)) for first, last in pairwise(bounds)]
    for slices in [*parts, nester.finish()]:
        merged += slices.paired
        got = as_rows(slices)
        assert not rows.keys() & got.keys()
        rows.update(got)
    return rows, nester.unmatched_ends, nester.negative, merged


def arrays(log: list[Event], first: int, last: int) -> tuple[RecordArray, np.ndarray, np.ndarray, np.ndarray]:
    part = log[first:last]
    records = np.zeros(len(part), DTYPE)
    records["thread_id"] = [one[0] for one in part]
    records["correlation_id"] = [one[1] for one in part]
    halves = np.array([one[2] for one in part], np.uint8)
    ns = np.array([one[3] for one in part], np.int64)
    return records, np.arange(first, last), halves, ns


def as_rows(slices: Slices) -> Rows:
    rows: Rows = {}
    for i, place in enumerate(slices.ids.tolist()):
        known = not slices.unfinished[i]
        dur, own = (int(slices.dur_ns[i]), int(slices.self_ns[i])) if known else (None, None)
        rows[place] = (int(slices.start_ns[i]), dur, own, int(slices.depth[i]), int(slices.parent_id[i]))
    return rows


@given(st.lists(event, max_size=40), st.lists(st.integers(0, 99), max_size=5), st.sampled_from(IN_C))
def test_any_sequence_agrees_with_the_oracle(log: list[Event], cuts: list[int], in_c: bool) -> None:
    got = nested(log, cuts, in_c)
    assert got == oracle(log)
    rows, unmatched, _, merged = got
    assert len(rows) + merged + unmatched == len(log)


@given(intact_logs(), st.lists(st.integers(0, 99), max_size=5), st.sampled_from(IN_C))
def test_intact_logs_agree_with_the_oracle(log: list[Event], cuts: list[int], in_c: bool) -> None:
    got = nested(log, cuts, in_c)
    assert got == oracle(log)
    assert got[1:3] == (0, 0)


@pytest.mark.parametrize("in_c", IN_C)
def test_deep_stacks_with_repeated_keys_agree_with_the_oracle(in_c: bool) -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        begins = rng.random(300) < rng.uniform(0.4, 0.9)
        halves = np.where(begins, BEGIN, np.where(rng.random(300) < 0.6, END, END_APART)).tolist()
        keys, threads = rng.integers(0, 40, 300).tolist(), rng.integers(0, 2, 300).tolist()
        log = [
            (thread, key, half, ns) for ns, (thread, key, half) in enumerate(zip(threads, keys, halves, strict=True))
        ]
        assert nested(log, rng.integers(0, 300, 2).tolist(), in_c) == oracle(log)


@pytest.mark.parametrize("in_c", IN_C)
def test_a_large_damaged_log_of_random_events(in_c: bool) -> None:
    """20,000 events with losses, so that carried stacks, deep ones and several threads occur together."""
    rng = np.random.default_rng(5)
    log: list[Event] = []
    stacks: dict[int, list[int]] = {}
    for key in range(20_000):
        thread = int(rng.integers(1, 1 << 20)) if rng.random() < 0.01 else int(rng.integers(1, 5))
        stack = stacks.setdefault(thread, [])
        if stack and rng.random() < 0.5:
            one = (thread, stack.pop(), True, key)
        else:
            stack.append(key)
            one = (thread, key, False, key)
        if rng.random() > 0.001:
            log.append(one)
    cuts = rng.integers(0, len(log), 7).tolist()
    assert nested(log, cuts, in_c) == oracle(log)


@pytest.mark.parametrize("in_c", IN_C)
def test_times_at_the_limits_do_not_overflow(in_c: bool) -> None:
    """If the sum of durations exceeds 64 bits, no child time is guessed."""
    limit = 1 << 62
    log: list[Event] = [(1, 1, False, 0)]
    for key in range(2, 6):
        log += [(1, key, False, 0), (1, key, True, limit - 1)]
    log += [(1, 1, True, limit - 1)]
    rows, *_ = nested(log, [3], in_c)
    assert rows[1] == (0, limit - 1, limit - 1, 1, 0)
    assert rows[0][:2] == (0, limit - 1)
    own = rows[0][2]
    assert own is None or own <= 0  # never positive: the children's durations exceed the slice's


@pytest.mark.parametrize("in_c", IN_C)
def test_ends_without_begins_among_many_open_begins_take_linear_time(in_c: bool) -> None:
    """Quadratic time would be 10^10 steps."""
    count = 100_000
    log: list[Event] = [(1, key, False, 0) for key in range(count)]
    log += [(1, count + key, True, 1) for key in range(count)]
    rows, unmatched, _, merged = nested(log, [], in_c)
    assert (len(rows), unmatched, merged) == (count, count, 0)


@pytest.mark.skipif(not native.AVAILABLE, reason="no C compiler was there when traceconv was installed")
def test_arrays_of_different_lengths_are_refused() -> None:
    arrays = [np.zeros(2, dtype) for dtype in ("u4", "u8", "u1", "i8", "i8", "i8")]
    rows = np.zeros((8, 2), np.int64)
    assert native.nest(*arrays, rows) == (0, 2, 0, 0, 0)
    for place in range(6):
        with pytest.raises(ValueError, match="of one length"):
            native.nest(*[one[:1] if at == place else one for at, one in enumerate(arrays)], rows)
    with pytest.raises(ValueError, match="of one length"):
        native.nest(*arrays, rows[:7])


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 5), max_size=12))
def test_flow_ends_are_ordered_as_by_one_sort(rows: list[tuple[int, ...]]) -> None:
    columns = np.array(sorted(rows, key=lambda row: row[0]), np.int64).reshape(-1, 5).T
    assert _order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()
