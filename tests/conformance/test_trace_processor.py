"""All answers of Perfetto's trace_processor for real files; every difference is explained by the page and counted.

The page is docs/reference/perfetto-differences.md; `trace_processor_differences.json` has the number of differences
of each kind by file. An unexplained difference is a failure.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken
from shared_data import shared
from trace_processor_flows import FLOWS, Flows

from traceconv.pipeline.ingest import ingest

ANSWERS, REAL = shared("trace_processor"), shared("real")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "perfetto-differences.md"
COUNTS = Path(__file__).with_name("trace_processor_differences.json")
FILES = sorted({path.name.rsplit(".", 3)[0] for path in ANSWERS.glob("*.csv.gz")})

#: Maximum error of microseconds since 1970 in a double.
DOUBLE_NS = 256
Row = dict[str, Any]

_SLICES = """
SELECT s.ts, s.dur, coalesce(nullif(s.name, ''), '[No name]') AS name, s.category, s.depth, p.name AS parent, s.id,
       s.parent_id, s.track_id, s.scope, t.tid, r.pid
FROM slice AS s LEFT JOIN slice AS p ON p.id = s.parent_id
LEFT JOIN thread_track AS k ON k.id = s.track_id LEFT JOIN thread AS t USING (utid)
LEFT JOIN process AS r USING (upid)
"""
_COUNTERS = """
SELECT c.ts, t.name, c.value FROM counter AS c JOIN counter_track AS t ON t.id = c.track_id
"""


def answers(name: str, kind: str) -> list[list[str | None]]:
    path = ANSWERS / f"{name}.{kind}.csv.gz"
    if not path.exists():
        return []
    lines = list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))[1:]
    return [[None if value == "[NULL]" else value for value in line] for line in lines]


def grouped(rows: list[Any], key: Callable[[Any], Any], order: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return {one: sorted(of, key=order) for one, of in found.items()}


def paired(ours: list[Row], theirs: list[list[Any]]) -> Iterator[tuple[Row, list[Any]]]:
    """Pair slices of one name by time: first with equal thread and duration, then equal duration, then all others."""

    def order(row: Row) -> tuple[int, int]:
        return row["ts"], row["depth"]

    def order_there(row: list[Any]) -> tuple[int, int]:
        return int(row[0]), int(row[4])

    for mine, other in (
        (lambda r: (str(r["tid"]), str(r["dur"])), lambda r: (r[7], r[1])),
        (lambda r: str(r["dur"]), lambda r: r[1]),
        (lambda r: None, lambda r: None),
    ):
        left, right = grouped(ours, mine, order), grouped(theirs, other, order_there)
        ours, theirs = [], []
        for key in left.keys() | right.keys():
            rows, answers_ = left.get(key, []), right.get(key, [])
            if len(rows) == len(answers_):
                yield from zip(rows, answers_, strict=True)
            else:
                ours += rows
                theirs += answers_


class Compared:
    """Comparison of one file: `counts` has the differences by their entry on the page, `unexplained` all others."""

    def __init__(self, name: str, store: duckdb.DuckDBPyConnection) -> None:
        self.counts: Counter[str] = Counter()
        self.unexplained: list[object] = []
        self._name, self._store = name, store
        self._stats = {str(row[0]): int(row[2] or 0) for row in answers(name, "stats")}
        self._crossed = {row["id"] for row in self._rows("SELECT id FROM partial_overlap")}
        log = self._rows("SELECT code FROM main.import_log WHERE code IN ('unfinished', 'end_without_begin')")
        self._unbalanced = bool(log) or "misplaced_end_event" in self._stats
        #: Tracks that share a thread in Perfetto, or whose times are changed by doubles.
        self._folded: set[int] = set()
        self._moved: set[int] = set()
        self._slices()
        self._flows()
        self._counters()
        self._compare_stats()

    def _rows(self, query: str) -> list[Row]:
        found = self._store.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _slices(self) -> None:
        rows = self._rows(_SLICES)
        ours = [row for row in rows if row["ts"] >= 0]
        self.counts["negative times"] += len(rows) - len(ours)
        theirs = answers(self._name, "slice")
        mine = grouped(ours, lambda r: (r["name"], r["category"]), lambda r: r["ts"])
        other = grouped(theirs, lambda r: (r[2], r[3]), lambda r: int(r[0]))
        if {key: len(of) for key, of in mine.items()} != {key: len(of) for key, of in other.items()}:
            self.unexplained.append(("slices", mine.keys() ^ other.keys()))
            return
        pairs = [pair for key in mine for pair in paired(mine[key], other[key])]
        self._keep(pairs)
        threads: dict[int, set[tuple[str | None, str | None]]] = defaultdict(set)
        for row, answer in pairs:
            threads[row["track_id"]].add((answer[7], answer[8]))
        shared_by = Counter(thread for one in threads.values() for thread in one)
        self._folded = {track for track, one in threads.items() if any(shared_by[thread] > 1 for thread in one)}
        alone = {thread for thread, tracks in shared_by.items() if tracks == 1}
        for row, answer in pairs:
            self._times(row, answer)
            self._thread(row, answer, alone)
        slack = DOUBLE_NS if self._moved else 0
        self._arrows = Flows(pairs, self._crossed, self._folded, slack)
        for row, answer in pairs:
            if (row["depth"], row["parent"]) != (int(answer[4]), answer[6]):
                self._depth(row, answer)

    def _times(self, row: Row, answer: list[Any]) -> None:
        start, length = int(answer[0]) - row["ts"], int(answer[1]) - row["dur"]
        if start or length:
            if abs(start) <= DOUBLE_NS and abs(length) <= DOUBLE_NS:
                self._moved.add(row["track_id"])
                self.counts["exact times"] += 1
            elif not start and self._unbalanced:
                self.counts["unmatched ends"] += 1
            else:
                self.unexplained.append((row, answer))

    def _thread(self, row: Row, answer: list[Any], alone: set[tuple[str | None, str | None]]) -> None:
        own = tuple(None if value is None else str(value) for value in (row["tid"], row["pid"]))
        if own == (answer[7], answer[8]):
            return
        if row["scope"] in ("process", "global"):
            self.counts["scope of instants"] += 1
        elif str(row["tid"]).startswith("-") or str(row["pid"]).startswith("-"):
            self.counts["negative IDs"] += 1
        elif row["tid"] == 0:
            self.counts["thread ID 0"] += 1
        elif (answer[7], answer[8]) in alone:  # Perfetto's thread is ours or a part of it, with another number
            self.counts["quoted IDs"] += 1
        else:
            self.unexplained.append((row, answer))

    def _depth(self, row: Row, answer: list[Any]) -> None:
        tracks = self._sharing[answer[7], answer[8]]
        near = self._busy[row["id"]]
        split = row["parent_id"] is not None and self._threads_there[row["parent_id"]] != (answer[7], answer[8])
        for entry, holds in (
            ("quoted IDs", row["scope"] is not None and split),
            ("depth of instants", row["scope"] is not None),
            ("negative IDs", str(row["tid"]).startswith("-") and len(tracks) > 1),
            ("thread ID 0", len(tracks) > 1 and any(self._tids[track] == 0 for track in tracks)),
            ("overlapping slices", any(one["id"] in self._crossed for one in near)),
            ("exact times", row["track_id"] in self._moved and self._nested_by_doubles(row, near)),
            ("unmatched ends", self._unbalanced),
        ):
            if holds:
                self.counts[entry] += 1
                return
        self.unexplained.append((row, answer))

    def _nested_by_doubles(self, row: Row, near: list[Row]) -> bool:
        """Whether a slice encloses this one by our times but not by theirs, or vice versa.

        Or an enclosing slice was moved to another track, because by their times it overlaps another.
        """
        start, length = self._times_there[row["id"]]
        for other in near:
            other_start, other_length = self._times_there[other["id"]]
            there = other_start <= start and start + length <= other_start + other_length
            here = other["ts"] <= row["ts"] and row["ts"] + row["dur"] <= other["ts"] + other["dur"]
            if here != there or (here and other["id"] in self._arrows.moved_away):
                return True
        return False

    def _keep(self, pairs: list[tuple[Row, list[Any]]]) -> None:
        """Data for explaining differences."""
        self._times_there = {row["id"]: (int(answer[0]), int(answer[1])) for row, answer in pairs}
        self._threads_there = {row["id"]: (answer[7], answer[8]) for row, answer in pairs}
        self._tids = {row["track_id"]: row["tid"] for row, _ in pairs}
        #: Our tracks, by their thread in Perfetto.
        self._sharing: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
        #: For each slice, the slices of its track between two idle times of the track.
        self._busy: dict[int, list[Row]] = {}
        ends: dict[int, tuple[int, list[Row]]] = {}
        for row, answer in sorted(pairs, key=lambda pair: int(pair[0]["ts"])):
            track = row["track_id"]
            self._sharing[answer[7], answer[8]].add(track)
            end, near = ends.get(track, (row["ts"], []))
            if row["ts"] > end + DOUBLE_NS:
                near = []
            near.append(row)
            self._busy[row["id"]] = near
            ends[track] = (max(end, row["ts"] + row["dur"]), near)

    def _flows(self) -> None:
        counts, unexplained = self._arrows.differences(self._rows(FLOWS), answers(self._name, "flow"))
        self.counts += counts
        self.unexplained += unexplained

    def _counters(self) -> None:
        theirs = Counter((row[0], row[1], f"{float(row[2] or 0):.6f}") for row in answers(self._name, "counter"))
        ours = self._rows(_COUNTERS)
        same = Counter((str(row["ts"]), row["name"], f"{row['value']:.6f}") for row in ours)
        left = sorted((theirs - same).elements(), key=lambda row: (row[1], row[2], row[0]))
        right = sorted((same - theirs).elements(), key=lambda row: (row[1], row[2], row[0]))
        for row, answer in zip(right, left, strict=False):
            near = abs(int(row[0]) - int(answer[0] or 0)) <= DOUBLE_NS
            if row[1:] == answer[1:] and near:
                self.counts["exact times"] += 1
            else:
                self.unexplained.append((row, answer))
        if len(left) != len(right):
            self.unexplained.append(("counters", len(left), len(right)))

    def _compare_stats(self) -> None:
        ours = {row["name"]: row["value"] for row in self._rows("SELECT name, value FROM stats")}
        entries = {
            "slice_spill_overlapping_complete_event": "overlapping slices",
            "trace_sorter_negative_timestamp_dropped": "negative times",
            "misplaced_end_event": "unmatched ends",
            "json_parser_failure": "unused metadata",
            "flow_invalid_id": "flows back in time",
            "flow_duplicate_id": "reused flow IDs",
            "flow_no_enclosing_slice": "quoted IDs",
        }
        for name in ours.keys() | self._stats.keys():
            if ours.get(name, 0) != self._stats.get(name, 0):
                if name in entries:
                    self.counts[entries[name]] += 1
                else:
                    self.unexplained.append((name, ours.get(name), self._stats.get(name)))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Compared]]:
    folder = tmp_path_factory.mktemp("answers")

    def of(name: str) -> Compared:
        store = folder / f"{name}.duckdb"
        store.unlink(missing_ok=True)
        ingest([REAL / name.replace("__", "/")], store)
        with duckdb.connect(str(store), read_only=True) as connection:
            connection.execute("USE perfetto")
            return Compared(name, connection)

    yield of


#: Large files of writers of which there are others.
LARGE = ("torch__kineto_resnet50_worker0.pt.trace.json.gz", "torch__b200_eager_trace.json.gz")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LARGE else ()) for name in FILES]
)
def test_every_difference_is_on_the_page(name: str, compared: Callable[[str], Compared]) -> None:
    found = compared(name)
    assert found.unexplained[:5] == []
    assert +found.counts == json.loads(COUNTS.read_text()).get(name, {})


def test_a_flow_between_other_slices_with_the_same_names_is_found(
    compared: Callable[[str], Compared], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanged = f"WITH f AS ({FLOWS}) SELECT * REPLACE (lag(dst, 1, dst) OVER (ORDER BY src_ns) AS dst) FROM f"
    name = "torch__mi250_rocm6.2_minitoy.json.gz"
    assert compared(name).unexplained == []
    monkeypatch.setitem(globals(), "FLOWS", exchanged)
    assert compared(name).unexplained


def test_shortest_decimals_and_ftrace_states(tmp_path: Path) -> None:
    """Statements of the page that no answer covers."""
    lines = "# tracer: nop\n a-1 [000] d..2 1.5: sched_switch: prev_comm=a prev_pid=1 prev_state=S ==> next_comm=b\n"
    event = {"ph": "X", "name": "s", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    numbers = {"a": 0.1 + 0.2, "b": 0.1, "c": 1e-7}
    trace = {"traceEvents": [{**event, "args": numbers}], "systemTraceEvents": lines}
    _, store = taken(trace, tmp_path)
    with duckdb.connect(str(store), read_only=True) as connection:
        shown = connection.execute(
            "SELECT display_value, real_value FROM perfetto.args WHERE real_value IS NOT NULL ORDER BY key"
        ).fetchall()
        assert shown == [("0.30000000000000004", 0.1 + 0.2), ("0.1", 0.1), ("1e-7", 1e-7)]
        ((options,),) = connection.execute("SELECT options FROM run").fetchall()
        assert json.loads(options)["systemTraceEvents"] == lines
        assert connection.execute("SELECT count(*) FROM slice").fetchall() == [(1,)]


def test_the_page_explains_every_difference() -> None:
    listed = {line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    assert {entry for counts in json.loads(COUNTS.read_text()).values() for entry in counts} <= listed
