"""Hardware counters of tasks → ratios, times and counts, as msprof's op_summary has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import tomli

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.formats.ascend_raw.names import LOW_POWER_CHIP, WIDE_CHIPS
from traceconv.formats.ascend_raw.recording import Recording
from traceconv.formats.ascend_raw.records import COUNTERS
from traceconv.formats.common.file_reader import SOURCE_ID

#: Tasks whose counters are computed at once.
_ROWS = 1 << 15
_COUNTERS = tuple(f"c{number}" for number in range(COUNTERS))


class _Column(NamedTuple):
    """A column: its name without the core, how it follows from events, and the places of these among the counters."""

    name: str
    kind: str
    places: tuple[int, ...]


def fill_counters(
    connection: sqlite3.Connection,
    recording: Recording,
    text_id: Callable[[str], int],
    log: ImportLog,
    accounts: Accounts,
) -> None:
    """Fill TASK_PMU_INFO from raw.pmu, once the tasks are known."""
    connection.execute("CREATE INDEX raw.done_of ON done (device, stream, task, context, start_ns, end_ns)")
    connection.execute(_NUMBERED)
    connection.execute("CREATE UNIQUE INDEX raw.numbered_of ON numbered (device, stream, task, number)")
    connection.execute(_MATCH)
    ((loose,),) = connection.execute("SELECT count(*) FROM raw.counted WHERE id IS NULL")
    if loose:
        log.count(Code.ORPHAN_PMU, "counters of tasks that were not recorded", loose, SOURCE_ID)
        accounts["counters of tasks"].add(lost=loose)
    for device in recording.infos:
        for core in ("aic", "aiv"):
            _fill(connection, recording, device, core, text_id)


#: The executions of each task, if records of counters have no times.
_NUMBERED = """
CREATE TABLE raw.numbered AS
SELECT id, device, stream, task, row_number() OVER (PARTITION BY device, stream, task ORDER BY start_ns, id) AS number
FROM raw.done
WHERE EXISTS (SELECT 1 FROM raw.pmu WHERE end_ns IS NULL)
"""
#: The execution that a record belongs to: it ended during it. Records without a time are in the order of the tasks.
_MATCH = f"""
CREATE TABLE raw.counted AS
SELECT CASE WHEN end_ns IS NULL THEN by_order
         WHEN (SELECT d.end_ns FROM raw.done AS d WHERE d.id = by_time) >= end_ns THEN by_time END AS id,
       device, core, is_block, end_ns, cycles, {", ".join(_COUNTERS)}
FROM (
  SELECT p.*,
    (SELECT d.id FROM raw.done AS d
      WHERE d.device = p.device AND d.stream = p.stream AND d.task = p.task AND d.context = p.context
        AND d.start_ns <= p.end_ns ORDER BY d.start_ns DESC LIMIT 1) AS by_time,
    CASE WHEN p.end_ns IS NULL THEN
      (SELECT d.id FROM raw.numbered AS d
        WHERE d.device = p.device AND d.stream = p.stream AND d.task = p.task AND d.number = p.number) END AS by_order
  FROM (SELECT *, row_number() OVER (PARTITION BY device, stream, task, context ORDER BY rowid) AS number
        FROM raw.pmu) AS p)
"""  # noqa: S608 - names of ours
#: Of a core: the record of the task itself, or the sum of its blocks on the other core.
_CHOSEN = f"""
SELECT c.id, c.is_block, c.end_ns, c.cycles, CASE WHEN c.is_block THEN f.mixBlockNum ELSE f.blockNum END,
       (SELECT q.mhz FROM raw.frequency AS q WHERE q.device = c.device AND q.ns <= c.end_ns ORDER BY q.ns DESC LIMIT 1),
       {", ".join(f"c.{name}" for name in _COUNTERS)}
FROM (
  SELECT id, device, 0 AS is_block, end_ns, cycles, {", ".join(_COUNTERS)}
  FROM raw.counted WHERE core IN (:own, :mix) AND id IS NOT NULL GROUP BY id
  UNION ALL
  SELECT id, device, 1, max(end_ns), sum(cycles), {", ".join(f"sum({name})" for name in _COUNTERS)}
  FROM raw.counted WHERE core = :block AND id IN (SELECT id FROM raw.counted WHERE core = :other_mix)
  GROUP BY id) AS c
LEFT JOIN COMPUTE_TASK_INFO AS f ON f.globalTaskId = c.id
WHERE c.device = :device
ORDER BY c.id
"""  # noqa: S608 - names of ours


def _fill(
    connection: sqlite3.Connection, recording: Recording, device: int, core: str, text_id: Callable[[str], int]
) -> None:
    info = recording.infos[device]
    wide = recording.chip in WIDE_CHIPS
    events, group = info.events(core)
    columns = _columns(tuple(events), group, core, wide)
    names = {
        "total_cycles": text_id(f"{core}_total_cycles"),
        "time": text_id("aicore_time" if core == "aic" else "aiv_time"),
    }
    names.update({column.name: text_id(f"{core}_{column.name}") for column in columns})
    kind, other = core.upper(), {"aic": "AIV", "aiv": "AIC"}[core]
    chosen = {
        "own": kind,
        "mix": f"MIX_{kind}",
        "block": f"BLOCK_{kind}",
        "other_mix": f"MIX_{other}",
        "device": device,
    }
    mhz = 0.0 if info.aic_mhz is None else float(info.aic_mhz)
    ((stopped,),) = connection.execute("SELECT count(*) FROM raw.frequency WHERE device = ? AND mhz = 0", (device,))
    follows = recording.chip == LOW_POWER_CHIP and not stopped
    cursor = connection.execute(_CHOSEN, chosen)
    while rows := cursor.fetchmany(_ROWS):
        ids = np.array([row[0] for row in rows])
        cycles = _floats([row[3] for row in rows])
        blocks = _floats([row[4] for row in rows])
        clocks = _floats([row[5] if follows and row[5] else mhz for row in rows])
        counters = [_floats([row[6 + place] for row in rows]) for place in range(COUNTERS)]
        cores = float(info.cores(core) or 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Blocks beyond the cores run after each other.
            time_ns = cycles * 1000 / clocks / blocks * np.ceil(blocks / cores)
            values = {"total_cycles": cycles, "time": time_ns}
            values.update(_values(columns, counters, cycles, time_ns))
        for name, column in values.items():
            usable = np.isfinite(column)
            found = zip(ids[usable].tolist(), repeat(names[name]), column[usable].tolist(), strict=False)
            connection.executemany("INSERT INTO TASK_PMU_INFO VALUES (?, ?, ?)", found)


def _values(
    columns: Sequence[_Column],
    counters: Sequence[NDArray[np.float64]],
    cycles: NDArray[np.float64],
    time_ns: NDArray[np.float64],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for column in columns:
        chosen = [counters[place] for place in column.places]
        if column.kind == "division":
            yield column.name, chosen[0] / chosen[1]
        elif column.kind == "count":
            yield column.name, sum(chosen[1:], chosen[0])
        else:
            ratio = sum(chosen[1:], chosen[0]) / cycles
            yield column.name, ratio * time_ns if column.kind == "time" else ratio


@cache
def _columns(events: tuple[int, ...], group: str, core: str, wide: bool) -> tuple[_Column, ...]:
    """Return the columns whose events were recorded, in this order, by a core."""
    found: list[_Column] = []
    key = "wide" if wide else "events"
    if group in ("PipeUtilization", "PipeUtilizationExct"):
        for pipe in _of_core("pipe", core):
            for one in pipe.get(key, ()):
                if set(one) <= set(events):
                    places = tuple(map(events.index, one))
                    found += [
                        _Column(f"{pipe['name']}_ratio", "ratio", places),
                        _Column(f"{pipe['name']}_time", "time", places),
                    ]
                    break
    for other in _of_core("other", core):
        one = other.get(key, ())
        if one and group in other["groups"] and set(one) <= set(events):
            found.append(_Column(other["name"], other["kind"], tuple(map(events.index, one))))
    return tuple(found)


def _of_core(table: str, core: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in _loaded()[table] if one.get("core", core) == core)


@cache
def _loaded() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return tomli.loads(files(__package__).joinpath("pmu.toml").read_text("utf-8"))


def _floats(values: Sequence[int | float | None]) -> NDArray[np.float64]:
    """Return numbers; NaN for those that are unknown or 0 where they would divide."""
    return np.array([np.nan if value is None else value for value in values], np.float64)
