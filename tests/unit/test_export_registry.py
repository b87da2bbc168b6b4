"""Export targets come from one list; other packages add theirs by entry points."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tomli
from commands import Command

import traceconv
from traceconv.base.errors import UsageError
from traceconv.cli.app import run
from traceconv.export.registry import EXPORTS, GROUP

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-an-export.md"

MakeStore = Callable[..., Path]


@pytest.fixture
def store(make_store: MakeStore) -> Path:
    return make_store(
        op=[{"op_id": 1, "name": "first", "op_type": "Conv2D"}, {"op_id": 2, "name": "second", "op_type": "Add"}]
    )


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a module with entry points, as pip would leave it."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    installed = []

    def add(module: str, code: str, **points: str) -> None:
        info = site / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{module}.py").write_text(code, "utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"{name.replace('_', '-')} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")
        installed.append(module)

    yield add
    for module in installed:
        sys.modules.pop(module, None)


def test_package_from_the_guide_adds_a_target(
    store: Path, tmp_path: Path, install: Callable[..., None], command: Command
) -> None:
    project, module = re.findall(r"^```(?:toml|python)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    points = tomli.loads(project)["project"]["entry-points"][GROUP]
    install("traceconv_op_names", module, **points)
    assert re.search(r"op-names +Write a run as a list of op names\.", command("export", "--help").out)
    done = command("export", "op-names", "--db", store, "-o", tmp_path / "names.txt")
    assert f"{tmp_path / 'names.txt'}: 2 ops (13 bytes)" in done.err
    assert (tmp_path / "names.txt").read_text() == "first\nsecond\n"
    with traceconv.open_store(store) as opened:
        opened.export("op-names", tmp_path / "adds.txt", op_type="Add")
        with pytest.raises(UsageError, match="has no option 'optype'"):
            opened.export("op-names", tmp_path / "adds.txt", optype="Add")
    assert (tmp_path / "adds.txt").read_text() == "second\n"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'; update or uninstall"),
        ("EXPORT = ", "SyntaxError: invalid syntax"),
        ("", "AttributeError: module 'broken_plugin' has no attribute 'EXPORT'"),
        (
            "EXPORT = 7",
            "is not an object of traceconv.export.registry.Export with that name; update or uninstall its package",
        ),
    ],
)
def test_broken_package_is_reported_and_others_work(
    code: str,
    problem: str,
    store: Path,
    tmp_path: Path,
    install: Callable[..., None],
    command: Command,
) -> None:
    install("broken_plugin", code, broken="broken_plugin:EXPORT")
    [line] = command("export", "broken", "--db", store, "-o", tmp_path / "x", code=1).err.splitlines()
    assert problem in line and "'broken' (broken_plugin:EXPORT)" in line
    shown = command("export", "--help")
    assert problem in shown.err
    assert all(export.name in shown.out for export in EXPORTS)


def test_packages_are_not_searched_for_built_in_targets(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    assert run(["export", "chrome", "--db", str(store), "-o", str(tmp_path / "t.json")]) == 0
