"""Hardware counters of tasks → ratios, times and counts, as msprof's op_summary has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tomli

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import Int64
from traceconv.formats.ascend_raw.names import LOW_POWER_CHIP, WIDE_CHIPS
from traceconv.formats.ascend_raw.recording import DeviceInfo, Recording
from traceconv.formats.ascend_raw.records import COUNTERS
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import taken

_COUNTERS = tuple(f"c{number}" for number in range(COUNTERS))
_MEASURED = ("ns", "cycles", "blocks", "mhz", *_COUNTERS)
#: Columns of the table with the counters of tasks.
COLUMNS = ("globalTaskId", "isVector", "deviceId", *_MEASURED)


class _Column(NamedTuple):
    """A column: its name without the core, how it follows from events, and the places of these among the counters."""

    name: str
    kind: str
    places: tuple[int, ...]


def fill_counters(connection: sqlite3.Connection, log: ImportLog, accounts: Accounts) -> None:
    """Fill COUNTERS from raw.pmu, once the tasks are known."""
    connection.execute("CREATE INDEX raw.done_of ON done (device, stream, task, context, start_ns, end_ns)")
    connection.execute("CREATE INDEX raw.frequency_at ON frequency (device, ns, mhz)")
    connection.execute(_NUMBERED)
    connection.execute("CREATE UNIQUE INDEX raw.numbered_of ON numbered (device, stream, task, number)")
    ((has_times,),) = connection.execute("SELECT NOT EXISTS (SELECT 1 FROM raw.pmu WHERE end_ns IS NULL)")
    connection.execute(_MATCH.format(places="NULL AS number, NULL AS count" if has_times else _PLACES))
    ((loose,),) = connection.execute("SELECT count(*) FROM raw.counted WHERE id IS NULL")
    if loose:
        log.count(Code.ORPHAN_PMU, "counters whose task is unknown or was not recorded", loose, SOURCE_ID)
        accounts["counters of tasks"].add(lost=loose)
    for is_vector, (own, other) in enumerate((("AIC", "AIV"), ("AIV", "AIC"))):
        names = {"own": own, "mix": f"MIX_{own}", "block": f"BLOCK_{own}", "other_mix": f"MIX_{other}"}
        connection.execute(_CHOSEN, {**names, "is_vector": is_vector})


#: The executions of each task on AI cores, if records of counters have no times.
_NUMBERED = """
CREATE TABLE raw.numbered AS
SELECT d.id, d.device, d.stream, d.task, row_number() OVER same AS number, count(*) OVER (
  PARTITION BY d.device, d.stream, d.task) AS count
FROM raw.done AS d
JOIN raw.hash AS t ON t.id = d.type
WHERE t.text IN ('AI_CORE', 'AIV_SQE') AND EXISTS (SELECT 1 FROM raw.pmu WHERE end_ns IS NULL)
WINDOW same AS (PARTITION BY d.device, d.stream, d.task ORDER BY d.start_ns, d.id)
"""
#: The execution that a record belongs to: it ended during it. Records without a time are in the order of the
#: executions, if there are as many; otherwise, which is whose is unknown.
_MATCH = f"""
CREATE TABLE raw.counted AS
SELECT CASE WHEN end_ns IS NULL THEN by_order
         WHEN (SELECT d.end_ns FROM raw.done AS d WHERE d.id = by_time) >= end_ns THEN by_time END AS id,
       device, core, is_block, start_ns, end_ns, cycles, {", ".join(_COUNTERS)}
FROM (
  SELECT p.*,
    (SELECT d.id FROM raw.done AS d
      WHERE d.device = p.device AND d.stream = p.stream AND d.task = p.task AND d.context = p.context
        AND d.start_ns <= p.end_ns ORDER BY d.start_ns DESC LIMIT 1) AS by_time,
    CASE WHEN p.end_ns IS NULL THEN
      (SELECT d.id FROM raw.numbered AS d
        WHERE d.device = p.device AND d.stream = p.stream AND d.task = p.task AND d.number = p.number
          AND d.count = p.count) END AS by_order
  FROM (SELECT *, {{places}} FROM raw.pmu) AS p)
"""  # noqa: S608 - names of ours
_PLACES = (
    "row_number() OVER (PARTITION BY device, stream, task, context ORDER BY rowid) AS number, "
    "count(*) OVER (PARTITION BY device, stream, task, context) AS count"
)
#: Of a core: the record of the task itself, or the sum of its blocks on the other core.
_CHOSEN = f"""
INSERT INTO COUNTERS
SELECT c.id, :is_vector, c.device, c.ns, c.cycles, CASE WHEN c.is_block THEN f.mixBlockNum ELSE f.blockNum END,
       (SELECT q.mhz FROM raw.frequency AS q WHERE q.device = c.device AND q.ns <= c.end_ns ORDER BY q.ns DESC LIMIT 1),
       {", ".join(f"c.{name}" for name in _COUNTERS)}
FROM (
  SELECT id, device, 0 AS is_block, CASE WHEN start_ns <= end_ns THEN end_ns - start_ns END AS ns, end_ns, cycles,
         {", ".join(_COUNTERS)}
  FROM raw.counted WHERE core IN (:own, :mix) AND id IS NOT NULL GROUP BY id
  UNION ALL
  SELECT id, device, 1, NULL, max(end_ns), sum(cycles), {", ".join(f"sum({name})" for name in _COUNTERS)}
  FROM raw.counted WHERE core = :block AND id IN (SELECT id FROM raw.counted WHERE core = :other_mix)
  GROUP BY id) AS c
LEFT JOIN COMPUTE_TASK_INFO AS f ON f.globalTaskId = c.id
ORDER BY c.device, c.id
"""  # noqa: S608 - names of ours


def computed(columns: Mapping[str, Values], recording: Recording) -> Iterator[tuple[str, Int64, NDArray[np.float64]]]:
    """Yield the values of rows of COUNTERS: a name, the tasks that have it, and its value in each; times in ns."""
    tasks, devices = integer_array(columns["globalTaskId"]), integer_array(columns["deviceId"])
    vectors = integer_array(columns["isVector"]) == 1
    for device, info in recording.infos.items():
        for core, of_core in (("aic", ~vectors), ("aiv", vectors)):
            rows = np.flatnonzero((devices == device) & of_core)
            if not len(rows):
                continue
            chosen = {name: _floats(taken(columns[name], rows)) for name in _MEASURED}
            for name, values in _of_tasks(chosen, recording, info, core):
                usable = np.isfinite(values)
                yield name, tasks[rows[usable]], values[usable]


def _of_tasks(
    columns: Mapping[str, NDArray[np.float64]], recording: Recording, info: DeviceInfo, core: str
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    cycles, blocks = columns["cycles"], columns["blocks"]
    mhz = np.full(len(cycles), np.nan if info.aic_mhz is None else float(info.aic_mhz))
    if recording.chip == LOW_POWER_CHIP:
        mhz = np.where(columns["mhz"] > 0, columns["mhz"], mhz)
    cores = float(info.cores(core) or np.nan)
    events, group = info.events(core)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Blocks beyond the cores run after each other. Chips with 32-bit IDs of tasks record the time instead.
        time_ns = cycles * 1000 / mhz / blocks * np.ceil(blocks / cores)
        time_ns = np.where(np.isfinite(columns["ns"]), columns["ns"], time_ns)
        yield f"{core}_total_cycles", cycles
        yield "aicore_time" if core == "aic" else "aiv_time", time_ns
        found = _columns(tuple(events), group, core, recording.chip in WIDE_CHIPS)
        for name, values in _values(found, [columns[name] for name in _COUNTERS], cycles, time_ns):
            yield f"{core}_{name}", values


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


def _floats(values: Values) -> NDArray[np.float64]:
    """Return numbers; NaN for those that are unknown."""
    column = values if isinstance(values, pa.Array) else pa.array(list(values), pa.int64())
    found: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
