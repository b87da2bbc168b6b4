"""Every command in the docs runs and prints the output on its page; the reference pages are up to date."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from traceconv.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("tutorial/*.md")) + sorted(DOCS.glob("how-to/*.md"))
SHELL = ROOT / ".shells" / "newest" / "bin"

#: Kinds of blocks that are files, with their extensions.
_FILES = {"python": ".py", "toml": ".toml"}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
_EXIT_CODE = re.compile(r"\s*# exit code (\d+)$")


@dataclass(frozen=True)
class Step:
    """Commands of one block and the lines they print; None if the page shows no output.

    A block of Python or TOML is a file for later commands; its first line is a comment with its name.
    """

    commands: tuple[str, ...]
    prints: tuple[str, ...] | None
    file: tuple[str, str] | None = None


def steps(page: Path) -> Iterator[Step]:
    blocks = [(kind, text.splitlines()) for kind, text in _BLOCK.findall(page.read_text("utf-8"))]
    for index, (kind, lines) in enumerate(blocks):
        assert kind in ("sh", "text", *_FILES), f"{page.name}: a block must be sh, text, {' or '.join(_FILES)}"
        if kind in _FILES:
            named = lines[0].startswith("# ") and lines[0].endswith(_FILES[kind])
            assert named, f"{page.name}: # name{_FILES[kind]} comes first"
            yield Step((), None, (lines[0][2:], "\n".join(lines) + "\n"))
        elif kind == "sh":
            following = blocks[index + 1] if index + 1 < len(blocks) else ("", [])
            yield Step(tuple(lines), tuple(following[1]) if following[0] == "text" else None)


def run(command: str, folder: Path, capture: pytest.CaptureFixture[str]) -> str:
    """Run a command and return its stdout and stderr. Its exit code must be the one on the page."""
    match = _EXIT_CODE.search(command)
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    if words[0] == "traceconv" and not {"|", "<", ">", "&", ";"} & set(words):
        # Run in this process: imports dominate the time of such a command.
        code = app.run(shlex.split(command, comments=True)[1:])
        printed = "".join(capture.readouterr())
    else:
        path = os.pathsep.join([str(Path(sys.executable).parent), str(SHELL), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            # Packages that `pip install --target` installed next to the shell are found by PYTHONPATH only.
            env={**os.environ, "PATH": path, "PYTHONPATH": str(SHELL.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        code, printed = done.returncode, done.stdout + done.stderr
    assert code == (int(match[1]) if match else 0), f"{command}\n{printed}"
    return printed


def assert_prints(printed: str, expected: tuple[str, ...], page: str) -> None:
    """Check that the lines of the page are printed in order. Numbers and spaces may differ; … matches anything."""
    rest = iter(_loose(printed))
    for line in expected:
        if line.strip() == "…":
            continue
        pattern = ".*".join(re.escape(part) for part in _loose(line)[0].split("…"))
        assert any(re.fullmatch(pattern, shown) for shown in rest), f"{page}: not printed: {line}\n{printed}"


def _loose(text: str) -> list[str]:
    lines = [re.sub(r"\d[\d.,]*", "0", line) for line in text.splitlines()]
    lines = [re.sub(r"─+", "─", line) for line in lines]
    return [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_their_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    for step in steps(page):
        if step.file is not None:
            (tmp_path / step.file[0]).write_text(step.file[1], "utf-8")
        commands = [command for command in step.commands if SHELL.exists() or not command.startswith("duckdb ")]
        printed = "".join(run(command, tmp_path, capfd) for command in commands)
        if step.prints is not None:
            assert_prints(printed, step.prints, page.name)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *DOCS.rglob("*.md")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_link_targets_exist(page: Path) -> None:
    for target in _LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_pages_are_up_to_date() -> None:
    assert generator().stale() == []


def test_reference_pages_are_independent_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator()
    wide = module.pages()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    assert module.pages() == wide


def test_check_reports_outdated_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator()
    shutil.copytree(module.FOLDER, tmp_path / "reference")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "reference")
    assert module.main(["--check"]) == 0
    with (tmp_path / "reference" / "tables.md").open("a") as page:
        page.write("more\n")
    (tmp_path / "reference" / "old.md").write_text("")
    assert module.main(["--check"]) == 1
    assert module.stale() == ["old.md", "tables.md"]
