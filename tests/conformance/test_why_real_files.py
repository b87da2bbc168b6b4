"""`why` shows the right bytes for rows of real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import shared
from why_checks import check_store

from traceconv.pipeline.ingest import ingest

FILES = (
    "real/dftracer/v1_test.pfw.gz",
    "real/speedscope_trace_event/multiprocess.json",
    "seed_systems/furiosa/df_comma.native_raw.csv",
    "seed_systems/furiosa/df_newline.native_raw.csv",
    "seed_systems/megengine/static_two_devices.profiling.json",
    "seed_systems/raf/synthetic_raw_unescaped.json",
)
LARGE = (
    "real/onnxruntime/ort_profile_tiny_model.json",
    "seed_systems/furiosa/chrome_killed_middle.json",
    "real/torch/triton_example.json.gz",
    "real/mindspore/gpu_timeline_display_0.json",
    "real/rocm/rocprofv3_908_results.json.gz",
    "real/ascend/torch_npu_level1_rank1",
    "seed_systems/megengine/dtr.chrome_timeline.json",
    "real/mindspore/msprof_0_2_1.json",
    "real/torch/alexnet_critical_path.json.gz",
    "real/viztracer/multithread.json",
)


def check(name: str, tmp_path: Path, per_table: int) -> None:
    store = tmp_path / "trace.duckdb"
    ingest([shared("") / name], store)
    assert sum(check_store(store, per_table).values()) > 3


@pytest.mark.parametrize("name", FILES)
def test_rows_can_be_traced_to_their_bytes(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_rows_of_large_files_can_be_traced_to_their_bytes(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 4)
