"""Find the raw records from which a row was made, by its table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from traceconv.base.integers import parse_int64
from traceconv.formats.locate import Evidence
from traceconv.normalize.npulog import device_passes
from traceconv.provenance.answer import Found, RowRef
from traceconv.provenance.files import Sources
from traceconv.provenance.raw_log import RawLog

#: Counters from memory records → the field with their value.
_MEMORY_COUNTERS = {"Memory used": "used_bytes", "Memory reserved": "reserved_bytes"}

_RECORD = "its record"
_FUSION_KEYS = ("fusion_id", "original_index")


class RawRows:
    """The records from which the rows of one capture were made."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._log = RawLog(sources)

    def of(self, table: str, row: Mapping[str, Any]) -> Found:
        """Return a row's evidence, and the rows that it was made from. InputError: a file is missing or has changed."""
        if table in ("task", "api", "range", "marker"):
            return self._slice(row), []
        if table == "flow":
            refs = [("api", row["src_id"], "where it starts"), ("task", row["dst_id"], "where it ends")]
            return [], [RowRef(name, int(one), role) for name, one, role in refs if one is not None]
        finders: dict[str, Callable[[Mapping[str, Any]], list[Evidence]]] = {
            "task_pmu": self._pmu,
            "event_wait": self._event_wait,
            "memory": self._memory,
            "counter": self._counter,
            "track": self._track,
            "fusion": lambda row: self._by("fusion", {key: row[key] for key in _FUSION_KEYS}, _RECORD),
            "op": lambda row: self._by("op", {"op_index": row["op_id"]}, _RECORD),
            "step": lambda row: self._by(
                "step_mark", {"step_id": row["step_id"]}, "one of its marks", row["device_id"]
            ),
            "device": lambda row: self._by("device", {}, _RECORD, row["device_id"]),
            "process": lambda row: self._by("thread", {"process_id": _number(row["pid_text"])}, "one of its threads"),
            "run": lambda row: self._by("capture", {}, "the metadata of the recording"),
        }
        return finders[table](row) if table in finders else [], []

    def _slice(self, row: Mapping[str, Any]) -> list[Evidence]:
        start = self._log.record(int(row["id"]))
        found = [self._log.evidence(start, "its start")]
        # Times of tasks are device ticks: their ends are found by the number of the task only.
        host = "host_ns" in (start.values.dtype.names or ())
        end = self._log.end_of(start, row["dur_ns"] if host else None) if row["dur_ns"] is not None else None
        if end is not None:
            found.append(self._log.evidence(end, "its end"))
        return found

    def _by(self, record: str, wanted: Mapping[str, object], role: str, device_id: int | None = None) -> list[Evidence]:
        return [self._log.evidence(one, role) for one in self._log.find(record, wanted, device_id=device_id)]

    def _pmu(self, row: Mapping[str, Any]) -> list[Evidence]:
        task = self._sources.row("task", "id", row["id"])
        kinds = [kind for kind, group in device_passes.METRIC_GROUPS.items() if group == row["metric_group"]]
        wanted, device_id = {"task_id": task.get("source_task_id")}, task.get("device_id")
        return [one for kind in kinds if task for one in self._by(kind, wanted, "its counters", device_id)]

    def _event_wait(self, row: Mapping[str, Any]) -> list[Evidence]:
        task = self._sources.row("task", "id", row["id"])
        wanted, device_id = {"task_id": task.get("source_task_id")}, task.get("device_id")
        return self._by("event_wait", wanted, _RECORD, device_id) if task else []

    def _memory(self, row: Mapping[str, Any]) -> list[Evidence]:
        found: list[Evidence] = []
        offset = self._offset_ns()
        for event, column, role in ((0, "alloc_ns", "its allocation"), (1, "free_ns", "its free")):
            if row[column] is None:
                continue
            wanted = {"block_id": row["block_id"], "event": event, "host_ns": row[column] - offset}
            found += self._by("memory", wanted, role)[:1]
        return found

    def _counter(self, row: Mapping[str, Any]) -> list[Evidence]:
        track = self._sources.row("track", "track_id", row["track_id"])
        field = _MEMORY_COUNTERS.get(track.get("name", ""))
        if field is not None:
            wanted = {"host_ns": row["ts_ns"] - self._offset_ns(), field: row["value_int"]}
            wanted["device_id"] = track["device_id"]
            found = self._by("memory", wanted, "the allocation or free with this value")
            if found:
                return found
        return self._sampled(row, track)

    def _sampled(self, row: Mapping[str, Any], track: Mapping[str, Any]) -> list[Evidence]:
        """Return the sample of a device's counter by its position among the track's samples with this value."""
        order = self._sources.fetch(
            "SELECT count(*) AS before FROM counter WHERE run_id = ? AND track_id = ? AND value_int = ? AND ts_ns < ?",
            [self._sources.run_id, row["track_id"], row["value_int"], row["ts_ns"]],
        )
        before = int(order[0]["before"])
        samples = self._log.find("counter", {"value": row["value_int"]}, device_id=track["device_id"], limit=1 << 20)
        named = [one for one in samples if self._log.evidence(one, "").fields.get("name") == track["name"]]
        named.sort(key=lambda one: int(one.values["ticks"]))
        return [self._log.evidence(one, "the sample") for one in named[before : before + 1]]

    def _track(self, row: Mapping[str, Any]) -> list[Evidence]:
        if row["kind"] == "thread":
            return self._by("thread", {"thread_id": _number(row["tid_text"])}, "the name of its thread")
        if row["kind"] == "stream":
            return self._by("stream", {"stream_id": row["stream_id"]}, "the name of its stream", row["device_id"])
        return []

    def _offset_ns(self) -> int:
        """Return the offset that was added to host times."""
        for capture in self._log.find("capture", {}, limit=1):
            offset = int(capture.values["epoch_ns"]) - int(capture.values["host_ns"])
            return offset if self._sources.run["epoch_known"] else 0
        return 0


def _number(text: object) -> int:
    number = parse_int64(text) if isinstance(text, str) else None
    return -1 if number is None else number
