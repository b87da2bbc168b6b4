"""Packages add source formats by entry points; a broken one doesn't stop the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command
from processes import TRACECONV

from traceconv.cli.app import run
from traceconv.formats import plugins
from traceconv.formats.registry import FORMATS, format_names

EXAMPLE = Path(__file__).parents[2] / "examples" / "stopwatch_format"
LAPS = "# stopwatch\nload,10,30\nbroken\nx,y,z\nrun,1720000000123456789,1720000000123456799\n"
TRACE = '[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built as a wheel without a network and unpacked as an installation leaves it."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "package")
    build = "from setuptools import build_meta; print(build_meta.build_wheel('..'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=folder / "package", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def call(site: Path, folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{Path(__file__).parents[2]}"}
    command = [*TRACECONV, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_files_of_the_example_package_are_ingested_reported_and_located(site: Path, tmp_path: Path) -> None:
    (tmp_path / "laps.txt").write_text(LAPS)
    call(site, tmp_path, "ingest", "laps.txt", code=3)
    assert "laps of a stopwatch" in call(site, tmp_path, "info", "laps.txt", code=3)[0]
    slices = call(site, tmp_path, "query", "SELECT id, name, start_ns, dur_ns FROM slice", "--format", "json")[0]
    rows = json.loads(slices)
    assert [(row["name"], row["start_ns"], row["dur_ns"]) for row in rows] == [
        ("load", 10, 20), ("run", 1720000000123456789, 10),
    ]  # fmt: skip
    report = call(site, tmp_path, "report", "range-statistic", "--format", "csv")[0]
    assert "load" in report and "run" in report
    answer = json.loads(call(site, tmp_path, "why", "slice", str(rows[1]["id"]), "--json")[0])
    (piece,) = answer["evidence"]
    assert (piece["format"], piece["byte_offset"], piece["text"]) == ("stopwatch", 36, LAPS.splitlines()[4])
    assert {"column": "start_ns, dur_ns", "how": "start, and end minus start: ns in the file"} in answer["notes"]


def test_files_of_the_example_package_are_found_in_folders(site: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "laps").write_text("# stopwatch\nload,10,30\n")
    (tmp_path / "all" / "trace.json").write_text(TRACE)
    call(site, tmp_path, "ingest", "all")
    formats = "SELECT source_format FROM run ORDER BY ALL"
    assert call(site, tmp_path, "query", formats, "--format", "csv")[0].split() == [
        "source_format", "chrome_json", "stopwatch",
    ]  # fmt: skip


def test_the_export_of_the_example_package_writes_what_its_format_reads(site: Path, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}
        for name, ts, dur, tid in (("load", 1, 2, 1), ("é", 2.5, 0.001, 2), ("a,b", 3, 1, 2), ("early", -1, 5, 2))
    ]
    (tmp_path / "trace.json").write_text(
        json.dumps([*events, {"ph": "B", "name": "open", "ts": 9, "pid": 1, "tid": 1}])
    )
    call(site, tmp_path, "ingest", "trace.json")
    assert "stopwatch" in call(site, tmp_path, "export", "--help")[0]
    _, err = call(site, tmp_path, "export", "stopwatch", "-o", "laps.txt")
    assert "not in laps.txt: 3 slices without an end, before 0 or with a comma" in err
    assert (tmp_path / "laps.txt").read_text("utf-8") == "# stopwatch\nload,1000,3000\né,2500,2501\n"
    call(site, tmp_path, "ingest", "laps.txt")
    sql = "SELECT name, start_ns, dur_ns FROM slice WHERE run_id = 2 ORDER BY start_ns"
    assert call(site, tmp_path, "query", sql, "--format", "csv")[0].split() == [
        "name,start_ns,dur_ns", "load,1000,2000", "é,2500,1",
    ]  # fmt: skip
    one_track = call(site, tmp_path, "export", "stopwatch", "--run", "1", "--track", "1", "-o", "-")[0]
    assert one_track == "# stopwatch\nload,1000,3000\n"


def test_names_of_plugins_are_completed_and_suggested(site: Path, tmp_path: Path) -> None:
    (tmp_path / "laps.txt").write_text(LAPS)
    _, err = call(site, tmp_path, "ingest", "laps.txt", "--reader", "stopwach", code=2)
    assert "unknown reader 'stopwach'. Did you mean 'stopwatch'?" in err
    assert ", stopwatch" in err
    call(site, tmp_path, "ingest", "laps.txt", "--reader", "stopwatch", code=3)
    complete = {"_TRACECONV_COMPLETE": "complete_bash", "COMP_WORDS": "traceconv ingest --reader st", "COMP_CWORD": "3"}
    program = "from traceconv.cli.app import app; app(prog_name='traceconv')"
    environment = {**os.environ, **complete, "PYTHONPATH": f"{site}{os.pathsep}{Path(__file__).parents[2]}"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["stopwatch"]


# -- broken packages --


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a module with one format, as pip would leave it."""
    site = tmp_path / "site"
    info = site / "odd_format-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd_format\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\nodd = odd_format:FORMAT\n")
    monkeypatch.syspath_prepend(str(site))
    plugins.plugin_formats.cache_clear()
    yield lambda code: (site / "odd_format.py").write_text(code) and None
    plugins.plugin_formats.cache_clear()
    sys.modules.pop("odd_format", None)


FORMAT = """
from traceconv.formats.format import Format

def sniff(head):
    {sniff}

def read(request):
    {read}

FORMAT = Format("odd", "an odd file", sniff, "odd_format:read")
"""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'; update or uninstall"),
        ("FORMAT = 7", "is not an object of traceconv.formats.format.Format"),
        (FORMAT.format(sniff="return head[1 << 20]", read="pass"), "failed: IndexError: index out of range; update"),
    ],
)
def test_a_broken_package_is_one_line_and_leaves_the_others(
    code: str, problem: str, install: Callable[[str], None], tmp_path: Path, command: Command
) -> None:
    install(code)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.txt").write_text("nothing")
    (tmp_path / "in" / "trace.json").write_text(TRACE)
    done = command("ingest", tmp_path / "in", "--db", tmp_path / "s.duckdb")
    lines = [line for line in done.err.splitlines() if "odd" in line]
    assert len(lines) == 1 and problem in lines[0]
    command("ingest", tmp_path / "in" / "notes.txt", "--db", tmp_path / "s.duckdb", code=1)


def test_a_reader_that_fails_is_an_error_of_its_file(
    install: Callable[[str], None], tmp_path: Path, command: Command
) -> None:
    install(FORMAT.format(sniff="return 90 if head == b'odd' else 0", read="raise KeyError('lap')"))
    (tmp_path / "a.odd").write_text("odd")
    (tmp_path / "trace.json").write_text(TRACE)
    paths = [str(tmp_path / "a.odd"), str(tmp_path / "trace.json")]
    err = command("ingest", *paths, "--db", tmp_path / "s.duckdb", code=3).err
    assert re.search(r"a\.odd: the plug-in for odd failed: KeyError: 'lap'; update its package", err)
    done = command("query", "SELECT name FROM slice", "--db", tmp_path / "s.duckdb", "--format", "csv")
    assert done.out == "name\na\n"


def test_packages_are_not_searched_if_a_built_in_format_is_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.plugin_formats.cache_clear()
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    (tmp_path / "trace.json").write_text(TRACE)
    store = str(tmp_path / "s.duckdb")
    assert run(["ingest", str(tmp_path / "trace.json"), "--db", store]) == 0
    assert run(["why", "slice", str(1 << 40), "--db", store]) == 0


def test_every_reader_and_locate_can_be_imported() -> None:
    for one in FORMATS:
        assert one.in_captures or callable(one.load_reader())
        assert callable(one.load_locate())
    assert [one.name for one in FORMATS] == format_names()


def test_the_guide_shows_the_example() -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "how-to" / "add-a-format.md").read_text("utf-8")
    shown = dict(re.findall(r"^```(?:toml|python)\n# (.*?)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL))
    assert shown == {name: (EXAMPLE / name).read_text("utf-8") for name in shown} and len(shown) == 2
