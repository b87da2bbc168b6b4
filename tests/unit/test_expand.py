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
    records = expand(np.column_stack([words, [9, 1, 5]]), 3, TEMPLATES, Room())
    assert records.tolist() == [(7, 8, 3, 1, 0), (9, 24, 4, 2, 0), (1, 12, 4463, 2, 0)]


def test_python_makes_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    words = random.integers(-(2**62), 2**62, (500, 3))
    links = random.integers(0, 12, 20)
    words[:, 1] = random.integers(0, 12, 500)
    for codes, linked in ((1, None), (1, links), (None, None)):
        given = codes, TEMPLATES, Room(), linked
        with monkeypatch.context() as patched:
            records = expand(words, *given)
            patched.setattr(module.native, "AVAILABLE", False)
            assert records.tobytes() == expand(words, *given).tobytes()
            assert not len(expand(words[:0], *given))


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension: python setup.py build_ext --inplace")
@pytest.mark.parametrize(
    ("code", "links"),
    [
        (15, None),
        (14, None),
        (-1, None),
        (-(2**63), None),
        (2**63 - 2, None),
        (0, None),
        (1, [1]),
        (-1, [1]),
        (0, [-1]),
    ],
)
def test_c_refuses_what_is_out_of_range(code: int, links: list[int] | None) -> None:
    layout = module._layout(PLAN, DTYPE, 0)  # room for one record, where shape 0 has two
    linked = None if links is None else np.array(links)
    given = np.full((1, 3), code), 3, 0, linked, templates(1), layout, np.empty(1, DTYPE)
    with pytest.raises(ValueError, match="match the plan"):
        native.expand(*given, DTYPE.itemsize)
    for wrong in (layout[:-1], layout[:3], layout[:0], np.append(layout, 0), np.where(layout == 8, 3, layout)):
        with pytest.raises(ValueError, match="match the plan"):
            native.expand(*given[:5], wrong.astype(np.int32), given[6], DTYPE.itemsize)
    for width, column in ((0, 0), (2, 0), (3, 3), (-1, 0)):
        with pytest.raises(ValueError, match="match the plan"):
            native.expand(np.ones((1, 3), np.int64), width, column, *given[3:], DTYPE.itemsize)


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension: python setup.py build_ext --inplace")
def test_records_in_reused_memory_do_not_overlap() -> None:
    room, words = Room(), np.ones((2, 3), np.int64)
    for _ in range(2):
        kept = [expand(words, 0, TEMPLATES, room).copy(), expand(words, None, TEMPLATES, room)]
        copies = [records.tobytes() for records in kept]
        room.records(2, DTYPE)["id"] = 5
        assert copies == [records.tobytes() for records in kept]
        assert room._used == 6 * DTYPE.itemsize  # two records per event are not kept where it has none
        room.clear()
    assert np.shares_memory(room.records(2, DTYPE), room._bytes)
    assert not np.shares_memory(room.records(room._SIZE_BYTES // 8, DTYPE), room._bytes)
