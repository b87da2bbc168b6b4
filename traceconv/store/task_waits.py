"""Waits of tasks on tracks that hold other slices too: what an annotation lies around is no gap between tasks.

While a trace is nested, the gap before a slice is from the slice before it on its track, whatever that is. PyTorch
draws annotations (`gpu_user_annotation`) on the streams themselves, onnxruntime its kernels inside of its calls: there
the waits are made again from the tasks alone.
"""

from __future__ import annotations

from collections.abc import Collection

from traceconv.store.writer import StoreWriter

#: In the order in which slices are nested: by start, the longest first.
_CORRECT = """
UPDATE task SET wait_ns = found.wait_ns
FROM (
  SELECT id, wait_ns AS was, CASE WHEN lag(id) OVER before IS NULL THEN 0
         ELSE start_ns - lag(start_ns + dur_ns) OVER before END AS wait_ns
  FROM task
  WHERE run_id = $run AND start_ns IS NOT NULL AND list_contains($tracks::BIGINT[], track_id)
  WINDOW before AS (PARTITION BY track_id ORDER BY start_ns, dur_ns DESC NULLS FIRST, id)
) AS found
WHERE task.run_id = $run AND task.id = found.id AND found.wait_ns IS DISTINCT FROM found.was
"""


def correct_waits(writer: StoreWriter, run_id: int, tracks: Collection[int]) -> None:
    """Makes task.wait_ns of a run of the transaction right on tracks that tasks share with ranges or calls."""
    writer.run_sql(_CORRECT, {"run": run_id, "tracks": sorted(tracks)})
