"""Files whose writer was killed, or never closes its brackets: `info` and `ingest` report the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command
from stores import query

SPAN = (
    '{"ph":"X","name":"Execute","cat":"NPU","pid":1,"tid":1,"ts":1.5,"dur":2,'
    '"args":{"start_ts":"1500","end_ts":"3500","trace_id":"a","span_id":"b"}}'
)
SPEEDSCOPE = (
    '{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"a"}]},'
    '"profiles":[{"type":"evented","name":"p","unit":"nanoseconds","startValue":0,"endValue":9,'
    '"events":[{"type":"O","frame":0,"at":1},{"type":"C","frame":0,"at":4}'
)
SPANS = (
    "trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,operator_index\n"
    "a,0,1,1000,2000,Runtime,Inference,7,\na,1,2,1100,1200,Runtime,Quantize,7,12"
)
TEXTS = {
    "array": (f"[{SPAN},\n{SPAN}", 0),
    "array after a comma": (f"[\n{SPAN},\n{SPAN},\n", 0),
    "object": (f'{{"traceEvents":[{SPAN},{SPAN}]', 0),
    "array in an object": (f'{{"traceEvents":[{SPAN},{SPAN}', 0),
    "after a comma in an object": (f'{{"traceEvents":[{SPAN},', 3),
    "in an event": (f"[{SPAN},{SPAN[:40]}", 3),
    "speedscope": (SPEEDSCOPE, 0),
    "spans in a table": (SPANS, 0),
    "spans in a table, cut before the last cell": (SPANS[:-3], 3),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_info_and_ingest_report_a_file_that_is_not_closed(kind: str, tmp_path: Path, command: Command) -> None:
    text, code = TEXTS[kind]
    path, store = tmp_path / "trace.json", tmp_path / "trace.duckdb"
    path.write_text(text)
    shown = command("info", path, code=code).out
    assert ("intact, but not closed" in shown) == (code == 0)
    assert ": intact\n" not in shown
    assert json.loads(command("info", path, "--json", code=code).out)[0]["intact"] is False
    err = command("ingest", path, "--db", store, code=code).err
    ends = "the last line has no line break" if "spans" in kind else "the text ends"
    assert ends in err
    assert ends in shown
    assert query(store, "SELECT complete FROM run") == [(False,)]
    assert query(store, "SELECT count(*) FROM slice") >= [(1,)]


@pytest.mark.parametrize(
    "text", [f"[{SPAN}]", f'{{"traceEvents":[{SPAN}]}}', f"{SPAN}\n{SPAN}\n", f"[\n{SPAN}\n]\n", f"{SPANS}\n"]
)
def test_a_closed_file_is_intact(text: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert ": intact\n" in command("info", path).out
    assert "the text ends" not in command("ingest", path, "--db", tmp_path / "t.duckdb").err


def test_too_little_address_space_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(f"[{SPAN}]")
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
        "from traceconv.cli.app import main\nmain()"
    )
    command = [sys.executable, "-c", program, "ingest", str(path), "--db", str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("traceconv: the address space is limited to 300 MB")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "t.duckdb").exists()
