"""What people type by mistake gets one line that says what to type instead, and the exit code of a usage error."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command

from traceconv.cli.app import run

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"

LONG = "x" * 300
#: Command line → the part of the message that helps, and the exit code if it is not 2.
MISTAKES = {
    # a command
    "injest raw": "Did you mean 'ingest'?",
    "reprot": "no command 'reprot'. Did you mean 'report'?",
    "import x.json": "Use: traceconv ingest",
    "stats": "Use: traceconv report",
    "--db x report": "Options of a command follow its name",
    "ls": "Use: traceconv runs list",
    "raw": "To import a file: traceconv ingest raw",
    "runs rm 1": "Use: traceconv runs delete",
    "runs rename 1 new": "Use: traceconv runs label",
    "runs lst": "Did you mean 'list'?",
    "export crome -o x.json": "Did you mean 'chrome'?",
    "schema tasks": "Did you mean 'task'?",
    # an option
    "ingest raw -o new.duckdb": "Use: --db.",
    "lake ingest raw -o lake": "Use: --into.",
    "ingest raw -r nsys": "Use: --reader.",
    "ingest raw --force": "Use: --replace.",
    "ingest raw --databse x.duckdb": "Did you mean '--db'?",
    "report op-statistic --json": "Use: --format json.",
    "report op-statistic --csv": "Use: --format csv.",
    "report op-statistic -5": "Use: --top N.",
    "report op-statistic --where op_type=Add": "Use: --filter.",
    "report op-statistic --order total": "Did you mean '--order-by'?",
    "record mini_resnet -o r --device 2": "Did you mean '--devices'?",
    "record mini_resnet -o r --steps 3": "add --train",
    "record mini_resnet -o r --fp-point a": "--fp-point is for training; add --train",
    "runs delete 1 --yess": "--yes",
    "op-profile MatMul --shape 3x4": "Use: --input.",
    "info raw --csv": "no option --csv. See: traceconv info --help",
    "schema --database x": "traceconv schema has no option --database. Use: --db.",
    # an argument
    "ingest": "For example: traceconv ingest raw/",
    "dump": "For example: traceconv dump",
    "record mini_resnet": "missing option --output",
    "op-profile": "missing OP",
    "why 17": "For example: traceconv why task",
    "op-profile MatMul 3x4 4x5": "For example: traceconv op-profile Conv --input",
    "export chrome": "For example: traceconv export chrome -o trace.json",
    "runs label 1 base 2": "unexpected argument: 2. For example: traceconv runs label",
    "report": "list them with: traceconv report --list",
    "report opstatistic": "Did you mean 'op-statistic'?",
    "report raw.json op-statistic": "the report comes first: traceconv report NAME raw.json",
    "query": 'pass a statement such as "FROM op_statistic"',
    "query question.sql": "use -f question.sql",
    "schema task api": "unexpected argument: api. For example: traceconv schema",
    # a value
    "op-profile Conv --repeat 1.5": "not an integer",
    "ingest raw --reader kineto": "Readers: npulog, ascend_db, ascend_raw, chrome_json",
    "ingest raw --rank-pattern '(('": "not a valid regular expression",
    "ingest raw --max-event-mb 0": "must be at least 1",
    "report op-statistic --top 0": "must be at least 1",
    "report op-statistic --top all": "'all' is not an integer",
    "report op-statistic --run 9": "Runs in the store: 1 (",
    "report op-statistic --order-by totl": "Did you mean 'total'?",
    "report op-statistic --filter op_type": "--filter needs COLUMN=VALUE",
    "report op-statistic --filter 'total>1'": "1 needs a unit",
    "report op-statistic --steps 5-3": "the first step is after the last",
    "report op-statistic --from 5 --to 3": "5 is not before 3",
    "report op-statistic --columns op_type,time": "no column 'time'. All: run_id",
    "report op-statistic --format xlsx": "Choose one of: table, csv",
    "report op-statistic -o x.xlsx": "use .txt, .csv",
    "model mini_resnet -o x.parquet": "x.parquet; use .txt, .csv",
    "export chrome -o x.json --run 9": "Runs in the store: 1 (",
    "export chrome -o x.json --device 9": "run 1 has no device 9. Devices: 0",
    "export perfetto -o x.json": "a Perfetto trace, not .json; name it x.pftrace",
    "export chrome -o x.csv.gz": "a Chrome trace, not .csv; name it",
    "export memory-flow -o x.png": "name it x.svg",
    "record mini_resnet -o r --aic-metrics memory": "Did you mean 'Memory'?",
    "record mini_resnet -o r --aic-metrics '\x1b[31m'": "unknown. All:",
    "record mini_resnet -o r --iterations 0": "--iterations 0: must be from 1",
    "record mini_resnet -o r --warmup -1": "--warmup -1",
    "record mini_resnet -o r --batch 0": "--batch 0",
    "record mini_resnet -o r --seed -1": "--seed -1",
    "record mini_resnet -o r --devices 0": "--devices 0",
    "record mini_resnet -o r --streams 65": "--streams 65",
    "record mini_resnet -o r --fetch t": "no op of mini_resnet produces it",
    "record mini_resnet -o x.json": "a recording is a folder of raw logs",
    'record mini_resnet -o r --profiling-options \'{"format": "chrome"}\'': "a recording is a folder of raw logs",
    'record mini_resnet -o r --profiling-options \'{"task_trase": "on"}\'': "Did you mean 'task_trace'",
    "why kernel 3": "unknown table 'kernel'. Did you mean 'task'?",
    "dump raw --type tsk": "unknown record type 'tsk'. Did you mean 'task'?",
    "dump raw --limit -1": "--limit",
    "model mini_resnet --show core": "Did you mean 'cores'?",
    "model mini_resnet --order-by flop": "Did you mean 'flops'?",
    "model mini_resnet --columns op_name,x": "ops has no column",
    "model mini_resnet --streams 0": "from 1 to 64",
    "model mini_resnet --format xml": "unsupported format",
    "model mini_resnet --dump-only-opr --show cores": "omit --show",
    "op-profile Relu --input 4xa": "not a shape such as",
    "op-profile Relu --input 4=1,2": "2 values for 4 elements",
    "op-profile Relu --input 2=1,b": "not values of type float32",
    "op-profile Relu --input 2:what=1,2": "not values of type what",
    "op-profile Relu --input 2 --attr axis": "NAME=VALUE",
    "op-profile Relu --input 2 --format xml": "unsupported format",
    "record mini_resnet -o r --train --optimizer sgdd": "Did you mean 'sgd'?",
    "why tasks 1": "Did you mean 'task'?",
    "why task abc": "ids are integers",
    "why counter 5": "use TRACK_ID@TS_NS",
    # a path
    "ingest nothere.json": ("nothere.json does not exist", 1),
    "dump nothere": ("nothere does not exist", 1),
    "info nothere": ("nothere does not exist", 1),
    "info text.txt": ("text.txt is not a raw log or a known trace format", 1),
    "info nothing": ("nothing is empty; specify", 1),
    "info false.duckdb": ("can't open false.duckdb", 1),
    "record resnet5 -o r": ("Did you mean 'resnet50'", 1),
    "record nothere.onnx -o r": ("no such model file", 1),
    "record mini_resnet -o r --input nothere.npz": ("nothere.npz can't be read", 1),
    "report op-statistic --db nothere.duckdb": ("--db FILE", 1),
    "export chrome -o x.json --db nothere.duckdb": ("nothere.duckdb does not exist", 1),
    "ingest raw --rules nothere.toml": ("nothere.toml: No such file or directory", 1),
    "ingest raw --db nothere/x.duckdb": ("its folder does not exist", 1),
    "ingest trace.duckdb": ("name a store with --db", 1),
    "export chrome -o nothere/x.json": ("can't write nothere/x.json: its folder does not exist", 1),
    "report op-statistic -o nothere/x.csv": ("can't write nothere/x.csv: its folder does not exist", 1),
    "report op-statistic -o nothere/x.parquet": ("can't write nothere/x.parquet: its folder does not exist", 1),
    "runs merge raw.json": ("to import it into a store: traceconv ingest", 1),
    "verify raw": ("contains no output folder of msprof or torch_npu", 1),
    "dump raw.json": ("raw.json is not a raw log", 1),
    # a name that no file can have
    f"report summary {LONG}.json": ("does not exist", 1),
    f"compare {LONG} 1": ("unknown run", 2),
    f"model {LONG}": ("neither a file nor the name of a model", 1),
    f"record mini_resnet -o {LONG}": ("File name too long", 1),
    f"runs merge {LONG}": ("File name too long", 1),
    # SQL
    "query 'FROM tasks'": 'Did you mean "task"?',
    "query 'FROM op-statistic'": "In SQL, that report is op_statistic",
    "query 'FROM op_statistic(run=1)'": "Parameters are written op_statistic(run := …)",
    "query 'FROM task; FROM api'": "the SQL has 2 statements; pass exactly one",
    "query 'DROP TABLE task'": "read-only",
    "query -f nothere.sql": ("can't read nothere.sql", 1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(SAMPLE, folder / "raw")
    (folder / "raw.json").write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1}]}')
    (folder / "text.txt").write_text("hello")
    (folder / "nothing").mkdir()
    (folder / "false.duckdb").write_bytes(bytes(8) + b"DUCK" + bytes(100))
    assert run(["ingest", str(folder / "raw"), "--db", str(folder / "trace.duckdb")]) == 0
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before, "a mistake left files"


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes(line: str, command: Command) -> None:
    expected = MISTAKES[line]
    hint, code = expected if isinstance(expected, tuple) else (expected, 2)
    shown = command(*shlex.split(line), code=code)
    (message,) = [one for one in shown.err.splitlines() if not one.endswith("select another with --run N")]
    assert message.startswith("traceconv: ")
    assert hint in message
    assert message.isprintable()
    assert shown.out == ""


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("--order-by 'total desc'", "--order-by total --descending"),
        ("--order-by 'core_type ASC,total DESC'", "--order-by core_type,total"),
        ("--filter op_type==Conv2D", "--filter op_type=Conv2D"),
    ],
)
def test_other_ways_to_write_a_question(written: str, same: str, capfd: pytest.CaptureFixture[str]) -> None:
    for options in (written, same):
        assert run(["report", "op-statistic", "--format", "csv", *shlex.split(options)]) == 0
    first, *rows = capfd.readouterr().out.splitlines()
    half = len(rows) // 2 + 1
    assert [first, *rows][:half] == [first, *rows][half:]
    assert half > 1


def test_an_empty_file_becomes_a_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "new.duckdb"
    empty.touch()
    for command in (["info", str(empty)], ["report", "op-statistic", "--db", str(empty)], ["ingest", str(empty)]):
        assert run(command) == 1
        assert "is empty" in capfd.readouterr().err
    assert run(["ingest", "raw", "--db", str(empty)]) == 0
    assert run(["report", "op-statistic", "--db", str(empty)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new.duckdb"]
