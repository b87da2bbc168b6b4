"""A small table as a list that is indexed by a key: cheaper than a join."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

#: Maximum length of a list, and maximum ratio of its length to its number of values.
_MAX_PLACES = 200_000
_MAX_SPARSENESS = 8


@dataclass(frozen=True, slots=True)
class Lookup:
    """Values by an integer key, from `first` on, in a variable of the connection."""

    variable: str
    first: int

    def of(self, key: str) -> str:
        """Return the SQL of the value for a key; NULL if there is none."""
        return f"getvariable('{self.variable}')[{key} - ({self.first}) + 1]"


def make_lookup(connection: duckdb.DuckDBPyConnection, variable: str, query: str) -> Lookup | None:
    """Build a lookup from a query's `key` and `value`; None if the keys are too many or too far apart."""
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
