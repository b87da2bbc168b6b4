"""Standard streams that are closed, full or abandoned by their reader: results are stored, exit codes are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from capture_builder import CaptureBuilder
from commands import Command
from stores import query

from traceconv.cli.app import run
from traceconv.pipeline.ingest import ingest

FULL = "traceconv: can't write standard output: No space left on device\n"
CLOSED = "traceconv: can't write standard output: Bad file descriptor\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture PROF_1, and a store s.duckdb that has it."""
    folder = tmp_path_factory.mktemp("streams")
    b = CaptureBuilder(folder / "PROF_1")
    for number in range(3000):
        b.call(number + 1, number * 10, number * 10 + 5, f"call {number}")
    b.close()
    ingest([folder / "PROF_1"], folder / "s.duckdb")
    return folder


def shell(place: Path, command: str, redirection: str) -> tuple[int, str]:
    """(exit code, what is left of stderr) of a command with redirections, as a shell runs it."""
    line = f"{sys.executable} -m traceconv {command} {redirection}; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "TRACECONV_DB": "s.duckdb"}
    done = subprocess.run(["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


#: Each prints in a way of its own: typer, a table, a text format, bytes, lines.
COMMANDS = {
    "help": "--help",
    "table": "query 'FROM api'",
    "csv": "report api-statistic --format csv",
    "dump": "dump PROF_1",
    "info": "info PROF_1",
    "export": "export chrome -o -",
    "why": f"why api {1 << 40}",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_results_that_cannot_be_written_are_a_one_line_error(place: Path, command: str) -> None:
    assert shell(place, command, ">/dev/full") == (1, FULL)
    assert shell(place, command, "| true") == (0, "")


@pytest.mark.parametrize("command", [COMMANDS["help"], COMMANDS["csv"]])
def test_closed_streams(place: Path, command: str) -> None:
    assert shell(place, command, ">&-") == (1, CLOSED)
    assert shell(place, command, "<&- >&- 2>&-") == (1, "")
    assert shell(place, command, ">/dev/null 2>&-") == (0, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&- >&- 2>&-", "2>&1 >/dev/full | true"])
def test_an_ingest_does_not_depend_on_its_standard_streams(place: Path, tmp_path: Path, redirection: str) -> None:
    """A stream that is closed must not become the number of the store's file either."""
    store = tmp_path / "s.duckdb"
    assert shell(place, f"ingest PROF_1 --db {store}", redirection)[0] == 0
    assert query(store, "SELECT count(*) FROM api") == [(3000,)]
    (place / "PROF_2").mkdir(exist_ok=True)
    assert shell(place, f"ingest PROF_1 PROF_2 --db {store}", redirection)[0] == 3


def test_an_error_keeps_its_exit_code_if_stderr_is_closed(place: Path) -> None:
    assert shell(place, "report nosuch", "2>/dev/full") == (2, "")
    assert shell(place, "info nowhere", ">&- 2>&-") == (1, "")


@pytest.mark.parametrize("command", ["ingest", "info"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input is empty"),
        ('{"$schema":"https://www.speedscope.app/file-format-schema.json"}', "specify the path of other files"),
    ],
)
def test_standard_input_without_a_trace(place: Path, command: str, text: str, message: str) -> None:
    (place / "in").write_text(text)
    code, err = shell(place, f"{command} -", "< in")
    assert (code, err.startswith("traceconv: standard input "), message in err) == (1, True, True)


def test_sql_from_a_closed_or_binary_standard_input(place: Path) -> None:
    assert shell(place, "query -", "<&-") == (2, 'traceconv: empty SQL; pass a statement such as "FROM op_statistic"\n')
    assert shell(place, "query -", "< s.duckdb") == (2, "traceconv: the SQL is not UTF-8 text\n")


LARGEST = "must be from -9223372036854775808 to 9223372036854775807"


@pytest.mark.parametrize(
    "command",
    [
        "report op-summary --top",
        "report op-summary --step",
        "report op-summary --device",
        "export chrome -o x --device",
        "record mini_lstm -o x --iterations",
        "model mini_lstm --batch",
        "op-profile Relu --repeat",
        "dump . --limit",
        "ingest . --max-event-mb",
    ],
)
def test_numbers_of_more_than_64_bits_are_refused_by_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    huge = "99999999999999999999"
    assert run([*command.split(), huge]) == 2
    assert capsys.readouterr().err == f"traceconv: {command.split()[-1]} {huge}: {LARGEST}\n"


def test_control_characters_in_column_names_of_a_query_are_escaped(place: Path, command: Command) -> None:
    hostile = 'SELECT 1 AS "a\x1b[31m\nb\u202e", chr(27) AS c'
    assert command("query", hostile, "--db", place / "s.duckdb").out.splitlines()[0] == "a\\x1b[31m\\x0ab\\x202e  c"


HOSTILE = "\x1b[31m\u202e\x9b2J"


def test_messages_and_suggested_names_are_escaped(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of runs, files and record types come from traces and folders of others."""
    folder = Path(shutil.copytree(place / "PROF_1", tmp_path / f"PROF_{HOSTILE}"))
    (folder / f"host/data/{HOSTILE}.bin").write_bytes(b"\x89NPULOG\n")
    store = tmp_path / "s.duckdb"
    for command in (
        ["ingest", str(folder), "--db", str(store)],
        ["report", "op-summary", "--run", f"PROF{HOSTILE}", "--db", str(store)],
        ["dump", str(folder), "--type", f"{HOSTILE}x"],
        ["export", "chrome", "-o", str(tmp_path / f"{HOSTILE}.json"), "--db", str(store)],
        ["report", f"--{HOSTILE}"],
    ):
        run(command)
        err = capsys.readouterr().err
        assert err, command
        assert all(line.isprintable() for line in err.splitlines()), command
