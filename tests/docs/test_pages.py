"""Every command in the docs runs and prints the output on its page; the reference pages are up to date."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import page_outputs
import pytest
from program_runs import run_python

from traceconv.cli import app
from traceconv.reports.catalog import reports

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ANALYSES = ("critical-path", "what-if", "graph-replays")
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def module(name: str) -> ModuleType:
    """A program of docs/."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def run(command: str, folder: Path, capture: pytest.CaptureFixture[str]) -> str:
    """Run a command and return its stdout and stderr. Its exit code must be the one on the page."""
    words = list(shlex.shlex(command, posix=True, punctuation_chars=True))
    program = {"traceconv": app.run, "python": run_python, "python3": run_python}.get(words[0])
    if program is not None and not {"|", "<", ">", "&", ";", "||"} & set(words):
        # Run in this process: imports dominate the time of such a command.
        code = program(shlex.split(command, comments=True)[1:])
        printed = "".join(capture.readouterr())
    else:
        path = os.pathsep.join([str(Path(sys.executable).parent), str(page_outputs.SHELL), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            # Packages that `pip install --target` installed next to the shell are found by PYTHONPATH only.
            env={**os.environ, "PATH": path, "PYTHONPATH": str(page_outputs.SHELL.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        code, printed = done.returncode, done.stdout + done.stderr
    assert code == page_outputs.exit_code(command), f"{command}\n{printed}"
    return printed


@pytest.mark.parametrize("page", page_outputs.PAGES, ids=lambda page: page.stem)
def test_commands_print_what_their_page_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    changes, failures = [], []
    for step in page_outputs.steps(page):
        printed = "".join(run(command, tmp_path, capfd) for command in page_outputs.prepare(step, tmp_path))
        if step.prints is not None and not page_outputs.is_printed(step, printed):
            lines = page_outputs.renewed(step, printed)
            if lines is not None and request.config.getoption("--update"):
                changes.append((step, lines))
                continue
            advice = "edit the page" if lines is None else "to renew the page: make docs"
            failures.append("\n".join([f"{page.name}: {advice}", *step.prints, "\nprinted:", printed]))
    if changes:
        page_outputs.renew(page, changes)
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize(
    ("shown", "printed", "same", "renewed"),
    [
        ("a 1\nb", "a 1\nb\n", True, "a 1\nb"),
        ("a 1\nb", "a 2\nb\n", False, "a 2\nb"),
        ("a 1", "a 1\nb\n", False, "a 1\nb"),
        ("a 1\n…", "a 1\nb\n", True, "a 1\n…"),
        ("…\nb 1\n…\nc", "a\nb 2\nx\nc\n", False, "…\nb 2\n…\nc"),
        ("…\nb", "b\nb\n", True, "…\nb"),
        ("…\nb", "b\nc\n", False, None),
        ("a … c", "a b c\n", True, "a … c"),
        ("7 rows in 1.5 s (3 records/s)", "7 rows in 2 s (1,000 records/s)\n", True, "7 rows in 1.5 s (3 records/s)"),
        (
            "8 rows in 1.5 s (3 records/s)",
            "7 rows in 2 s (1,000 records/s)\n",
            False,
            "7 rows in 2 s (1,000 records/s)",
        ),
    ],
)
def test_output_is_compared_exactly_and_renewed(shown: str, printed: str, same: bool, renewed: str | None) -> None:
    step = page_outputs.Step(("command",), tuple(shown.splitlines()))
    assert page_outputs.is_printed(step, printed) == same
    assert page_outputs.renewed(step, printed) == (None if renewed is None else renewed.splitlines())


def test_numbers_of_varying_output_may_differ() -> None:
    step = page_outputs.Step(("command",), ("a  1.5 ms", "…"), varies=True)
    assert page_outputs.is_printed(step, "a 20 ms\nb\n")
    assert not page_outputs.is_printed(step, "a 20 us\n")


def test_outputs_are_renewed_in_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# A\n```sh\necho 2\n```\n```text\n1\n```\n```console\n$ echo "a\nb"\na\n$ true\n```\nEnd\n')
    one, two, three = page_outputs.steps(page)
    assert [step.commands for step in (one, two, three)] == [("echo 2",), ('echo "a\nb"',), ("true",)]
    assert [step.prints for step in (one, two, three)] == [("1",), ("a",), None]
    page_outputs.renew(page, [(one, ["2", "3"]), (two, ["a", "b"])])
    assert page.read_text() == (
        '# A\n```sh\necho 2\n```\n```text\n2\n3\n```\n```console\n$ echo "a\nb"\na\nb\n$ true\n```\nEnd\n'
    )


def test_each_report_and_analysis_answers_a_question() -> None:
    page = (DOCS / "how-to/which-question-which-report.md").read_text("utf-8")
    names = [name.replace("_", "-") for name in reports()]
    names += [f"traceconv {one}" for one in ("advise", "compare", *(f"analyze {one}" for one in ANALYSES))]
    assert [name for name in names if not re.search(f"`{name}[` ]", page)] == []


def test_the_architecture_page_lists_the_packages() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text("utf-8")
    table = text[text.index("| package |") :].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    folder = ROOT / "traceconv"
    assert named == {path.parent.name for path in folder.glob("*/__init__.py")} | {"api", "mcp", "opened_store"}
    order = next(line for line in text.splitlines() if line.startswith("`cli →"))
    assert set(re.findall(r"\w+", order)) == named


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *DOCS.rglob("*.md")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_link_targets_exist(page: Path) -> None:
    for target in _LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The generator with its pages, which it made once: on a narrow terminal, which must make no difference."""
    generate = module("generate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "40")
        patch.setenv("TERM", "dumb")
        made = generate.pages()
    generate.pages = lambda: made  # type: ignore[attr-defined]
    return generate


def test_reference_pages_are_up_to_date_on_any_terminal(generate: ModuleType) -> None:
    assert generate.stale() == []


def test_check_reports_outdated_pages(generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(generate.FOLDER, tmp_path / "reference")
    monkeypatch.setattr(generate, "FOLDER", tmp_path / "reference")
    assert generate.main(["--check"]) == 0
    with (tmp_path / "reference" / "tables.md").open("a") as page:
        page.write("more\n")
    (tmp_path / "reference" / "old.md").write_text("")
    assert generate.main(["--check"]) == 1
    assert generate.stale() == ["old.md", "tables.md"]
