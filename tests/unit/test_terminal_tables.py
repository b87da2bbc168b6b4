"""Tables in a real terminal of 80 columns: what they leave out, and that different names look different."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command
from processes import TRACECONV, in_terminal
from store_builder import build_store

from traceconv.cli.tables import lines

VECTORIZED = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array<char*, 3> >(int)"
SGEMM = "void implicit_convolve_sgemm<float, float, {}, 6, 7, 3, 3, 5, 1, false>(int, int, int, float const*, float*)"
NAMES = [
    *(VECTORIZED.format(f"{functor}<float>") for functor in ("AddFunctor", "MulFunctor", "TanhFunctor")),
    *(SGEMM.format(size) for size in (128, 1024)),
    "cudnn_infer_volta_scudnn_128x64_relu_interior_nn_v1_with_a_long_end",
    "cudnn_infer_volta_scudnn_128x32_relu_interior_nn_v1_with_a_long_end",
    "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionILi64ELi128EEEEEvNT_6ParamsE",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_store(
        tmp_path_factory.mktemp("terminal") / "s.duckdb",
        run=[{"start_ns": 5, "source_format": "npulog"}],
        op=[{"op_id": n, "name": name, "op_type": name} for n, name in enumerate(NAMES)],
        task=[
            {
                "id": n, "op_id": n, "name": name, "start_ns": 5 + 1_000_000 * n, "dur_ns": 498_043 + 1000 * n,
                "kind": "compute", "core_type": "SM", "task_type": "KERNEL",
            }
            for n, name in enumerate(NAMES)
        ],
    )  # fmt: skip


def shown(store: Path, *arguments: str, width: int = 80, **env: str) -> tuple[list[str], list[str]]:
    """The lines of a report in a terminal, and those of its diagnostics."""
    text = in_terminal([*TRACECONV, "report", *arguments, "--db", str(store)], width=width, env=env)
    table, _, notes = text.partition("traceconv: ")
    return table.splitlines(), notes.replace("\n", "").splitlines()


def test_names_are_shortened_by_meaning(store: Path) -> None:
    table, notes = shown(store, "op-statistic")
    assert all(len(line) <= 80 for line in table)
    cells = {line.split("  ")[0] for line in table[2:]}
    assert len(cells) == len(NAMES)
    assert {cell.rpartition("<")[2] for cell in cells if cell.startswith("vectori")} == {
        "AddFunctor>", "MulFunctor>", "TanhFunctor>",
    }  # fmt: skip
    assert any(cell.startswith("Kernel<Implicit") and cell.endswith("olution>") for cell in cells)
    assert {cell.rpartition("<…")[2] for cell in cells if cell.startswith("implicit")} == {"128>", "1024>"}
    assert "device_id (0 in all rows), core_type (SM in all rows)" in notes[0]


def test_columns_that_tell_nothing_are_named_below_the_table(store: Path) -> None:
    table, notes = shown(store, "op-summary", "--top", "3")
    assert table[0].split() == ["op_name", "start", "dur"]
    assert "op_type (same as op_name)" in notes[0]
    assert "wait_ns (unknown)" in notes[0]
    _, notes = shown(store, "task-time")
    assert "stream_id, stream_wait_ns (unknown)" in notes[0]
    table, notes = shown(store, "op-summary", "--columns", "device_id,wait")
    assert (table[0].split(), notes) == (["device_id", "wait"], [])


def test_devices_with_the_same_times_still_have_times(tmp_path: Path) -> None:
    store = build_store(
        tmp_path / "s.duckdb",
        run=[{"start_ns": 5, "source_format": "npulog"}],
        task=[
            {"id": n, "device_id": n, "name": "a", "start_ns": 5, "dur_ns": 7_000, "kind": "compute"} for n in range(2)
        ],
    )
    table, _ = shown(store, "breakdown")
    assert [line.split()[:5] for line in table[1:]] == [
        ["id", "window", "compute", "collective", "copy"],
        ["───────", "────────", "────────", "──────────", "────────"],
        ["0", "7.000", "µs", "7.000", "µs"],
        ["1", "7.000", "µs", "7.000", "µs"],
    ]


def test_a_column_is_no_wider_than_its_shortened_texts() -> None:
    rows = [[SGEMM.format(128), "1"], ["a", "22"]]
    drawn = [line for _, line in lines(["name", "ns"], rows, [False, True], 70, first=True)]
    assert len(drawn[1].split()[0]) == max(len(line.split()[0]) for line in drawn[2:]) < 40
    assert {len(line) for line in drawn} == {len(drawn[1])}


def test_deep_levels_of_a_tree_leave_room_for_names_and_equal_names_have_no_numbers() -> None:
    rows = [("  " * n + name, "1") for n in range(60) for name in ("_load_unlocked_and_more", "(12 smaller)")]
    drawn = [line for _, line in lines(["label", "ns"], rows, [False, True], 40, first=False)]
    assert {len(line) for line in drawn} == {40}
    assert {line[:20] for line in drawn[:2]} == {"_load_unlocked_and_m", "(12 smaller)        "}
    assert {line.split()[0] for line in drawn[-60:]} == {"_load_un…nd_more", "(12"}
    assert all("#" not in line for line in drawn)


def test_a_pipe_and_a_wide_terminal_get_full_names(store: Path, command: Command) -> None:
    out, err = command("report", "op-statistic", "--db", store)
    assert all(name in out for name in NAMES)
    assert "device_id" in out
    assert err == ""
    wide, _ = shown(store, "op-statistic", width=200)
    assert all(any(line.startswith(name) for line in wide) for name in NAMES)


def test_moments_have_the_unit_that_fits_the_last_one(store: Path) -> None:
    table, _ = shown(store, "task-time", "--columns", "start")
    assert [line.strip() for line in table[2:4]] == ["0.000 ms", "1.000 ms"]


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours(store: Path, env: dict[str, str]) -> None:
    command = [*TRACECONV, "report", "op-statistic", "--db", str(store)]
    assert in_terminal(command, env=env) == in_terminal(command)


def test_the_last_columns_are_left_out_for_the_names(store: Path) -> None:
    table, notes = shown(store, "kernels")
    assert all(len(line) <= 80 for line in table)
    assert table[0].split()[:3] == ["label", "category", "total"]
    assert len({line.split("  ")[0] for line in table[2:]}) == len(NAMES)
    assert "p99_ns (too wide)" in notes[0]
    one, notes = shown(store, "kernels", "--top", "1")
    assert any(line.startswith("p99") for line in one)
    assert "too wide" not in notes[0]
