"""Every real file is either read completely by a test that checks its accounting, or refused for a listed reason."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest
from recount.sources import chrome_traces, others, real_traces
from shared_data import ROCPROFV3, SHARED, TORCH_NPU, shared

from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.discover import vendor_folders
from traceconv.pipeline.ingest import ingest

FOLDER = shared("real")
#: Chrome traces, recounted by test_recount.py.
TRACES = real_traces(SHARED)
#: Descriptions of the files.
ABOUT = ("SOURCE.md", "LICENSES/")
#: Files with another reader; test_rocprofv3.py, test_recount.py and test_ncu.py check their accounting.
OWN_READER = {ROCPROFV3.relative_to(FOLDER).as_posix(): "rocprofv3", "jax/te_fused_attn.xplane.pb": "xplane"}
OWN_READER["nvidia/ncu_copy_blocked.csv"] = "ncu_csv"
#: An output folder is one recording, including its timeline; test_torch_npu_folder.py checks its accounting.
RECORDING = TORCH_NPU.relative_to(FOLDER).as_posix()
IN_RECORDING = {
    f"{RECORDING}/{name}"
    for name in (
        "api_statistic.csv", "communication.json", "kernel_details.csv", "l2_cache.csv", "memory_record.csv",
        "npu_module_mem.csv", "op_statistic.csv", "operator_details.csv", "operator_memory.csv", "profiler_info_1.json",
        "profiler_metadata.json", "step_trace_time.csv",
    )
}  # fmt: skip
#: Unsupported files and the reasons. Each is refused with one line.
NOT_READ = {
    f"{RECORDING}/communication_matrix.json": "sums over the collectives of a step, by pair of ranks",
    "ascend/msprof_analyze_cluster_communication.json": "sums over the ranks of a cluster, which another tool made",
    "ascend/msprof_analyze_cluster_step_trace_time.csv": "sums over the ranks of a cluster, which another tool made",
    "ascend/msprof_analyze_kernel_details.csv": "a table without its folder, and not under the name that it has there",
    "mindspore/cluster_step_trace_raw_0_detail_time.csv": "MindSpore's own table of steps, in ticks of 10 ns",
    "mindspore/dynamic_shape_info_0.json": "shapes of operators by step, without times",
    "mindspore/end_info.0": "when a recording ended",
    "mindspore/framework_raw_0.csv": "names and places of operators, without times",
    "mindspore/info.json.0": "the machine of a recording: read with its folder only",
    "mindspore/minddata_pipeline_raw_0.csv": "averages over the data pipeline",
    "mindspore/start_info.0": "when a recording began",
}


#: Other files without a recount, by pattern, with the reasons.
NOT_COUNTED = {
    "*.md": "says what the files are",
    "*/LICENSE*": "a licence",
    "real/LICENSES/*": "licences",
    "*/MANIFEST.tsv": "a list of the files",
    "*.py": "what made the files",
    "perfetto_*/*/query.sql": "a question to another tool",
    "perfetto_*/*/expected.csv": "another tool's answer: test_perfetto_json.py",
    "trace_processor/*.csv.gz": "another tool's answers: test_trace_processor.py",
    "seed_systems/megengine/analyze/*": "another tool's answers: test_megengine_analysis.py",
    "seed_systems/furiosa/*.txt": "another tool's answers, printed: test_furiosa_reports.py",
    "seed_systems/furiosa/seed_tables.json": "another tool's answers: test_furiosa_reports.py",
    "seed_systems/facts.json": "what the files hold: test_seed_traces.py",
    "seed_systems/*/*.svg": "pictures",
    "seed_systems/raf/synthetic_expected.json": "what the files hold: test_seed_traces.py",
    "seed_systems/raf/synthetic_memory_trace.txt": "a text for people, which is not read",
    "ascend_raw/*": "a job, and its vendor's table: test_ascend_jobs.py",
}


def test_every_file_is_recounted_or_has_a_reason() -> None:
    counted = {*chrome_traces(SHARED), *others(SHARED)}
    counted |= {FOLDER / name for name in (*OWN_READER, *IN_RECORDING, *NOT_READ)}
    left = {path for path in SHARED.rglob("*") if path.is_file()} - counted
    used = {
        pattern for pattern in NOT_COUNTED for path in left if fnmatch(path.relative_to(SHARED).as_posix(), pattern)
    }
    names = (path.relative_to(SHARED).as_posix() for path in left)
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in NOT_COUNTED)] == []
    assert NOT_COUNTED.keys() - used == set(), "reasons for files that are gone"


def test_every_file_is_in_one_list() -> None:
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    data = {name for name in found if not name.startswith(ABOUT)}
    traces = [Path(name).as_posix() for name in TRACES]
    listed = Counter([*traces, *OWN_READER, *IN_RECORDING, *NOT_READ])
    assert data - listed.keys() == set(), "new files: say what reads them, or why nothing does"
    assert listed.keys() - data == set(), "files that are listed, and are gone"
    assert [name for name, count in listed.items() if count > 1] == []


def test_the_reader_of_each_file_is_the_one_expected() -> None:
    expected = {**dict.fromkeys(TRACES, "chrome_json"), **OWN_READER}
    assert {name: choose_reader(FOLDER / name) for name in expected} == expected


def test_a_recording_has_every_file_of_its_folder_except_those_with_a_reason() -> None:
    recordings = vendor_folders(FOLDER / RECORDING)
    assert len(recordings) == 1
    read = {path.relative_to(FOLDER).as_posix() for path in recordings[0].files}
    assert read == IN_RECORDING | {f"{RECORDING}/trace_view.json"}
    left = {path.relative_to(FOLDER).as_posix() for path, _ in recordings[0].left}
    assert left == {name for name in NOT_READ if name.startswith(RECORDING)}


@pytest.mark.parametrize("name", sorted(NOT_READ))
def test_unsupported_files_are_refused_with_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        ingest([FOLDER / name], tmp_path / "trace.duckdb")
    assert Path(name).name in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "trace.duckdb").exists()
