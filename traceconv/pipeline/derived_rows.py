"""What SQL derives from the stored rows of a run: steps, reduces and sizes of collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.task_waits import set_op_summary_waits
from traceconv.store.collective_table import element_widths
from traceconv.store.sections import section

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter


def add_unfinished_steps(target: RunSql) -> int:
    """Add the steps whose events are missing, though other rows have their numbers; return how many.

    One for each device whose tasks name it. The recording is truncated.
    """
    return target.number(section(__name__, "unfinished_steps"))


def settle_reduces(target: RunSql) -> None:
    """Turn ranges of kind `reduce` into tasks of their step's device, unless it has collectives: the same work.

    Then set the waits of all tasks.
    """
    for name in ("reduces", "recorded_twice", "add_tasks", "remove_ranges"):
        target.run_sql(section(__name__, name))
    set_op_summary_waits(target)


#: Keys in args: elements, their type. Ascend (HCCL), and PyTorch (NCCL).
_KEYS = (("count", "data_type"), ("In msg nelems", "dtype"))


def size_collectives(writer: StoreWriter, runs: str) -> None:
    """Set task.size_bytes of collectives from their args; NULL for unknown types. `runs`: their IDs, as SQL."""
    for count, kind in _KEYS:
        words = {"count": count, "kind": kind, "runs": runs, "widths": element_widths()}
        writer.run_sql(section(__name__, "collective_sizes", **words))
