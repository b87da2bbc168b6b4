"""The tables of rocprof (CSV) → batches of events, in integer ns, as from the JSON of rocprofv3.

The versions before it write a table of kernels, whose counters are columns, and the second one tables of calls.

Byte offsets are those in the texts of all tables, one after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from traceconv.base.diagnostics import Account, Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.integers import LARGEST
from traceconv.events.trace import EventFlows, Label, MoreSource, NamedTrack, Segment, TraceBatch
from traceconv.formats.common.columns import durations, integers, json_objects, slices
from traceconv.formats.common.counter_sums import add_counter
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN, TextSource
from traceconv.formats.format import ReadRequest
from traceconv.formats.rocprof_csv.format import column_names, parts, tables
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch

_FLOWS = "launch"
#: Beginnings of the domains of calls, and the lists of rocprofv3's JSON that have them.
_LISTS = {"HIP": "hip_api", "HSA": "hsa_api", "RCCL": "rccl_api", "ROCSHMEM": "rocshmem_api",
          "MARKER": "marker_api", "ROCDECODE": "rocdecode_api", "ROCJPEG": "rocjpeg_api"}  # fmt: skip
_START, _END, _CORRELATION = "Start_Timestamp", "End_Timestamp", "Correlation_Id"
_CORRELATION_BITS = 48
#: Columns of tables of kernels before rocprofv3, which have one column for each counter.
_OLD = {"KernelName", "Dispatch_ID"}
#: Columns besides these and those with another name in rocprofv3 are counters.
_NO_COUNTERS = {
    "Kernel_Name", _START, _END,
    "queue-index", "grd", "wgr", "lds", "scr", "vgpr", "arch_vgpr", "accum_vgpr", "sgpr", "fbar", "wave_size", "sig",
    "obj", "DispatchNs", "CompleteNs", "DurationNs", "Queue_Index", "GRD", "WGR", "LDS", "SCR", "Grid_Size",
    "Workgroup_Size", "LDS_Per_Workgroup", "Scratch_Per_Workitem", "Arch_VGPR", "ACCUM_VGPR", "Accum_VGPR", "SGPR",
    "Wave_Size", "SIG", "OBJ",
}  # fmt: skip
#: Cells that are numbers. `float` would also accept underscores, digits of other scripts, and infinity.
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_REAL = re.compile(r"-?(?:[0-9]+(?=[.eE])\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: What they append to the names of kernels.
_SUFFIX = re.compile(r"(?: \[clone \.kd\]| \(\.kd\)|\.kd)$")
_MAX_AGENTS = 10_000

Cells = Mapping[str, Sequence[str]]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Agent(NamedTuple):
    """A processor. `number`: among those of its type."""

    type: str
    number: int
    title: str


class _Dispatch:
    """A dispatch with counters so far: its first record, and the sums of its counters."""

    def __init__(self, key: tuple[str, ...], cells: dict[str, str], offset: int) -> None:
        self.key, self.cells, self.offset = key, cells, offset
        self.sums: dict[str, int | float] = {}


class RocprofCsvReader(FileReader):
    """Reads all tables of one recording, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._advance = request.advance
        #: Bytes of the tables before the one that is read.
        self._base = 0
        self._pid: int | None = None
        #: By their number and the GUID of their process, which rocpd's converter writes.
        self._agents: dict[tuple[str, str], _Agent] = {}
        self._guids: dict[str, int] = {}
        self._header: Sequence[str] = ()
        #: Columns that are counters.
        self._counter_names: Sequence[str] = ()
        #: The dispatch whose counters are being read.
        self._open_dispatch: _Dispatch | None = None
        #: Process and number of dispatches that have counters.
        self._dispatches: set[tuple[str, str]] = set()
        #: Keys of these dispatches.
        self._measured_keys: set[tuple[str, ...]] = set()

    def batches(self) -> Iterator[TraceBatch]:
        """All records, table after table. Raises InputError if a table can't be read."""
        found = re.match(r"(?:.*_)?(\d{1,9})_", self._path.name)
        self._pid = int(found[1]) if found else None
        read = tables(self._path) if self._path != STDIN else (self._path,)
        for path in set(parts(self._path)) - set(read) if self._path != STDIN else ():
            self._read_agents(path)
        for path in read:
            yield from self._table(path)

    # -- tables --

    def _open(self, path: Path) -> TextSource:
        if path == self._path:
            return self._source
        return TextSource(path, self._log, self._limits, self._advance)

    def _note_source(self, path: Path, source: TextSource) -> None:
        if path != self._path:
            self.more_sources.append(MoreSource(path.name, source.size_bytes, f"{source.crc:08x}", source.container))

    def _table(self, path: Path) -> Iterator[TraceBatch]:
        source, damaged, size = self._open(path), Account(), 0

        def chunks() -> Iterator[bytes]:
            nonlocal size
            for chunk in source.chunks():
                size += len(chunk)
                yield chunk

        records = CsvRecords(chunks(), self._log, damaged, path.name)
        recorded = records.open()
        header = column_names(recorded)
        is_old = not _OLD.isdisjoint(recorded)
        unchanged = set(recorded).intersection(header) - _NO_COUNTERS if is_old else set()
        self._counter_names = [name for name in dict.fromkeys(header) if name in unchanged]
        known = {_START, _END}.issubset(header)
        self.found_events = self.found_events or known
        read = self._rows_of(header) if known else None
        for batch in records.batches():
            if read is None:
                self._lose(path, len(batch.rows), f"no columns {_START} and {_END}")
                continue
            yield from read(batch)
        if read is not None:
            yield from self._rest()
        if damaged.records:
            self._accounts[f"damaged records of {path.name}"].add(lost=damaged.lost)
        self._base += size
        self._note_source(path, source)

    def _lose(self, path: Path, count: int, why: str) -> None:
        self._accounts[f"records of {path.name}"].add(lost=count)
        self._log.add(Code.UNKNOWN_RECORD, f"{printable(path.name)}: {why}", source_id=SOURCE_ID, event_count=count)

    def _read_agents(self, path: Path) -> None:
        """Read which processors are GPUs, and their names."""
        source, log, account = self._open(path), ImportLog(), Account()
        records = CsvRecords(source.chunks(), log, account, path.name)
        header = records.open()
        found: list[dict[str, str]] = []
        for batch in records.batches():
            found += [dict(zip(header, row, strict=True)) for row in batch.rows]
            if len(found) > _MAX_AGENTS:
                raise InputError(f"{printable(path.name)} has more than {_MAX_AGENTS} processors")
        counts: dict[tuple[str, str], int] = {}
        absolute: dict[tuple[str, str], _Agent] = {}
        found.sort(key=lambda cells: _number(cells.get("Logical_Node_Id", "")) or 0)
        for cells in found:
            guid, kind = cells.get("Guid", ""), cells.get("Agent_Type", "")
            number = counts[guid, kind] = counts.get((guid, kind), -1) + 1
            agent = _Agent(kind, number, cells.get("Product_Name") or cells.get("Name") or "")
            self._agents[guid, cells.get("Logical_Node_Id", "")] = agent
            absolute[guid, cells.get("Node_Id", "")] = agent
        gpus = {one.number: one.title for one in self._agents.values() if one.type == "GPU"}
        self.keys["gpu_info"] = msgspec.json.encode([{"id": one, "name": title} for one, title in gpus.items()])
        # Written with --agent-index absolute if there is no such logical number.
        self._agents = absolute | self._agents
        self._accounts["processors"].add(used=len(found), lost=account.lost)
        if account.lost:
            message = f"{printable(path.name)}: damaged records"
            self._log.add(Code.DAMAGED_TEXT, message, source_id=SOURCE_ID, event_count=account.lost)
        self._note_source(path, source)

    # -- records --

    def _rows_of(self, header: Sequence[str]) -> Any:
        """Return what turns the records of a table with this header into batches."""
        self._header = header
        names = set(header)
        if "Function" in names:  # those of the second version also have the names of kernels
            return self._calls
        if "Kernel_Name" in names:
            return self._counters if "Counter_Name" in names else self._kernels
        if "Source_Queue_Id" in names:
            return self._waits
        return self._copies if "Direction" in names else self._others

    def _cells(self, batch: RecordBatch) -> dict[str, Sequence[str]]:
        return dict(zip(self._header, zip(*batch.rows, strict=True), strict=True))

    def _kernels(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        cells = self._cells(batch)
        kept = self._without_counters(cells, len(batch.rows))
        if not all(kept):
            self._accounts["kernels with counters"].add(used=kept.count(False))
            cells = {name: list(compress(column, kept)) for name, column in cells.items()}
        count, counters = sum(kept), None
        if self._counter_names:
            columns = [_each(_value, cells.pop(name)) for name in self._counter_names]
            counters = json_objects(self._counter_names, columns, count).to_pylist()
        if count:
            yield self._dispatched(cells, count, *_place(batch), counters)

    def _without_counters(self, cells: Cells, count: int) -> list[bool]:
        if not self._dispatches or "Dispatch_Id" not in cells:
            return [True] * count
        keys = zip(cells.get("Guid", [""] * count), cells["Dispatch_Id"], strict=True)
        return [key not in self._dispatches for key in keys]

    def _counters(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        """Records of one dispatch follow each other, one for each counter or part of the device."""
        done: list[_Dispatch] = []
        apart = 0
        for row, offset in zip(batch.rows, batch.offsets, strict=True):
            cells = dict(zip(self._header, row, strict=True))
            # With kernel replay, a dispatch runs several times, each with its own times and counters.
            dispatch = cells.get("Guid", ""), cells.get("Dispatch_Id", "")
            key = (*dispatch, cells.get("Agent_Id", ""), cells[_START])
            one = self._open_dispatch
            if one is None or one.key != key:
                if key in self._measured_keys:
                    apart += 1
                    continue
                if one is not None:
                    done.append(one)
                one = self._open_dispatch = _Dispatch(key, cells, offset)
                self._dispatches.add(dispatch)
                self._measured_keys.add(key)
            value = _value(cells.get("Counter_Value", ""))
            if isinstance(value, (int, float)):
                add_counter(one.sums, cells["Counter_Name"], value)
        self._accounts["counters"].add(used=len(batch.rows) - apart, lost=apart)
        message = "counters apart from the others of their dispatch"
        self._log.count(Code.DAMAGED_EVENT, message, apart, SOURCE_ID)
        if done:
            yield self._measured(done, batch.byte_offset + batch.byte_count)

    def _rest(self) -> Iterator[TraceBatch]:
        one = self._open_dispatch
        if one is not None:
            self._open_dispatch = None
            yield self._measured([one], one.offset + 1)

    def _measured(self, done: Sequence[_Dispatch], end: int) -> TraceBatch:
        names = [name for name in self._header if not name.startswith("Counter_")]
        cells = {name: [one.cells[name] for one in done] for name in names}
        counters = [msgspec.json.encode(one.sums) for one in done]
        return self._dispatched(cells, len(done), done[0].offset, end - done[0].offset, counters)

    def _dispatched(
        self, cells: Cells, count: int, offset: int, size: int, counters: Sequence[bytes] | None
    ) -> TraceBatch:
        """Return kernels."""
        names = cells["Kernel_Name"]
        tracks, lead = self._on_queues(cells, count, "queue {}")
        lead["truncated_name"] = _each(_function, names)
        return self._made(cells, names, ["kernel_dispatch"] * count, tracks, 2, lead, (offset, size), counters)

    def _waits(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        """Barriers of queues, for events of HIP."""
        cells, count = self._cells(batch), len(batch.rows)
        names = cells.get("Operation", ["HIP_EVENT"] * count)
        tracks, lead = self._on_queues(cells, count, "queue {} waits")
        yield self._made(cells, names, ["hip_event"] * count, tracks, 2, lead, _place(batch))

    def _on_queues(self, cells: Cells, count: int, line: str) -> tuple[list[Any], dict[str, Sequence[Any]]]:
        """Return the tracks of what runs on queues, and its device and queue."""
        guids, agents, queues = (cells.get(name, [""] * count) for name in ("Guid", "Agent_Id", "Queue_Id"))
        devices = _each(self._device, list(zip(guids, agents, strict=True)))
        keys = list(zip(guids, devices, queues, strict=True))
        tracks = _each(lambda key: self._track(*key[:2], line.format(key[2])), keys)
        return tracks, {"device": devices, "queue": _each(_number, queues)}

    def _copies(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        cells, count = self._cells(batch), len(batch.rows)
        names = [name if name.startswith("MEMORY_COPY") else f"MEMORY_COPY_{name}" for name in cells["Direction"]]
        columns = ("Guid", "Source_Agent_Id", "Destination_Agent_Id")
        guids, sources, targets = (cells.get(name, [""] * count) for name in columns)
        devices = [
            self._device((guid, source if name.endswith("DEVICE_TO_HOST") else target))
            for name, guid, source, target in zip(names, guids, sources, targets, strict=True)
        ]
        tracks = _each(lambda key: self._track(*key, "copies"), list(zip(guids, devices, strict=True)))
        yield self._made(cells, names, ["memory_copy"] * count, tracks, 2, {"device": devices}, _place(batch))

    def _calls(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        cells, count = self._cells(batch), len(batch.rows)
        domains = cells.get("Domain", [""] * count)
        categories = _each(lambda one: _LISTS.get(one.partition("_")[0], one.lower()), domains)
        yield self._made(cells, cells["Function"], categories, self._threads(cells, count), 0, {}, _place(batch))

    def _others(self, batch: RecordBatch) -> Iterator[TraceBatch]:
        """Allocations and others, each with an operation."""
        cells, count = self._cells(batch), len(batch.rows)
        kinds = cells.get("Kind", ["unknown"] * count)
        names = cells.get("Operation", kinds)
        categories = [kind.lower() for kind in kinds]
        yield self._made(cells, names, categories, self._threads(cells, count), None, {}, _place(batch))

    def _threads(self, cells: Cells, count: int) -> list[tuple[Label, Label | NamedTrack]]:
        pids, tids = (_each(_number, cells.get(name, [""] * count)) for name in ("Process_Id", "Thread_Id"))
        return [(self._pid if pid is None else pid, tid) for pid, tid in zip(pids, tids, strict=True)]

    def _made(
        self,
        cells: Cells,
        names: Sequence[str],
        categories: Sequence[str],
        tracks: Sequence[tuple[Label, Label | NamedTrack]],
        step: int | None,
        lead: Mapping[str, Sequence[Any]],
        place: tuple[int, int],
        counters: Sequence[bytes] | None = None,
    ) -> TraceBatch:
        """Return a batch. step: of flows from calls (0) to what they launched (2); None: there are none."""
        count = len(names)
        numbers = _numbers(cells.get(_CORRELATION, [""] * count))
        # Each process has correlation IDs of its own.
        bases = [self._process(guid) << _CORRELATION_BITS for guid in cells["Guid"]] if "Guid" in cells else [0] * count
        keys = [
            base + number if number is not None and number < 1 << _CORRELATION_BITS and base < LARGEST else None
            for base, number in zip(bases, numbers, strict=True)
        ]
        usable = [at for at, number in enumerate(numbers) if number and keys[at] is not None and step is not None]
        flows = EventFlows(
            np.array(usable, np.int64),
            np.array([keys[at] for at in usable], np.int64),
            np.full(len(usable), step or 0, np.int32),
            _FLOWS,
            [str(numbers[at]) for at in usable],
        )
        starts, ends = integers(_numbers(cells[_START])), _numbers(cells[_END])
        columns = dict(lead) | {"correlation": keys}
        columns |= {name: _each(_value, cells[name]) for name in cells if name not in (_START, _END)}
        args = json_objects(list(columns), list(columns.values()), count).to_pylist()
        if counters is not None:
            args = [one[:-1] + b',"counters":' + sums + b"}" for one, sums in zip(args, counters, strict=True)]
        events = slices(
            names, categories, [pid for pid, _ in tracks], [tid for _, tid in tracks], starts, durations(starts, ends),
            args, flows if usable else None,
        )  # fmt: skip
        offset, size = self._base + place[0], place[1]
        return self._next_batch(events, offset, size, segments=(Segment(offset, b"", count),))

    # -- processes and devices --

    def _process(self, guid: str) -> int:
        return self._guids.setdefault(guid, len(self._guids))

    def _device(self, agent: tuple[str, str]) -> int | None:
        """The number of a GPU: of `GPU 1`, of `Agent 3` or 3 by the table of processors; without one, that number."""
        guid, name = agent
        kind, _, number = name.rpartition(" ")
        known = self._agents.get((guid, number))
        if kind == "CPU" or (known is not None and known.type != "GPU" and kind != "GPU"):
            return None
        return known.number if known is not None and kind != "GPU" else _number(number)

    def _track(self, guid: str, device: int | None, line: str) -> tuple[Label, Label | NamedTrack]:
        pid = "CPU" if device is None else f"GPU {device}"
        whose, of_process = (guid, f" (process {guid})") if self._process(guid) else (self._pid, "")
        title = next((one.title for one in self._agents.values() if (one.type, one.number) == ("GPU", device)), "")
        tid = NamedTrack("stream", f"{whose}/{line}")
        return self._named_track(pid, f"{pid} {title}".strip(), tid, line.capitalize() + of_process)


def _place(batch: RecordBatch) -> tuple[int, int]:
    return batch.byte_offset, batch.byte_count


def _function(name: str) -> str:
    """A kernel's name without namespaces, template arguments and arguments, as a truncated name of rocprofv3."""
    name = _SUFFIX.sub("", name)
    head = re.split(r"[<(]", name.replace("(anonymous namespace)", "").removeprefix("void "), maxsplit=1)[0]
    return head.rpartition("::")[2] or name


def _each(function: Callable[[Key], Value], keys: Sequence[Key]) -> list[Value]:
    """Return what a function returns for each key, of which many are equal."""
    known = {key: function(key) for key in dict.fromkeys(keys)}
    return [known[key] for key in keys]


def _numbers(texts: Sequence[str]) -> list[int] | list[int | None]:
    """Return the number of each text."""
    digits = "".join(texts)
    if digits.isascii() and digits.isdigit() and all(texts) and max(map(len, texts)) < 20:
        return list(map(int, texts))
    return [_number(one) for one in texts]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _value(text: str) -> int | float | str | None:
    """A cell as a number if it is one; None if it is empty."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) else text or None
