"""Marks of steps → the steps of the framework, executions of models, and steps of jobs with their collectives."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import NamedTuple

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.formats.common.file_reader import SOURCE_ID

#: Tags of marks.
_MODEL_START, _FP_START, _BP_END, _ITERATION_END = 0, 2, 3, 4
_FRAMEWORK_START, _FRAMEWORK_END = 60000, 60001
#: The same of jobs; those in between are of reduces, others begin jobs.
_JOB_FP, _JOB_BP, _JOB_END = 1, 2, 255


def fill_steps(connection: sqlite3.Connection, log: ImportLog) -> None:
    """Fill STEP_TIME, STEP_TRACE and STEP_REDUCE from raw.mark and raw.job_mark."""
    connection.execute(
        "INSERT INTO STEP_TIME SELECT step, min(ns) FILTER (WHERE tag = :start), max(ns) FILTER (WHERE tag = :end) "
        "FROM raw.mark WHERE tag IN (:start, :end) AND ns IS NOT NULL GROUP BY device, step "
        "HAVING min(ns) FILTER (WHERE tag = :start) IS NOT NULL",
        {"start": _FRAMEWORK_START, "end": _FRAMEWORK_END},
    )
    _fill_executions(connection)
    _fill_jobs(connection, log)


def _fill_executions(connection: sqlite3.Connection) -> None:
    marks = connection.execute(
        "SELECT device, model, ns, step, tag FROM raw.mark WHERE tag <= 4 AND ns IS NOT NULL "
        "ORDER BY device, model, ns, tag <> 4"
    ).fetchall()
    for (device, model), of_model in groupby(marks, itemgetter(0, 1)):
        rows = [(device, model, *step) for step in _executions(of_model)]
        connection.executemany("INSERT INTO STEP_TRACE VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _executions(marks: Iterable[tuple[int, ...]]) -> Iterator[tuple[int | None, ...]]:
    """Yield step, start, start of FP, end of BP, and end of each execution of a model, from its marks by time.

    One begins with the model or at the end of the one before, and ends with the iteration or the model.
    """
    start: int | None = None
    moments: dict[int, int] = {}
    for _, _, ns, step, tag in marks:
        if tag == _MODEL_START:
            start, moments = ns, {}
        elif tag in (_FP_START, _BP_END):
            moments[tag] = ns
        elif start is not None and ns > start and (tag == _ITERATION_END or not moments.get(_ITERATION_END)):
            yield step, start, moments.get(_FP_START), moments.get(_BP_END), ns
            start, moments = (ns, {_ITERATION_END: ns}) if tag == _ITERATION_END else (None, {})


class _JobStep(NamedTuple):
    """A step of a job, in ns; None: not recorded. `reduces`: starts and ends by turns, by stream."""

    start: int | None
    fp_start: int | None
    bp_end: int | None
    end: int | None
    reduces: Mapping[int, Sequence[int]]


def _fill_jobs(connection: sqlite3.Connection, log: ImportLog) -> None:
    marks = connection.execute(
        "SELECT device, ns, tag, stream FROM raw.job_mark WHERE ns IS NOT NULL AND tag BETWEEN ? AND ? "
        "ORDER BY device, id",
        (_JOB_FP, _JOB_END),
    )
    unfinished = 0
    for device, of_device in groupby(marks, itemgetter(0)):
        for number, step in enumerate(_job_steps(of_device), 1):
            row = (device, number, step.start, step.fp_start, step.bp_end, step.end)
            connection.execute("INSERT INTO STEP_TRACE VALUES (?, NULL, ?, ?, ?, ?, ?)", row)
            reduces = [
                (device, stream, place, *pair)
                for stream, points in step.reduces.items()
                for place, pair in enumerate(zip_longest(points[::2], points[1::2]))
            ]
            connection.executemany("INSERT INTO STEP_REDUCE VALUES (?, ?, ?, ?, ?)", reduces)
            unfinished += (step.end is None) + sum(len(points) % 2 for points in step.reduces.values())
    message = "steps, and reduces in them, without an end: their duration is NULL"
    log.count(Code.UNFINISHED, message, unfinished, SOURCE_ID)


def _job_steps(marks: Iterable[tuple[int, int, int, int]]) -> Iterator[_JobStep]:
    """Yield the steps of a device from its marks: one begins at the end of the one before, the first with its FP."""
    previous: int | None = None
    moments: dict[int, int] = {}
    reduces: dict[int, list[int]] = {}

    def step(end: int | None) -> _JobStep:
        fp_start = moments.get(_JOB_FP)
        return _JobStep(fp_start if previous is None else previous, fp_start, moments.get(_JOB_BP), end, reduces)

    for _, ns, tag, stream in marks:
        if tag in (_JOB_FP, _JOB_BP):
            moments[tag] = ns
        elif tag < _JOB_END:
            reduces.setdefault(stream, []).append(ns)
        else:
            yield step(ns)
            previous, moments, reduces = ns, {}, {}
    if moments or reduces:
        yield step(None)
