"""Store what a source has besides events: memory blocks, and hardware counters of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.int64 import Int64
from traceconv.events.trace import DeviceTables
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.normalize.vendor_csv.spec import plain, spec
from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.vendor_folder.table_sql import MEMORY_COLUMNS, add_held_memory, add_memory

#: Of a counter of a task. `place`: of its column among all, by name.
_COLUMNS = {"id": "BIGINT", "place": "SMALLINT", "number": "BIGINT", "value": "VARCHAR"}
#: Units in the headings of CSV files. Databases have ns instead of µs, and bytes instead of GiB.
_UNIT = re.compile(r"\((us|gb/s|%)\)$")
_GIB = 1 << 30
_TASKS_AT_ONCE = 4096
#: Counters that CSV files name differently.
_RENAMED = {"total time": "aicore time", "aic total time": "aicore time", "aiv total time": "aiv time"}
_RATIO = re.compile(r".*_(?:ratio|rate)")


def add_tables(tables: DeviceTables, target: RunSql, log: ImportLog) -> None:
    """Add these rows, once the events of the source are stored."""
    tables.report_to(log)
    if target.writer.stage("vendor_memory", tables.memory_blocks(), MEMORY_COLUMNS):
        add_memory(target)
        add_held_memory(target, 1)
    known = _counter_columns()
    columns = sorted({column for column, _ in known.values()})
    places = {column: place for place, column in enumerate(columns)}
    if not target.writer.stage("vendor_counter", _counters(tables, known, places), _COLUMNS):
        return
    ratios = ", ".join(str(place) for column, place in places.items() if _RATIO.fullmatch(column))
    truncated = target.number(
        f"DELETE FROM temp.vendor_counter WHERE place IN ({ratios}) AND NOT EXISTS ("  # noqa: S608 - numbers
        f"FROM temp.vendor_counter WHERE place IN ({ratios}) AND NOT regexp_full_match(value, '[01]'))"
    )
    message = "ratios of hardware counters, which the writer truncated to 0 or 1: not used"
    log.count(Code.BAD_NUMBER, message, truncated, SOURCE_ID)
    words = {_known_as(name) for name in tables.counter_names}
    groups = {group: {_UNIT.sub("", heading) for heading in headings} for group, headings in spec().groups.items()}
    names, numbers, others = "", "", []
    for column in sorted({known[word][0] for word in words & known.keys()}):
        of_column = f"FILTER (place = {places[column]})"
        if column.startswith("pmu_"):
            names += f", {column.removeprefix('pmu_')}"
            numbers += f", max(number) {of_column}"
        else:
            others.append(f"""'"{column}":' || max(value) {of_column}""")
    target.run_sql("CREATE OR REPLACE TEMP TABLE vendor_sorted AS FROM temp.vendor_counter ORDER BY id")
    ((first, last),) = target.fetch("SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM temp.vendor_sorted")
    # Its aggregates can't be written to disk, so there are few tasks at once.
    for start in range(first, last + 1, _TASKS_AT_ONCE):
        target.run_sql(
            f"INSERT INTO task_pmu (run_id, id, metric_group{names}, vendor_values) SELECT $run, id, $grp{numbers}, "  # noqa: S608 - columns
            f"CASE WHEN count(value) > 0 THEN '{{' || concat_ws(',', {', '.join(others) or 'NULL'}) || '}}' END "
            "FROM temp.vendor_sorted WHERE id >= $start AND id < $until GROUP BY id",
            grp=next((group for group, headings in groups.items() if headings & words), None),
            start=start,
            until=start + _TASKS_AT_ONCE,
        )


def _counter_columns() -> dict[str, tuple[str, str]]:
    """Return our column and the CSV's unit for each counter; columns of task_pmu begin with pmu_."""
    kernel = next(kind for kind in spec().kinds if kind.kind == "op_summary")
    columns = (*spec().vendor_values, *(column for column in kernel.columns if column.name.startswith("pmu_")))
    found: dict[str, tuple[str, str]] = {}
    for column in columns:
        for heading in column.headers:
            unit = _UNIT.search(heading)
            found.setdefault(_UNIT.sub("", heading), (column.name, unit[1] if unit else ""))
    return found


def _known_as(name: str) -> str:
    return _RENAMED.get(plain(name), plain(name))


def _counters(
    tables: DeviceTables, known: Mapping[str, tuple[str, str]], places: Mapping[str, int]
) -> Iterator[pa.RecordBatch]:
    for ids, names, values in tables.task_counters(lambda name: _known_as(name) in known):
        columns = [known.get(_known_as(name), ("", "")) for name in names.distinct]
        of_columns = pa.array([places.get(column) for column, _ in columns], pa.int16())
        shown = of_columns.take(pa.array(names.codes))
        if isinstance(values, np.ndarray):
            yield _of_one(ids, shown, *columns[0], values)
            continue
        numbers: list[int | None] = []
        texts: list[str | None] = []
        for code, value in zip(names.codes.tolist(), values, strict=True):
            column, unit = columns[code]
            exact = round(value) if unit == "us" else value / _GIB if unit == "gb/s" else value
            is_number = column.startswith("pmu_")
            numbers.append(int(exact) if is_number else None)
            texts.append(None if is_number else repr(exact))
        arrays = [pa.array(ids), shown, pa.array(numbers, pa.int64()), pa.array(texts, pa.string())]
        yield pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))


def _of_one(ids: Int64, places: pa.Array, column: str, unit: str, values: NDArray[np.float64]) -> pa.RecordBatch:
    """Return the same for values of one counter."""
    converted = np.rint(values) if unit == "us" else values / _GIB if unit == "gb/s" else values
    is_number = column.startswith("pmu_")
    shown = pa.array(converted.astype(np.int64) if is_number or unit == "us" else converted)
    arrays = [
        pa.array(ids),
        places,
        shown if is_number else pa.nulls(len(ids), pa.int64()),
        pa.nulls(len(ids), pa.string()) if is_number else shown.cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(_COLUMNS))
