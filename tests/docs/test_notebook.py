"""The notebook in examples/ runs, and each cell shows a result as a notebook would."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def shown(value: object) -> str:
    """What a notebook shows: HTML if there is some, else the repr."""
    as_html = getattr(value, "_repr_html_", None)
    return str(as_html()) if as_html is not None else repr(value)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "examples"
    folder.mkdir()
    (tmp_path / "sample_traces").mkdir()
    shutil.copytree(ROOT / "sample_traces" / "mini_resnet", tmp_path / "sample_traces" / "mini_resnet")
    monkeypatch.chdir(folder)
    notebook = json.loads((ROOT / "examples" / "analysis.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    names: dict[str, Any] = {}
    outputs = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None), "save the notebook without outputs"
        body = ast.parse(source).body
        last = body[-1]
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(body[:-1], []), "cell", "exec"), names)
        outputs.append(shown(eval(compile(ast.Expression(last.value), "cell", "eval"), names)))
    store, report, reports, schema, pandas, polars, rows, why, exported, closed = outputs
    assert store.startswith("<table><caption>../sample_traces/mini_resnet</caption>")
    assert report.count("<tr>") == 6
    assert "op-statistic" in reports
    assert "wait_ns  BIGINT, ns" in schema
    assert "AI_CORE" in pandas
    assert "wait_ns" in polars
    assert "compute" in rows
    assert "task.slice_0.bin, bytes" in why
    assert "size_bytes" in exported
    assert closed == "None"
    assert (folder / "analysis.pftrace").stat().st_size > 1000


#: What DuckDB takes for a notebook whose environment has no ipywidgets.
_BARE_NOTEBOOK = """
import sys, types
kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: kernel)
sys.modules["ipywidgets"] = None
import duckdb, traceconv
try:
    duckdb.connect().execute("SET enable_progress_bar = false")
except duckdb.InvalidInputException:
    print(traceconv.open_store(sys.argv[1]).critical_path())
"""


def test_a_notebook_without_widgets(tmp_path: Path) -> None:
    trace = ROOT / "sample_traces" / "pytorch" / "resnet18.pt.trace.json.gz"
    command = [sys.executable, "-c", _BARE_NOTEBOOK, trace]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines()[:1], done.stderr) == (["critical path of 3 steps: 121.054 ms"], "")
