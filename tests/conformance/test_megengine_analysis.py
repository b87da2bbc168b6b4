"""op-analysis and op-type-analysis reproduce MegEngine's `profile_analyze` on a static profile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from shared_data import shared

import traceconv

FOLDER = shared("seed_systems") / "megengine"
_SCALE = {"": 0, "K": 3, "M": 6, "G": 9, "T": 12}
_BINARY = {"byte": 0, "KiB": 10, "MiB": 20, "GiB": 30}


def printed(number: str) -> Iterator[list[list[str]]]:
    """Rows of a printed table: for each column the lines of its cell."""
    cells: list[list[str]] = []
    heading = True
    for line in (FOLDER / "analyze" / f"{number}.out").read_text("utf-8").splitlines():
        if line.startswith("│"):
            parts = [part.strip() for part in line.strip("│").split("│")]
            cells = [[*cell, part] for cell, part in zip(cells or [[] for _ in parts], parts, strict=True)]
        elif cells and line.startswith(("╞", "├", "╘")):
            if not heading:
                yield cells
            heading, cells = False, []


def near(value: object, text: str, factor: Decimal = Decimal(1)) -> bool:
    """Whether an exact value equals the printed one to within one unit of its last digit."""
    assert isinstance(value, (int, float, Decimal))
    shown = Decimal(text)
    return abs(Decimal(value) / factor - shown) <= Decimal((0, (1,), int(shown.as_tuple().exponent)))


def rate(value: object, cell: list[str]) -> bool:
    """A number and its unit, one line each: `991.45`, `MFLOPS`; N/A means unknown or 0."""
    number, unit = cell[0], cell[1].removesuffix("/s")
    if number in ("N/A", "inf", "nan"):
        return not value
    if unit in _BINARY:
        return near(value, number, Decimal(1 << _BINARY[unit]))
    return near(value, number, Decimal(10) ** _SCALE[re.sub("FLO.*", "", unit)])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("megengine")
    found = {}
    for name in ("static_conv_train", "static_conv_infer", "load_network_and_run", "static_mlp_train"):
        found[name] = folder / f"{name}.duckdb"
        traceconv.ingest(FOLDER / f"{name}.profiling.json", db=found[name])
    return found


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("09", "static_conv_train"),
        ("50", "static_conv_infer"),
        ("54", "load_network_and_run"),
        ("60", "static_mlp_train"),
    ],
)
def test_by_type(stores: dict[str, Path], number: str, name: str) -> None:
    rows = list(printed(number))
    assert len(rows) > 3
    with traceconv.open_store(stores[name]) as store:
        found = {row["op_type"]: row for row in store.report("op-type-analysis")}
    for device, cumulative, info, computation, flops, memory, bandwidth, *_ in rows:
        kind, count = re.sub(r"\n?-  ", "", "\n".join(info)).split("\n")[:2]
        row = found[kind]
        assert row["count"] == int(count)
        assert near(row["self_ns"], device[1], Decimal(10**9)) and near(row["self_percent"], device[2].rstrip("%"))
        # Ties have another order there, so only their time is compared.
        ties = [one for one in found.values() if one["self_ns"] == row["self_ns"]]
        if len(ties) == 1:
            assert near(row["cumulative_ns"], cumulative[0], Decimal(10**9))
            assert near(row["cumulative_percent"], cumulative[1].rstrip("%"))
        assert rate(row["total_flops"], computation) and rate(row["flops_per_s"], flops)
        assert rate(row["total_bytes"], memory) and rate(row["bytes_per_s"], bandwidth)


@pytest.mark.parametrize(
    ("number", "name", "filters", "top"),
    [
        ("01", "static_conv_train", [], 5),
        ("21", "static_conv_train", ["op_type=ConvolutionForward", "self_ns>=0.1ms"], 5),
        ("24", "static_conv_train", ["op_type=NoSuchType"], 5),
        ("51", "static_conv_infer", ["op_type=ConvolutionForward"], 5),
        ("53", "load_network_and_run", [], 10),
        ("59", "static_mlp_train", [], 5),
        ("61", "static_mlp_train", ["self_ns>=1s"], 5),
    ],
)
def test_by_op_and_its_filters(stores: dict[str, Path], number: str, name: str, filters: list[str], top: int) -> None:
    rows = list(printed(number))
    with traceconv.open_store(stores[name]) as store:
        found = list(store.report("op-analysis", filters=filters, top=top))
    assert len(found) == len(rows)
    for row, (device, _, _, computation, flops, memory, bandwidth, *_) in zip(found, rows, strict=True):
        assert near(row["self_ns"], device[1], Decimal(10**9)) and near(row["self_percent"], device[2].rstrip("%"))
        if [one["self_ns"] for one in found].count(row["self_ns"]) == 1:
            assert rate(row["total_flops"], computation) and rate(row["flops_per_s"], flops)
            assert rate(row["memory_bytes"], memory) and rate(row["bytes_per_s"], bandwidth)
