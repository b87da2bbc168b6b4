"""The HTML page of a run: its numbers are those of the reports, and nothing of a trace becomes markup."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceconv
from traceconv.base.errors import UsageError
from traceconv.cli.app import run
from traceconv.export.busy_time import BusyTime
from traceconv.export.flame_graph import Node, flame_graph
from traceconv.export.html_charts import LEGEND

MakeStore = Callable[..., Path]
#: Ends each context of HTML that a name could be in.
HOSTILE = "</td></script></style></title><script>alert(1)</script><img src=x onerror='alert(1)' \"onload=\"alert(1)"


class Page(HTMLParser):
    """What a browser finds in a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, str] = {}
        self.scripts: list[str] = []
        #: Name of a report → the texts of its cells, and the values that scripts sort by.
        self.rows: dict[str, list[list[str]]] = {}
        self.values: dict[str, list[dict[int, float]]] = {}
        self.shapes: list[dict[str, str | None]] = []
        #: Style and title of the boxes of flame graphs.
        self.boxes: list[tuple[str, str]] = []
        self._report, self._path = "", [""]
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        self.attributes.update({name: value or "" for name, value in attrs})
        self._path.append(tag)
        if tag == "details":
            self._report = found.get("id") or ""
            self.rows[self._report], self.values[self._report] = [], []
        elif tag == "tr":
            self.rows.setdefault(self._report, []).append([])
            self.values.setdefault(self._report, []).append({})
        elif tag == "td":
            if (value := found.get("data-value")) is not None:
                self.values[self._report][-1][len(self.rows[self._report][-1])] = float(value)
            self.rows[self._report][-1].append(found.get("title") or "")
        elif tag in ("rect", "path"):
            self.shapes.append(found)
        elif tag == "div" and "top:" in (found.get("style") or ""):
            self.boxes.append((found["style"] or "", found["title"] or ""))

    def handle_endtag(self, tag: str) -> None:
        while self._path[-1] != tag:  # elements without an end, such as meta
            self._path.pop()
        self._path.pop()
        if tag == "details":
            self._report = ""

    def handle_data(self, data: str) -> None:
        if self._path[-1] == "script":
            self.scripts.append(data)
        elif self._path[-1] == "td" and not self.rows[self._report][-1][-1]:
            self.rows[self._report][-1][-1] = data


def page_of(store: Path, folder: Path, *options: str) -> Page:
    path = folder / "run.html"
    assert run(["export", "html", "--db", str(store), "-o", str(path), *options]) == 0
    return Page(path)


def tasks(count: int, **more: object) -> list[dict[str, object]]:
    return [
        {"id": n, "track_id": 1, "device_id": 0, "kind": "compute", "name": f"kernel {n}", "start_ns": 100 * n,
         "dur_ns": n + 1, **more}
        for n in range(count)
    ]  # fmt: skip


def test_rows_are_those_of_the_reports(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(task=tasks(60))
    page = page_of(store, tmp_path, "--top", "7")
    with traceconv.open_store(db=store) as opened:
        for name, column, largest in (("kernels", "total_ns", "60 ns"), ("task-time", "dur_ns", "60 ns")):
            place = page.rows[name][1].index(largest)  # after the headings
            shown = [values[place] for values in page.values[name][1:]]
            assert shown == [row[column] for row in opened.report(name, top=7)], name
        assert len(page.rows["stream-utilisation"][1:]) == len(list(opened.report("stream-utilisation")))


def test_bars_show_where_the_time_goes(make_store: MakeStore, tmp_path: Path) -> None:
    lengths = {"compute": 500, "collective": 200, "copy": 100, None: 50}
    rows, start = [], 0
    for number, (kind, dur) in enumerate(lengths.items()):
        rows.append({"id": number, "track_id": 1, "device_id": 0, "kind": kind, "start_ns": start, "dur_ns": dur})
        start += dur + 50  # idle, but after the last
    page = page_of(make_store(task=rows), tmp_path)
    shapes = [shape for shape in page.shapes if shape.get("height") == "18"]
    widths = {str(shape["class"]): (shape["x"], shape["width"]) for shape in shapes}
    assert widths == {
        "c0": ("0.00000%", "50.00000%"), "c1": ("50.00000%", "20.00000%"), "c2": ("70.00000%", "10.00000%"),
        "c3": ("80.00000%", "5.00000%"), "c4": ("85.00000%", "15.00000%"),
    }  # fmt: skip
    assert LEGEND.count("key") == len(widths)


def test_ranks_are_on_one_page(make_store: MakeStore, tmp_path: Path) -> None:
    """Pictures have a row for each device of each rank, on one clock; reports have the rows of all ranks."""
    starts = {1: 10_000, 2: 5_000, 3: 1}
    runs = [
        {"run_id": n, "label": f"r{n}{HOSTILE}", "group_label": f"job{HOSTILE}", "rank": n - 1, "start_ns": start,
         "end_ns": 20_000, "epoch_offset_ns": 10_000 * n}
        for n, start in starts.items()
    ]  # fmt: skip
    rows = [{**task, "run_id": n, "start_ns": start} for n, start in starts.items() for task in tasks(n)]
    store = make_store(run=runs, task=rows)
    page = page_of(store, tmp_path, "--run", "rank=0,rank=1")
    text = (tmp_path / "run.html").read_text("utf-8")
    assert "2 runs</h1>" in text
    assert "<h3>Over time, on one clock</h3>" in text
    assert "img" not in page.tags
    assert [text.count(f">rank {rank} · device 0</div>") for rank in (0, 1, 2)] == [2, 2, 0]
    # The first rank begins 5 µs earlier, although its own clock is ahead.
    paths = [shape["d"] or "" for shape in page.shapes if "d" in shape]
    heights = [re.findall(r"V([0-9.]+)", path)[:-1] for path in paths]
    assert [(tops[0] != "90", tops[-1] != "90") for tops in heights] == [(True, False), (False, True)]
    with traceconv.open_store(db=store) as opened:
        kernels = [str(row["run_id"]) for row in opened.report("kernels", run="1,2")]
        opened.export_html(tmp_path / "all.html", run="all")
    assert [row[0] for row in page.rows["kernels"][1:]] == kernels
    assert set(kernels) == {"1", "2"}
    # The third run begins 1 ns after the end of the first one.
    assert "<h3>Over time, from the start of each run</h3>" in (tmp_path / "all.html").read_text("utf-8")


def test_steps_of_all_runs_are_counted(make_store: MakeStore, tmp_path: Path) -> None:
    """Two runs have step 1 on two devices, one of them step 2, too."""
    steps = [
        {"run_id": run, "step_id": step, "device_id": device}
        for run, step in [(1, 1), (2, 1), (2, 2)]
        for device in (0, 1)
    ]
    runs = [{"run_id": run, "label": f"r{run}", "start_ns": 0, "end_ns": 9} for run in (1, 2)]
    page_of(make_store(run=runs, step=steps), tmp_path, "--run", "all")
    assert "<dt>steps</dt><dd>3</dd>" in (tmp_path / "run.html").read_text("utf-8")


def test_devices_that_are_not_drawn_are_counted(make_store: MakeStore, tmp_path: Path) -> None:
    rows = [{**task, "device_id": n} for n, task in enumerate(tasks(33))]
    page_of(make_store(task=rows), tmp_path)
    text = (tmp_path / "run.html").read_text("utf-8")
    assert [text.count(f"The first {most} of 33 devices.") for most in (8, 32)] == [1, 1]
    assert text.count(">device 7</div>") == 2
    assert text.count(">device 8</div>") == 1
    assert ">device 32</div>" not in text


def test_long_runs_have_the_longest_of_consecutive_steps(make_store: MakeStore, tmp_path: Path) -> None:
    steps = [{"step_id": n, "device_id": 0, "start_ns": 100 * n, "end_ns": 100 * n + n % 10 + 80} for n in range(1000)]
    page = page_of(make_store(task=tasks(1000), step=steps), tmp_path)
    text = (tmp_path / "run.html").read_text("utf-8")
    drawn = re.findall(r">step (\d+): (\d+) ns&#10;compute", text)
    assert len(drawn) == -(-1000 // 9)
    assert all(int(dur) == 80 + max(n % 10 for n in range(int(step) // 9 * 9, min(int(step) // 9 * 9 + 9, 1000)))
               for step, dur in drawn)  # fmt: skip
    assert len(page.shapes) < 1000


def test_nothing_of_a_trace_becomes_markup(make_store: MakeStore, tmp_path: Path) -> None:
    names = {"name": HOSTILE, "category": HOSTILE}
    store = make_store(
        run=[{"run_id": 1, "label": HOSTILE, "model_name": HOSTILE, "source_path": HOSTILE, "writer": HOSTILE,
              "start_ns": 0, "end_ns": 10_000, "complete": False}],
        device=[{"device_id": 0, "name": HOSTILE}],
        op=[{"op_id": 1, "name": HOSTILE, "op_type": HOSTILE}],
        task=tasks(9, op_id=1, stream_id=1, **names),
        range=[{"id": 100, "track_id": 2, "kind": "host_op", "start_ns": 0, "dur_ns": 9, "depth": 0, **names}],
        memory=[{"block_id": 1, "device_id": 0, "kind": "block",
                 "size_bytes": 9, "alloc_ns": 0, "tensor_name": HOSTILE}],
        import_log=[{"severity": "data_loss", "code": HOSTILE, "event_count": 1}],
    )  # fmt: skip
    page = page_of(store, tmp_path)
    text = (tmp_path / "run.html").read_text("utf-8")
    [script] = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert not {name for name in page.attributes if name.startswith("on")} | {"src", "href"} & set(page.attributes)
    assert not page.tags & {"img", "iframe", "object", "link", "a"}
    assert text.count("&lt;script&gt;alert(1)") > 5
    assert "kernels" in page.rows


def test_runs_without_devices_have_their_ranges(make_store: MakeStore, tmp_path: Path) -> None:
    ranges = [{"id": 1, "track_id": 1, "kind": "annotation", "name": "load", "start_ns": 0, "dur_ns": 9, "depth": 0}]
    page = page_of(make_store(range=ranges), tmp_path)
    assert not page.shapes
    assert page.rows["range-statistic"][1][2] == "load"
    assert "op-statistic" not in page.rows


def test_flame_graphs_show_the_op_tree(make_store: MakeStore, tmp_path: Path) -> None:
    spans = {"step": (0, 100, 0), "load": (10, 20, 1), "<b>": (40, 50, 1), "mm": (45, 10, 2)}
    ranges = [
        {"id": n, "track_id": 1, "name": name, "kind": "host_op", "start_ns": start, "dur_ns": dur, "depth": depth,
         "parent_id": {1: 1, 2: 3}.get(depth)}
        for n, (name, (start, dur, depth)) in enumerate(spans.items(), 1)
    ]  # fmt: skip
    whole = {"track_id": 2, "start_ns": 0, "dur_ns": 100, "depth": 0, "name": "PyTorch Profiler (0)", "kind": "summary"}
    ranges.append({"id": 9, **whole})
    page = page_of(make_store(range=ranges), tmp_path)
    drawn = {title.split("\n")[0]: style for style, title in page.boxes}
    assert drawn == {
        "": "left:0.00000%;width:100.00000%;top:0px",
        "step": "left:0.00000%;width:100.00000%;top:18px",
        "<b>": "left:0.00000%;width:50.00000%;top:36px",
        "mm": "left:0.00000%;width:10.00000%;top:54px",
        "load": "left:50.00000%;width:20.00000%;top:36px",
    }
    assert page.boxes[1][1].endswith("\n100.00% of all")


def test_a_flame_graph_counts_boxes_that_are_too_narrow() -> None:
    graph = flame_graph([Node(0, str(n), None, 1, str(n)) for n in range(5_000)])
    assert graph.count("<div") == 2  # the graph and its total
    assert "5,000 narrower boxes are left out." in graph


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), min_size=1, max_size=40))
def test_boxes_of_flame_graphs_are_inside_those_around_them(rows: list[tuple[int, int]]) -> None:
    depths = [0]
    for depth, _ in rows[1:]:
        depths.append(min(depth, depths[-1] + 1))
    graph = flame_graph(
        [Node(d, str(n), None, ns, str(n)) for n, (d, (_, ns)) in enumerate(zip(depths, rows, strict=True))]
    )
    found = re.findall(r'left:([\d.]+)%;width:([\d.]+)%;top:(\d+)px" title="(\d+)', graph)
    boxes = {
        int(number): (float(left), float(left) + float(width), int(top) // 18) for left, width, top, number in found
    }
    whole = 0
    for number, (depth, (_, ns)) in enumerate(zip(depths, rows, strict=True)):
        above = next((n for n in range(number, -1, -1) if depths[n] < depth), None)
        if above is None:
            whole += max(ns, sum_inside(number, depths, rows))
        elif number in boxes:
            outer, inner = boxes[above], boxes[number]
            assert outer[0] - 1e-4 < inner[0] <= inner[1] < outer[1] + 1e-4
            assert inner[2] == outer[2] + 1
    for number, (left, right, _) in boxes.items():
        assert (right - left) * whole / 100 == pytest.approx(sum_inside(number, depths, rows), abs=1e-3 * whole)
    by_level = sorted((level, left, right) for left, right, level in boxes.values())
    assert all(a[0] != b[0] or a[2] < b[1] + 1e-4 for a, b in pairwise(by_level))


def sum_inside(number: int, depths: list[int], rows: list[tuple[int, int]]) -> int:
    """Return the time of a node, or of those inside it if it is more."""
    inside, at = 0, number + 1
    while at < len(depths) and depths[at] > depths[number]:
        if depths[at] == depths[number] + 1:
            inside += sum_inside(at, depths, rows)
        at += 1
    return max(rows[number][1], inside)


def test_the_same_run_gives_the_same_bytes(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(task=tasks(5))
    page_of(store, tmp_path)
    first = (tmp_path / "run.html").read_bytes()
    page_of(store, tmp_path)
    assert (tmp_path / "run.html").read_bytes() == first


def test_a_page_has_a_row_at_least(make_store: MakeStore, tmp_path: Path) -> None:
    with traceconv.open_store(db=make_store(task=tasks(1))) as store, pytest.raises(UsageError, match="top must be"):
        store.export_html(tmp_path / "run.html", top=0)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30),
    st.lists(st.integers(-5, 90), min_size=1, max_size=20),
    st.integers(1, 7),
)
def test_busy_time_is_the_union_before_each_moment(
    intervals: list[tuple[int, int]], moments: list[int], size: int
) -> None:
    intervals.sort()
    moments.sort()
    busy = BusyTime(np.array(moments))
    starts, durations = (np.array([one[place] for one in intervals], np.int64) for place in (0, 1))
    for at in range(0, len(intervals) + 1, size):
        chunk = slice(at, at + size)
        busy.add(starts[chunk], starts[chunk] + durations[chunk])
    running = {ns for start, dur in intervals for ns in range(start, start + dur)}
    assert busy.before_ns.tolist() == [sum(ns < moment for ns in running) for moment in moments]
