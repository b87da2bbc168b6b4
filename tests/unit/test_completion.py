"""Completion in real shells: names of reports, columns, runs and others, without loading what takes time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from store_builder import build_store

from traceconv.cli.completions import MODELS
from traceconv.formats.registry import format_names
from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.store.catalogue import views

CASES = [
    ("rep", {"report"}),
    ("report op-s", {"op-statistic", "op-summary"}),
    ("report op-statistic --order-by tot", {"total_ns"}),
    ("report op-statistic --columns op_type,tot", {"op_type,total_ns"}),
    ("report op-statistic --filter op_type_", {"op_type_source="}),
    ("report op-statistic --format m", {"markdown", "msprof-csv"}),
    ("report op-statistic --db s.duckdb --run ba", {"base"}),
    ("report op-statistic --db s.duckdb --run a", {"all"}),
    ("advise --db s.duckdb --run b", {"base"}),
    ("report op-statistic --db s.duckdb --rank ", {"0"}),
    ("ingest --reader ns", {"nsys"}),
    ("schema task", {"task", "task_memory", "task_module", "task_operator", "task_pmu", "task_queue", "task_time"}),
    ("why task", {"task", "task_memory", "task_module", "task_operator", "task_pmu", "task_queue", "task_time"}),
    ("record mini_r", {"mini_resnet"}),
    ("export mem", {"memory-flow"}),
    ("runs la", {"label"}),
    ("runs label --db s.duckdb ba", {"base"}),
    ("runs delete --db s.duckdb 1 ba", {"base"}),
]

#: traceconv, and a line in a file about the heavy modules that were loaded.
_PROGRAM = """
import atexit, pathlib, sys
heavy, loaded = {"duckdb", "numpy", "pyarrow", "onnx"}, pathlib.Path(__file__).with_name("loaded")
atexit.register(lambda: print(*sorted(heavy & {*sys.modules}), file=loaded.open("a")))
from traceconv.cli.app import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    build_store(
        folder / "s.duckdb",
        run=[{"run_id": 1, "label": "base", "rank": 0}, {"run_id": 2, "label": "ba; touch x"}],
    )
    program = folder / "bin" / "traceconv"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{_PROGRAM}")
    program.chmod(0o755)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), **more}


def completion_script(folder: Path, shell: str) -> str:
    env = environment(folder, _TRACECONV_COMPLETE=f"source_{shell}")
    return subprocess.run(["traceconv"], env=env, capture_output=True, text=True, check=True).stdout


def completed(folder: Path, shell: str, lines: list[str]) -> list[set[str]]:
    """What a shell completes each line to."""
    script = folder / f"script.{shell}"
    if not script.exists():
        script.write_text(completion_script(folder, shell))
    if shell == "bash":
        program = f"source {script}\n" + "".join(
            f"COMP_WORDS=({' '.join(line.split())}{'' if line[-1] != ' ' else ' '})\n"
            f"COMP_WORDS+=({chr(39) * 2 if line[-1] == ' ' else ''})\n"
            "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_traceconv_completion traceconv\n"
            'printf "%s\\n" "${COMPREPLY[@]}" END\n'
            for line in lines
        )
        command = ["bash", "--norc", "-c", program]
    elif shell == "fish":
        program = f"source {script}\n" + "".join(f"complete --do-complete '{line}'\necho END\n" for line in lines)
        command = ["fish", "--no-config", "-c", program]
    else:
        # compadd prints what the completion system would show.
        program = (
            f"autoload -U compinit && compinit -u -d {folder}/dump\nsource {script}\n"
            "_arguments() { print -r -- \"${@[-1]}\" }\n_files() { : }\n"
            + "".join(f"words=({' '.join(line.split())})\n"
            + ("words+=('')\n" if line[-1] == " " else "")
            + "CURRENT=${#words}\n_traceconv_completion\nprint -r -- END\n" for line in lines)
        )  # fmt: skip
        command = ["zsh", "-f", "-c", program]
    done = subprocess.run(
        command,
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    parts = done.stdout.split("END\n")
    assert len(parts) == len(lines) + 1, done.stderr
    if shell == "zsh":
        return [set(re.findall(r'(?:\s|\(\()"([^"]*)"', part)) for part in parts[:-1]]
    return [{line.split("\t")[0] for line in part.splitlines() if line.strip()} for part in parts[:-1]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_values_and_loads_nothing_heavy(folder: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed; install its package")
    loaded = folder / "bin" / "loaded"
    loaded.unlink(missing_ok=True)
    found = completed(folder, shell, [f"traceconv {line}" for line, _ in CASES])
    assert dict(zip([line for line, _ in CASES], found, strict=True)) == dict(CASES)
    script, *heavy = loaded.read_text().splitlines()
    assert script == ""
    for (line, _), modules in zip(CASES, heavy, strict=True):
        assert modules == "" or "--db" in line or line.startswith("export"), line


def test_names_are_those_of_the_program(folder: Path) -> None:
    from traceconv.cli.completions import complete_reader, complete_report, complete_table
    from traceconv.runtime.zoo import model_names

    assert complete_report("") == sorted(name.replace("_", "-") for name in reports())
    assert complete_table("") == sorted({*tables(), *views(), *reports()})
    assert complete_reader("") == sorted(format_names())
    assert sorted(MODELS) == sorted(model_names())
