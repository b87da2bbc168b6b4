"""rocprofv3 results in JSON: a real file compared with its plain JSON, and generated files, intact and damaged."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import taken_from
from perfetto_builder import begin, end, message, process, thread, track
from rocprofv3_builder import results
from shared_data import ROCPROFV3

from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun


@pytest.mark.skipif(not ROCPROFV3.exists(), reason="no shared/conformance here; set TRACECONV_SHARED")
def test_a_real_file_has_the_content_of_its_json(tmp_path: Path) -> None:
    tool = json.loads(gzip.decompress(ROCPROFV3.read_bytes()))["rocprofiler-sdk-tool"][0]
    kernels = {one["kernel_id"]: one for one in tool["kernel_symbols"]}
    gpus = {one["id"]["handle"]: one["logical_node_type_id"] for one in tool["agents"] if one["type"] == 2}
    wanted: Counter[tuple[Any, ...]] = Counter()
    for one in tool["buffer_records"]["kernel_dispatch"]:
        info = one["dispatch_info"]
        symbol = kernels[info["kernel_id"]]
        wanted[
            symbol["formatted_kernel_name"],
            one["start_timestamp"],
            one["end_timestamp"] - one["start_timestamp"],
            gpus[info["agent_id"]["handle"]],
            info["queue_id"]["handle"],
            one["correlation_id"]["internal"],
            info["grid_size"]["x"],
        ] += 1
    run, store = taken_from(ROCPROFV3, tmp_path)
    assert not run.lossy
    found = store.execute(
        "SELECT name, start_ns, dur_ns, device_id, stream_id, correlation_id, "
        "(args->'$.dispatch_info.grid_size.x')::BIGINT FROM task"
    ).fetchall()
    assert Counter(found) == wanted
    assert store.execute("SELECT writer, source_format FROM run").fetchone() == ("rocprofv3", "rocprofv3")
    total = sum(row[2] for row in wanted.elements())
    assert store.execute("SELECT sum(total_ns)::BIGINT FROM op_statistic").fetchone() == (total,)
    names = dict(store.execute("SELECT p.pid_text, p.name FROM process p").fetchall())
    assert names["GPU 0"] == "GPU 0 AMD Instinct MI350X"


@pytest.mark.parametrize(("indent", "is_sorted"), [(None, False), (2, False), (None, True)])
def test_every_record_type(tmp_path: Path, indent: int | None, is_sorted: bool) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results(), indent=indent, sort_keys=is_sorted))
    assert choose_reader(path) == "rocprofv3"
    run, store = taken_from(path, tmp_path)
    assert run.accounts.by_record["kernel_dispatch records"].used == 1  # the record with the counters of this task
    assert run.accounts.by_record["pc_sample_host_trap records"].lost == 1
    tasks = store.execute(
        "SELECT kind, name, start_ns, dur_ns, device_id, stream_id, submit_ns, size_bytes, step_id, "
        "args->>'$.counters.SQ_WAVES' FROM task ORDER BY start_ns"
    ).fetchall()
    assert tasks == [
        ("compute", "add(int*)", 1000, 51, 0, 3, 900, None, 4, "42"),
        ("compute", "add(int*)", 1100, 103, 0, 3, 960, None, 4, None),
        ("compute", "kernel 99", 1300, 1, 0, 3, None, None, 4, None),
        ("copy", "MEMORY_COPY_HOST_TO_DEVICE", 1600, 100, 0, None, 1500, 4096, 4, None),
    ]
    assert store.execute("SELECT name, level, step_id FROM api ORDER BY start_ns").fetchall() == [
        ("hipLaunchKernel", "runtime", 4), ("hipLaunchKernel", "runtime", 4), ("hipMemcpy", "runtime", 4)]  # fmt: skip
    assert store.execute("SELECT iteration, start_ns, end_ns FROM step").fetchall() == [(4, 800, 2000)]
    assert store.execute(
        "SELECT a.name, t.start_ns FROM flow f JOIN api a ON a.id = f.src_id JOIN task t ON t.id = f.dst_id ORDER BY 2"
    ).fetchall() == [("hipLaunchKernel", 1000), ("hipLaunchKernel", 1100), ("hipMemcpy", 1600)]
    assert store.execute("SELECT name, op_type FROM op ORDER BY 1").fetchall() == [
        ("add(int*)", "add"), ("kernel 99", "kernel 99")]  # fmt: skip


def test_a_counter_that_is_not_a_number_loses_only_its_value(tmp_path: Path) -> None:
    document = results()
    [record] = document["rocprofiler-sdk-tool"][0]["callback_records"]["counter_collection"]
    record["records"][2]["value"] = float("nan")
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    run, store = taken_from(path, tmp_path)
    assert run.accounts.by_record.keys().isdisjoint({"damaged records"})
    assert "odd_json" in [entry.code.text for entry in run.log]
    counters = "SELECT start_ns, args->>'$.counters' FROM task WHERE args->>'$.counters' IS NOT NULL"
    assert store.execute(counters).fetchall() == [(1000, '{"SQ_WAVES":42}')]


def test_standard_input_with_descriptions_after_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file whose keys a program has sorted, kernels would have no names and no devices."""

    def ingested(*, is_sorted: bool) -> list[IngestedRun]:
        text = json.dumps(results(), sort_keys=is_sorted).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return ingest([Path("-")], tmp_path / "trace.duckdb", reader="rocprofv3")

    assert ingested(is_sorted=False)[0].action != "failed"
    with pytest.raises(InputError, match="specify the file's path"):
        ingested(is_sorted=True)


def annotated(**values: int | str) -> list[tuple[int, bytes]]:
    return [(4, message((10, key), (3 if isinstance(value, int) else 6, value))) for key, value in values.items()]


def slice_of(ts: int, track: int, name: str, category: str, **values: int | str) -> bytes:
    return begin(ts, track, name, (22, category), *annotated(**values)) + end(ts + 100, track)


def tasks_of(path: Path, tmp_path: Path) -> list[tuple[object, ...]]:
    _, store = taken_from(path, tmp_path)
    return store.execute(
        "SELECT name, kind, device_id, stream_id, size_bytes, correlation_id, submit_ns FROM task ORDER BY start_ns"
    ).fetchall()


@pytest.mark.parametrize("agent", ["Agent-{}", "GPU-{}", None])
def test_kernels_and_copies_in_perfetto_traces_have_devices(tmp_path: Path, agent: str | None) -> None:
    """Streams are tracks of several GPUs; the GPU is in args: as a number, before ROCm 7."""

    def name_of(number: int) -> int | str:
        return number if agent is None else agent.format(number)

    path = tmp_path / "results.pftrace"
    path.write_bytes(
        process(1, 7, "train") + thread(2, 7, 7, "train") + track(3, 'STREAM [" 0 "] ')
        + slice_of(100, 2, "hipLaunchKernel", "hip_api", corr_id=5)
        + slice_of(300, 3, "add(int*)", "kernel_dispatch", agent=name_of(4), corr_id=5, queue=1)
        + slice_of(400, 3, "add(int*)", "kernel_dispatch", agent=name_of(5), corr_id=6, queue=2)
        + slice_of(500, 3, "MEMORY_COPY_HOST_TO_DEVICE", "memory_copy", src_agent=name_of(0), dst_agent=name_of(5),
                   copy_bytes=64, corr_id=7)
        + slice_of(600, 3, "MEMORY_COPY_DEVICE_TO_HOST", "memory_copy", src_agent=name_of(4), dst_agent=name_of(0),
                   copy_bytes=32, corr_id=8)
    )  # fmt: skip
    assert tasks_of(path, tmp_path) == [
        ("add(int*)", "compute", 4, 1, None, 5, 100),
        ("add(int*)", "compute", 5, 2, None, 6, None),
        ("MEMORY_COPY_HOST_TO_DEVICE", "copy", 5, None, 64, 7, None),
        ("MEMORY_COPY_DEVICE_TO_HOST", "copy", 4, None, 32, 8, None),
    ]


def test_traces_of_rocprof_sys(tmp_path: Path) -> None:
    path = tmp_path / "perfetto-trace.proto"
    path.write_bytes(
        process(1, 7, "train") + thread(2, 7, 7, "train") + track(3, "GPU Kernel Dispatch [1] Queue 2")
        + track(4, "HIP Activity Stream 3") + track(5, "GPU Memory Copy to Agent [4] Thread 0")
        + slice_of(100, 2, "hipLaunchKernel", "rocm_hip_api", corr_id=5)
        + slice_of(300, 3, "add(int*)", "rocm_kernel_dispatch", corr_id=5, queue=77)
        + slice_of(400, 3, "ncclDevKernel_AllReduce", "rocm_kernel_dispatch", corr_id=6, queue=77)
        + slice_of(500, 4, "add(int*)", "rocm_hip_stream", corr_id=7, stream_id=3)
        + slice_of(600, 4, "MEMORY_COPY_DEVICE_TO_HOST", "rocm_hip_stream", corr_id=8, stream_id=3, bytes=64)
        + slice_of(700, 5, "MEMORY_COPY_HOST_TO_DEVICE", "rocm_memory_copy", corr_id=9, stream_id=0, bytes=32)
    )  # fmt: skip
    assert tasks_of(path, tmp_path) == [
        ("add(int*)", "compute", 1, 2, None, 5, 100),
        ("ncclDevKernel_AllReduce", "collective", 1, 2, None, 6, None),
        ("add(int*)", "compute", None, 3, None, 7, None),
        ("MEMORY_COPY_DEVICE_TO_HOST", "copy", None, 3, 64, 8, None),
        ("MEMORY_COPY_HOST_TO_DEVICE", "copy", None, 0, 32, 9, None),
    ]


def test_calls_of_libraries_in_traces_of_rocprof_sys(tmp_path: Path) -> None:
    """Wrapped functions are rccl, mpi …; API domains without a category of their own are rocm."""
    calls = [
        ("rccl", "ncclAllReduce", "communication"), ("rocm", "ncclSend", "communication"),
        ("mpi", "MPI_Send", "communication"), ("rocm_rocdecode_api", "rocDecCreateVideoParser", "media"),
        ("rocm_rocjpeg_api", "rocJpegCreate", "media"), ("rocm_hipfile_api", "hipFileRead", "runtime"),
    ]  # fmt: skip
    path = tmp_path / "perfetto-trace.proto"
    path.write_bytes(
        process(1, 7, "train") + thread(2, 7, 7, "train") + track(3, "GPU Kernel Dispatch [1] Queue 2")
        + slice_of(100, 3, "add(int*)", "rocm_kernel_dispatch", corr_id=5)
        + b"".join(slice_of(200 + 100 * n, 2, name, category) for n, (category, name, _) in enumerate(calls))
        + slice_of(1000, 2, "omp_parallel", "rocm")
    )  # fmt: skip
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT category, name, level FROM api ORDER BY start_ns").fetchall() == calls
    assert store.execute("SELECT name FROM range").fetchall() == [("omp_parallel",)]


def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    text = json.dumps(results()).encode()
    path = tmp_path / "results.json"
    start = text.index(b'"buffer_records": {"kernel')
    seen = []
    for cut in range(start + 80, len(text) - 3, 173):
        path.write_bytes(text[:cut])
        run, store = taken_from(path, tmp_path)
        assert any(entry.code.text in ("no_end", "cut_event") for entry in run.log), cut
        row = store.execute("SELECT count(*) FROM slice").fetchone()
        assert row is not None
        seen.append(row[0])
        store.close()
    assert seen == sorted(seen)
    assert seen[-1] >= 7


def test_a_damaged_record_loses_only_itself(tmp_path: Path) -> None:
    one = results()["rocprofiler-sdk-tool"][0]
    records = one["buffer_records"]
    records["hip_api"] = [
        {"kind": 1, "operation": 1, "thread_id": n % 3, "start_timestamp": 10 * n, "end_timestamp": 10 * n + 4,
         "correlation_id": {"internal": n}, "args": [{"name": "a", "value": "},{"}, {"name": "b"}]}
        for n in range(9000)
    ]  # fmt: skip
    text = json.dumps({"rocprofiler-sdk-tool": [one]}).encode()
    places = [text.index(b'"start_timestamp": %d,' % (10 * n)) for n in (70, 4000, 8999)]
    damaged = bytearray(text)
    damaged[places[0]] = ord("}")  # a key without a quote
    damaged[places[1] + 1] = ord('"')  # an extra quote
    damaged[places[2] + 20] = 0xFF  # not a number
    path = tmp_path / "results.json"
    path.write_bytes(damaged)
    run, store = taken_from(path, tmp_path)
    account = run.accounts.by_record["damaged records"]
    assert 3 <= account.lost <= 6
    row = store.execute("SELECT count(*) FROM api WHERE name = 'hipLaunchKernel'").fetchone()
    assert row == (8997,)
    assert store.execute("SELECT count(*) FROM task WHERE kind = 'copy'").fetchone() == (1,)


def test_records_with_another_structure_are_counted(tmp_path: Path) -> None:
    one = results()["rocprofiler-sdk-tool"][0]
    one["buffer_records"]["hip_api"] += [{"start_timestamp": "soon"}, 7, None, [], {"kind": 1}]
    one["buffer_records"]["kernel_dispatch"] += [{"end_timestamp": 9, "dispatch_info": {"dispatch_id": 99}}]
    one["metadata"] = 5
    one["strings"] = []
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [one, 3, {"buffer_records": 4}]}))
    run, store = taken_from(path, tmp_path)
    assert run.accounts.by_record["hip_api records"].lost == 5
    assert run.accounts.by_record["kernel_dispatch records"].lost == 1
    assert store.execute("SELECT count(*) FROM api").fetchone() == (3,)
