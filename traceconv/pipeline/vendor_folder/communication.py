"""Read torch_npu's communication.json: the vendor's split of each collective into transfer, wait and idle time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from traceconv.base.diagnostics import Account, Code
from traceconv.events.npu import ORDINAL_BITS
from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.vendor_folder.json_files import read_json
from traceconv.pipeline.vendor_folder.tables import FolderLog
from traceconv.pipeline.vendor_folder.task_sql import TASK_COLUMNS, attach

#: Key of the figures in the args of tasks, and the format of the source.
KEY = "communication"
_MAX_BYTES = 32 << 20
_TOTAL = "Total Op Info"
_TIMES, _START = "Communication Time Info", "Start Timestamp(us)"


def add_communication(path: Path, name: str, source_id: int, target: RunSql, log: FolderLog, account: Account) -> None:
    """Add the vendor's figures of each collective to the args of its task, found by its name and start.

    name  path of the file within the folder, for messages
    """
    found = list(_records(read_json(path, name, _MAX_BYTES, log)))
    if not found:
        return
    first = source_id << ORDINAL_BITS
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(first, first + len(found)), pa.int64()),
            "name": pa.array([one[0] for one in found], pa.string()),
            "start_ns": pa.array([one[1] for one in found], pa.int64()),
            "args": pa.array([one[2] for one in found], pa.string()),
        }
    )
    target.writer.stage("vendor_task", iter([rows]), TASK_COLUMNS)
    paired, alone = attach(target, KEY)
    account.add(paired=paired, used=alone)
    if alone:
        log.add(Code.COMPLETED, f"{name}: records whose task is missing or ambiguous", event_count=alone)


def _records(steps: object) -> Iterator[tuple[str, int, str]]:
    """Yield name, start in ns (to the µs, since it was a double) and figures of each collective, by step and kind."""
    for kinds in _values(steps):
        for collectives in _values(kinds):
            for key, figures in collectives.items() if isinstance(collectives, dict) else ():
                times = figures.get(_TIMES) if isinstance(figures, dict) else None
                start = times.get(_START) if isinstance(times, dict) else None
                if key != _TOTAL and isinstance(start, int | float) and 0 <= start < 1 << 53:
                    # name@group
                    yield key.rpartition("@")[0] or key, int(Decimal(repr(start)) * 1000), json.dumps(figures)


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, dict) else []
