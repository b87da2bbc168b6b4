"""Events become records by the same rules in C and in Python."""

from __future__ import annotations

import numpy as np
import pytest

from traceconv import native
from traceconv.runtime import expand as module
from traceconv.runtime.expand import Part, Room, Store, Templates, expand

DTYPE = np.dtype([("time", "<i8"), ("id", "<u4"), ("kind", "<u2"), ("flag", "u1"), ("pad", "u1")])
PLAN = (
    (Part((Store(0, "time"), Store(2, "id", -3))), Part((Store(1, "time"),), is_end=True, inner=1)),
    (),
    (Part((Store(1, "flag"), Store(2, "kind", 70_000)), inner=1),),
)


def templates(of: int) -> np.ndarray:
    rows = [(of, 10 * of + number, number, of, 0) for number in range(5)]
    return np.array(rows, DTYPE)


TEMPLATES = Templates(PLAN, templates(1), templates(2))


def test_records_are_templates_with_an_events_words() -> None:
    words = np.array([[7, 9, 11], [1, 2, 3], [-5, 258, -1]])
    records = expand(words, np.array([3, 0, 1]), np.array([0, 1, 2]), TEMPLATES)
    assert records.tolist() == [(7, 8, 3, 1, 0), (9, 24, 4, 2, 0), (1, 12, 4463, 2, 0)]


def test_python_makes_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    words = random.integers(-(2**62), 2**62, (500, 3))
    heads, shapes = random.integers(0, 4, 500), random.integers(0, 3, 500)
    given = words, heads, shapes, TEMPLATES
    records = expand(*given)
    monkeypatch.setattr(module.native, "AVAILABLE", False)
    assert records.tobytes() == expand(*given).tobytes()
    assert not len(expand(words[:0], heads[:0], shapes[:0], TEMPLATES))


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension")
@pytest.mark.parametrize(
    ("heads", "shapes"), [([5], [0]), ([4], [2]), ([-1], [0]), ([0], [3]), ([0], [-1]), ([0], [0])]
)
def test_c_refuses_what_is_out_of_range(heads: list[int], shapes: list[int]) -> None:
    layout = module._layout(PLAN, DTYPE, 0)  # room for one record, where shape 0 has two
    given = np.zeros((1, 3), np.int64), np.array(heads), np.array(shapes), templates(1), layout, np.empty(1, DTYPE)
    with pytest.raises(ValueError, match="match the plan"):
        native.expand(*given, DTYPE.itemsize)
    for wrong in (layout[:-1], layout[:3], layout[:0], np.append(layout, 0), np.where(layout == 8, 3, layout)):
        with pytest.raises(ValueError, match="match the plan"):
            native.expand(*given[:4], wrong.astype(np.int32), given[5], DTYPE.itemsize)


def test_records_in_reused_memory_do_not_overlap() -> None:
    room, given = Room(), (np.ones((2, 3), np.int64), np.array([0, 1]), None, TEMPLATES)
    for _ in range(2):  # without memory, then with it
        kept = [expand(*given, room).copy(), expand(*given, room)]
        assert kept[0].tobytes() == kept[1].tobytes()
        first = room.records(2, DTYPE)
        first["id"] = 5
        assert kept[0].tobytes() == kept[1].tobytes()
        room.clear()
    assert np.shares_memory(room.records(2, DTYPE), room._bytes)
    assert not np.shares_memory(room.records(10_000, DTYPE), room._bytes)
