"""Find a block of memory in a database of torch_npu or msprof."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceconv.formats.ascend_db.reader import AscendDbReader
from traceconv.formats.ascend_db.tables import MEMORY
from traceconv.formats.common.sqlite_rows import row_fields
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, SourceFile


def locate_block(source: SourceFile, is_wanted: Callable[[Mapping[str, Any]], bool]) -> list[Evidence]:
    """Find the first row of a block of memory, by its columns in `MEMORY_COLUMNS`."""
    reader = AscendDbReader(ReadRequest(source.path, limits=NO_LIMITS))
    for batch in reader.memory_blocks():
        for block in filter(is_wanted, batch.to_pylist()):
            fields = {**row_fields(source.path, MEMORY, block["id"]), "name": block["name"]}
            return [Evidence(source, "its row", where=f"table {MEMORY}, rowid {block['id']}", fields=fields)]
    return []
