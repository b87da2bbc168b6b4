"""`lake ingest`: the lake is that of an ingest and an export, also after damage, repetition and with Spark's tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from commands import Command
from ingest_checks import all_rows
from trace_files import write_trace

import traceconv
from traceconv.base.errors import OutputError, TraceconvError, UsageError
from traceconv.cli.progress import ingest_progress
from traceconv.lake.entries import read_lake
from traceconv.lake.folder import lake_folder
from traceconv.pipeline import lake_ingest
from traceconv.pipeline.ingest import ingest

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for rank in range(3):
        write_trace(tmp_path / "traces" / f"rank{rank}.json", rank=rank, seed=rank, count=2)
    return tmp_path / "traces"


def rows_of(lake: Path, store: Path) -> dict[str, list[tuple[object, ...]]]:
    ingest([lake], store)
    return all_rows(store)


def test_it_equals_an_ingest_and_an_export(traces: Path, tmp_path: Path, command: Command) -> None:
    """A capture with its losses and traces, in the order of the paths, with any number of processes."""
    (traces / "rank1.json").write_bytes((traces / "rank1.json").read_bytes()[:-9])  # truncated
    paths = [SAMPLES / "mini_resnet", traces]
    ingest(paths, tmp_path / "s.duckdb")
    expected = all_rows(tmp_path / "s.duckdb")
    for jobs in (1, 2):
        lake = tmp_path / f"lake{jobs}"
        done = command("lake", "ingest", *paths, "--into", lake, "--jobs", jobs, code=3)
        assert "rank1.json ingested as run 3 " in done.err
        assert rows_of(lake, tmp_path / f"{jobs}.duckdb") == expected


def test_what_is_in_the_lake_is_kept(traces: Path, tmp_path: Path, command: Command) -> None:
    lake = tmp_path / "lake"
    words = ["lake", "ingest", str(traces), "--into", str(lake)]
    command(*words)
    files = sorted(lake.rglob("*.parquet"))
    (traces / "copy.json").write_bytes((traces / "rank0.json").read_bytes())
    (traces / "rank3.json").write_bytes(b"")
    write_trace(traces / "rank4.json", rank=4, seed=4)
    said = command(*words, code=3).err
    assert "rank4.json ingested as run 4" in said
    assert "copy.json has the same content as run 1 (rank0.json)" in said
    assert "1 runs ingested, 4 already in" in said
    assert f"failed: {traces / 'rank3.json'} is empty" in said
    assert {path for path in files if not path.exists()} == set()
    (traces / "rank3.json").unlink()
    entry = min((lake / "_runs").iterdir())
    entry.write_bytes(b"{")
    done = command(*words, code=3)
    assert f"failed: {lake}: the entry _runs/{entry.name} is not valid JSON (--replace replaces it)" in done.err
    assert "5 runs ingested\n" in command(*words, "--replace").err
    assert not any(path.exists() for path in files)
    assert [one.run["rank"] for one in read_lake(lake_folder(lake)).entries] == [0, 1, 2, 4]


def test_a_damaged_log_costs_its_run_only(traces: Path, tmp_path: Path, command: Command) -> None:
    """Whether a run that is kept had losses is read from its log."""
    (traces / "rank1.json").write_bytes((traces / "rank1.json").read_bytes()[:-9])
    words = ["lake", "ingest", str(traces), "--into", str(tmp_path / "lake")]
    command(*words, code=3)
    for log in (tmp_path / "lake" / "import_log").rglob("*.parquet"):
        log.unlink()
    write_trace(traces / "rank3.json", rank=3, seed=3)
    said = command(*words, code=3).err
    assert "rank3.json ingested as run 3" in said
    assert "(--replace replaces the run)" in said
    assert "rank3.json ingested as run 4" in command(*words, "--replace", code=3).err


def test_what_can_not_be_ingested(traces: Path, tmp_path: Path, command: Command) -> None:
    lake = tmp_path / "lake"
    (tmp_path / "bad.json").write_bytes(b"[{]")
    assert "bad.json" in command("lake", "ingest", tmp_path / "bad.json", "--into", lake, code=1).err
    traceconv.lake_ingest(traces, into=lake)
    with pytest.raises(UsageError, match="is a lake; ingest it into a store"):
        traceconv.lake_ingest(lake, into=tmp_path / "other")
    with pytest.raises(UsageError, match="unknown engine 'dask'"):
        traceconv.lake_ingest(traces, into=lake, engine="dask")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="can't write"):
        traceconv.lake_ingest(traces, into=tmp_path / "file" / "lake")


@pytest.mark.long
def test_tasks_of_spark(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks as executors run them: pickled, in any order, twice, with a reader that is killed and a full disk."""
    traceconv.lake_ingest(traces, into=tmp_path / "expected")
    (traces / "rank9.json").write_bytes(b"")

    def run_tasks(work: object, tasks: list[object], master: str, *_: object) -> list[object]:
        assert (work, master) == (lake_ingest._on_executor, "spark://host:7077")
        sent = [pickle.dumps(task) for task in tasks]
        results = {number: work(pickle.loads(sent[number])) for number in reversed(range(len(sent)))}  # type: ignore[operator]
        again = [work(pickle.loads(one)) for one in sent]  # type: ignore[operator]
        assert [outcome[1].action for some in again for outcome in some if isinstance(outcome, tuple)] == ["kept"] * 3
        return [pickle.loads(pickle.dumps(results[number])) for number in range(len(sent))]

    monkeypatch.setattr("traceconv.spark.session.run_tasks", run_tasks)
    monkeypatch.setattr("traceconv.pipeline.reader_pool._ORDER_BYTES", 1)
    spark = {"engine": "spark", "master": "spark://host:7077"}
    result = traceconv.lake_ingest(traces, into=tmp_path / "lake", **spark)  # type: ignore[arg-type]
    assert [(one.run_id, one.action, one.rank) for one in result] == [(n + 1, "ingested", n) for n in range(3)]
    assert [one.path.name for one in result.unusable] == ["rank9.json"]
    assert rows_of(tmp_path / "lake", tmp_path / "a.duckdb") == rows_of(tmp_path / "expected", tmp_path / "b.duckdb")
    with pytest.raises(UsageError, match="can't read standard input"):
        traceconv.lake_ingest("-", into=tmp_path / "lake", **spark)  # type: ignore[arg-type]

    def full(*_: object, **__: object) -> None:
        raise OutputError("can't write lake: No space left on device")

    monkeypatch.setattr(lake_ingest, "add_run", full)
    monkeypatch.setattr("traceconv.spark.session.run_tasks", lambda work, tasks, *_: [work(task) for task in tasks])
    with pytest.raises(TraceconvError, match="none of 4 files and folders can be used"):
        traceconv.lake_ingest(traces, into=tmp_path / "empty", **spark)  # type: ignore[arg-type]


def test_a_pipe_gets_a_line_about_executors_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter((0, 5, 11, 15, 22, 33))
    monkeypatch.setattr("traceconv.cli.progress.time.monotonic", lambda: next(seconds))
    with ingest_progress() as observer:
        observer.plan(1200, 0)
        for done, failed in ((10, 0), (20, 0), (30, 0), (40, 2), (40, 2)):
            observer.remote(done, failed)
    assert capsys.readouterr().err == "20/1,200 files\n40/1,200 files, 2 failed\n"
