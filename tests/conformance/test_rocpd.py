"""rocpd databases: the same rows as from the JSON of the same records, and what only a database has."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken_from
from rocpd_builder import Rocpd, database_of_rocprof_sys, write_results
from rocprofv3_builder import newer_results, results
from shared_data import ROCPROFV3

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.ingest import ingest

#: Columns that both formats determine, in an order of rows that both have.
_SAME = (
    "SELECT kind, name, task_type, core_type, start_ns, dur_ns, device_id, stream_id, correlation_id, submit_ns, "
    "size_bytes, step_id FROM task ORDER BY ALL",
    "SELECT name, level, start_ns, dur_ns, correlation_id, step_id FROM api ORDER BY ALL",
    "SELECT name, category, kind, start_ns, dur_ns, depth, self_ns FROM range ORDER BY ALL",
    "SELECT name, category, ts_ns FROM marker ORDER BY ALL",
    "SELECT kind, external_id, src_ns, dst_ns FROM flow WHERE dst_id IS NOT NULL ORDER BY ALL",
    "SELECT iteration, start_ns, end_ns FROM step ORDER BY ALL",
    "SELECT name, op_type FROM op ORDER BY ALL",
    "SELECT device_id, kind, name FROM device ORDER BY ALL",
    "SELECT name, pid_text FROM process ORDER BY ALL",
    "SELECT name, kind, device_id, stream_id FROM track ORDER BY ALL",
)


def assert_same_rows(document: dict[str, Any], tmp_path: Path) -> duckdb.DuckDBPyConnection:
    """Compare a database with the JSON of the same records; returns the store of the database."""
    as_json, database = tmp_path / "results.json", tmp_path / "results.db"
    as_json.write_text(json.dumps(document))
    write_results(database, document)
    assert choose_reader(database) == "rocpd"
    (tmp_path / "json").mkdir()
    (tmp_path / "rocpd").mkdir()
    _, wanted = taken_from(as_json, tmp_path / "json")
    run, found = taken_from(database, tmp_path / "rocpd")
    assert not run.lossy
    for query in _SAME:
        assert found.execute(query).fetchall() == wanted.execute(query).fetchall(), query
    assert found.execute("SELECT writer, source_format FROM run").fetchone() == ("rocprofv3", "rocpd")
    return found


def test_every_record_type(tmp_path: Path) -> None:
    document = results()
    document["rocprofiler-sdk-tool"][0]["buffer_records"].pop("pc_sample_host_trap")  # rocpd has none
    store = assert_same_rows(document, tmp_path)
    assert store.execute("SELECT args->'$.counters' FROM task WHERE args LIKE '%counters%'").fetchall() == [
        ('{"SQ_WAVES":42,"Busy":0.5}',)
    ]


def test_records_of_newer_versions(tmp_path: Path) -> None:
    store = assert_same_rows(newer_results(), tmp_path)
    tasks = "SELECT kind, name, start_ns, dur_ns, device_id, stream_id, submit_ns FROM task WHERE start_ns > 2000"
    assert store.execute(tasks).fetchall() == [("sync", "HIP_EVENT_WAIT", 2400, 50, 0, 3, 2380)]
    assert store.execute("SELECT name, ts_ns, args->>'$.kfd.pid' FROM marker").fetchall() == [
        ("KFD_EVENT_PAGE_FAULT_START", 2100, "10")
    ]
    ranges = "SELECT name, start_ns, dur_ns, args->>'$.flags' FROM range WHERE category <> 'marker_api' ORDER BY 2"
    assert store.execute(ranges).fetchall() == [
        ("HIP_GRAPH_OPERATION_EXEC_LAUNCH", 1510, 290, None),
        ("MEMORY_ALLOCATION_ALLOCATE", 1520, 10, None),
        ("SCRATCH_MEMORY_ALLOC", 1540, 10, "2"),
        ("KFD_QUEUE_EVICT", 2200, 100, None),
    ]


@pytest.mark.skipif(not ROCPROFV3.exists(), reason="no shared/conformance here; set TRACECONV_SHARED")
def test_a_real_file(tmp_path: Path) -> None:
    assert_same_rows(json.loads(gzip.decompress(ROCPROFV3.read_bytes())), tmp_path)


def test_processes_with_the_same_ids(tmp_path: Path) -> None:
    """A database of several processes has their tables side by side; each has its own correlation IDs."""
    document = results()
    (tool,) = document["rocprofiler-sdk-tool"]
    tool["buffer_records"].pop("pc_sample_host_trap")
    other = json.loads(json.dumps(tool))
    other["metadata"]["pid"] = 12
    for record in other["buffer_records"]["hip_api"]:
        record["start_timestamp"] -= 7
    document["rocprofiler-sdk-tool"].append(other)
    store = assert_same_rows(document, tmp_path)
    launches = store.execute("SELECT submit_ns FROM task WHERE kind = 'copy' ORDER BY 1").fetchall()
    assert launches == [(1493,), (1500,)]


def test_gpus_of_several_nodes_are_different_devices(tmp_path: Path) -> None:
    """Nodes have the same numbers; a process in a container may number some of its node's GPUs from 0, too."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    for number, (node, gpus) in enumerate(((7, (2, 3)), (9, (2, 3)), (7, (3,)))):
        database.add_process(number)
        database.add("info_process", id=1, nid=node, pid=50 + number)
        for place, gpu in enumerate(gpus):
            database.add("info_agent", id=gpu, nid=node, type="GPU", type_index=place, absolute_index=gpu, name="gfx")
            times = {"start": 100 * number, "end": 100 * number + 10 + place}
            event = database.event("KERNEL_DISPATCH", 1)
            database.add("kernel_dispatch", pid=1, agent_id=gpu, queue_id=1, kernel_id=1, event_id=event, **times)
    database.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT device_id, sum(dur_ns)::BIGINT FROM task GROUP BY 1 ORDER BY 1").fetchall() == [
        (0, 10), (1, 11 + 10), (2, 10), (3, 11)]  # fmt: skip


def test_databases_of_rocprof_sys(tmp_path: Path) -> None:
    path = tmp_path / "rocpd.db"
    database_of_rocprof_sys(path)
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT name, level, start_ns, dur_ns, args->>'$.args.size' FROM api").fetchall() == [
        ("hipMalloc", "runtime", 100, 100, "4096")
    ]
    assert store.execute("SELECT name, start_ns, dur_ns, args->>'$.call_stack' FROM range ORDER BY ALL").fetchall() == [
        ("MEMORY_ALLOCATION_ALLOCATE", 110, 10, None),
        ("MEMORY_ALLOCATION_VMEM_FREE", 110, 10, None),
        ("SCRATCH_MEMORY_ASYNC_RECLAIM", 110, 10, None),
        ("main", 50, 850, '{"0":"main"}'),
    ]
    values = "SELECT k.name, c.ts_ns, c.value FROM counter c JOIN track k ON k.track_id = c.track_id ORDER BY ALL"
    assert store.execute(values).fetchall() == [
        ("GFX Busy", 300, 37.5),
        ("GFX Busy", 400, 50.0),
        ("Power", 300, 250.0),
        ("Power", 400, 250.0),
    ]
    assert store.execute("SELECT name, ts_ns FROM marker").fetchall() == [("here", 500)]
    assert store.execute("SELECT host FROM run").fetchone() == ("node-3",)
    assert ("train.py", "70") in store.execute("SELECT name, pid_text FROM process").fetchall()


def test_tables_may_lack_columns(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    write_results(path, newer_results())
    with sqlite3.connect(path) as db:
        [(event,)] = db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_event%' AND type = 'table'")
        db.execute(f"ALTER TABLE {event} DROP COLUMN line_info")
    db.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    assert store.execute("SELECT count(*) FROM task WHERE submit_ns IS NOT NULL").fetchone() != (0,)


@pytest.mark.parametrize("value", [7, b"\xff", '{"message":{}}'])
def test_data_of_events_without_a_message(value: object, tmp_path: Path) -> None:
    path = tmp_path / "rocpd.db"
    database_of_rocprof_sys(path)
    with sqlite3.connect(path) as db:
        [(event,)] = db.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_event%' AND type = 'table'")
        db.execute(f"UPDATE {event} SET extdata = ?", (value,))
    db.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT name FROM marker").fetchall() == [("MARKER_CORE_API",)]


def test_arguments_and_counters_need_no_index(tmp_path: Path) -> None:
    """The first schema has none, later ones write them last; counters may be in another order than kernels."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    name = database.string("hipMalloc")
    waves = database.add("info_pmc", name="SQ_WAVES")
    kernels = []
    for number in range(3000):
        call = database.event("HIP_RUNTIME_API", number + 1)
        database.add("region", pid=1, tid=1, start=number, end=number + 1, name_id=name, event_id=call)
        for position, argument in enumerate(("ptr", "size", "size")[: number % 4]):
            value = f"{number}{position}"
            database.add("arg", event_id=call, position=position, type="int", name=argument, value=value)
        kernels.append(database.event("KERNEL_DISPATCH", number + 1))
        times = {"start": number, "end": number + 1}
        database.add("kernel_dispatch", pid=1, agent_id=1, kernel_id=1, event_id=kernels[-1], **times)
    for number in reversed(range(0, 3000, 2)):
        for value in (number, 1):
            database.add("pmc_event", event_id=kernels[number], pmc_id=waves, value=value)
    database.connection.commit()
    database.connection.close()
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    expected: list[dict[str, str] | None] = []
    for number in range(3000):
        values = {"ptr": f"{number}0", "size": f"{number}{number % 4 - 1}"}
        expected.append([None, {"ptr": values["ptr"]}, values, values][number % 4])
    found = store.execute("SELECT args->>'$.args' FROM api ORDER BY start_ns").fetchall()
    assert [text and json.loads(text) for (text,) in found] == expected
    counters = store.execute("SELECT args->>'$.counters.SQ_WAVES' FROM task ORDER BY start_ns").fetchall()
    assert counters == [(str(number + 1) if number % 2 == 0 else None,) for number in range(3000)]


def test_a_hostile_file_does_not_multiply_rows(tmp_path: Path) -> None:
    """Each of many calls refers to the same event, which has as many arguments."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    event = database.event("HIP_RUNTIME_API", 1)
    name = database.string("hipMalloc")
    for number in range(2000):
        database.add("region", pid=1, tid=1, start=number, end=number + 1, name_id=name, event_id=event)
        database.add("arg", event_id=event, position=number, type="int", name=f"a{number}", value="1")
    database.close()
    run, store = taken_from(path, tmp_path)
    assert store.execute("SELECT count(*), max(length(args)) < 100 FROM api").fetchone() == (2000, True)
    assert run.lossy


def test_counters_with_values_that_are_no_numbers(tmp_path: Path) -> None:
    """Two values of one counter and event can't be compared; an integer beyond floats can't be added to one."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    counter = database.add("info_pmc", name="Busy")
    track = database.add("track", name_id=database.string("Busy"))
    kernel = database.event("KERNEL_DISPATCH", 1)
    sample = database.event("amd_smi", 0)
    for event in (kernel, sample):
        for value in (None, "many", 1e308, 1e308, 0.5):
            database.add("pmc_event", event_id=event, pmc_id=counter, value=value)
    database.add("sample", track_id=track, timestamp=5, event_id=sample)
    database.add("kernel_dispatch", pid=1, agent_id=1, kernel_id=1, start=1, end=2, event_id=kernel)
    database.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT name, dur_ns, args->>'$.counters.Busy' FROM task").fetchall() == [
        ("kernel 1", 1, None)
    ]


def test_a_damaged_file_keeps_what_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    for number in range(3000):
        event = database.event("HIP_RUNTIME_API", number + 1)
        name = database.string(f"hip{number % 7}")
        database.add("region", pid=1, tid=1, start=number, end=number + 1, name_id=name, event_id=event)
    database.close()
    intact = path.read_bytes()
    for place in range(4096 * 40, len(intact) - 4096, 4096 * 17):
        path.write_bytes(intact[:place] + b"\xff" * 4096 + intact[place + 4096 :])
        run, store = taken_from(path, tmp_path)
        (count,) = store.execute("SELECT count(*) FROM slice").fetchone() or (0,)
        assert count > 2500
        assert run.lossy or count == 3000
        store.close()


@pytest.mark.parametrize("column", ["start", "pid"])
def test_another_version_of_the_schema_is_refused(column: str, tmp_path: Path) -> None:
    """Version 4 has tracks instead of processes, and had times in a table of their own once."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    database.connection.execute(f"ALTER TABLE rocpd_region_{database.suffix} RENAME COLUMN {column} TO other_id")
    database.close()
    with pytest.raises(InputError, match=f"another version of rocpd's schema.* has no {column};"):
        ingest([path], tmp_path / "trace.duckdb")


def test_samples_of_streaming_counters_are_not_added_to_the_counters_of_a_kernel(tmp_path: Path) -> None:
    """Version 3.0.3: those samples have the kernel's event, too."""
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    database.connection.execute(f"ALTER TABLE rocpd_pmc_event_{database.suffix} ADD COLUMN sample_id INTEGER")
    gpu = database.add("info_agent", type="GPU", type_index=0, name="gfx942")
    kernel = database.add("info_kernel_symbol", display_name="gemm")
    waves = database.add("info_pmc", name="SQ_WAVES", agent_id=gpu)
    event = database.event("KERNEL_DISPATCH", 1)
    database.add("kernel_dispatch", pid=1, agent_id=gpu, kernel_id=kernel, start=100, end=200, event_id=event)
    for value, sample in ((40.0, None), (2.0, None), (7.0, 1), (9.0, 2)):
        database.add("pmc_event", event_id=event, pmc_id=waves, value=value, sample_id=sample)
    database.close()
    run, store = taken_from(path, tmp_path)
    assert store.execute("SELECT name, args->>'$.counters' FROM task").fetchall() == [("gemm", '{"SQ_WAVES":42}')]
    assert (Code.UNKNOWN_RECORD, 2) in [(entry.code, entry.event_count) for entry in run.log]


def test_calls_of_rocshmem(tmp_path: Path) -> None:
    path = tmp_path / "rocpd.db"
    database = Rocpd(path)
    database.add_process()
    event = database.event("ROCSHMEM_API", 1)
    name = database.string("rocshmem_putmem_on_stream")
    database.add("region", pid=1, tid=1, start=100, end=200, name_id=name, event_id=event)
    database.close()
    _, store = taken_from(path, tmp_path)
    assert store.execute("SELECT name, level FROM api").fetchall() == [("rocshmem_putmem_on_stream", "communication")]
