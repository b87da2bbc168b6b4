"""The picture of memory: each block at its place, what is omitted, and no markup from a trace."""

from __future__ import annotations

import gzip
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from stores import query

from traceconv.base.errors import InputError, OutputError, UsageError
from traceconv.cli.app import run
from traceconv.export.memory_flow import export_memory_flow
from traceconv.export.registry import Written
from traceconv.pipeline.ingest import ingest
from traceconv.reports.svg import decimal, ticks, time_unit
from traceconv.runtime.record import RecordOptions, record
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
SVG = "{http://www.w3.org/2000/svg}"
MIB = 1 << 20


def block(
    id_: int, address: int | None, size: int, alloc: int | None, free: int | None, **more: object
) -> dict[str, object]:
    row = {"block_id": id_, "address": address, "size_bytes": size, "alloc_ns": alloc, "free_ns": free}
    return {**row, "kind": "block", "purpose": "activation", **more}


def draw(store: Path, path: Path, device: int | None = None) -> tuple[Written, ElementTree.Element]:
    with open_store(store) as connection:
        flow = export_memory_flow(connection, 1, path, device=device)
    assert path.stat().st_size == flow.size_bytes
    return flow, ElementTree.parse(path).getroot()


def titled(root: ElementTree.Element, css: str) -> list[tuple[tuple[float, float, float, float], str]]:
    """Place and title of each rectangle of a class."""
    found = []
    for shape in root.iter(f"{SVG}rect"):
        title = shape.find(f"{SVG}title")
        if shape.get("class") == css and title is not None:
            x, y, width, height = (float(shape.get(key, "")) for key in ("x", "y", "width", "height"))
            found.append(((x, y, x + width, y + height), title.text or ""))
    return found


def test_blocks_are_drawn_at_their_times_and_addresses(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(
        op=[{"op_id": 3, "name": "conv", "op_type": "Conv2D"}],
        memory=[
            block(1, 0, 4 * MIB, 0, 1_000_000, op_id=3, tensor_name="a", pool="p"),
            block(2, 4 * MIB, 4 * MIB, 500_000, 750_000, tensor_name="b"),
            block(3, 1 << 50, 8 * MIB, 250_000, 500_000, purpose="weight"),
            block(4, 0, 16 * MIB, 0, 1_000_000, kind="segment", pool="p"),
        ],
    )
    flow, root = draw(store, tmp_path / "m.svg")
    assert (*flow.rows.values(), *flow.omitted.values()) == (3, 0, 0, 0)
    (a, a_title), (b, _) = titled(root, "a")
    [(c, c_title)] = titled(root, "w")
    width, height = a[2] - a[0], a[3] - a[1]
    # To the right in proportion to time, upwards in proportion to addresses, to a tenth of a pixel.
    assert b[0] - a[0] == pytest.approx(width / 2, abs=0.2)
    assert b[2] - b[0] == pytest.approx(width / 4, abs=0.2)
    assert c[0] - a[0] == pytest.approx(width / 4, abs=0.2)
    assert b[3] == pytest.approx(a[1], abs=0.2)  # b lies on a
    assert b[3] - b[1] == pytest.approx(height, abs=0.2)
    assert c[3] - c[1] == pytest.approx(2 * height, abs=0.3)
    # A petabyte between b and c takes a few pixels, with a label.
    [(gap, gap_title)] = titled(root, "g")
    assert gap[3] == pytest.approx(b[1], abs=0.2)
    assert c[3] == pytest.approx(gap[1], abs=0.2)
    assert gap[3] - gap[1] < 20
    assert "0x800000" in gap_title
    assert a_title.split("\n") == [
        "a",
        "op conv (Conv2D)",
        "activation, pool p",
        "4.0 MiB (4194304 bytes) at 0x0",
        "allocated at 0 µs, freed at 1000 µs, lifetime 1.000 ms",
    ]
    assert c_title.startswith("block 3\nweight")
    text = "".join(root.itertext())
    for words in (
        "device address (hexadecimal, bytes)",
        "time since the start of the run (µs)",
        "peak: 12.0 MiB in use at 250 µs",
    ):
        assert words in text


def test_blocks_with_unknown_values_are_drawn(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(
        memory=[
            block(1, 0, MIB, None, 50_000, tensor_name="before"),
            block(2, MIB, MIB, 0, None, tensor_name="kept"),
            block(3, 2 * MIB, MIB, 90_000, 10_000, tensor_name="freed first"),
            block(4, None, MIB, 0, 100_000, tensor_name="nowhere"),
            block(5, 3 * MIB, 0, 0, 100_000, tensor_name="empty"),
            block(6, 4 * MIB, MIB, None, None, tensor_name="always", purpose=None),
        ]
    )
    flow, root = draw(store, tmp_path / "m.svg")
    assert (*flow.rows.values(), *flow.omitted.values()) == (4, 1, 0, 1)
    found = {title.split("\n")[0]: (box, title) for box, title in titled(root, "a") + titled(root, "u")}
    left, right = found["always"][0][0], found["always"][0][2]
    assert found["before"][0][0] == left
    assert found["before"][0][2] == pytest.approx((left + right) / 2, abs=0.2)
    assert found["kept"][0][2] == right
    assert found["freed first"][0][2] == right
    assert "allocated before the recording, freed at 50 µs" in found["before"][1]
    assert "allocated at 0 µs, not freed" in found["kept"][1]
    assert "before the recording, not freed" in found["always"][1]
    [(_, title)] = titled(root, "a x")
    assert "1 block, too small" in title
    assert "the largest: empty, 0 B" in title
    assert "1 without an address not drawn" in "".join(root.itertext())


def heights(shape: str, bottom: float) -> list[float]:
    """The heights of a line of steps, in its order."""
    return [bottom - float(value) for value in re.findall(r"V([\d.]+)", shape)]


def test_blocks_without_addresses_are_stacked_by_what_is_known(make_store: MakeStore, tmp_path: Path) -> None:
    ops = [{"op_id": n, "name": f"op {n}", "op_type": f"Type{n}"} for n in range(12)]
    blocks = [block(n, None, (20 - n) * MIB, 1000 * n, 50_000, op_id=n, purpose=None) for n in range(12)]
    blocks.append(block(20, None, 4 * MIB, 60_000, 100_000, purpose=None))
    flow, root = draw(make_store(op=ops, memory=blocks), tmp_path / "m.svg")
    assert flow.rows["blocks stacked"] == 13 and not any(flow.omitted.values())
    text = "\n".join(root.itertext())
    assert "Blocks without addresses, stacked by op type; their placement is unknown." in text
    paths = {shape.get("class"): shape for shape in root.iter(f"{SVG}path")}
    titles = [paths[f"q{n}"].findtext(f"{SVG}title") for n in range(9)]
    assert titles == [*(f"Type{n}: {20 - n}.0 MiB at most" for n in range(8)), "5 others"]
    frame = next(shape for shape in root.iter(f"{SVG}rect") if shape.get("class") == "f")
    height = float(frame.get("height", "")) - (31 + 18 * 5)  # without the legend: its title and five rows
    bottom, peak = float(frame.get("y", "")) + float(frame.get("height", "")), sum(range(9, 21))
    for number in range(9):
        shown = heights(paths[f"q{number}"].get("d", ""), bottom)
        most = peak if number == 8 else sum(20 - n for n in range(number + 1))
        assert max(shown) == pytest.approx(height * most / peak, abs=0.11)
    assert heights(paths["q8"].get("d", ""), bottom)[-4:] == pytest.approx([0, height * 4 / peak, 0, 0], abs=0.11)


@pytest.mark.parametrize(
    "at", [n if n % 25 == 0 else pytest.param(n, marks=pytest.mark.long) for n in range(0, 101, 5)]
)
def test_the_label_of_the_peak_is_inside_the_picture(at: int, make_store: MakeStore, tmp_path: Path) -> None:
    segment = {**block(9, 0, 900 * MIB, 0, None), "kind": "segment"}
    blocks = [block(1, 0, MIB, 0, 1_000_000), block(2, MIB, MIB, at * 10_000, None), segment]
    _, root = draw(make_store(memory=blocks), tmp_path / "m.svg")
    [peak] = [text for text in root.iter(f"{SVG}text") if text.get("class") == "p"]
    x, width = float(peak.get("x", "")), 7 * len(peak.text or "")
    assert (x - width >= 0) if peak.get("text-anchor") == "end" else (x + width <= float(root.get("width", "")))


def test_names_are_escaped(make_store: MakeStore, tmp_path: Path) -> None:
    name = '</title></svg><script>alert("x")</script>&amp;\x1b[31m\x00\n層' + "x" * 500
    store = make_store(
        run=[{"run_id": 1, "label": name, "model_name": name, "start_ns": 0}],
        op=[{"op_id": 3, "name": name, "op_type": name}],
        memory=[block(1, 0, MIB, 0, 9, op_id=3, tensor_name=name, pool=name, purpose=name)],
    )
    _, root = draw(store, tmp_path / "m.svg")
    assert {child.tag.removeprefix(SVG) for child in root.iter()} <= {
        "svg",
        "title",
        "style",
        "rect",
        "text",
        "line",
        "path",
    }
    [(_, title)] = titled(root, "u")
    assert title.startswith('</title></svg><script>alert("x")</script>&amp;\\x1b[31m\\x00\\x0a層xxx')
    assert len(title) < 600
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", (tmp_path / "m.svg").read_bytes())


def test_file_size_is_bounded_for_many_blocks(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(run=[{"run_id": 1, "label": "x", "start_ns": 0}])
    with open_store(store, read_only=False) as connection:
        connection.execute(
            "INSERT INTO memory SELECT 1, i, 0, 'p', 'block', (i % 200 * 5_000_000 + i % 7 * 65536)::UBIGINT, "
            "4096 * (1 + hash(i) % 16), i * 100, i * 100 + 50 + hash(i) % 20000, NULL, "
            "CASE i % 3 WHEN 0 THEN 'weight' WHEN 1 THEN 'activation' END, "
            "'a tensor with a long name / layer ' || i FROM range(20_000) AS t(i)"
        )
    flow, root = draw(store, tmp_path / "m.svg")
    assert sum(flow.rows.values()) == 20_000
    assert flow.size_bytes < 400_000
    boxes = [title for css in ("w", "a", "u") for _, title in titled(root, f"{css} x")]
    assert sum(int(title.split(" ")[0].replace(",", "")) for title in boxes) == flow.rows["blocks drawn together"]
    inside = [box for css in ("w", "a", "u") for box, _ in titled(root, css) + titled(root, f"{css} x")]
    frame = next(shape for shape in root.iter(f"{SVG}rect") if shape.get("class") == "f")
    x, y, width, height = (float(frame.get(key, "")) for key in ("x", "y", "width", "height"))
    assert all(x <= box[0] <= box[2] <= x + width + 0.2 for box in inside)
    assert all(y - 0.6 <= box[1] <= box[3] <= y + height + 0.2 for box in inside)


def test_a_recorded_run_of_two_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(RecordOptions("mini_resnet", tmp_path / "raw", iterations=1, devices=2, deterministic=True))
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path / "raw"], store)
    flow, root = draw(store, tmp_path / "m.svg")
    [(blocks,)] = query(store, "SELECT count(*) FROM memory WHERE kind = 'block'")
    assert sum(flow.rows.values()) == blocks
    assert {"device 0", "device 1"} <= {text.text for text in root.iter(f"{SVG}text")}
    one, root = draw(store, tmp_path / "one.svg", device=1)
    assert sum(one.rows.values()) == blocks // 2
    assert "device 0" not in {text.text for text in root.iter(f"{SVG}text")}
    # The same store gives the same bytes, also by the command and compressed.
    target = tmp_path / "again.svg.gz"
    assert run(["export", "memory-flow", "-o", str(target), "--db", str(store)]) == 0
    assert gzip.decompress(target.read_bytes()) == (tmp_path / "m.svg").read_bytes()
    assert f"{flow.rows['blocks']} blocks" in capsys.readouterr().err


def test_runs_that_cannot_be_drawn(make_store: MakeStore, tmp_path: Path) -> None:
    empty = make_store(task=[{"id": 1}])
    target = tmp_path / "m.svg"
    with open_store(empty) as connection, pytest.raises(InputError, match="no rows in memory"):
        export_memory_flow(connection, 1, target)
    blocks = [block(1, 0, 5, 0, 1), block(2, 0, 5, 0, 1, device_id=None)]
    store = make_store(memory=blocks, run=[{"run_id": 1}, {"run_id": 2}])
    with open_store(store) as connection:
        with pytest.raises(UsageError, match="devices with one: 0"):
            export_memory_flow(connection, 1, target, device=7)
        with pytest.raises(OutputError):
            export_memory_flow(connection, 1, tmp_path / "no" / "such" / "m.svg")
        assert not target.exists()
        assert export_memory_flow(connection, 1, target).rows["blocks"] == 2
    assert run(["export", "memory-flow", "-o", str(target), "--db", str(store), "--run", "all"]) == 2
    lost = make_store(memory=[block(1, None, 5, 0, 1), block(2, None, 5, None, None)])
    flow, _ = draw(lost, target)
    assert (*flow.rows.values(), *flow.omitted.values()) == (0, 0, 2, 0)


@pytest.mark.parametrize(
    ("first", "last", "most", "expected"),
    [(0, 10, 10, list(range(11))), (3, 47, 5, [10, 20, 30, 40]), (0, 0, 5, [0]), (-7, 7, 4, [-5, 0, 5])],
)
def test_ticks_are_round(first: int, last: int, most: int, expected: list[int]) -> None:
    assert list(ticks(first, last, most)) == expected


def test_ticks_of_long_spans_are_few_and_exact() -> None:
    for last in (1, 9, 999, 10**18 + 7, 2**63 - 1):
        found = list(ticks(0, last, 10))
        assert 1 <= len(found) <= 11
        steps = {after - before for before, after in pairwise(found)}
        assert len(steps) == (len(found) > 1)
        assert all(re.fullmatch("[125]0*", str(step)) for step in steps)
    assert decimal(1_500, 1_000) == "1.5"
    assert decimal(-1, 10**9) == "-0.000000001"
    assert decimal(7, 1) == "7"
    assert time_unit(1) == (1, "ns")
    assert time_unit(3 * 10**9) == (10**9, "s")
