"""What `traceconv why` finds for a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from traceconv.base.display import TextDisplay
from traceconv.formats.locate import Evidence

#: Maximum number of pieces shown for one row.
MAX_PIECES = 32


@dataclass(frozen=True, slots=True)
class RowRef:
    """Another row that this one was made from."""

    table: str
    id: int
    role: str


#: The evidence of a row, and the rows that it was made from.
Found: TypeAlias = tuple[list[Evidence], list[RowRef]]


@dataclass(frozen=True, slots=True, repr=False)
class Answer(TextDisplay):
    """Where a row came from. Its repr is what `traceconv why` prints.

    rows      the row; several if they share an id, such as those of a fusion
    made_of   rows that it was made from
    notes     (column, how its value was derived); an empty column: the row itself
    problems  a sentence for each source that is missing or has changed
    """

    table: str
    id: str
    run_id: int
    run_label: str
    rows: Sequence[Mapping[str, object]]
    evidence: Sequence[Evidence] = ()
    made_of: Sequence[RowRef] = ()
    notes: Sequence[tuple[str, str]] = ()
    problems: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """The answer for people."""
        from traceconv.provenance.text import lines_of

        return chain(lines_of(self), self.problems)
