"""speedscope files built from the published schema: evented and sampled, intact and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ingest_checks import taken_from

from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.formats.speedscope.stacks import SampledStacks
from traceconv.pipeline.ingest import ingest

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
FRAMES = [{"name": "main", "file": "a.py", "line": 1}, {"name": "f", "file": None}, {"name": "g", "col": 7}]


def slices(store: duckdb.DuckDBPyConnection) -> list[Any]:
    return store.execute(
        "SELECT t.name, s.name, s.start_ns, s.dur_ns, s.depth FROM slice s JOIN track t USING (run_id, track_id) "
        "ORDER BY t.sort_index, s.start_ns, s.depth"
    ).fetchall()


def evented(unit: str = "microseconds", **other: Any) -> dict[str, Any]:
    events = [("O", 0, 1), ("O", 1, 2), ("C", 1, 3.5), ("O", 2, 4), ("C", 2, 4.0005), ("C", 0, 10)]
    return {
        "type": "evented", "name": "thread one", "unit": unit, "startValue": 0, "endValue": 10,
        "events": [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events], **other,
    }  # fmt: skip


def sampled(**other: Any) -> dict[str, Any]:
    return {
        "type": "sampled", "name": "thread two", "unit": "nanoseconds", "startValue": 100, "endValue": 170,
        "samples": [[0], [0, 1], [0, 1, 2], [0, 2], [], [0, 1]], "weights": [10, 20, 5, 5, 20, 10], **other,
    }  # fmt: skip


SAMPLED = [
    ("thread two", "main", 100, 40, 0),
    ("thread two", "f", 110, 25, 1),
    ("thread two", "g", 130, 5, 2),
    ("thread two", "g", 135, 5, 1),
    ("thread two", "main", 160, 10, 0),
    ("thread two", "f", 160, 10, 1),
]
EVENTED = [
    ("thread one", "main", 1000, 9000, 0),
    ("thread one", "f", 2000, 1500, 1),
    ("thread one", "g", 4000, 0, 1),  # 0.5 ns: half to even
]


def document(*profiles: dict[str, Any], **other: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA, "name": "my app", "exporter": "x@1", "shared": {"frames": FRAMES},
            "profiles": list(profiles), **other}  # fmt: skip


def test_profiles_of_both_kinds(tmp_path: Path) -> None:
    path = tmp_path / "app.speedscope.json"
    path.write_text(json.dumps(document(evented(), sampled())))
    assert choose_reader(path) == "speedscope"
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert slices(store) == EVENTED + SAMPLED
    assert store.execute("SELECT writer, source_format FROM run").fetchone() == ("speedscope", "speedscope")
    assert store.execute("SELECT name FROM process").fetchall() == [("my app",)]
    args = dict(store.execute("SELECT name, args FROM range").fetchall())
    assert args == {"main": '{"file":"a.py","line":1}', "f": None, "g": '{"col":7}'}
    account = run.accounts.by_record["samples"]
    assert (account.records, account.used) == (6, 6)
    assert [entry.code.text for entry in run.log] == ["fine_time"]


def test_names_and_units_may_follow_the_events(tmp_path: Path) -> None:
    """In the order of py-spy."""
    one, two = evented(), sampled()
    events, weights = one.pop("events"), two.pop("weights")
    path = tmp_path / "late.json"
    text = json.dumps({"$schema": SCHEMA, "profiles": [{"events": events, **one}, {"weights": weights, **two}],
                       "shared": {"frames": FRAMES}})  # fmt: skip
    path.write_text(text)
    _, store = taken_from(path, tmp_path)
    assert slices(store) == EVENTED + SAMPLED


@pytest.mark.parametrize(
    ("unit", "factor"), [("nanoseconds", 1), ("microseconds", 10**3), ("milliseconds", 10**6), ("seconds", 10**9)]
)
def test_times_are_exact_in_every_unit(tmp_path: Path, unit: str, factor: int) -> None:
    big = 4 * 10**18 // factor + 1
    profile = evented(unit, events=[{"type": "O", "frame": 1, "at": big}, {"type": "C", "frame": 1, "at": big + 7}])
    path = tmp_path / "exact.json"
    path.write_text(json.dumps(document(profile)))
    _, store = taken_from(path, tmp_path)
    assert slices(store) == [("thread one", "f", big * factor, 7 * factor, 0)]


def test_frames_without_an_end_end_with_their_profile(tmp_path: Path) -> None:
    events = [{"type": kind, "frame": frame, "at": at} for kind, frame, at in (("O", 0, 1), ("O", 1, 2), ("O", 1, 3))]
    ended = [*events, {"type": "C", "frame": 1, "at": 4}]
    early = evented(events=ended, name="early", endValue=3)
    unknown = evented(events=ended, name="unknown")
    del unknown["endValue"]
    path = tmp_path / "open.json"
    negative = evented(events=[{"type": "O", "frame": 0, "at": -9}], name="negative", startValue=-10, endValue=-2)
    text = json.dumps(document(evented(events=ended, endValue=10.5), early, unknown, negative, sampled()))
    path.write_text(text)
    run, store = taken_from(path, tmp_path)
    unclosed = [("main", 1000, None, 0), ("f", 2000, None, 1), ("f", 3000, 1000, 2)]
    assert slices(store) == [
        ("thread one", "main", 1000, 9500, 0),
        ("thread one", "f", 2000, 8500, 1),
        ("thread one", "f", 3000, 1000, 2),
        *(("early", *one) for one in unclosed),
        *(("unknown", *one) for one in unclosed),
        ("negative", "main", -9000, 7000, 0),
        *SAMPLED,
    ]
    assert [(entry.code.text, entry.event_count) for entry in run.log] == [("unfinished", 3), ("unfinished", 4)]
    assert not run.lossy
    store.close()
    # The last events may be missing from a truncated file.
    one = document(evented(events=ended))
    one["profiles"][0]["events"] = one["profiles"][0].pop("events")
    path.write_text(json.dumps(one)[: -len("]}]}")])
    _, store = taken_from(path, tmp_path)
    assert [row[3] for row in slices(store)] == [None, None, 1000]


def test_invalid_times_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "bytes.json"
    path.write_text(json.dumps(document(sampled(unit="bytes"))))
    run, store = taken_from(path, tmp_path)
    assert [entry.code.text for entry in run.log] == ["not_time"]
    assert slices(store) == SAMPLED


@pytest.mark.parametrize(
    ("units", "counted"),
    [(("bytes", "none", "bytes"), {0, 2}), (("none", "seconds", "microseconds", "bytes"), {1, 2})],
)
def test_only_profiles_of_one_quantity_are_added_up(units: tuple[str, ...], counted: set[int], tmp_path: Path) -> None:
    """memray writes bytes and numbers of allocations of the same functions. Times count before all others."""
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(document(*(sampled(unit=unit) for unit in units))))
    _, store = taken_from(path, tmp_path)
    kinds = "SELECT DISTINCT t.sort_index, r.kind FROM range r JOIN track t USING (run_id, track_id) ORDER BY 1"
    assert store.execute(kinds).fetchall() == [
        (number, "frame" if number in counted else "summary") for number in range(len(units))
    ]


def test_values_of_other_types(tmp_path: Path) -> None:
    bad = evented()
    bad["events"] += [{"type": "Z", "frame": 0, "at": 1}, 5, {"type": "O", "frame": 77, "at": 20},
                      {"type": "O", "frame": 0, "at": "x"}]  # fmt: skip
    other = sampled(samples=[[0], "x", [0]], weights=[1, 2, None, 4])
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(document(bad, other)))
    run, store = taken_from(path, tmp_path)
    assert run.lossy
    assert run.accounts.by_record["events"].lost == 2
    assert run.accounts.by_record["samples"].lost == 1
    assert ("thread one", "frame 77", 20000, None, 0) in slices(store)


def test_a_frame_that_is_not_standard_json_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document(evented(), sampled())).replace('"col": 7', '"col": NaN,'))
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert slices(store) == EVENTED + SAMPLED


def test_a_truncated_file(tmp_path: Path) -> None:
    text = json.dumps(document(evented(), sampled())).encode()
    path = tmp_path / "cut.json"
    start = text.index(b'"samples"')
    for cut in range(start, len(text) - 2, 29):
        path.write_bytes(text[:cut])
        run, store = taken_from(path, tmp_path)
        assert any(entry.code.text in ("no_end", "cut_event", "damaged_event") for entry in run.log)
        assert slices(store)[:3] == EVENTED
        store.close()
    path.write_text('{"$schema": "' + SCHEMA + '", "profiles": []}')
    with pytest.raises(InputError, match="without profiles"):
        ingest([path], tmp_path / "trace.duckdb")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 5)), max_size=30))
def test_slices_nest_like_the_stacks_of_the_samples(samples: list[tuple[list[int], int]]) -> None:
    stacks = SampledStacks()
    for stack, weight in samples:
        stacks.add_sample(tuple(stack))
        stacks.add_weight(weight)
    found = list(stacks.slices(7))
    now = 7
    for stack, weight in samples:
        for moment in range(now, now + weight):
            covering = [one for one in found if one[0] <= moment < one[0] + one[1]]
            # Of slices with the same times, the one that comes first encloses the others.
            assert [frame for _, _, frame, _ in sorted(covering, key=lambda one: (one[0], -one[1]))] == stack
        now += weight
    for start, _, frame, first in found:
        assert frame in samples[first][0]
        assert start == 7 + sum(weight for _, weight in samples[:first])
