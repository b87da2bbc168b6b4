"""The statements that create the reports in a store: most stores are copied from a cached one instead."""

from __future__ import annotations


def report_statements() -> list[str]:
    """Return the statements that create all reports."""
    from traceconv.reports.catalog import creating, renamed_reports, reports

    every = [*reports().values(), *renamed_reports().values()]
    return [statement for report in every for statement in creating(report)]
