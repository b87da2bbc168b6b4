"""Find the entry of a memory snapshot that an event is from."""

from __future__ import annotations

from traceconv.base.errors import InputError, printable
from traceconv.formats.common.elements import json_object
from traceconv.formats.format import ReadRequest
from traceconv.formats.locate import NO_LIMITS, Evidence, Wanted
from traceconv.formats.torch_memory.reader import TorchMemoryReader


def locate(wanted: Wanted) -> list[Evidence]:
    """Read the file again up to the batch with the event."""
    path = wanted.source.path
    reader = TorchMemoryReader(ReadRequest(path, limits=NO_LIMITS))
    for batch in reader.batches():
        index = wanted.ordinal - batch.first_ordinal
        if index < batch.columns.count:
            columns = batch.columns
            found = {
                "name": columns.label("name")[index],
                "action": columns.label("cat")[index],
                "ts_ns": columns.raw["ts"][index].as_py(),
            }
            fields = {**found, **json_object(columns.raw["args"][index].as_py())}
            pid = columns.label("pid")[index]
            name, number = reader.places[index]
            where = f"{pid}, {name}, number {number}"
            return [Evidence(wanted.source, wanted.role, where=where, fields=fields)]
    raise InputError(f"{printable(str(path))} has changed since ingest: it has fewer entries; ingest it again")
