"""A folder with raw data of Ascend NPUs → batches of events, by way of the tables that msprof makes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from traceconv.base.errors import InputError, printable, reason_of
from traceconv.base.int64 import Int64
from traceconv.base.temporary_folder import temporary_folder
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import Coded, CounterValues, Label, NamedTrack, TraceBatch, coded, combined
from traceconv.formats.ascend_db.batches import TIMES, device_label
from traceconv.formats.ascend_db.reader import AscendDbReader
from traceconv.formats.ascend_db.tables import EVENT_TABLES
from traceconv.formats.ascend_raw.folder import is_raw_folder, raw_folder
from traceconv.formats.ascend_raw.pmu import COLUMNS, computed
from traceconv.formats.ascend_raw.recording import Recording
from traceconv.formats.ascend_raw.tables import write_database
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import file_size
from traceconv.formats.common.sqlite_database import Database
from traceconv.formats.common.sqlite_reader import pairs_of, renamed, same
from traceconv.formats.common.sqlite_rows import locate_row
from traceconv.formats.format import ReadRequest

_STEPS, _REDUCES = "STEP_TRACE", "STEP_REDUCE"


class AscendRawReader(AscendDbReader):
    """Reads one recording, as `TraceSource` describes."""

    _counters_table = "COUNTERS"
    _event_tables = (*EVENT_TABLES, _STEPS)

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        if not is_raw_folder(request.path):
            shown = printable(str(request.path))
            raise InputError(
                f"{shown} is not a folder PROF_* with raw data of an Ascend NPU (host/data, device_*/data), nor a job"
            )
        self._folder = raw_folder(request.path)
        self._later: Database | None = None
        self._source.size_bytes = sum(map(file_size, self._folder.files))

    def _check_journal(self) -> None:
        """Do nothing: the database is complete."""

    @contextmanager
    def _file(self) -> Iterator[Path]:
        """Yield a database of the recording. What is open of it can be read after it was deleted."""
        try:
            with temporary_folder() as folder:
                path = folder / "recording.db"
                self._recording = Recording(self._folder, self._log)
                write_database(self._recording, path, self._log, self._accounts, self._advance)
                self._advance = lambda byte_count: None
                self._later = Database(path)
                yield path
        except OSError as error:
            raise self._no_space(reason_of(error)) from error
        except sqlite3.OperationalError as error:
            if not any(words in str(error) for words in ("is full", "I/O error", "unable to open")):
                raise
            raise self._no_space(printable(str(error))) from error

    def _no_space(self, reason: str) -> InputError:
        shown = printable(str(self._path))
        return InputError(f"can't convert {shown} in a temporary folder (TMPDIR selects another): {reason}")

    @contextmanager
    def _opened_again(self) -> Iterator[None]:
        if self._later is None:  # no event was read
            with self._file():
                pass
        assert self._later is not None
        self._db = self._later
        yield

    def _others(self) -> Iterator[tuple[str, Iterator[TraceBatch]]]:
        yield from super()._others()
        yield _STEPS, self._executions()
        yield _REDUCES, self._reduces()

    def _executions(self) -> Iterator[TraceBatch]:
        """Executions of models, as msprof's timeline has them."""
        for rowids, row in self._rows(_STEPS, (*TIMES, "deviceId", "modelId", "step", "fpStartNs", "bpEndNs")):
            names = renamed(coded(row["step"]), lambda step: f"Iteration {step}")
            track = pairs_of(self._model, row["deviceId"], row["modelId"])
            args = {
                "FP Start": renamed(coded(row["fpStartNs"]), _microseconds),
                "BP End": renamed(coded(row["bpEndNs"]), _microseconds),
            }
            category = same("Iteration Time", len(rowids))
            yield self._finished((_STEPS, rowids), category, names, track, row, args)

    def _reduces(self) -> Iterator[TraceBatch]:
        """Yield the collectives in steps of jobs, whose vendor calls them reduces."""
        for rowids, row in self._rows(_REDUCES, (*TIMES, "deviceId", "streamId", "number")):
            streams = coded(row["streamId"])
            names = combined([streams, coded(row["number"])])
            names = Coded(names.codes, [f"Reduce_{stream}_{number}" for stream, number in names.distinct])
            titles = renamed(streams, lambda stream: f"Reduce, stream {stream}")
            track = pairs_of(self._step_track, row["deviceId"], titles)
            yield self._finished((_REDUCES, rowids), same("Reduce", len(rowids)), names, track, row, {})

    def _model(self, device: object, model: object) -> tuple[Label, Label | NamedTrack]:
        return self._step_track(device, "Step Trace" if model is None else f"Step Trace(Model ID:{model})")

    def _step_track(self, device: object, name: str) -> tuple[Label, Label | NamedTrack]:
        return self._named_track(device_label(device), "Ascend Hardware", NamedTrack("thread", name), name)

    def task_counters(self, is_known: Callable[[str], bool]) -> Iterator[tuple[Int64, Coded, CounterValues]]:
        self._event_of_task.sort()
        with self._opened_again():
            for rowids, columns in self._rows(self._counters_table, COLUMNS):
                self._accounts[f"{self._counters_table} rows"].add(paired=len(rowids))
                for name, tasks, values in computed(columns, self._recording):
                    if is_known(name):
                        self.counter_names.add(name)
                        ids = (SOURCE_ID << ORDINAL_BITS) + self._event_of_task.find(tasks)
                        yield ids, same(name, len(ids)), values

    def _count_unread(self, tables: Sequence[str], views: Sequence[str]) -> None:
        super()._count_unread(
            [table for table in tables if table not in (_STEPS, _REDUCES, self._counters_table)], views
        )


def _microseconds(ns: int | None) -> str | None:
    return None if ns is None else f"{ns // 1000}.{ns % 1000:03}"


#: Find the table and rowid of an event.
locate = partial(locate_row, open_reader=AscendRawReader)
