"""Typical mistakes in Python: each is one clear error at the call, in the words of the API."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceconv
from traceconv.base import arguments

RESNET = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"

#: Expression → part of the error. `st` is an open store, `closed` a closed one, `S` a folder with a capture.
MISTAKES = {
    "ingest()": "at least one path",
    "ingest([S])": "paths as separate arguments: ingest(*paths)",
    "ingest('none')": "none does not exist",
    "ingest(5)": "paths must be a path, not 5 (int)",
    "ingest(None)": "paths must be a path, not None",
    "ingest('')": "is not a path",
    "ingest('a\\0b')": "is not a path",
    "ingest(S, replce=True)": "ingest has no option 'replce'. Did you mean 'replace'?",
    "ingest(S, replace='no')": "replace must be True or False, not the string 'no'",
    "ingest(S, db='/none/a.duckdb')": "its folder does not exist",
    "ingest(S, reader='nsyss')": "Did you mean 'nsys'",
    "ingest(S, rank_pattern='(')": "rank_pattern '(' is not a valid",
    "ingest(S, group=5)": "group must be a string, not 5 (int)",
    "ingest(S, rules='r.toml')": "rules must be a list of paths, not the string 'r.toml'",
    "ingest(S, max_event_mb='64')": "max_event_mb must be an integer",
    "ingest('x.txt')": "not a raw log or a known trace format",
    "open_store(['t.duckdb'])": "open_store(*paths)",
    "open_store('none.duckdb')": "none.duckdb does not exist",
    "open_store('none.json')": "none.json does not exist",
    "open_store(None)": "paths must be a path, not None",
    "open_store('x.txt')": "not a raw log or a known trace format",
    "open_store('x.duckdb')": "x.duckdb",
    "open_store(S, db='t.duckdb')": "exclude each other",
    "open_store('empty.duckdb')": "is empty, not a store",
    "open_store(path='t.duckdb')": "open_store has no option 'path'. It has: db, cache.",
    "open_store('t.duckdb', 't.duckdb')": "is a store: open it alone",
    "open_store('t.duckdb', db='t.duckdb')": "exclude each other",
    "open_store('t.duckdb', read_only=True)": "no option 'read_only'",
    "st.report()": "missing 1 required positional argument: 'name'",
    "st.report(5)": "name must be a string",
    "st.report('launch-delay')": 'not a report but a table or view; read it with: Store.query("FROM launch_delay")',
    "st.report('op-statistik')": "Did you mean 'op-statistic'? List them with: Store.reports()",
    "st.report('op-statistic', run='PROF')": "unknown run 'PROF'",
    "st.report('op-statistic', run=[1])": "run must be an integer or a string, not [1] (list)",
    "st.report('op-statistic', run=True)": "run must be an integer or a string",
    "st.report('op-statistic', run=1, rank=0)": "run and rank exclude each other",
    "st.report('op-statistic', device='0')": "device must be an integer",
    "st.report('op-statistic', steps=(1, 2))": "steps must be an integer or a string",
    "st.report('op-statistic', from_ns=1.5)": "from_ns must be an integer or a string",
    "st.report('op-statistic', top='5')": "top must be an integer, not the string '5'",
    "st.report('op-statistic', order_by=[5])": "order_by must be a string or a list of strings",
    "st.report('op-statistic', ascending=True)": "ascending needs order_by",
    "st.report('op-statistic', filters='op_type=Conv')": "filters must be a dict or a list of strings",
    "st.report('op-statistic', filters=['op_type'])": "filters needs COLUMN=VALUE",
    "st.report('op-statistic', filters={'op_type': ['A', 'B']})": "a filter has one value, not a list",
    "st.report('op-statistic', filters={'count': 'x'})": "is not a 64-bit integer",
    "st.report('op-statistic', columns='op_type')": "columns must be a list of strings",
    "st.report('op-statistic', colums=['op_type'])": "no option 'colums'. Did you mean 'columns'",
    "st.report('op-statistic', columns=['op_typ'])": "no column 'op_typ'. Did you mean 'op_type'",
    "st.report('op-statistic', columns=['op_type', 'op_type'])": "duplicate column",
    "st.report('op-statistic', order_by='totl')": "no column 'totl'. Did you mean 'total'",
    "st.report('op-statistic', order_by='total_ns UPWARDS')": "COLUMN DESC",
    "st.report('op-statistic', steps='3-5-7')": "such as 3-5",
    "st.report('op-statistic', top=0)": "from 1 to 9223372036854775807",
    "st.report('op-statistic', top=2**63)": "from 1 to 9223372036854775807",
    "st.report('op-statistic', from_ns=7, to_ns=7)": "the time window is empty",
    "st.report('fusion-op', from_ns=7)": "no from parameter",
    "st.report('fusion-op', step=1)": "no step parameter",
    "st.report('memory-peak', step=99)": "the run has steps 1 to 8",
    "closed.report('op-statistic')": "is closed: open it again",
    "st.query('SELEC')": "syntax error",
    "st.query('FROM nope')": "nope does not exist",
    "st.query(' ')": "must be a statement that returns rows",
    "st.query(None)": "sql must be a string, not None",
    "st.query(Path('q.sql'))": "sql must be a string",
    "st.query('DELETE FROM task')": "read-only",
    "st.query('SELECT 1; SELECT 2')": "2 statements",
    "st.query('FROM task WHERE kind = ?')": "parameter",
    "st.query('FROM task', top=5)": "query has no option 'top'",
    "closed.query('FROM task')": "is closed: open it again",
    "closed.runs()": "is closed",
    "st.label_runs(7, 'x')": "unknown run '7'",
    "st.label_runs(1)": "pass a label, or a group with group",
    "st.label_runs(1, 5)": "label must be a string",
    "st.label_runs(1, 'all')": "another meaning for run",
    "st.delete_runs()": "at least one run",
    "st.delete_runs([1])": "runs as separate arguments: delete_runs(*runs)",
    "st.merge_runs('none.duckdb')": "none.duckdb does not exist",
    "st.merge_runs('x.txt')": "not a DuckDB file",
    "st.merge_runs('t.duckdb')": "into itself",
    "closed.delete_runs(1)": "is closed",
    "st.why('task')": "missing 1 required positional argument: 'row_id'",
    "st.why('taks', 1)": "Did you mean 'task'",
    "st.why('task', 1)": "has no task 1",
    "st.why('task', None)": "row_id must be an integer or a string",
    "st.why('counter', 1)": "TRACK_ID@TS_NS",
    "closed.why('task', 1)": "is closed",
    "st.export('crome', 'x.json')": "Did you mean 'chrome'",
    "st.export('chrome')": "needs a path",
    "st.export('chrome', 5)": "path must be a path",
    "st.export('chrome', '/none/x.json')": "its folder does not exist",
    "st.export('chrome', '.')": "it is a folder",
    "st.export('chrome', 'x.json', devic=0)": "Did you mean 'device'",
    "st.export('chrome', 'x.json', device='0')": "device must be an integer",
    "st.export('perfetto', 'x.pftrace', args='no')": "args must be True or False",
    "st.export_chrome()": "missing 1 required positional argument: 'path'",
    "closed.export('chrome', 'x.json')": "is closed",
    "st.schema('taks')": "Did you mean 'task'",
    "st.schema(5)": "name must be a string",
    "closed.schema()": "is closed",
    "info()": "at least one path",
    "info([S])": "info(*paths)",
    "info('none')": "none does not exist",
    "info('x.txt')": "not a raw log or a known trace format",
    "info(S, quik=True)": "Did you mean 'quick'",
    "dump()": "at least one path",
    "dump('none')": "none does not exist",
    "dump('x.txt')": "is not a raw log",
    "dump(S, type='taks')": "Did you mean 'task'",
    "dump(S, type=['task'])": "type must be a string",
    "dump(S, limit=-1)": "limit must be 0 or more",
    "dump(S, limit=1.5)": "limit must be an integer",
    "verify()": "missing 1 required positional argument: 'path'",
    "verify('none')": "none does not exist",
    "verify([S])": "path must be a path",
    "verify(S)": "contains no output folder",
    "verify(S, exct=True)": "Did you mean 'exact'",
    "record('resnet5', 'raw')": "Did you mean 'resnet50'",
    "record('mini_resnet')": "missing output: name a folder",
    "record(5, 'raw')": "model must be a path",
    "record('none.onnx', 'raw')": "no such model file",
    "record('mini_resnet', 'raw', iterations=0)": "iterations 0",
    "record('mini_resnet', 'raw', iterations='3')": "iterations must be an integer",
    "record('mini_resnet', 'raw', input='none.npz')": "none.npz can't be read",
    "record('mini_resnet', 'raw', batch=0)": "batch 0",
    "Session('mini_resnet', batch='x')": "batch x: must be an integer",
    "get_profile('mini_resnet', streams=65)": "streams 65: must be from 1 to 64",
    "record('mini_resnet', 'raw', input='x.npz')": "must be float32 [1, 3, 64, 64]",
    "record('mini_resnet', 'raw', input='x.npz', train=True)": "needs an array 'target'",
    "record('mini_resnet', 'raw', input='y.npz', train=True, batch=8)": "has 4 samples, but a batch is 8",
    "record('mini_resnet', 'raw', input='z.npz', train=True, batch=2)": "the target is float32 [2]",
    "record('mini_resnet', 'raw', fetch='x')": "fetch must be a list of strings",
    "record('mini_resnet', 'raw', steps=3)": "steps is for training; add train",
    "record('mini_resnet', 'raw', train='yes')": "train must be True, False or TrainOptions",
    "record('mini_resnet', 'raw', train=True, lr='x')": "lr must be a number",
    "record('mini_resnet', 'raw', train=True, optimizer='sdg')": "Did you mean 'sgd'",
    "record('mini_resnet', 'raw', clock='wal')": "Did you mean 'wall'",
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("mistakes")
    traceconv.ingest(RESNET, db=folder / "t.duckdb")
    (folder / "empty.duckdb").write_bytes(b"")
    (folder / "x.txt").write_text("hello")
    (folder / "x.duckdb").write_bytes(b"x" * 3000)
    images = np.zeros((4, 3, 64, 64), np.float32)
    np.savez(folder / "x.npz", input=images)
    np.savez(folder / "y.npz", input=images, target=np.arange(4))
    np.savez(folder / "z.npz", input=images, target=np.zeros(4))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        st, closed = traceconv.open_store("t.duckdb"), traceconv.open_store("t.duckdb")
    closed.close()
    public = {name: getattr(traceconv, name) for name in traceconv.__all__}
    assert dir(traceconv) == sorted(public)
    return {"st": st, "closed": closed, "S": RESNET, "Path": Path, "folder": folder, **public}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_clear_error(mistake: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(names["folder"])
    before = sorted(Path().iterdir())
    with pytest.raises((traceconv.TraceconvError, TypeError), match=re.escape(MISTAKES[mistake])) as caught:
        eval(mistake, names)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value), "a message of Python speaks of parameters, not of the command line's options"
    if not isinstance(caught.value, traceconv.TraceconvError):
        # Python's own error for the call, raised before the function begins.
        assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == arguments.__file__
    assert sorted(Path().iterdir()) == before


def test_integers_of_numpy_are_integers(names: dict[str, Any]) -> None:
    store = names["st"]
    (most,) = store.report("op-statistic", run=np.int64(1), top=np.int32(1), order_by="count")
    same = store.report("op-statistic", filters={"count": np.int64(most["count"])}, order_by="total_ns")
    assert most in list(same)
