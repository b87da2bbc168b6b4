"""Find the table and rowid of an event in a database of torch_npu or msprof."""

from __future__ import annotations

from traceconv.formats.ascend_db.reader import AscendDbReader
from traceconv.formats.common.sqlite_rows import locate_row
from traceconv.formats.locate import Evidence, Wanted


def locate(wanted: Wanted) -> list[Evidence]:
    """Read the file again up to the batch with the event."""
    return locate_row(wanted, AscendDbReader)
