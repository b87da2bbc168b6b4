"""Tables of Nsight Compute, as its versions print them: every value, and what is unknown without start times."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ncu_builder as build
import pytest
from ingest_checks import taken, taken_from
from shared_data import SHARED

import traceconv
from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.errors import InputError
from traceconv.formats.common.limits import Limits
from traceconv.formats.ncu_csv.launches import Launches
from traceconv.formats.ncu_csv.work import measured
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun

LAUNCHES = build.launches(40)
#: File → its text, and how its values are printed: whether in scaled units, and the style of numbers.
FILES: dict[str, tuple[bytes, bool, str]] = {
    "raw.csv": (build.raw(LAUNCHES), False, "C"),
    "raw_en.csv": (build.raw(LAUNCHES, style="en", line_end="\r\n", noise=False), False, "en"),
    "raw_scaled.csv": (build.raw(LAUNCHES, units="scaled"), False, "C"),
    "details.csv": (build.details(LAUNCHES), True, "en"),
    "details_de.csv": (build.details(LAUNCHES, style="de"), True, "de"),
    "details_fr.csv": (build.details(LAUNCHES, style="fr", noise=False), True, "fr"),
    "details_2019.csv.gz": (gzip.compress(build.details(LAUNCHES, scaled=False, old=True)), False, "C"),
    "powershell.csv": (build.details(LAUNCHES, noise=False).decode().encode("utf-16"), True, "en"),
}
#: Reports without rows for launches without a start.
OF_STARTS = ("breakdown", "idle_gaps", "idle_causes", "stream_utilisation", "launch", "launch_queue", "step_breakdown")


def args_of(store: duckdb.DuckDBPyConnection, run_id: int = 1) -> Iterator[dict[str, Any]]:
    for (text,) in store.execute("SELECT args FROM task WHERE run_id = ? ORDER BY id", [run_id]).fetchall():
        yield json.loads(text, parse_float=Decimal, parse_int=Decimal)


def test_every_value_in_base_units(tmp_path: Path) -> None:
    for name, (text, _, _) in FILES.items():
        (tmp_path / name).write_bytes(text)
        assert choose_reader(tmp_path / name) == "ncu_csv"
    runs = ingest([tmp_path / name for name in FILES], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb")) as store:
        for run in runs:
            _, scaled, style = FILES[run.label]
            check_values(store, run, scaled, style)


def check_values(store: duckdb.DuckDBPyConnection, run: IngestedRun, scaled: bool, style: str) -> None:
    assert not run.lossy
    columns = "name, kind, device_id, stream_id, source_task_id, start_ns, dur_ns, depth, self_ns"
    rows = store.execute(f"SELECT {columns} FROM task WHERE run_id = ? ORDER BY id", [run.run_id]).fetchall()
    has_devices = "2019" not in run.label
    for one, row, args in zip(LAUNCHES, rows, args_of(store, run.run_id), strict=True):
        wanted = build.readable(one, scaled=scaled, style=style)
        duration = wanted.get("gpu__time_duration.sum")
        kind = "collective" if one.name.startswith("nccl") else "compute"
        device = one.device if has_devices else None
        assert row == (one.name, kind, device, one.stream, one.id, None, duration, 0, duration)
        assert {key: value for key, value in args.items() if "__" in key} == wanted
        assert args["Process ID"] == 108
        assert args.get("Grid Size") == ("(4096, 1, 1)" if has_devices else None)
        if "details" in run.label and has_devices and one.id % 2:
            [rule] = args["rules"]
            assert rule["Rule Description"] == 'Look at "Memory", e.g. 1,5'
            assert rule["Estimated Speedup"] == Decimal("12.5")
    codes = {entry.code.text: entry.event_count for entry in run.log}
    assert codes["no_start"] == len(LAUNCHES)
    assert ("coarse_time" in codes) == (scaled or "scaled" in run.label)
    sql = "SELECT start_ns, end_ns, writer FROM run WHERE run_id = ?"
    assert store.execute(sql, [run.run_id]).fetchall() == [(None, None, "Nsight Compute")]


def test_a_real_table(tmp_path: Path) -> None:
    path = SHARED / "real/nvidia/ncu_copy_blocked.csv"
    if not path.exists():
        pytest.skip("no shared/conformance here; set TRACECONV_SHARED")
    run, store = taken_from(path, tmp_path)
    assert not run.lossy
    with path.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    [args] = args_of(store)
    found = 0
    for record in records:
        if record["Metric Name"]:
            value = args[f"{record['Section Name']}: {record['Metric Name']}"]
            text = record["Metric Value"]
            assert value == (Decimal(text.replace(",", "")) if text[0].isdigit() else text), record
            found += 1
    results = [record for record in records if record["Rule Name"]]
    assert [rule["Rule Description"] for rule in args["rules"]] == [record["Rule Description"] for record in results]
    assert found + len(results) == len(records) == run.accounts.by_record["metrics and results of rules"].used
    [row] = store.execute("SELECT name, dur_ns FROM task").fetchall()
    assert row == (records[0]["Kernel Name"], 21_058_944)
    # Memory Throughput is 61.84 % of DRAM Frequency · 64 bytes.
    sql = "SELECT memory_bytes, work_source, flops FROM roofline"
    assert store.execute(sql).fetchall() == [(int(Decimal("196456177859.63") * 21_058_944 / 10**9), "measured", None)]


def rows(store: traceconv.Store, report: str) -> list[dict[str, Any]]:
    found = store.report(report, run=1)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_reports_without_start_times(tmp_path: Path) -> None:
    for name, file in (("one.csv", build.raw(LAUNCHES)), ("two.csv", build.raw(build.launches(40, seed=2)))):
        (tmp_path / name).write_bytes(file)
    store_path = tmp_path / "trace.duckdb"
    ingest([tmp_path / "one.csv", tmp_path / "two.csv"], store_path)
    total = sum(int(build.readable(one).get("gpu__time_duration.sum", 0)) for one in LAUNCHES)
    with traceconv.open_store(db=store_path) as store:
        for name in OF_STARTS:
            assert store.report(name, run=1).fetchall() == [], name
            assert store.query(f"FROM {name}(run := 1, from_ns := 0, to_ns := 1000)").fetchall() == []
        [(kernels, ops)] = store.query(
            "SELECT (SELECT sum(total_ns) FROM kernels(run := 1)), (SELECT sum(total_ns) FROM op_statistic(run := 1))"
        ).fetchall()
        assert kernels == ops == total
        summary = {(row["section"], row["item"]): row for row in rows(store, "run_summary")}
        assert summary["run", "tasks without a start"]["count"] == 40
        assert summary["run", "span"]["time_ns"] is None
        assert not [section for section, _ in summary if section.startswith(("device", "idle", "gap"))]
        trust = {row["finding"]: row["count"] for row in rows(store, "trust")}
        assert trust["untimed_tasks"] == 40
        changed = traceconv.compare(1, 2, db=store_path)
        assert changed.step.base_ns == total
        assert changed.parts["idle"].change_ns == changed.parts["overlap"].change_ns == 0
        assert sum(op.time.change_ns for op in changed.ops) == changed.step.change_ns != 0
        assert sum(op.base_total_ns for op in changed.ops) == total
        with pytest.raises(InputError, match="no start times"):
            store.export("chrome", tmp_path / "trace.json", run=1)
        piece = store.why("task", 1 << 40 | 3, run=1).evidence[0]
        record = next(csv.reader([piece.data.decode()]))
        assert (record[0], record[4]) == ("3", LAUNCHES[3].name)


def read(text: bytes) -> tuple[list[dict[str, str]], ImportLog]:
    log = ImportLog()
    return [launch.args for launch in Launches([text], log, Account(), "a.csv", Limits())], log


def test_a_table_that_is_cut() -> None:
    """Of a cut record nothing is used; those before it are intact."""
    for text in (build.raw(LAUNCHES[:3], noise=False), build.details(LAUNCHES[:3], noise=False)):
        rows, log = read(text)
        assert len(rows) == 3 and not list(log)
        for size in range(text.index(b'"1","108"') + 1, len(text) - 2):
            found, log = read(text[:size])
            assert list(log) or text[size - 1 : size] == b"\n"
            assert found[:-1] == rows[: len(found) - 1]
            assert found[-1].items() <= rows[len(found) - 1].items()
    account = Account()
    small = list(Launches([build.details(LAUNCHES)], ImportLog(), account, "a.csv", Limits(event_bytes=90)))
    assert len(small) == len(LAUNCHES) and all(launch.is_cut for launch in small) and not account.lost


def test_hostile_values(tmp_path: Path) -> None:
    duration = "gpu__time_duration.sum"
    values = ["1e99", "-5", "9" * 39, "9" * 300, "1,2,3", "٣", "5 (1; 2)", "0.4", "4611686018427387000", "007", "12"]
    head = f'"ID","Process ID","Kernel Name","{duration}","x__y.sum"\n"","","","ns","KiB"\n'
    text = head + "".join(f'"{number}","1","k","{value}","{value}"\n' for number, value in enumerate(values))
    text += '"3","1","k","1","1"\n"4","1","k"\n"5","1","k","1","1","1"\n'
    run, path = taken(text, tmp_path, "a.csv")
    with duckdb.connect(str(path)) as store:
        rows = store.execute("SELECT dur_ns, args->>'x__y.sum' FROM task ORDER BY id").fetchall()
        units = store.execute("SELECT options->'ncu_table'->'units'->>'x__y.sum' FROM run").fetchone()
    assert [dur for dur, _ in rows] == [None] * 6 + [5, 0, 4611686018427387000, 7, 12, 1]
    assert [value for _, value in rows][:6] == [str(10**99), "-5", "9" * 39, None, None, "٣"]
    assert units == ("KiB",)
    counts = {entry.code.text: 0 for entry in run.log}
    for entry in run.log:
        counts[entry.code.text] += entry.event_count or 0
    assert counts["bad_duration"] == 3 and counts["bad_number"] == 4 and counts["fine_time"] == 1
    assert counts["unclear_record"] == 1 and counts["damaged_event"] == 2


#: 2 · 300 + 30 + 10 operations of fp32 and 5 of fp64, no others; 1000 + 24 bytes.
METRICS = {
    **{
        f"sm__sass_thread_inst_executed_op_{name}_pred_on.sum": "0" for name in ("dmul", "dfma", "hadd", "hmul", "hfma")
    },
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": "10",
    "sm__sass_thread_inst_executed_op_fmul_pred_on.sum": "30",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": "300",
    "sm__sass_thread_inst_executed_op_dadd_pred_on.sum": "5",
    "sm__inst_executed_pipe_tensor.sum": "0",
    "dram__bytes_read.sum": "1000",
    "dram__bytes_write.sum": "24",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": "128",
    "sm__cycles_elapsed.avg.per_second": "1000000000",
    "dram__bytes.sum.peak_sustained": "64",
    "dram__cycles_elapsed.avg.per_second": "500000000",
}
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on"
NO_FFMA = {"sm__sass_thread_inst_executed_op_ffma_pred_on.sum": None}
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32"
ALL_TYPES = {f"sm__ops_path_tensor_src_{name}.sum": "0" for name in ("bf16", "fp16", "tf32", "fp64", "int8", "fp8")}


@pytest.mark.parametrize(
    ("changed", "capability", "wanted"),
    [
        ({}, "8.0", ("645", '"fp32 vector"', "256000000000")),
        ({"sm__sass_thread_inst_executed_op_dfma_pred_on.sum": "9000"}, "8.0", ("18645", '"fp64 vector"', None)),
        # Rates: 0.3 per cycle, 1 GHz and 1,000 ns; ncu gives the multiply-adds of some charts as a product.
        ({**NO_FFMA, FFMA + ".sum.per_cycle_elapsed": "0.3"}, "8.0", ("645", '"fp32 vector"', "256000000000")),
        ({**NO_FFMA, f"derived__{FFMA}_x2": "0.6"}, "8.0", ("645", '"fp32 vector"', "256000000000")),
        ({**NO_FFMA}, "8.0", None),
        ({"sm__sass_thread_inst_executed_op_hadd_pred_on.sum": None}, "8.0", None),
        ({"sm__sass_thread_inst_executed_op_hfma_pred_on.sum": "17"}, "8.0", None),
        ({"sm__sass_thread_inst_executed_op_hfma_pred_on.sum": "16"}, "8.0", ("645", '"fp32 vector"', "256000000000")),
        # Tensor cores: idle, working, unknown, with sparsity; none before compute capability 7.0.
        ({"sm__inst_executed_pipe_tensor.sum": "2"}, "8.0", None),
        ({"sm__inst_executed_pipe_tensor.sum": None}, "8.0", None),
        ({"sm__inst_executed_pipe_tensor.sum": None}, "6" * 5000 + ".1", None),
        ({"sm__inst_executed_pipe_tensor.sum": None}, "6.1", ("645", '"fp32 vector"', "256000000000")),
        ({"sm__inst_executed_pipe_tensor.sum": None, **ALL_TYPES}, "9.0", ("645", '"fp32 vector"', "256000000000")),
        (
            {TENSOR + ".sum": "8192", TENSOR + "_sparsity_off.sum": "8192", TENSOR + ".sum.peak_sustained": "1024"},
            "8.0",
            ("8837", '"bf16 matrix"', "1024000000000"),
        ),
        (
            {TENSOR + "_sparsity_off.sum": "8192", TENSOR + "_sparsity_on.sum": "0"},
            "8.0",
            ("8837", '"bf16 matrix"', None),
        ),
        ({TENSOR + ".sum": "8192", TENSOR + "_sparsity_on.sum": "8192"}, "8.0", None),
        ({"sm__ops_path_tensor_src_fp4_fp6_dst_fp32.sum": "1"}, "8.0", None),
        ({}, "10.0", None),
    ],
)
def test_operations_are_counted_or_unknown(
    changed: dict[str, str | None], capability: str, wanted: tuple[str, str, str | None] | None
) -> None:
    args = {f'"{key}"': value for key, value in {**METRICS, **changed}.items() if value is not None}
    units = {key: "cycle/s" if "cycles" in key else "byte" if "bytes" in key else "inst" for key in METRICS}
    found = measured(args, units, Decimal(1000), capability)
    assert (found.get('"measured_bytes"'), found['"measured_peak_bytes_per_s"']) == ("1024", "32000000000")
    assert not measured(args, dict.fromkeys(units, "KiB"), Decimal(1000), "5.0").keys() - {
        '"measured_flops"',
        '"measured_type"',
    }
    shown = tuple(found.get(f'"measured_{name}"') for name in ("flops", "type", "peak_flops"))
    assert shown == (wanted or (None, None, None))


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        (
            "a.csv",
            b'==PROF== x\n"Process ID","Kernel Name","Invocations","Metric Name"\n',
            "summary of kernels; write one with ncu --csv",
        ),
        ("a.ncu-rep", b"\x01\x02", "ncu --import FILE --csv --page raw"),
        ("a.txt", b"==PROF== Connected to process 1\n  saxpy(int), Context 1, Stream 7\n", "only its messages"),
    ],
)
def test_other_output_of_ncu(name: str, text: bytes, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(InputError, match=advice):
        ingest([tmp_path / name], tmp_path / "trace.duckdb")


#: Kernels of a trace: name, grid, block, durations; and how Nsight Compute prints what it measured: name, block, grid,
#: duration, throughput of multiprocessors and memory.
ADD = "void ns::add<4, (anonymous namespace)::Add<float>, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)"
IN_TRACE = (
    ("sgemm_tn", [2, 3, 1], [128, 1, 1], (700, 600)),
    ("sgemm_tn", [9, 9, 1], [128, 1, 1], (50,)),
    (ADD, [64, 1, 1], [128, 1, 1], (200,)),
    (ADD.replace("Add<float>", "Mul<float>"), [64, 1, 1], [128, 1, 1], (190,)),
    ("void only<true>(float*)", [8, 1, 1], [32, 1, 1], (100,)),
    ("never_measured", [2, 3, 1], [128, 1, 1], (30,)),
)
MEASURED = (
    ("sgemm_tn", "(128, 1, 1)", "(2, 3, 1)", "900", "90", "40"),
    ("sgemm_tn", "(128, 1, 1)", "(2, 3, 1)", "1000", "91", "40"),
    ("void ns::add<(int)4, <unnamed>::Add<float>, std::array<char *, (unsigned long)2>>(int, T3)",
     "(128, 1, 1)", "(64, 1, 1)", "250", "20", "80.25"),
    ("void only<(bool)0>(float *)", "(32, 1, 1)", "(8, 1, 1)", "120", "10", "59"),
)  # fmt: skip


def test_kernels_of_a_trace_have_the_measurements_of_their_launches(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1000 * number + 10 * again,
         "dur": Decimal(dur) / 1000,
         "args": {"stream": 7, "correlation": 100 * number + again, "grid": grid, "block": block}}
        for number, (name, grid, block, durations) in enumerate(IN_TRACE)
        for again, dur in enumerate(durations)
    ]  # fmt: skip
    trace = {"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}
    (tmp_path / "a.pt.trace.json").write_text(json.dumps(trace, default=float))
    metrics = (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    )
    names = ("ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "gpu__time_duration.sum", *metrics)
    records = [names, ("",) * 5 + ("ns", "%", "%"), *((str(number), "1", *row) for number, row in enumerate(MEASURED))]
    with (tmp_path / "ncu.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(records)
    ingest([tmp_path / "a.pt.trace.json", tmp_path / "ncu.csv"], tmp_path / "trace.duckdb")
    metric_columns = ("matched_by", "metrics_count", "metrics_avg_ns", "bound", "headroom_ns")
    columns = ("kernel", "grid", "count", "total_ns", *metric_columns)
    with traceconv.open_store(tmp_path / "trace.duckdb") as store:
        found = [tuple(row[name] for name in columns) for row in rows(store, "kernel-metrics")]
        own = [row["total_ns"] for row in store.report("kernel-metrics", run=2)]
    unknown = (None,) * 5
    assert found == [
        ("sgemm_tn", "2,3,1", 2, 1300, "name", 2, 950, "compute", 123),
        (ADD, "64,1,1", 1, 200, "name", 1, 250, "memory", 39),
        (IN_TRACE[3][0], "64,1,1", 1, 190, *unknown),
        ("void only<true>(float*)", "8,1,1", 1, 100, "function", 1, 120, "latency", 41),
        ("sgemm_tn", "9,9,1", 1, 50, *unknown),
        ("never_measured", None, 1, 30, *unknown),
    ]
    assert own == [1900, 250, 120]
