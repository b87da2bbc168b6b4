"""Explain why trace_processor binds a flow to other slices than traceconv, or drops it.

Flows are equal if both ends are bound to the same slices, by time, thread and name. trace_processor writes the ends of
a flow by time. It binds an end to the slice that started last on its thread, open or not, or to one that encloses it;
in file order if several events have the same timestamp. So each end has few possible slices, and each flow that only
trace_processor has must be one of traceconv's, bound to one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
Answer = list[Any]
Thread = tuple[str | None, str | None]
#: Start and name of a slice in Perfetto.
Slice = tuple[str, str]
Pair = tuple[Slice, Slice]

FLOWS = """
SELECT a.id AS src, b.id AS dst, m.src_ns, m.dst_ns, m.external_id
FROM flow AS f JOIN main.flow AS m ON m.flow_id = f.id JOIN slice AS a ON a.id = f.slice_out
JOIN slice AS b ON b.id = f.slice_in ORDER BY f.id
"""


def in_time(one: Slice, other: Slice) -> Pair:
    return (one, other) if int(one[0]) <= int(other[0]) else (other, one)


@dataclass(frozen=True)
class End:
    """An end of one of our flows: its time, our slice, and the slices to which Perfetto may bind it."""

    at: int
    slice: Row
    own: Thread
    there: Slice
    others: dict[Slice, Row]


def _matched(possible: Sequence[Iterable[Pair]], there: Counter[Pair]) -> tuple[list[Pair | None], Counter[Pair]]:
    """Match as many of our flows as can be with possible ones of Perfetto's; return also those that are left."""
    matched: list[Pair | None] = [None] * len(possible)
    users: dict[Pair, list[int]] = defaultdict(list)

    def place(flow: int, tried: set[Pair]) -> bool:
        for pair in possible[flow]:
            if pair in tried:
                continue
            tried.add(pair)
            if len(users[pair]) < there[pair]:
                users[pair].append(flow)
            else:
                moved = next((one for one in users[pair] if place(one, tried)), None)
                if moved is None:
                    continue
                users[pair][users[pair].index(moved)] = flow
            matched[flow] = pair
            return True
        return False

    for flow in range(len(possible)):
        place(flow, set())
    return matched, there - Counter({pair: len(flows) for pair, flows in users.items()})


class Flows:
    """pairs  our slices, each with Perfetto's; `crossed`: IDs of slices that overlap others without nesting

    slack  maximum error of Perfetto's times; `folded`: our tracks that share a thread in Perfetto
    """

    def __init__(self, pairs: list[tuple[Row, Answer]], crossed: set[int], folded: set[int], slack: int) -> None:
        self._folded, self._slack = folded, slack
        #: Slices that are on other tracks in Perfetto.
        self.moved_away = crossed
        self._rows = {row["id"]: row for row, _ in pairs}
        self._answers = {row["id"]: answer for row, answer in pairs}
        self._threads: dict[int, set[Thread]] = defaultdict(set)
        self._begun: dict[Thread, list[tuple[int, int, str]]] = defaultdict(list)
        for row, answer in pairs:
            self._threads[row["track_id"]].add((answer[7], answer[8]))
            self._begun[answer[7], answer[8]].append((int(answer[0]), row["id"], answer[2]))
        for begun in self._begun.values():
            begun.sort()
            self.moved_away = self.moved_away | self._crossed_there(begun)

    def differences(self, ours: Iterable[Row], theirs: Iterable[Answer]) -> tuple[Counter[str], list[object]]:
        """Number of our flows that differ, by reason, and the unexplained ones."""
        there = Counter(in_time((row[0], row[1]), (row[2], row[3])) for row in theirs)
        ends = [(flow, self._end(flow, "src"), self._end(flow, "dst")) for flow in ours]
        ids: dict[str, list[int]] = defaultdict(list)
        for flow, _, _ in ends:
            ids[flow["external_id"]].append(flow["src_ns"])
        self._first = {external_id: min(starts) for external_id, starts in ids.items()}
        used_again: dict[str, set[Slice]] = {one: set() for one, starts in ids.items() if len(starts) > 1}
        for flow, src, dst in ends:
            if flow["external_id"] in used_again:
                used_again[flow["external_id"]].update((src.there, *src.others, dst.there, *dst.others))
        possible = [self._possible(src, dst, there) for _, src, dst in ends]
        matched, left = _matched(possible, there)
        counts: Counter[str] = Counter()
        unexplained: list[object] = []
        for (flow, src, dst), reasons, pair in zip(ends, possible, matched, strict=True):
            found = self._dropped(flow, src, dst) if pair is None else reasons[pair]
            counts.update(found)
            if pair is None and not found:
                unexplained.append((flow, src, dst))
        # A reused ID: from an end of the earlier flow to one of this flow.
        rest = [pair for pair in left if not any(set(pair) <= slices for slices in used_again.values())]
        return counts, unexplained + [("only there", *pair) for pair in rest]

    def _crossed_there(self, begun: list[tuple[int, int, str]]) -> set[int]:
        """Slices of a thread that overlap an earlier one by Perfetto's times: these are moved to other tracks."""
        open_ends: list[int] = []
        found = set()
        for start, slice_id, _ in begun:
            end = start + int(self._answers[slice_id][1])
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and end > open_ends[-1]:
                found.add(slice_id)
            else:
                open_ends.append(end)
        return found

    def _there(self, slice_id: int) -> Slice:
        answer = self._answers[slice_id]
        return answer[0], answer[2]

    def _end(self, flow: Row, side: str) -> End:
        row, at = self._rows[flow[side]], flow[f"{side}_ns"]
        own = str(row["tid"]), str(row["pid"])
        others = {}
        for thread in (*self._threads[row["track_id"]], own):
            for start, slice_id, name in self._last_begun(thread, at):
                others[str(start), name] = self._rows[slice_id]
        for around in self._open(row):
            others.setdefault(self._there(around["id"]), around)
        return End(at, row, own, self._there(flow[side]), others)

    def _last_begun(self, thread: Thread, at: int) -> Iterator[tuple[int, int, str]]:
        """The slices that start at a time, and the last one before it; for moved slices also the one before that."""
        begun = self._begun.get(thread, [])
        last = None
        for one in reversed(begun[: bisect_right(begun, at + self._slack, key=lambda one: one[0])]):
            if last is not None and one[0] < last:
                return
            yield one
            if one[0] < at - self._slack and one[1] not in self.moved_away:
                last = one[0]

    def _open(self, row: Row) -> Iterator[Row]:
        """The slices that enclose a slice."""
        while row["parent_id"] is not None:
            row = self._rows[row["parent_id"]]
            yield row

    def _possible(self, src: End, dst: End, there: Counter[Pair]) -> dict[Pair, set[str]]:
        """Perfetto's flows that may be this one, the equal one first; each with the reasons for other slices."""
        found: dict[Pair, set[str]] = {}
        if src.at > dst.at + self._slack:
            return found
        for one in (src.there, *src.others):
            for other in (dst.there, *dst.others):
                pair = in_time(one, other)
                if pair in found or not there[pair]:
                    continue
                reasons = {
                    self._reason(end, end.others[slice_])
                    for end, slice_ in ((src, one), (dst, other))
                    if slice_ != end.there
                }
                if None not in reasons:
                    found[pair] = {reason for reason in reasons if reason}
        return found

    def _reason(self, end: End, other: Row) -> str | None:
        mine, at, slack = end.slice, end.at, self._slack
        answer = self._answers[mine["id"]]
        if (answer[7], answer[8]) != end.own and "-" not in "".join(end.own):
            return "thread ID 0" if mine["track_id"] in self._folded else "quoted IDs"
        if mine["track_id"] != other["track_id"]:
            return "thread ID 0" if mine["track_id"] in self._folded else None
        if other["scope"] is not None:
            return "depth of instants"
        if {mine["id"], other["id"]} & self.moved_away:
            return "overlapping slices"
        if at in (mine["ts"], mine["ts"] + mine["dur"], other["ts"], other["ts"] + other["dur"]):
            return "flow ends with equal timestamps"
        if mine["ts"] <= other["ts"] and other["ts"] + other["dur"] < at:
            return "flow ends after a slice"
        near = (mine["ts"], mine["ts"] + mine["dur"], other["ts"], other["ts"] + other["dur"])
        return "exact times" if slack and any(abs(at - time) <= slack for time in near) else None

    def _dropped(self, flow: Row, src: End, dst: End) -> set[str]:
        """Reasons for a flow that Perfetto doesn't have."""
        if flow["src_ns"] > self._first[flow["external_id"]]:
            return {"reused flow IDs"}
        if not str(flow["external_id"]).removeprefix("-").isdigit():
            return {"flow IDs"}
        if src.at >= dst.at - self._slack:
            return {"flows back in time" if src.at > dst.at else "flow ends with equal timestamps"}
        for end in (src, dst):
            # No slice started on the thread that it names.
            if not any(start < end.at for start, _, _ in self._begun.get(end.own, ())):
                answer = self._answers[end.slice["id"]]
                return {"flow ends with equal timestamps" if (answer[7], answer[8]) == end.own else "quoted IDs"}
        return set()
