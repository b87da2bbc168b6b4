"""Names in a report: texts by id, processes and threads by global id, devices, labels of enums."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import printable
from traceconv.events.trace import TrackName, coded, combined
from traceconv.formats.common.sqlite_database import Database
from traceconv.formats.common.sqlite_names import SqliteNames
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.nsys.tables import LABELS, STRINGS, MetricTable

#: Communicators whose sizes are kept.
_MOST_COMMUNICATORS = 1000
_ABOUT = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV")


class Names(SqliteNames):
    """The names in one report. `about`: metadata of the report."""

    def __init__(self, db: Database, log: ImportLog, accounts: Accounts) -> None:
        super().__init__(db, log, accounts, STRINGS)
        self._processes: dict[int, tuple[int, str]] = {}  # global id without the thread → number, label
        self._threads: dict[Any, tuple[str | None, int | None]] = {}
        self._track_names: list[TrackName] = []
        self._labels: dict[str, dict[Any, str]] = {}
        self._process_names = self._read_processes()
        self._gpus = {
            row[0]: row[1] for row in self.all_rows("TARGET_INFO_GPU", ("id", "name")) if isinstance(row[1], str)
        }
        self._renumbered = self._read_cuda_devices()
        self._thread_names = {
            row[0]: self.text(row[1])
            for row in self.all_rows("ThreadNames", ("globalTid", "nameId"))
            if row[0] is not None
        }
        self.about = self._read_about()
        self._report_warnings()

    @property
    def several_processes(self) -> bool:
        return len(self._processes) > 1

    def _read_processes(self) -> dict[int, str]:
        rows = self.all_rows("PROCESSES", ("globalPid", "name"))
        return {row[0] >> 24: row[1] for row in rows if isinstance(row[0], int) and isinstance(row[1], str)}

    def _read_cuda_devices(self) -> dict[tuple[Any, Any], int | None]:
        """The GPUs by PID and CUDA's device number, if these differ (CUDA_VISIBLE_DEVICES).

        Those of other processes have the PID None: the GPU of all processes, or None if they differ.
        """
        rows = self.all_rows("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId"))
        found: dict[tuple[Any, Any], int | None] = {}
        for pid, cuda, gpu in rows:
            if isinstance(gpu, int):
                found[None, cuda] = gpu if found.get((None, cuda), gpu) == gpu else None
                found[pid, cuda] = gpu
        return found if any(cuda != gpu for (_, cuda), gpu in found.items()) else {}

    def _read_about(self) -> dict[str, object]:
        about: dict[str, object] = {}
        for table in _ABOUT:
            rows = self.all_rows(table, ("name", "value"))
            values = {row[0]: row[1] for row in rows if isinstance(row[0], str) and isinstance(row[1], (str, int))}
            if values:
                about[table] = values
        for epoch_ns, text in self.all_rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs", "utcTime"))[:1]:
            about["session_start"] = {
                "utcEpochNs": epoch_ns if isinstance(epoch_ns, int) else None,
                "utcTime": text if isinstance(text, str) else None,
            }
        rows = self.all_rows("MPI_COMMUNICATORS", ("commHandle", "size"))
        sizes = {str(row[0]): row[1] for row in rows if isinstance(row[0], int) and isinstance(row[1], int)}
        if sizes:
            about["mpi_communicators"] = dict(islice(sizes.items(), _MOST_COMMUNICATORS))
        ranks = {row[0] for row in self.all_rows("MPI_RANKS", ("rank",)) if isinstance(row[0], int)}
        if len(ranks) == 1:
            about["mpi_rank"] = ranks.pop()
        return about

    def _report_warnings(self) -> None:
        levels = self.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL")
        for severity, text in self.all_rows("DIAGNOSTIC_EVENT", ("severity", "text")):
            level = levels.get(severity, "").lower()
            if level in ("warning", "error") and isinstance(text, str):
                self._log.add(Code.PROFILER_WARNING, f"{level} of the profiler: {printable(text)}", source_id=1)

    # -- look-ups --

    def gpu_numbers(self, devices: Values, processes: Values) -> Values | None:
        """The numbers of the GPUs, if CUDA's numbers of devices are others."""
        if not self._renumbered:
            return None
        keys = combined([coded(devices), coded(processes)])
        pids = [process >> 24 & 0xFFFFFF if isinstance(process, int) else None for _, process in keys.distinct]
        gpus = self._renumbered
        known = [
            gpus.get((pid, key[0]), gpus.get((None, key[0]), key[0]))
            for pid, key in zip(pids, keys.distinct, strict=True)
        ]
        return pa.array([one if isinstance(one, int) else None for one in known], pa.int64()).take(pa.array(keys.codes))

    def gpu(self, device: Any) -> str | None:
        """The name of a device."""
        return self._gpus.get(device)

    def labels(self, table: str) -> dict[Any, str]:
        """The labels of an enum: those of the report, or known ones."""
        if table not in self._labels:
            rows = self.all_rows(table, ("id", "label", "name"))
            found = {row[0]: row[1] or row[2] for row in rows if isinstance(row[1] or row[2], str)}
            self._labels[table] = {**LABELS.get(table, {}), **found}
        return self._labels[table]

    def metric_names(self, table: MetricTable) -> dict[tuple[Any, Any], str]:
        """The names of the metrics in a table, by its columns `kind`."""
        rows = self.all_rows(table.names, (*table.kind, table.name))
        return {(row[0], row[1]): row[2] for row in rows if isinstance(row[2], str)}

    def network_cards(self) -> dict[Any, str]:
        """The names of network cards, by the global ids of their metrics."""
        names = {row[0]: row[1] for row in self.all_rows("TARGET_INFO_NIC_INFO", ("nicId", "name"))}
        return {
            row[1]: names[row[0]]
            for row in self.all_rows("NIC_ID_MAP", ("nicId", "globalId"))
            if isinstance(names.get(row[0]), str)
        }

    def _process(self, global_id: Any) -> tuple[int, str | None]:
        if not isinstance(global_id, int) or global_id < 0:
            return 0, None
        found = self._processes.get(global_id >> 24)
        if found is None:
            pid = str((global_id >> 24) & 0xFFFFFF)
            if any(label == pid for _, label in self._processes.values()):
                pid = f"{global_id >> 48}:{pid}"  # the same number on another host
            found = self._processes[global_id >> 24] = (len(self._processes), pid)
            name = self._process_names.get(global_id >> 24)
            if name is not None:
                self._track_names.append(TrackName(pid, None, name))
        return found

    def process_index(self, global_id: Any) -> int:
        """The index of the process of a global id, in the order of first use; 0 if unknown."""
        return self._process(global_id)[0]

    def process_label(self, global_id: Any) -> str | None:
        """Its PID, as text."""
        return self._process(global_id)[1]

    def thread(self, global_tid: Any) -> tuple[str | None, int | None]:
        """PID and TID of a global id."""
        found = self._threads.get(global_tid)
        if found is None:
            number = global_tid & 0xFFFFFF if isinstance(global_tid, int) else None
            found = self._threads[global_tid] = (self.process_label(global_tid), number)
            name = self._thread_names.get(global_tid)
            if name:
                self._track_names.append(TrackName(*found, name))
        return found

    def take_track_names(self) -> tuple[TrackName, ...]:
        """The names of the tracks that were looked up since the last call."""
        names, self._track_names = tuple(self._track_names), []
        return names
