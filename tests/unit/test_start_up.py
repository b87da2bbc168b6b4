"""Help and version start quickly: no heavy module is loaded for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import traceconv
from tests.store_builder import build_store
from traceconv import native
from traceconv._version import __version__

HEAVY = ("duckdb", "pyarrow", "numpy", "onnx", "onnxruntime")
COMMANDS = (
    "",
    "ingest",
    "report",
    "query",
    "advise",
    "compare",
    "analyze",
    "analyze critical-path",
    "analyze what-if",
    "timeline",
    "export",
    "export chrome",
    "runs",
    "runs list",
    "runs label",
    "runs delete",
    "runs merge",
    "lake",
    "lake list",
    "lake report",
    "lake query",
    "schema",
    "record",
    "model",
    "op-profile",
    "info",
    "dump",
    "verify",
    "why",
    "mcp",
)

_PROGRAM = """
import sys
from traceconv.cli.app import run
code = run(sys.argv[1:])
print(",".join(name for name in sys.modules if name.split(".")[0] in {heavy!r}), file=sys.stderr)
sys.exit(code)
"""

_HELPS = """
import json, sys
from traceconv.cli.app import run
heavy, commands = json.loads(sys.argv[1])
for command in commands:
    assert run([*command.split(), "--help"]) == 0
    print("\\0", ",".join(name for name in sys.modules if name.split(".")[0] in heavy), sep="", end="\\0")
"""


def loaded_by(*arguments: str) -> tuple[str, str]:
    """What a command line prints, and the heavy modules that it loads."""
    program = _PROGRAM.replace("{heavy!r}", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr.strip()


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[str, str]]:
    """What each command prints as help on a terminal of 80 columns, and the heavy modules it loads.

    One process shows them all: what a command loads shows at the first command that loads it.
    """
    environment = {**os.environ, "COLUMNS": "80"}
    command = [sys.executable, "-c", _HELPS, json.dumps([HEAVY, COMMANDS])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    parts = done.stdout.split("\0")
    return dict(zip(COMMANDS, zip(parts[:-1:2], parts[1::2], strict=True), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(helps: dict[str, tuple[str, str]], command: str) -> None:
    shown, heavy = helps[command]
    assert f"Usage: traceconv {command}".rstrip() in shown
    assert heavy == ""
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    if command not in ("analyze", "export", "lake", "runs"):
        assert any(line.startswith("    traceconv ") for line in shown.splitlines()), "an example on a line of its own"


def test_version_loads_nothing_heavy() -> None:
    shown, heavy = loaded_by("--version")
    extension = "active" if native.AVAILABLE else "not active"
    assert shown == f"traceconv {__version__} (profiler traces and NPU logs in DuckDB), C extension {extension}\n"
    assert heavy == ""


def test_version_shows_that_the_c_extension_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert loaded_by("--version")[0].endswith(", C extension not active\n")


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = f"import sys, traceconv; assert not set(sys.modules) & set({HEAVY!r})"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_report_of_a_store_loads_no_format(tmp_path: Path) -> None:
    """With all of them loaded, the peak memory of exports was 65 MB higher."""
    trace, store = tmp_path / "trace.json", tmp_path / "trace.duckdb"
    trace.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]')
    traceconv.ingest(trace, db=store)
    program = """
import sys
from traceconv.cli.app import run
assert run(sys.argv[1:]) == 0
print("traceconv.formats.registry" in sys.modules, file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "report", "summary", "--db", str(store)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "False\n"


def test_modules_that_an_ingest_does_not_need_are_loaded_on_use(tmp_path: Path) -> None:
    """pyarrow would load pandas, which takes longer than a small trace."""
    trace = tmp_path / "trace.json"
    trace.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]')
    program = """
import sys
from functools import partial
from traceconv.cli.app import program
program()
print = partial(print, file=sys.stderr)
print("pyarrow" in sys.modules)
unused = ("pandas", "numpy.ma.core", "numpy.linalg._linalg", "hashlib", "traceconv.wire.frames",
          "traceconv.formats.npulog.discover")
print([name for name in unused if name in sys.modules])
import numpy as np, numpy.linalg, numpy.ma.extras, duckdb
print(np.linalg.norm([3.0, 4.0]), np.linalg is sys.modules["numpy.linalg"], numpy.matrix([[2]]) ** 2)
print(np.polynomial.polynomial.polyroots([-2, 1]), np.roots([1, -3]))
print(duckdb.sql("SELECT unnest([1, NULL])").fetchnumpy().popitem()[1].mask)
print(np.ma.is_masked(np.ma.masked_array([1], [True])), np.ma is sys.modules["numpy.ma"])
import secrets, importlib.metadata
print(len(secrets.token_bytes(3)), duckdb.__version__ == importlib.metadata.version("duckdb"))
"""
    command = [sys.executable, "-c", program, "ingest", str(trace), "--db", str(tmp_path / "trace.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-7:] == [
        "True", "[]", "5.0 True [[4]]", "[2.] [3.]", "[False  True]", "True True", "3 True"
    ]  # fmt: skip


@pytest.mark.skipif(find_spec("duckdb._relation") is None, reason="DuckDB 1 has no such module")
def test_a_report_does_not_load_what_makes_relations_of_duckdb(tmp_path: Path) -> None:
    store = build_store(tmp_path / "trace.duckdb")
    program = """
import sys
from traceconv.cli.app import program
program()
import duckdb
relations = sys.modules["duckdb._relation"]
print("Filter" in vars(relations), file=sys.stderr)
stand_ins = set(relations.CONNECTION_METHODS), {name for name in vars(relations) if name.startswith("module_")}
print(duckdb.connect().sql("SELECT 1").fetchall(), duckdb.sql("SELECT 2").fetchall(), file=sys.stderr)
real = sys.modules["duckdb._relation"]
print(stand_ins == (set(real.CONNECTION_METHODS), {name for name in vars(real) if name.startswith("module_")}),
      file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "report", "op-statistic", "--db", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-3:] == ["False", "[(1,)] [(2,)]", "True"]


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from traceconv.cli.app import main; main()"
    command = [sys.executable, "-c", program, "record", "mini_resnet", "-o", str(tmp_path / "raw")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    message = f"traceconv: the Python package {package} is not installed; install it: pip install {package}\n"
    assert done.stderr == message


def test_functions_registered_to_run_at_exit_run_and_the_exit_code_is_kept(tmp_path: Path) -> None:
    program = """
import atexit, sys
from traceconv.cli.app import main
atexit.register(lambda: print("left", file=sys.stderr))
main()
"""
    for arguments, code in ((["--version"], 0), (["query", "SELECT 1", "--db", str(tmp_path / "missing.duckdb")], 1)):
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "left")


def test_help_names_every_command(helps: dict[str, tuple[str, str]]) -> None:
    shown, _ = helps[""]
    listed = [line.split()[0] for line in shown.split("Commands:")[1].splitlines() if line.strip()]
    assert listed == [command for command in COMMANDS if command and " " not in command]


def test_errors_are_named_by_the_package_that_exports_them(tmp_path: Path) -> None:
    for name in ("DataLossError", "InputError", "ModelError", "OutputError", "StoreError", "UsageError"):
        error = getattr(traceconv, name)
        assert f"{error.__module__}.{error.__qualname__}" == f"traceconv.{name}"
    program = "import sys, traceconv; traceconv.open_store(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "x.duckdb")], capture_output=True, text=True)
    assert "\ntraceconv.StoreError: " in done.stderr
