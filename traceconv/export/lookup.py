"""A small table as a list that rows index: a look-up that is no join, and costs less than one."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

#: A list has at most this many places, and this many times as many as it has values.
_MAX_PLACES = 200_000
_MAX_SPARSENESS = 8


@dataclass(frozen=True, slots=True)
class Lookup:
    """Values by integer key, from `first`, in a variable of the connection."""

    variable: str
    first: int

    def of(self, key: str) -> str:
        """SQL of the value for a key: NULL where there is none, and for NULL."""
        return f"getvariable('{self.variable}')[{key} - ({self.first}) + 1]"


def make_lookup(connection: duckdb.DuckDBPyConnection, variable: str, query: str) -> Lookup | None:
    """A look-up of what a query gives as `key` and `value`; None when the keys are too many or too far apart."""
    [(first, last, count)] = connection.execute(f"SELECT min(key), max(key), count(key) FROM ({query})").fetchall()
    if count == 0:
        first, last = 0, 0
    places = last - first + 1
    if places > _MAX_PLACES or places > max(_MAX_SPARSENESS * count, 1000):
        return None
    connection.execute(
        f"SET VARIABLE {variable} = (SELECT list(value ORDER BY place) FROM "
        f"(SELECT unnest(range({first}, {last + 1})) AS place) LEFT JOIN ({query}) ON key = place)"
    )
    return Lookup(variable, first)
