"""An answer from a sample: its rows with intervals, as a table, as JSON and as text for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from traceconv.base.display import TextDisplay
from traceconv.base.errors import UsageError
from traceconv.reports.catalog import reports
from traceconv.reports.question import find_report
from traceconv.reports.render import Table, heading, is_number
from traceconv.reports.result import text_table
from traceconv.reports.values import human, human_bytes
from traceconv.sampling.estimate import Interval, ShareInterval
from traceconv.store.documented_sql import SqlColumn

SUMMARY = "run_summary"
#: Columns that name the rows of a report; those of FOUND, with their SQL, are only known from all events together.
KEYS = {
    "kernels": ("device_id", "kernel", "kind", "input_shapes"),
    "op_statistic": ("device_id", "op_type", "core_type"),
}
FOUND = {
    # Kernels with the same label are numbered, but those of a sample may have other numbers.
    "kernels": {"label": "unnumbered(label)", "category": "category"},
    "op_statistic": {"op_type_source": "op_type_source"},
}
#: Reports that a sample answers.
SAMPLED_REPORTS = (SUMMARY, *KEYS)
#: What is estimated: (column of the count, of the time, of the share).
ESTIMATED = {
    SUMMARY: ("count", "time_ns", "percent"),
    "kernels": ("count", "total_ns", "ratio_percent"),
    "op_statistic": ("count", "total_ns", "ratio_percent"),
}
#: Columns of a summary that are not estimated, and those of the tables for people.
SUMMARY_KEYS = ("section", "item", "note")
_SHOWN = {
    SUMMARY: ("section", "item"),
    "kernels": ("device_id", "kernel", "category", "input_shapes"),
    "op_statistic": ("device_id", "op_type", "core_type"),
}
#: Columns that are left out of these tables if they are the same in all rows.
_OPTIONAL = frozenset({"device_id", "core_type", "category", "input_shapes"})
#: What a sample does not tell.
_NOT_YET = {
    SUMMARY: "span, times of steps, shares of each device, causes of idle time, gaps, self time of operators, memory, "
    "losses",
    "kernels": "unfinished_count, min_ns, avg_ns, max_ns, percentiles",
    "op_statistic": "unfinished_count, min_ns, avg_ns, max_ns",
}
#: What an exact answer leaves out, if not the same: sizes.
_NOT_SHOWN = {SUMMARY: "memory, losses"}
#: Version of the JSON: it changes if a key is renamed, removed, or gets another meaning.
_FORM, _VERSION = "traceconv-sample", 1
_NOT_KNOWN = "not yet"
#: Units of intervals, the largest first, each for limits from its size on.
_COUNTS = ((10**9, " G"), (10**6, " M"), (1, ""))
_TIMES = ((10**9, " s"), (10**6, " ms"), (10**3, " µs"), (1, " ns"))
_PERCENTS = ((1, ""),)


@dataclass(frozen=True, slots=True)
class EstimatedRow:
    """A row of a report with intervals. `key`: its columns that are not estimated; `percent`: 100 times a share."""

    key: Mapping[str, str | int | None]
    count: Interval
    time: Interval
    percent: ShareInterval


@dataclass(frozen=True, slots=True, repr=False)
class SampledAnswer(TextDisplay):
    """What a sample tells about a report. Iterates over its rows as dicts.

    report      its name, as on the command line
    read_bytes  bytes of the file that were read, of `size_bytes`
    blocks      number of blocks in the sample; 0: the beginning of the file was read, so that there are only lower
                limits, or all of it
    exact       all of the file was read: the intervals have no width
    losses      lines that report what was lost of a file of which all was read
    reason      why there are lower limits only; None: there are intervals, or all was read
    """

    report: str
    read_bytes: int
    size_bytes: int
    blocks: int
    exact: bool
    estimated: tuple[EstimatedRow, ...]
    losses: tuple[str, ...] = ()
    reason: str | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = [column.name for column in self._columns()]
        for row in self.estimated:
            yield dict(zip(names, _values(row), strict=True))

    def __len__(self) -> int:
        return len(self.estimated)

    def top(self, count: int | None) -> SampledAnswer:
        """Return the first rows only."""
        return replace(self, estimated=self.estimated[:count])

    def table(self) -> Table:
        """Return the rows as a table, with columns for the lower and upper limits."""
        return Table(self._columns(), iter([[_values(row) for row in self.estimated]]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that `json.dump` writes."""
        return {
            "form": _FORM,
            "version": _VERSION,
            "report": self.report,
            "exact": self.exact,
            "confidence_percent": 95,
            "read_bytes": self.read_bytes,
            "size_bytes": self.size_bytes,
            "blocks": self.blocks,
            "reason": self.reason,
            "rows": list(self),
        }

    def lines(self) -> Iterator[str]:
        """Describe the sample, then draw the rows."""
        yield self.title()
        yield from text_table(*self.shown()).splitlines()
        yield self.not_yet()

    def not_yet(self) -> str:
        """Describe what a sample does not tell, or what is left out of an exact answer."""
        if self.exact:
            return f"not shown: {_NOT_SHOWN.get(_sql_name(self.report)) or _NOT_YET[_sql_name(self.report)]}"
        return f"{_NOT_KNOWN}: {_NOT_YET[_sql_name(self.report)]}"

    def title(self) -> str:
        """Describe the sample in a line."""
        if not self.estimated:
            return f"{self.report}: no such events in a sample of {human_bytes(self.read_bytes)}"
        read, size = human_bytes(self.read_bytes), human_bytes(self.size_bytes)
        if self.exact:
            return f"{self.report}: exact, from all {size}"
        if not self.blocks:
            return f"{self.report}: read so far, {read} of {size}; the values are lower limits, since {self.reason}"
        return f"{self.report}: 95 % intervals from {self.blocks:,} blocks ({read} of {size})"

    def shown(self) -> tuple[dict[str, bool], list[list[str]]]:
        """Return headings, with whether they are of numbers, and cells for people: an interval is one cell."""
        name = _sql_name(self.report)
        found = {column.name: column for column in reports()[name].columns}
        keys = [
            key for key in _SHOWN[name] if key not in _OPTIONAL or len({row.key[key] for row in self.estimated}) > 1
        ]
        if "input_shapes" in keys and "category" in keys:  # both are too wide
            keys.remove("category")
        titles = {heading(found[column]): is_number(found[column]) for column in (*keys, *ESTIMATED[name])}
        unknown = human(None, "ns") if self.exact else _NOT_KNOWN
        rows = [
            [
                *(human(row.key[key], found[key].unit) for key in keys),
                _range(row.count, "{:,}".format, _COUNTS, unknown),
                _range(row.time, lambda value: human(value, "ns"), _TIMES, unknown),
                _range(row.percent, "{:.2f}".format, _PERCENTS, unknown),
            ]
            for row in self.estimated
        ]
        return titles, rows

    def _columns(self) -> tuple[SqlColumn, ...]:
        name = _sql_name(self.report)
        keys = (*KEYS.get(name, SUMMARY_KEYS), *FOUND.get(name, ()))
        columns = reports()[name].columns
        count, time, share = ({one.name: one for one in columns}[column] for column in ESTIMATED[name])
        return (
            *(column for column in columns if column.name in keys),
            *_limits(count, "count"),
            *_limits(time, time.name.removesuffix("_ns")),
            *_limits(share, share.name.removesuffix("_percent").removesuffix("percent")),
        )


def sampled_report(name: str, what: str) -> str:
    """Return the SQL name of a report that a sample answers. Raises UsageError for another, which names `what`."""
    report = find_report(name)
    if report.name not in SAMPLED_REPORTS:
        known = ", ".join(map(shown_name, SAMPLED_REPORTS))
        raise UsageError(f"{what} has no estimates for {shown_name(report.name)}; reports with estimates: {known}")
    return report.name


def shown_name(report: str) -> str:
    """Return the name of a report on the command line."""
    return "summary" if report == SUMMARY else report.replace("_", "-")


def _sql_name(shown: str) -> str:
    return find_report(shown).name


def _limits(column: SqlColumn, stem: str) -> Iterator[SqlColumn]:
    """Yield the columns of an interval: the estimate, its lower and its upper limit."""
    yield SqlColumn(column.name, column.type, column.unit, column.doc)
    unit = column.name.removeprefix(stem).removeprefix("_")
    for limit in ("low", "high"):
        name = "_".join(part for part in (stem, limit, unit) if part)
        yield SqlColumn(name, column.type, column.unit, f"The {limit} end of the 95 % interval of {column.name}.")


def _values(row: EstimatedRow) -> tuple[str | int | float | None, ...]:
    values: list[str | int | float | None] = [*row.key.values()]
    for interval in (row.count, row.time, row.percent):
        values += [interval.estimate, interval.low, interval.high]
    return tuple(values)


def _range(
    interval: Interval | ShareInterval,
    text: Callable[[Any], str],
    units: Sequence[tuple[int, str]],
    unknown: str = _NOT_KNOWN,
) -> str:
    """Format an interval: both limits with the digits and the unit of the upper one, and rounded away from it."""
    if interval.low is None:
        return unknown
    if interval.high is None:
        return f"≥ {text(interval.low)}"
    if text(interval.low) == text(interval.high):
        return text(interval.low)
    scale, unit = next((one for one in units if interval.high >= one[0]), units[-1])
    places = 0 if scale == 1 and isinstance(interval.high, int) else max(0, 3 - len(str(int(interval.high // scale))))
    power = 10**places
    low, high = math.floor(Fraction(interval.low) * power / scale), math.ceil(Fraction(interval.high) * power / scale)
    return f"{Decimal(low) / power:,.{places}f}–{Decimal(high) / power:,.{places}f}{unit}"
