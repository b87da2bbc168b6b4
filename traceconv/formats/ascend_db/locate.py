"""Find a block of memory in a database of torch_npu or msprof, or in raw data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceconv.formats.ascend_db.reader import AscendDbReader
from traceconv.formats.ascend_db.tables import MEMORY
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, SourceFile
from traceconv.formats.registry import open_source


def locate_block(source: SourceFile, is_wanted: Callable[[Mapping[str, Any]], bool]) -> list[Evidence]:
    """Find the first row of a block of memory, by its columns in `MEMORY_COLUMNS`."""
    reader = open_source(source.format, ReadRequest(source.path, limits=NO_LIMITS))
    assert isinstance(reader, AscendDbReader)
    for batch in reader.memory_blocks():
        for block in filter(is_wanted, batch.to_pylist()):
            fields = {**reader.row(MEMORY, block["id"]), "name": block["name"]}
            return [Evidence(source, "its row", where=f"table {MEMORY}, rowid {block['id']}", fields=fields)]
    return []
