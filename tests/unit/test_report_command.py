"""`traceconv report`: the requested rows and columns, or a one-line error."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest
from commands import Command
from store_builder import build_store

from traceconv.reports.catalog import reports

MakeStore = Callable[..., Path]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    op = {"op_id": 1, "op_type": "Conv2D", "name": "conv", "model_id": 1, "input_shapes": "1,3;2"}
    start = 1_720_000_000_123_456_789
    return build_store(
        tmp_path_factory.mktemp("report") / "s.duckdb",
        run=[
            {"run_id": 1, "label": "base", "start_ns": start, "source_format": "npulog", "rank": 0},
            {"run_id": 2, "label": "duplicate column", "start_ns": start, "source_format": "npulog"},
            {"run_id": 3, "label": "duplicate column", "start_ns": start, "source_format": "npulog"},
            {"run_id": 4, "label": "newest", "start_ns": start, "source_format": "npulog"},
        ],
        device=[{"run_id": 4, "device_id": 3}, {"run_id": 4, "device_id": 0}, {"run_id": 1, "device_id": 5}],
        op=[{"run_id": 4, **op}, {"run_id": 4, **op, "op_id": 2, "op_type": "Relu", "name": "re[bold]lu|\x1b[31m,"}],
        task=[
            {"run_id": 1, "id": 1, "name": "old", "start_ns": start, "dur_ns": 5},
            *(
                {
                    "run_id": 4,
                    "id": 2**40 + n,
                    "op_id": 1 + n % 2,
                    "name": f"k{n}",
                    "task_type": "AI_CORE",
                    "start_ns": start + 1_000 * n,
                    "dur_ns": [1_584_000, 700, None, 1_584_000, 42][n],
                    "device_id": n // 4,
                    "hf32_eligible": n == 0,
                    "wait_ns": -n,
                }
                for n in range(5)
            ),
        ],
        step=[
            {
                "run_id": 4,
                "step_id": n,
                "iteration": n,
                "fp_start_ns": 10 * n,
                "bp_end_ns": 10 * n + 4,
                "end_ns": 10 * n + 5,
            }
            for n in (1, 2)
        ],
        fusion=[{"run_id": 4, "fusion_id": 1, "op_id": 1, "original_index": 0, "original_name": "a"}],
    )


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_list_names_every_report(command: Command) -> None:
    listed = command("report", "--list")
    assert [line.split()[0].replace("-", "_") for line in listed.out.splitlines()] == list(reports())


@pytest.mark.parametrize("name", list(reports()))
def test_help_of_a_report_comes_from_its_header(command: Command, name: str) -> None:
    helped = command("report", name.replace("_", "-"), "--help")
    for column in reports()[name].columns:
        assert f"  {column.name}  {column.type}" in helped.out
    options = set(re.findall(r"  (--[a-z-]+)", command("report", "--help").out))
    assert set(re.findall(r"^  \w+  [A-Z]+, (--\S+)", helped.out, re.MULTILINE)) <= options


@pytest.mark.parametrize("form", ["table", "csv", "json", "ndjson", "markdown", "msprof-csv"])
def test_every_report_in_every_format(command: Command, store: Path, form: str) -> None:
    counts = {"api_statistic": 0, "fusion_op": 2, "op_statistic": 3, "op_summary": 5, "step_trace": 2, "task_time": 6}
    headings = {"table": 2, "markdown": 2, "csv": 1, "msprof-csv": 1, "json": 0, "ndjson": 0}
    for name, count in counts.items():
        done = command("report", name, "--db", store, "--format", form, "--run", "all")
        assert bool(done.err) == (count == 0)
        if form == "json":
            found = json.loads(done.out)
            assert all(list(row) == [c.name for c in reports()[name].columns] for row in found)
        else:
            found = done.out.splitlines()[headings[form] :]
        assert len(found) == count, name


def test_latest_run_is_the_default_and_is_reported(command: Command, store: Path) -> None:
    done = command("report", "task-time", "--db", store, "--format", "csv", "--columns", "run_id,name")
    assert {row[0] for row in rows(done.out)[1:]} == {"4"}
    assert "run 4 (newest), the latest of 4" in done.err
    assert command("report", "task-time", "--db", store, "--run", "4").err == ""


@pytest.mark.parametrize(
    ("wanted", "found"), [("1", ["old"]), ("base", ["old"]), ("2", []), ("all", ["old", "k0", "k1", "k2", "k3", "k4"])]
)
def test_runs_by_number_label_or_all(command: Command, store: Path, wanted: str, found: list[str]) -> None:
    done = command("report", "task-time", "--db", store, "--run", wanted, "--columns", "name", "--format", "csv")
    assert rows(done.out)[1:] == [[name] for name in found]


def test_top_order_filter_and_columns(command: Command, store: Path) -> None:
    def names(*arguments: str) -> list[str]:
        done = command("report", "task_time", "--db", store, "--format", "csv", "--columns", "name", *arguments)
        return [row[0] for row in rows(done.out)[1:]]

    assert names("--top", "2") == ["k0", "k3"]  # the largest by the report's measure
    assert names("--top", "3") == ["k0", "k3", "k1"]
    vendors = command("report", "task-time", "--db", store, "--format", "msprof-csv", "--top", "3").out
    relu = "re[bold]lu|\x1b[31m,"
    assert [row[1] for row in rows(vendors)[1:]] == ["conv", relu, relu]  # the ops of k0, k1 and k3: msprof's order
    # Largest first, ties in the report's own order, unknown values last.
    assert names("--order-by", "dur_ns") == ["k0", "k3", "k1", "k4", "k2"]
    assert names("--order-by", "dur_ns", "--ascending") == ["k4", "k1", "k0", "k3", "k2"]
    assert names("--order-by", "name", "--top", "1") == ["k0"]
    assert names("--order-by", "name", "--descending", "--top", "1") == ["k4"]
    assert names("--filter", "dur_ns=1584000", "--filter", "name=k3") == ["k3"]
    assert names("--filter", "dur_ns=NULL") == ["k2"]
    assert names("--filter", "name=' OR 1=1 --") == []
    assert names("--filter", "dur_ns!=NULL", "--filter", "dur_ns!=1584000") == ["k1", "k4"]
    assert names("--filter", "dur_ns!=700") == ["k0", "k2", "k3", "k4"]  # unknown values differ
    assert names("--filter", "dur_ns>=0.7us") == ["k0", "k1", "k3"]
    assert names("--filter", "dur_ns<1.584ms", "--filter", "dur_ns > 42") == ["k1"]
    assert names("--filter", "dur_ns<=42ns") == ["k4"]
    assert names("--filter", "name~^k[12]$") == ["k1", "k2"]
    assert names("--filter", "name~2|3", "--top", "1") == ["k3"]
    assert names("--filter", "name!=k0", "--filter", "name<k3") == ["k1", "k2"]
    assert names("--device", "1") == ["k4"]


@pytest.mark.parametrize("order", ["start_ns", "dur_ns", "wait_ns", "op_name", "aic_mac_ratio", "op_type", "device_id"])
@pytest.mark.parametrize("direction", ["--ascending", "--descending"])
def test_top_returns_the_first_rows_of_the_report(command: Command, store: Path, order: str, direction: str) -> None:
    ask = ("report", "op-summary", "--db", store, "--format", "csv", "--order-by", order, direction)
    all_rows = command(*ask).out.splitlines()
    assert command(*ask, "--top", "2").out.splitlines() == all_rows[:3]
    filtered = command(*ask, "--top", "1", "--filter", "op_type=Relu", "--run", "newest").out.splitlines()
    assert filtered == [all_rows[0], next(line for line in all_rows if "Relu" in line)]


def test_exact_numbers_in_json_and_csv(command: Command, store: Path) -> None:
    ask = ("report", "op-summary", "--db", store, "--columns", "id,start_ns,dur_ns,op_name,hf32_eligible")
    ask += ("--top", "2", "--order-by", "start_ns", "--ascending")
    first, second, *_ = json.loads(command(*ask, "--format", "json").out)
    assert first["start_ns"] == 1_720_000_000_123_456_789
    assert second["op_name"] == "re[bold]lu|\x1b[31m,"
    assert [json.loads(line) for line in command(*ask, "--format", "ndjson").out.splitlines()] == [first, second]
    table = rows(command(*ask, "--format", "csv").out)
    assert table[1:] == [
        [str(2**40), "1720000000123456789", "1584000", "conv", "true"],
        [str(2**40 + 1), "1720000000123457789", "700", "re[bold]lu|\x1b[31m,", "false"],
    ]


def test_tables_have_readable_units_and_escaped_names(command: Command, store: Path) -> None:
    done = command("report", "op-summary", "--db", store)
    lines = done.out.splitlines()
    assert lines[0].split() == ["device_id", "op_name", "op_type", "task_type", "start", "dur", "wait"]
    assert lines[2].endswith(" 0 ns")
    assert "1.584 ms" in lines[2]
    assert "re[bold]lu|\\x1b[31m," in lines[3]
    assert "1.000 µs    700 ns  -1 ns" in lines[3]
    marked = command("report", "op-summary", "--db", store, "--format", "markdown").out.splitlines()
    assert "re\\[bold\\]lu\\|\\\\x1b\\[31m," in marked[3]


def test_msprof_labels_and_numbers(command: Command, store: Path) -> None:
    header, *found = rows(command("report", "op-summary", "--db", store, "--format", "msprof-csv").out)
    # The run has no counters, and no columns of them either.
    expected = [column.msprof for column in reports()["op_summary"].columns if column.msprof and not column.group]
    assert header == expected
    first = dict(zip(header, found[0], strict=True))
    assert first["Task Start Time(us)"] == "1720000000123456.789\t"
    assert first["Task Duration(us)"] == "1584.000"
    assert first["HF32 Eligible"] == "YES"
    assert first["Input Shapes"] == '"1,3;2"'
    assert first["Context ID"] == "N/A"
    third = dict(zip(header, found[2], strict=True))
    assert (third["Task Duration(us)"], third["Task Wait Time(us)"]) == ("N/A", "-0.002")


def test_msprof_step_trace_has_a_pair_of_columns_for_each_reduce(command: Command, make_store: MakeStore) -> None:
    store = make_store(
        step=[{"step_id": n, "iteration": n, "fp_start_ns": 1000 * n, "end_ns": 1000 * n + 5} for n in (1, 2)],
        task=[{"id": n, "kind": "collective", "step_id": 2, "start_ns": n, "dur_ns": 10 * n} for n in (7, 8)],
    )
    header, *found = rows(command("report", "step-trace", "--db", store, "--format", "msprof-csv").out)
    assert header[-5:] == ["Model ID", *["Reduce Start(us)", "Reduce Duration(us)"] * 2]
    assert found[0] == ["0", "1", "1.000\t", "N/A", "1.005\t", "0.005", *["N/A"] * 8]
    assert found[1][-4:] == ["0.007\t", "0.070", "0.008\t", "0.080"]
    assert found[1][8] == "0.995"


def test_msprof_api_statistic_names_the_host(command: Command, make_store: MakeStore) -> None:
    store = make_store(api=[{"id": n, "level": "acl", "name": "x", "dur_ns": d} for n, d in enumerate([1000, 2001])])
    assert command("report", "api-statistic", "--db", store, "--format", "msprof-csv").out.splitlines() == [
        "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance",
        "host,acl,x,3.001,2,1.501,1.0,2.001,0.251",
    ]


@pytest.mark.parametrize("form", ["csv", "json", "ndjson", "markdown", "msprof-csv"])
def test_all_rows_are_written_however_they_are_read(
    command: Command, store: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = command(
        "query", "SELECT count(*) FROM op_summary(run := 4)", "--db", store, "--format", "csv"
    ).out.split()
    # After the query, whose module takes the number when it is first imported.
    monkeypatch.setattr("traceconv.reports.fetch.BATCH_ROWS", 1)
    of_run = command("report", "op-summary", "--db", store, "--format", "json")
    assert len(json.loads(of_run.out)) == int(expected[1]) > 2
    in_batches = command("report", "op-summary", "--db", store, "--format", form)
    monkeypatch.undo()
    assert in_batches.out == command("report", "op-summary", "--db", store, "--format", form).out


def test_parquet_and_csv_have_equal_rows(command: Command, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    done = command("report", "task-time", "--db", store, "-o", target, "--filter", "dur_ns=1584000")
    assert done.out == ""
    assert duckdb.sql(f"SELECT name, start_ns FROM '{target}'").fetchall() == [
        ("k0", 1_720_000_000_123_456_789),
        ("k3", 1_720_000_000_123_459_789),
    ]
    assert not list(tmp_path.glob("*.partial"))


def test_file_suffix_selects_the_format(command: Command, store: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")
    assert command("report", "op-statistic", "--db", store, "-o", target).out == ""
    assert len(json.loads(target.read_text())) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["op-statistic", "--ascending"], 2, "--order-by"),
        (["op-statistic", "--columns", "op_type,op_type"], 2, "duplicate column"),
        (["op-statistic", "--columns", "op_type", "--format", "msprof-csv"], 2, "--columns"),
        (["op-statistic", "--filter", "op_typ=x"], 2, "Did you mean 'op_type'?"),
        (["op-statistic", "--filter", f"total_ns={2**63}"], 2, "64-bit"),
        (["step-trace", "--filter", "reduce_dur_ns=1"], 2, "lists"),
        (["op-statistic", "--filter", "total_ns>=0.5ns"], 2, "not an integer number of nanoseconds"),
        (["op-statistic", "--filter", "count>=1ms"], 2, "64-bit"),
        (["op-statistic", "--filter", "op_type~("], 2, "not a regular expression"),
        (["op-statistic", "--filter", "total_ns~1"], 2, "needs a text column"),
        (["op-statistic", "--filter", "total_ns<NULL"], 2, "64-bit"),
        (["op-summary", "--filter", "hf32_eligible>true"], 2, "flag"),
        (["op-statistic", "--run", "9"], 2, "1 (base), 2 (duplicate column), 3 (duplicate column), 4 (newest)"),
        (["op-statistic", "--run", "1,9"], 2, "unknown run '9'"),
        (["op-statistic", "--run", "0"], 2, "Did you mean '--rank 0'?"),
        (["op-statistic", "--rank", "7"], 2, "unknown run 'rank=7'. Known for rank: 0"),
        (["op-statistic", "--rank", "0", "--run", "1"], 2, "exclude each other"),
        (["op-statistic", "--filter", "total>1sec"], 2, "unknown unit 'sec'; use ns, µs, ms, s, min, h"),
        (["op-type-analysis", "--columns", "total"], 2, "total_ns or total_bytes"),
        (["op-statistic", "--from", "1sec"], 2, "use ns, µs, ms, s, min, h"),
        (["op-statistic", "--from", "soon"], 2, "since the start of the run"),
        (["op-statistic", "--from", "1ms", "--run", "all"], 2, "select one run"),
        (["memory-peak", "--steps", "1", "--run", "all"], 2, "each run has its steps at other times; select one run"),
        (["op-statistic", "--steps", "five"], 2, "3-5, 3- or -5"),
        (["memory-peak", "--step", "1", "--steps", "2-3"], 2, "--step and --steps exclude each other"),
        (["fusion-op", "--to", "1ms"], 2, "no to parameter; it has: run, device"),
        (["op-statistic", "-o", "ops.html"], 2, "unknown suffix: ops.html"),
        (["op-statistic", "-o", "json"], 2, "-o json names a file; for the format on stdout: --format json"),
        (["op-statistic", "-o", "md"], 2, "--format md"),
        (["op-statistic", "--run", "newst"], 2, "Did you mean 'newest'?"),
        (["op-statistic", "--run", "duplicate column"], 2, "2, 3"),
        (["api-statistic", "--device", "0"], 2, "no device parameter"),
        (["op-statistic", "--format", "parquet"], 2, "-o FILE"),
        (["op-statistic", "-o", "."], 1, "folder"),
    ],
)
def test_usage_errors_are_one_line(
    command: Command, store: Path, arguments: Sequence[str], code: int, message: str
) -> None:
    out, err = command("report", *arguments, "--db", store, code=code)
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith("traceconv: ")
    assert message in last
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "same_as"),
    [
        (["--order-by", "dur"], ["--order-by", "dur_ns"]),
        (["--sort", "task_time(us)", "-n", "2"], ["--order-by", "dur_ns", "--top", "2"]),
        (["--sort", "Task Time", "--limit", "2"], ["--order-by", "dur_ns", "--top", "2"]),
        (["--filter", "dur>=1.584 ms"], ["--filter", "dur_ns>=1584000"]),
        (["--filter", "dur<0 min 00.001 s"], ["--filter", "dur_ns<1000000"]),
        (["--filter", "task_time(us)>=1584"], ["--filter", "dur_ns>=1584000"]),
        (["--filter", "start>=2 µs", "--filter", "start_ns<4us"],
         ["--filter", "start_ns>=1720000000123458789", "--filter", "start_ns<1720000000123460789"]),
        (["--run", "all", "--filter", "start=0ms"], ["--run", "all", "--filter", "start_ns=1720000000123456789"]),
        (["--from", "2us", "--to", "1720000000123460789"], ["--filter", "start>=2us", "--filter", "start<4us"]),
        (["--rank", "0"], ["--run", "base"]),
        (["--run", "base, 4"], ["--run", "all"]),
        (["--run", "4,1", "-n", "3"], ["--run", "all", "--top", "3"]),
    ],
)  # fmt: skip
def test_what_a_table_shows_can_be_typed_back(
    command: Command, store: Path, arguments: list[str], same_as: list[str]
) -> None:
    def found(options: list[str]) -> list[str]:
        done = command("report", "task-time", "--db", store, "--format", "csv", "--columns", "name,start_ns", *options)
        return done.out.splitlines()[1:]

    assert found(arguments) == found(same_as) != []


def test_a_dash_is_standard_output(
    command: Command, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ["report", "op-statistic", "--db", store, "--format", "csv"]
    assert command(*wanted, "-o", "-").out == command(*wanted).out != ""
    assert not list(tmp_path.iterdir())


def test_columns_by_heading_and_by_label(command: Command, store: Path) -> None:
    columns = "OP Type,Total Time(us),avg,ratio %,Count"
    done = command("report", "op-statistic", "--db", store, "--columns", columns, "--format", "csv")
    assert done.out.splitlines()[0] == "op_type,total_ns,avg_ns,ratio_percent,count"


def test_a_format_can_be_given_as_a_suffix(command: Command, store: Path, tmp_path: Path) -> None:
    shown = command("report", "op-statistic", "--db", store, "--format", "md").out
    command("report", "op-statistic", "--db", store, "-o", tmp_path / "ops.md")
    assert (tmp_path / "ops.md").read_text() == shown
    command("report", "op-statistic", "--db", store, "-o", tmp_path / "ops.TXT.gz")


def test_short_options(command: Command) -> None:
    assert command("-V").out == command("--version").out
    for arguments in ([], ["report"], ["query"], ["export"], ["export", "chrome"], ["report", "op-statistic"]):
        assert command(*arguments, "-h").out == command(*arguments, "--help").out != ""


def test_report_without_rows_explains_what_to_record(command: Command, store: Path) -> None:
    done = command("report", "api-statistic", "--db", store, "--format", "csv", "--run", "4")
    assert len(done.out.splitlines()) == 1
    assert "run 4 has no rows in api. Record a model" in done.err
    done = command("report", "task-time", "--db", store, "--run", 4, "--device", 9)
    assert "no row of run 4 matches the filters. Devices: 0, 3\n" in done.err
    done = command("report", "task-time", "--db", store, "--run", 4, "--steps", "900-")
    assert "no row of run 4 matches the filters. Steps: 1 to 2\n" in done.err
    assert "has no rows in step" in command("report", "step-trace", "--db", store, "--run", "base").err


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("task-time", "has no rows in task. Traces have tasks if devices were recorded, in PyTorch with "),
        ("step-trace", "has no rows in step. PyTorch traces have steps if the profiler had a schedule"),
        ("memory-peak", "has no rows in memory. PyTorch and Paddle traces have memory if recorded with "),
    ],
)
def test_report_without_rows_lists_the_tables_of_a_trace(
    command: Command, tmp_path: Path, report: str, message: str
) -> None:
    trace, store = tmp_path / "host.json", tmp_path / "host.duckdb"
    events = [{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 1}, {"ph": "i", "name": "m", "ts": 2}]
    trace.write_text(json.dumps(events))
    command("ingest", trace, "--db", store)
    err = command("report", report, "--db", store).err
    assert message in err
    assert "There are rows in range, marker. To classify events differently: " in err
    assert "Record a model" not in err


def test_store_without_runs_is_reported(command: Command, make_store: MakeStore) -> None:
    done = command("report", "op-statistic", "--db", make_store(run=[]), "--format", "json")
    assert json.loads(done.out) == []
    assert "has no runs" in done.err
