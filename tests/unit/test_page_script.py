"""The script of the HTML page, run by node on the elements of a page: sorting, filtering and flame graphs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from traceconv.cli.app import run

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="node, which runs the script, is not installed; install its package"
)


class Tree(HTMLParser):
    """The elements of a page as {tag, attributes, children}."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root: dict[str, Any] = {"tag": "", "attributes": {}, "children": []}
        self._path = [self.root]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element: dict[str, Any] = {"tag": tag, "attributes": dict(attrs), "children": []}
        self._path[-1]["children"].append(element)
        if tag not in ("meta", "input"):
            self._path.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Leave out the shapes of pictures."""

    def handle_endtag(self, tag: str) -> None:
        assert self._path.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        self._path[-1]["children"].append(data)


@pytest.fixture
def do(make_store: Callable[..., Path], tmp_path: Path) -> Callable[..., list[Any]]:
    """`do([action, option], …)` opens a page and returns what each action shows; page_dom.js has the actions."""
    tasks = [
        {"id": n, "track_id": 1, "device_id": 0, "kind": "compute", "name": name, "start_ns": 2_000 * n, "dur_ns": dur}
        for n, (name, dur) in enumerate({"add": 1_100, "gemm": 300, "open": None, "mul": 20}.items())
    ]
    spans = {"step": (0, 100, 0), "load": (20, 20, 1), "mm": (50, 50, 1)}
    ranges = [
        {"id": 10 + n, "track_id": 2, "name": name, "kind": "host_op", "start_ns": start, "dur_ns": dur, "depth": depth,
         "parent_id": 10 if depth else None}
        for n, (name, (start, dur, depth)) in enumerate(spans.items())
    ]  # fmt: skip
    path = tmp_path / "run.html"
    assert run(["export", "html", "--db", str(make_store(task=tasks, range=ranges)), "-o", str(path)]) == 0
    page = Tree(path.read_text("utf-8")).root

    def start(*actions: list[str]) -> list[Any]:
        given = json.dumps({"page": page, "actions": actions})
        command = ["node", str(Path(__file__).with_name("page_dom.js"))]
        return list(json.loads(subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout))

    return start


def test_a_click_on_a_heading_sorts_rows_by_value_and_the_next_reverses_them(do: Callable[..., list[Any]]) -> None:
    by_time = ["sort", "kernels", "p50"]
    down, up, by_name = do(by_time, by_time, ["sort", "kernels", "label"])
    assert [row[1] for row in down] == ["add", "gemm", "mul", "open"]  # 1.1 µs is more than 300 ns
    assert [row[1] for row in up] == ["mul", "gemm", "add", "open"]  # rows without a value stay last
    assert [row[1] for row in by_name] == ["add", "gemm", "mul", "open"]


def test_the_filter_shows_the_rows_with_its_text_and_restores_the_page_when_empty(do: Callable[..., list[Any]]) -> None:
    all_rows, found, none, again = do(["filter", ""], ["filter", "GEMM"], ["filter", "no such text"], ["filter", ""])
    assert all_rows["kernels"] == [True, 4] and all_rows["task-time"] == [False, 4]
    assert found["kernels"] == found["task-time"] == [True, 1] and "range-statistic" not in found
    assert none == {}
    assert again == all_rows


def test_a_click_on_a_box_widens_it_and_the_boxes_in_its_column(do: Callable[..., list[Any]]) -> None:
    widened, back = do(["zoom", "load"], ["zoom", "all: 100 ns"])
    assert widened == {"all: 100 ns": [0, 100], "step": [0, 100], "load": [0, 100], "mm": [0, 0]}
    assert back == {"all: 100 ns": [0, 100], "step": [0, 100], "mm": [0, 50], "load": [50, 20]}
