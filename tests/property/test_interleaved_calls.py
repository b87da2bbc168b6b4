"""Calls on open stores in random order and threads: each returns its rows or one clear error, and the next works."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import duckdb
import pytest
from capture_builder import CaptureBuilder

import traceconv
from traceconv.base.errors import StoreError, UsageError
from traceconv.reports import fetch
from traceconv.reports.result import ReportRows


def durations(run_id: int) -> list[int]:
    """Of the tasks of a run, in ns, the shortest first; each is in one run only."""
    return [1000 * run_id + 10 * place for place in range(1, 8 + 5 * run_id)]


def capture(folder: Path, run_id: int) -> Path:
    builder = CaptureBuilder(folder / f"capture{run_id}").add("op", name="conv", op_type="Conv2D", op_index=0)
    for at in range(4):
        builder.sync(1_000 + at * 100_000, 10_000 + at * 1_000_000)
    for place, duration in enumerate(durations(run_id)):
        start = 1_000 + 1_000 * place
        builder.task(place + 1, start, start + duration // 10, op_index=0)
    return builder.close()


class Notebook:
    """What a person does with a store that gets more and more runs, and what each call has to give."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.path = folder / "trace.duckdb"
        self.choose = random.Random(seed)
        self.run_count = 1
        traceconv.ingest(capture(folder, 1), db=self.path)
        self.store = traceconv.open_store(self.path)
        #: Rows that are being read: what is still to come, and of which store.
        self.readers: list[tuple[Iterator[int], list[int], traceconv.Store]] = []

    def question(self) -> tuple[ReportRows, list[int]]:
        """A report, and the durations that it has to give."""
        run_id = self.choose.randint(1, self.run_count)
        longest_first = self.choose.random() < 0.5
        least = self.choose.choice([None, self.choose.choice(durations(run_id))])
        top = self.choose.choice([None, 1, 5])
        rows = self.store.report(
            "task-time",
            run=run_id if self.choose.random() < 0.5 else f"capture{run_id}",
            order_by="dur_ns DESC" if longest_first else "dur_ns ASC",
            filters=None if least is None else [f"dur_ns>={least}"],
            top=top,
        )
        wanted = sorted((ns for ns in durations(run_id) if ns >= (least or 0)), reverse=longest_first)
        return rows, wanted[:top]

    def begin(self) -> None:
        rows, wanted = self.question()
        self.readers.append(((row["dur_ns"] for row in rows), wanted, self.store))  # type: ignore[misc]

    def read_on(self) -> None:
        for reader in self.choose.sample(self.readers, min(2, len(self.readers))):
            rows, wanted, store = reader
            count = self.choose.choice([1, 4, 100])
            try:
                found = list(islice(rows, count))
            except StoreError as error:
                assert store is not self.store and "closed" in str(error)
                self.readers.remove(reader)
            else:
                assert found == wanted[:count]
                del wanted[:count]

    def abandon(self) -> None:
        if self.readers:
            del self.readers[self.choose.randrange(len(self.readers))]

    def read_all(self) -> None:
        rows, wanted = self.question()
        place = rows.columns.index("dur_ns")
        ways: list[Callable[[], list[object]]] = [
            lambda: [row["dur_ns"] for row in rows],
            lambda: [row[place] for row in rows.fetchall()],
            lambda: rows.arrow()["dur_ns"].to_pylist(),
            lambda: rows.df()["dur_ns"].tolist(),
        ]
        for way in self.choose.sample(ways, 2):
            assert way() == wanted

    def nest(self) -> None:
        rows, wanted = self.question()
        for row, ns in zip(rows, wanted, strict=True):
            assert row["dur_ns"] == ns
            if ns % 50 == 0:
                self.read_all()
                self.read_on()

    def query(self) -> None:
        everything = self.store.query("SELECT run_id, dur_ns FROM task ORDER BY ALL")
        counts = self.store.query("SELECT run_id, count(*) FROM op_summary GROUP BY run_id ORDER BY run_id")
        assert everything.limit(3).fetchall() == [(1, ns) for ns in durations(1)[:3]]
        assert counts.fetchall() == [(run, len(durations(run))) for run in range(1, self.run_count + 1)]
        run_id = self.choose.randint(1, self.run_count)
        assert everything.filter(f"run_id = {run_id}").fetchall() == [(run_id, ns) for ns in durations(run_id)]

    def export(self) -> None:
        run_id = self.choose.randint(1, self.run_count)
        self.store.export_chrome(self.folder / "t.json", run=run_id)
        events = json.loads((self.folder / "t.json").read_text("utf-8"))["traceEvents"]
        tasks = [event for event in events if event["ph"] == "X" and event.get("cat") == "AI_CORE"]
        assert len(tasks) == len(durations(run_id))

    def ask_wrongly(self) -> None:
        store, rows = self.store, self.question()[0]
        wrong: list[Callable[[], object]] = [
            lambda: store.report("task-tme"),
            lambda: store.report("task-time", run=self.run_count + 1),
            lambda: store.report("task-time", columns=["durns"]),
            lambda: store.query("FROM tsk"),
            lambda: store.query("DELETE FROM task"),
            lambda: store.export_chrome(self.folder, run="none"),
            lambda: store.why("task", -1),
        ]
        with pytest.raises(UsageError):
            self.choose.choice(wrong)()
        assert rows.columns

    def ingest_while_it_is_open(self) -> None:
        with pytest.raises(StoreError, match="open in this program"):
            traceconv.ingest(self.folder / "capture1", db=self.path, replace=True)

    def close_and_ingest(self) -> None:
        if self.run_count == 4:
            return
        relation, report = self.store.query("FROM task"), self.question()[0]
        self.store.close()
        with pytest.raises(duckdb.Error):
            relation.fetchall()
        for use in (report.fetchall, lambda: list(report), report.df, lambda: self.store.query("FROM run")):
            with pytest.raises(StoreError, match="closed"):
                use()
        self.run_count += 1
        [run] = traceconv.ingest(capture(self.folder, self.run_count), db=self.path)
        assert run.run_id == self.run_count
        self.store = traceconv.open_store(self.path)

    def ask_in_threads(self) -> None:
        asked = [self.question() for _ in range(6)]
        with ThreadPoolExecutor(3) as pool:
            found = pool.map(lambda one: [row["dur_ns"] for row in one[0]], asked)
            assert list(found) == [wanted for _, wanted in asked]

    def close_while_threads_read(self) -> None:
        """Each thread has its rows, or learns that the store was closed."""
        asked = [self.question() for _ in range(6)]

        def read(one: tuple[ReportRows, list[int]]) -> list[object]:
            try:
                return [row["dur_ns"] for row in one[0]]
            except StoreError as error:
                assert "closed" in str(error)
                return [*one[1]]

        with ThreadPoolExecutor(3) as pool:
            found = [pool.submit(read, one) for one in asked]
            self.store.close()
            assert [future.result() for future in found] == [wanted for _, wanted in asked]
        self.store = traceconv.open_store(self.path)


CALLS = [
    *[Notebook.begin, Notebook.read_on, Notebook.read_all, Notebook.query] * 3,
    *[Notebook.abandon, Notebook.nest, Notebook.export, Notebook.ask_wrongly, Notebook.ask_in_threads],
    *[Notebook.ingest_while_it_is_open, Notebook.close_and_ingest, Notebook.close_while_threads_read],
]


#: More of them are run by `make test-long`.
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 4))]


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_in_random_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(fetch, "BATCH_ROWS", 3)
    notebook = Notebook(tmp_path, seed)
    for call in notebook.choose.choices(CALLS, k=60):
        call(notebook)
    notebook.store.close()
    with traceconv.open_store(notebook.path) as store:
        assert len(store.report("task-time", run="all").fetchall()) == sum(
            len(durations(run)) for run in range(1, notebook.run_count + 1)
        )
