"""Shared configuration and fixtures. Property tests use the same examples in every run and have no deadline."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command, Written
from hypothesis import settings
from variants import mark_others

settings.register_profile("project", deadline=None, derandomize=True, database=None)
settings.load_profile("project")

# The cache of the tests is in the virtual environment, apart from the user's.
os.environ["TRACECONV_CACHE"] = str(Path(sys.prefix) / "traceconv-cache")

# What tests write need not survive a crash of the machine, and they would wait for the disk.
os.fsync = lambda _: None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update`, which accepts the differences of golden files."""
    parser.addoption("--update", action="store_true", help="rewrite tests/golden/expected and outputs in docs")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave variants that other variants resemble to `make test-long`, before tests are selected by marker."""
    mark_others(items)


def pytest_collection_finish() -> None:
    """Keep modules and tests out of garbage collections, which otherwise take a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(150_000)  # as on the command line


def pytest_sessionfinish() -> None:
    """Let the interpreter collect everything at its end; nanobind reports instances that are left."""
    gc.unfreeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("x.json", text)` compares text with tests/golden/expected/x.json, which `pytest --update` rewrites."""

    def check(name: str, text: str) -> None:
        file = Path(__file__).parent / "golden" / "expected" / name
        if request.config.getoption("--update"):
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), "to accept the difference: pytest --update, then read the diff"

    return check


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache, also of programs that the test starts, with the empty store that would take a second to create."""
    from traceconv.reports.statements import report_statements
    from traceconv.store.template_cache import empty_store

    empty_store(report_statements)  # is cached
    folder = tmp_path / "cache"
    folder.mkdir()
    for template in Path(os.environ["TRACECONV_CACHE"]).glob("blank-store-*"):
        shutil.copyfile(template, folder / template.name)
    monkeypatch.setenv("TRACECONV_CACHE", str(folder))
    return folder


@pytest.fixture
def folder_of_a_user() -> Iterator[Path]:
    """A folder of a user whom permissions apply to, unlike root; meanwhile, the process is this user's."""
    is_root, nobody = os.geteuid() == 0, 65534
    with tempfile.TemporaryDirectory() as name:
        if is_root:
            os.chown(name, nobody, nobody)
            os.seteuid(nobody)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """`command("info", path, code=3)` calls `traceconv info`, which must end with this code; returns what it writes."""
    from traceconv.cli.app import run

    def called(*arguments: object, code: int = 0) -> Written:
        capfd.readouterr()
        ended = run([str(argument) for argument in arguments])
        written = Written(*capfd.readouterr())
        assert ended == code, written
        return written

    return called


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """`make_store(task=[{...}], op=[...])` returns the path of a new store with these rows."""
    from store_builder import build_store

    def make(**rows: object) -> Path:
        return build_store(tmp_path / f"{len(list(tmp_path.iterdir()))}.duckdb", **rows)  # type: ignore[arg-type]

    return make
