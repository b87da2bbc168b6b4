"""Tables of rocprof (CSV): the same rows as from its JSON, damage, and which files are one recording."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from commands import Command
from ingest_checks import taken_from
from rocprofv3_builder import results
from shared_data import ROCPROFV3

from traceconv.formats.registry import choose_reader
from traceconv.pipeline.ingest import ingest

ROWS = {
    "task": "name, kind, device_id, stream_id, start_ns, dur_ns, submit_ns, correlation_id, wait_ns, step_id",
    "api": "name, level, start_ns, dur_ns, correlation_id, step_id",
    "range": "name, start_ns, dur_ns",
    "op": "name, regexp_replace(op_type, '[.]kd$', '')",  # which the tables don't have
    "device": "device_id, kind",
}


def tables(document: dict[str, Any]) -> dict[str, list[dict[str, object]]]:
    """What rocprofv3 writes as CSV of what it writes as JSON: end of the file's name → records."""
    [tool] = document["rocprofiler-sdk-tool"]
    pid = tool["metadata"]["pid"]
    agents = {one["id"]["handle"]: (number, one) for number, one in enumerate(tool["agents"])}
    kernels = {one["kernel_id"]: one["formatted_kernel_name"] for one in tool["kernel_symbols"]}
    counters = {one["id"]["handle"]: one["name"] for one in tool["counters"]}
    messages = {one["key"]: one["value"] for one in tool["strings"].get("marker_api", [])}
    kinds = tool["strings"]["buffer_records"]

    def times(record: dict[str, Any]) -> dict[str, object]:
        number = record["correlation_id"]["internal"]
        return {
            "Correlation_Id": number,
            "Start_Timestamp": record["start_timestamp"],
            "End_Timestamp": record["end_timestamp"],
        }

    def agent(handle: dict[str, int]) -> str:
        return f"Agent {agents[handle['handle']][0]}"

    def dispatch(info: dict[str, Any]) -> dict[str, object]:
        return {
            "Agent_Id": agent(info["agent_id"]), "Queue_Id": info["queue_id"]["handle"],
            "Dispatch_Id": info["dispatch_id"],
            "Kernel_Name": kernels.get(info["kernel_id"], f"kernel {info['kernel_id']}"),
        }  # fmt: skip

    found: dict[str, list[dict[str, object]]] = {
        "agent_info": [
            {"Node_Id": number, "Logical_Node_Id": number, "Agent_Type": "GPU" if one["type"] == 2 else "CPU",
             "Product_Name": one.get("product_name", one["name"])}
            for number, one in agents.values()
        ]
    }  # fmt: skip
    for what, records in tool["buffer_records"].items():
        for record in records:
            kind = (
                kinds[record["kind"]]
                if record.get("kind", len(kinds)) < len(kinds)
                else {"kind": what.upper(), "operations": []}
            )
            if what == "kernel_dispatch":
                row = {"Kind": "KERNEL_DISPATCH", **dispatch(record["dispatch_info"]), **times(record)}
                found.setdefault("kernel_trace", []).append(row)
            elif what == "memory_copy":
                ends = {
                    "Source_Agent_Id": agent(record["src_agent_id"]),
                    "Destination_Agent_Id": agent(record["dst_agent_id"]),
                }
                row = {
                    "Kind": "MEMORY_COPY",
                    "Direction": kind["operations"][record["operation"]],
                    **ends,
                    **times(record),
                }
                found.setdefault("memory_copy_trace", []).append(row)
            elif what.endswith("_api"):
                name = kind["operations"][record["operation"]]
                name = messages.get(record["correlation_id"]["internal"], name) if what == "marker_api" else name
                thread = {"Process_Id": pid, "Thread_Id": record["thread_id"]}
                row = {"Domain": kind["kind"], "Function": name, **thread, **times(record)}
                found.setdefault(f"{what}_trace", []).append(row)
    for one in tool["callback_records"].get("counter_collection", []):
        data = one["dispatch_data"]
        for value in one["records"]:
            counter = {
                "Counter_Name": counters[value["counter_id"]["handle"]],
                "Counter_Value": f"{value['value']:.6f}",
            }
            row = {**dispatch(data["dispatch_info"]), "Process_Id": pid, **counter, **times(data)}
            found.setdefault("counter_collection", []).append(row)
    return found


def written(document: dict[str, Any], folder: Path) -> list[Path]:
    folder.mkdir()
    paths = []
    for end, records in tables(document).items():
        paths.append(folder / f"10_{end}.csv")
        with paths[-1].open("w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), quoting=csv.QUOTE_NONNUMERIC)
            writer.writeheader()
            writer.writerows(records)
    return paths


def rows(store: Path | duckdb.DuckDBPyConnection, table: str, columns: str) -> list[tuple[Any, ...]]:
    connection = duckdb.connect(str(store), read_only=True) if isinstance(store, Path) else store
    return sorted(connection.execute(f'SELECT {columns} FROM "{table}"').fetchall(), key=str)


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.skipif(
    not ROCPROFV3.exists(), reason="no shared/conformance here; set TRACECONV_SHARED"))])  # fmt: skip
def test_the_rows_are_those_of_the_json(is_real: bool, tmp_path: Path, command: Command) -> None:
    document = json.loads(gzip.decompress(ROCPROFV3.read_bytes())) if is_real else results()
    (tmp_path / "results.json").write_text(json.dumps(document))
    _, of_json = taken_from(tmp_path / "results.json", tmp_path)
    paths = written(document, tmp_path / "csv")
    [run] = ingest([tmp_path / "csv"], tmp_path / "csv.duckdb")
    assert not run.lossy and run.label == "10_kernel_trace.csv"
    for table, columns in ROWS.items():
        assert rows(tmp_path / "csv.duckdb", table, columns) == rows(of_json, table, columns), table
    sources = rows(tmp_path / "csv.duckdb", "source", "path, size_bytes")
    assert sources == sorted((path.name, path.stat().st_size) for path in paths)
    if not is_real:
        counters = "SELECT args->>'$.counters' FROM task WHERE args->>'$.counters' IS NOT NULL"
        with duckdb.connect(str(tmp_path / "csv.duckdb")) as store:
            assert store.execute(counters).fetchall() == [('{"SQ_WAVES":42,"Busy":0.5}',)]
        # Whichever of the tables is named, it is the same recording.
        assert ingest(paths, tmp_path / "csv.duckdb")[0].action == "kept"
        assert ingest(paths[1:2], tmp_path / "one.duckdb")[0].run_id == 1
        assert rows(tmp_path / "one.duckdb", "task", "id, args") == rows(tmp_path / "csv.duckdb", "task", "id, args")
        for (number,) in rows(tmp_path / "one.duckdb", "api", "id"):
            assert "hip_api_trace.csv" in command("why", "api", number, "--db", tmp_path / "one.duckdb").out


def test_damaged_and_older_tables(tmp_path: Path, command: Command) -> None:
    header = (
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    )
    kernels = '"KERNEL_DISPATCH",4,1,2,"void ns::add<int, 4>(int,\n int*)",14,100,180\n'
    kernels += '"KERNEL_DISPATCH",4,1,2,"half",14,20\n"KERNEL_DISPATCH",5,139690710949888,2,"sub.kd",0,x,300\n'
    (tmp_path / "a_kernel_trace.csv").write_text(header + kernels + '"KERNEL_DISPATCH",4,1,2,"cut')
    counters = (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value"\n0,1,1,"k","SQ",3\n'
    )
    (tmp_path / "a_counter_collection.csv").write_text(counters)
    (tmp_path / "b_stats.csv").write_text('"Name","Calls","TotalDurationNs"\n"k",1,2\n')
    assert choose_reader(tmp_path / "a_kernel_trace.csv") == "rocprof_csv"
    [run] = ingest([tmp_path], tmp_path / "s.duckdb")
    counts: dict[str, int] = {}
    for entry in run.log:
        counts[entry.code.text] = counts.get(entry.code.text, 0) + (entry.event_count or 0)
    assert counts == {"damaged_event": 2, "no_time": 1, "unknown_record": 1, "loose_flow": 1}
    found = rows(tmp_path / "s.duckdb", "task", "name, device_id, stream_id, start_ns, dur_ns, kind")
    assert found == [("void ns::add<int, 4>(int,\n int*)", 4, 1, 100, 80, "compute")]
    assert rows(tmp_path / "s.duckdb", "op", "op_type") == [("add",)]
    assert "without times" in command("ingest", tmp_path / "b_stats.csv", "--db", tmp_path / "t.duckdb", code=1).err


def test_versions_before_rocprofv3(tmp_path: Path, command: Command) -> None:
    """The first one writes kernels with a column for each counter, the second one also calls, with blank lines."""
    first = (
        '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",'
        '"accum_vgpr","sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs","Busy"\n'
        '0,"bodyForce(Body*, float, int) [clone .kd]",1,2,0,3670615,3670615,65536,256,0,0,20,4,16,64,"0x0","0x7f7b",'
        "1591372809346673,1591372809872935,1591372836189584,1591372836215944,26316649,72.4\n"
    )
    second = (
        "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
        "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES,SQ_WAVES\n\n"
        '1,4,1,15,15,10,10,0,0,8,0,16,64,"hello(char*) (.kd)",140469300940000,140469300947216,33,8.5,9\n'
    )
    calls = (
        "Domain,Function,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID\n\n"
        "HIP_API_DOMAIN,hipMalloc,,316678074105702,316678074130851,2\n"
        "HIP_API_DOMAIN,hipLaunchKernel,hello,316678074131382,316678074136111,3\n"
    )
    for name, text in (("results", first), ("results_out", second), ("hip_api_trace_out", calls)):
        (tmp_path / f"{name}.csv").write_text(text)
    db = tmp_path / "s.duckdb"
    assert not any(run.lossy for run in ingest([tmp_path], db))
    columns = "name, device_id, stream_id, start_ns, dur_ns, args->>'$.counters', args->>'$.DurationNs'"
    assert rows(db, "task", columns) == [
        ("bodyForce(Body*, float, int) [clone .kd]", 1, 2, 1591372809872935, 26316649, '{"Busy":72.4}', "26316649"),
        ("hello(char*) (.kd)", 4, 1, 140469300940000, 7216, '{"SQ_WAVES":9}', None),
    ]
    assert rows(db, "op", "op_type") == [("bodyForce",), ("hello",)]
    assert rows(db, "api", "name, level, dur_ns") == [
        ("hipLaunchKernel", "runtime", 4729),
        ("hipMalloc", "runtime", 25149),
    ]
    [number] = {number for (number,) in rows(db, "task", "id")}
    for run, cells in ((2, "1591372809872935"), (3, "140469300940000")):
        assert cells in command("why", "task", number, "--run", run, "--db", db).out.partition("its event")[2]


def write(path: Path, header: str, *records: str) -> None:
    path.write_text("\n".join((header, *records, "")))


def test_cells_are_numbers_only_if_writers_write_such(tmp_path: Path) -> None:
    write(
        tmp_path / "a_kernel_trace.csv",
        '"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp","End_Timestamp","Stream_Id","Grid","Half","Text"',
        '"KERNEL_DISPATCH",0,1,"k",100,180,-1,"1_0",-.5,"-inf"',
    )
    ingest([tmp_path], tmp_path / "s.duckdb")
    [(args,)] = rows(tmp_path / "s.duckdb", "task", "args")
    assert args.partition('"Kernel_Name":"k",')[2] == '"Stream_Id":-1,"Grid":"1_0","Half":-0.5,"Text":"-inf"}'


def test_correlation_ids_that_are_too_large_are_none(tmp_path: Path) -> None:
    write(
        tmp_path / "a_kernel_trace.csv",
        '"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"',
        f'"KERNEL_DISPATCH",0,1,"k",{2**63},100,180',
    )
    ingest([tmp_path], tmp_path / "s.duckdb")
    assert rows(tmp_path / "s.duckdb", "task", "start_ns, dur_ns, correlation_id") == [(100, 80, None)]


def test_tables_of_rocpd_of_several_processes(tmp_path: Path) -> None:
    """Their processes have the same numbers for agents, calls and dispatches, and calls are in a table of their own."""
    write(
        tmp_path / "out_agent_info.csv",
        '"Guid","Node_Id","Logical_Node_Id","Agent_Type","Product_Name"',
        *(f'"{guid}",{node},{node},"{kind}","MI300X"'
          for guid in "ab" for node, kind in enumerate(("CPU", "GPU", "GPU"))),
    )  # fmt: skip
    kernel = '"{0}","KERNEL_DISPATCH","Agent {1}",4,7,1,"k",5,{2},{3},{4}'
    write(
        tmp_path / "out_kernel_trace.csv",
        '"Guid","Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Name","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp","Duration"',
        kernel.format("a", 1, 100, 150, 50), kernel.format("b", 2, 120, 180, 60), kernel.format("b", 1, 130, 190, 60),
    )  # fmt: skip
    call = '"{0}","HIP_RUNTIME_API","hipLaunchKernel",{1},7,5,{2},{3}'
    write(
        tmp_path / "out_regions_trace.csv",
        '"Guid","Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"',
        call.format("a", 30, 90, 95), call.format("b", 31, 91, 96),
    )  # fmt: skip
    write(
        tmp_path / "out_hip_event_trace.csv",
        '"Guid","Kind","Operation","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Event_Handle","Source_Queue_Id",'
        '"Correlation_Id","Start_Timestamp","End_Timestamp","Duration"',
        '"a","HIP_EVENT","HIP_EVENT_WAIT","Agent 1",4,1,7,9,3,5,160,170,10',
    )
    [run] = ingest([tmp_path], tmp_path / "s.duckdb")
    assert not run.lossy
    columns = "name, kind, device_id, stream_id, submit_ns, start_ns, dur_ns"
    assert rows(tmp_path / "s.duckdb", "task", columns) == [
        ("HIP_EVENT_WAIT", "sync", 0, 4, 90, 160, 10),
        ("k", "compute", 0, 4, 90, 100, 50),
        ("k", "compute", 0, 4, 91, 130, 60),
        ("k", "compute", 1, 4, 91, 120, 60),
    ]
    assert rows(tmp_path / "s.duckdb", "track", "name, kind, device_id") == [
        ("Queue 4 (process b)", "stream", 0), ("Queue 4 (process b)", "stream", 1), ("Queue 4 waits", "stream", 0),
        ("Queue 4", "stream", 0), (None, "thread", None), (None, "thread", None)]  # fmt: skip


def test_each_run_of_a_replayed_kernel_has_its_own_counters(tmp_path: Path) -> None:
    """Kernel replay runs a dispatch once for each group of counters, and a counter may be in several groups."""
    header = (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Kernel_Name","Counter_Name",'
        '"Counter_Value","Start_Timestamp","End_Timestamp"'
    )
    record = '5,1,"Agent 2",4,30,7,"k","{}",{}.000000,{},{}'
    write(
        tmp_path / "30_counter_collection.csv", header,
        record.format("SQ_WAVES", 512, 100, 150), record.format("VALU", 3, 100, 150),
        record.format("SQ_WAVES", 512, 200, 260), record.format("SALU", 4, 200, 260),
    )  # fmt: skip
    # With --agent-index absolute, processors have the numbers of the machine, where this process sees one GPU.
    write(
        tmp_path / "30_agent_info.csv",
        '"Node_Id","Logical_Node_Id","Agent_Type","Product_Name"',
        '0,0,"CPU","EPYC"',
        '2,1,"GPU","MI300X"',
    )
    assert not ingest([tmp_path], tmp_path / "s.duckdb")[0].lossy
    assert rows(tmp_path / "s.duckdb", "task", "start_ns, dur_ns, device_id, args->>'$.counters'") == [
        (100, 50, 0, '{"SQ_WAVES":512,"VALU":3}'),
        (200, 60, 0, '{"SQ_WAVES":512,"SALU":4}'),
    ]


def test_records_of_a_dispatch_that_is_over_do_not_repeat_it(tmp_path: Path) -> None:
    """Equal times, by which rocpd's converter sorts, may mix the records of two dispatches."""
    record = '5,{},"Agent {}",4,30,7,"k","{}",{},100,150'
    write(
        tmp_path / "30_counter_collection.csv",
        "Correlation_Id,Dispatch_Id,Agent_Id,Queue_Id,Process_Id,Thread_Id,Kernel_Name,Counter_Name,Counter_Value,"
        "Start_Timestamp,End_Timestamp",
        record.format(1, 2, "SQ_WAVES", 512), record.format(2, 3, "SQ_WAVES", 8), record.format(1, 2, "VALU", 3),
    )  # fmt: skip
    [run] = ingest([tmp_path], tmp_path / "s.duckdb")
    assert rows(tmp_path / "s.duckdb", "task", "device_id, dur_ns, args->>'$.counters'") == [
        (2, 50, '{"SQ_WAVES":512}'),
        (3, 50, '{"SQ_WAVES":8}'),
    ]
    assert ("damaged_event", 1) in [(entry.code.text, entry.event_count) for entry in run.log]
    assert all(account.balanced for account in run.accounts.by_record.values())
