"""The streams of a recording → tables of its records, in a database of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from itertools import compress, islice
from typing import Any, TypeAlias

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.digest import blake2b
from traceconv.base.errors import printable
from traceconv.formats.ascend_raw.clocks import Clock
from traceconv.formats.ascend_raw.folder import Stream
from traceconv.formats.ascend_raw.names import CHIPS_WITHOUT_FLIPS, WIDE_CHIPS
from traceconv.formats.ascend_raw.records import Layout
from traceconv.formats.ascend_raw.slices import Slices
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import file_size

#: Lines of text that are stored at once.
_LINES = 1 << 14
RecordArray: TypeAlias = NDArray[np.void]
#: By stream: the layout of its records, and what inserts them.
Fillers: TypeAlias = dict[str, tuple[Layout, Callable[[RecordArray, Clock], None]]]
#: Streams whose records describe what others contain: nothing of them is an event.
_DESCRIBING = frozenset(
    (
        "additional.Multi_Thread",
        "additional.capture_op_info",
        "additional.fusion_op_info",
        "additional.graph_id_map",
        "additional.logic_stream_info",
        "additional.mc2_comm_info",
        "additional.memory_application",
        "additional.model_exeom",
        "additional.static_op_mem",
        "aicpu.data",
        "Framework.host.vm.graph_desc_info",
        "Framework.host.vm.point",
        "compact.capture_stream_info",
        "compact.capture_stream_info_v2",
        "compact.task_track_v2",
    )
)


def schema() -> str:
    """Return the statements that create the tables."""
    return files("traceconv.formats.ascend_raw").joinpath("staging.sql").read_text("utf-8")


class Staging:
    """The tables, and what all records of one recording share.

    is_wide_chip  the chip's records have longer IDs of tasks, and no streams
    has_flips     records show when the 16 bits of IDs of tasks start again at 0
    wide_streams  IDs of streams have 15 bits, not 11
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        log: ImportLog,
        accounts: Accounts,
        advance: Callable[[int], None],
        chip: int,
    ) -> None:
        self.connection = connection
        self.log = log
        self._slices = Slices(log, accounts, advance)
        self.is_wide_chip = chip in WIDE_CHIPS
        self.has_flips = chip not in CHIPS_WITHOUT_FLIPS and not self.is_wide_chip
        self.wide_streams = False

    def text_id(self, text: str) -> int:
        """Return the ID of a text that the recording has no number for."""
        number = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little", signed=True)
        self.connection.execute("INSERT OR REPLACE INTO raw.hash VALUES (?, ?)", (number, text))
        return number

    def insert_lines(
        self, stream: Stream, statement: str, row_of: Callable[[str], tuple[int | str, ...] | None], damaged: str
    ) -> None:
        """Execute a statement with the row of each line of text; `damaged`: what lines without one are."""
        count = 0
        lines = self._slices.text(stream)
        while some := list(islice(lines, _LINES)):
            rows = [(line, row_of(line)) for line in some]
            count += sum(row is None and bool(line.strip("\0\r ")) for line, row in rows)
            self.connection.executemany(statement, [row for _, row in rows if row is not None])
        self.log.count(Code.BAD_TEXT, f"{printable(stream.name)}: {damaged}", count, SOURCE_ID)

    def read(self, stream: Stream, fillers: Fillers, clock: Clock | None) -> None:
        """Insert the records of a stream; without a clock, they are lost."""
        if stream.name not in fillers:
            self.skip(stream)
            return
        layout, fill = fillers[stream.name]
        for found in self._slices.records(stream, layout):
            if clock is None:
                self.lose(stream, len(found), Code.NO_CLOCK_SYNC, "the start of the clock is not recorded")
            else:
                fill(found, clock)

    def pieces(self, stream: Stream) -> Iterator[bytes]:
        """Yield the bytes of a stream."""
        return self._slices.pieces(stream, 0)

    def records(self, stream: Stream, layout: Layout) -> Iterator[RecordArray]:
        """Yield the records of a stream."""
        return self._slices.records(stream, layout)

    def skip(self, stream: Stream) -> None:
        """Account for a stream that is not read."""
        size = sum(map(file_size, stream.files))
        if stream.name in _DESCRIBING or not size:
            self.log.add(Code.NOT_READ, f"{printable(stream.name)}: not read", source_id=SOURCE_ID, byte_count=size)
        else:
            self.lose(stream, 1, Code.UNKNOWN_RECORD, f"{size} bytes of a stream that is not read")

    def lose(self, stream: Stream, count: int, code: Code, what: str) -> None:
        """Account for records of a stream that are lost."""
        self._slices.lose(stream, count, code, what)

    def ns(self, clock: Clock, ticks: NDArray[np.uint64]) -> NDArray[Any]:
        """Return times; None for those that are not valid."""
        times, valid = clock.ns(ticks)
        if valid.all():
            return times
        found = times.astype(object)
        found[~valid] = None
        return found

    def insert(
        self, table: str, names: str | None, columns: Sequence[Any], chosen: NDArray[np.bool_] | None = None
    ) -> None:
        """Insert rows, or those that are chosen, into a table of `raw`.

        names  of the columns; None: all of the table
        """
        listed = [_listed(column, chosen) for column in columns]
        marks = ", ".join("?" * len(columns))
        shown = f" ({names})" if names else ""
        self.connection.executemany(f"INSERT INTO raw.{table}{shown} VALUES ({marks})", zip(*listed, strict=True))  # noqa: S608 - names above


def _listed(column: Any, chosen: NDArray[np.bool_] | None) -> list[Any]:
    """Return values that SQLite can store: numbers without a sign as those with the same bits."""
    if isinstance(column, list):
        return column if chosen is None else list(compress(column, chosen.tolist()))
    column = column if chosen is None else column[chosen]
    found: list[Any] = (column.view(np.int64) if column.dtype == np.uint64 else column).tolist()
    return found
