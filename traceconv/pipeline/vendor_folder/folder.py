"""Ingest a vendor's output folder as one run: its timeline, and the CSV files that complete its rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.base.diagnostics import Accounts, Code
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import DeviceTables
from traceconv.formats.ascend_db.format import FORMAT as ASCEND_DB
from traceconv.formats.chrome_json.format import FORMAT as CHROME_JSON
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.files import file_size
from traceconv.formats.common.identity import EPOCH_RANGE, epoch_offset_ns, of_facts, of_keys
from traceconv.formats.format import ReadRequest
from traceconv.formats.registry import open_source
from traceconv.formats.vendor_folder.discover import VendorFolder
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.rule_files import built_in
from traceconv.normalize.trace.second_pass import SecondPass
from traceconv.normalize.vendor_csv.spec import spec
from traceconv.pipeline.derived_rows import settle_reduces, size_collectives
from traceconv.pipeline.run_import import RunContent, RunTarget, Source, no_usable_events
from traceconv.pipeline.trace_file import TraceOptions
from traceconv.pipeline.vendor_folder import communication
from traceconv.pipeline.vendor_folder.database import add_tables
from traceconv.pipeline.vendor_folder.json_files import read_json
from traceconv.pipeline.vendor_folder.table_sql import add_held_memory, settle_device_steps, settle_one_device
from traceconv.pipeline.vendor_folder.tables import FolderLog, TableIngest
from traceconv.pipeline.vendor_folder.task_sql import settle_labelled_devices

_EDGE_BYTES = 64 << 10
_FACT_BYTES = 1 << 20
_WRITER = "Ascend (torch_npu, msprof)"
#: Files of tasks come first, since others refer to tasks; the most detailed ones lead.
_ORDER = (
    "kernel_details",
    "op_summary",
    "task_time",
    "l2_cache",
    "step_trace",
    "fusion_op",
    "operator_memory",
    "memory_record",
    "npu_mem",
    "npu_module_mem",
)


@dataclass(slots=True)
class _Run:
    """Facts about a run, collected while its files are read."""

    log: FolderLog = field(default_factory=FolderLog)
    accounts: Accounts = field(default_factory=Accounts)
    sources: list[Source] = field(default_factory=list)
    blocks: list[tuple[int, int, int, int | None, int | None]] = field(default_factory=list)
    writer_title: str = _WRITER
    start_ns: int | None = None
    end_ns: int | None = None
    #: Of a database: its small tables.
    keys: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FolderRecording:
    """A vendor's output folder to ingest."""

    folder: VendorFolder
    options: TraceOptions
    format: str = "vendor_folder"

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def size_bytes(self) -> int:
        return sum(map(file_size, self.folder.files))

    def digest(self) -> str:
        return _fingerprint(self.folder)

    def read(self, target: RunTarget) -> RunContent:
        """Store its events. Raises InputError if it contains no usable events."""
        folder = self.folder
        size_bytes = self.size_bytes
        target.observer.start(target.label, size_bytes, 2 if folder.timelines else 1)
        run = _Run()
        if folder.timelines:
            _timelines(folder, target, run, self.options)
        settle_labelled_devices(target)
        _tables(folder, target, run, self.options)
        for source_id, file in enumerate(folder.communication, len(run.sources) + 1):
            run.log.current = source_id
            name, account = folder.name_of(file), run.accounts[f"{communication.KEY} records"]
            run.sources.append(Source(source_id, name, communication.KEY, file.stat().st_size, None))
            communication.add_communication(file, name, source_id, target, run.log, account)
        run.log.current = None
        settle_one_device(target)
        settle_device_steps(target)
        settle_reduces(target)
        target.writer.at_commit(size_collectives, target.run_id)
        facts = {**_facts(folder, run), **{key: json.loads(text) for key, text in run.keys.items()}}
        for file, why in folder.left:
            run.log.add(Code.NOT_READ, f"{folder.name_of(file)}: {why}")
        run.accounts.check()
        if not any(account.records - account.lost for account in run.accounts.by_record.values()):
            raise no_usable_events(folder.path, run.log, "its tables are empty")
        _bounds(target, run)
        complete = not run.log.lossy and not any(entry.code is Code.NO_END for entry in run.log)
        columns = {
            "writer": run.writer_title,
            "start_ns": run.start_ns,
            "end_ns": run.end_ns,
            "epoch_known": run.start_ns is not None and run.start_ns in EPOCH_RANGE,
            "epoch_offset_ns": epoch_offset_ns({}, run.start_ns),
            "options": json.dumps(facts) if facts else None,
        }
        identity = of_facts(facts).over(of_keys(run.keys))
        return RunContent(columns, identity, run.sources, run.blocks, size_bytes, complete, run.log, run.accounts)


def _timelines(folder: VendorFolder, target: RunTarget, run: _Run, options: TraceOptions) -> None:
    """Read the files of events one after another as one trace."""
    first = FirstPass(run.log, run.accounts, SOURCE_ID, ORDINAL_BITS, (*options.rules, *built_in()))
    second: SecondPass | None = None
    keys: dict[str, bytes] = {}
    try:
        for source_id, path in enumerate(folder.timelines, 1):
            run.log.current = source_id
            shift = (source_id - SOURCE_ID) << ORDINAL_BITS
            name = ASCEND_DB.name if path.suffix.lower() == ".db" else CHROME_JSON.name
            request = ReadRequest(path, run.log, run.accounts, options.limits, target.observer.advance)
            reader = open_source(name, request)
            for batch in reader.batches():
                target.observer.counted(batch.columns.count)
                first.take(batch if not shift else batch._replace(first_ordinal=batch.first_ordinal + shift))
            keys.update(reader.keys)
            run.sources.append(Source(source_id, folder.name_of(path), name, reader.size_bytes, reader.digest))
            run.keys = dict(reader.keys) if name == ASCEND_DB.name else {}
            run.blocks += [(source_id, at + shift, count, offset, size) for at, count, offset, size in reader.blocks]
        run.log.current = SOURCE_ID if len(folder.timelines) == 1 else None
        target.observer.storing()
        first.end()
        second = SecondPass(first, keys)
        second.prepare()
        for name, batches in second.tables():
            target.insert(name, batches)
        run.start_ns, run.end_ns = first.first_ns, first.last_ns
        run.writer_title = second.rules.title or _WRITER
        if isinstance(reader, DeviceTables):
            add_tables(reader, target, run.log)
    finally:
        first.close()
        if second is not None:
            second.close()


def _tables(folder: VendorFolder, target: RunTarget, run: _Run, options: TraceOptions) -> None:
    files = sorted((_place(path), path) for path in folder.tables)
    coarse_bytes = 1
    for source_id, (_, path) in enumerate(files, len(folder.timelines) + 1):
        kind = spec().kind_of(path.name)
        assert kind is not None  # the folder was searched with the same names
        name = folder.name_of(path)
        run.log.current = source_id
        if kind.becomes == "nothing":
            run.sources.append(Source(source_id, name, kind.kind, path.stat().st_size, None))
            message = f"{name}: {kind.doc}; use traceconv verify to check it"
            run.log.add(Code.NOT_READ, message, source_id=source_id)
            continue
        account = run.accounts[f"{kind.kind} records"]
        one = TableIngest(path, name, kind, source_id, run.log, account, target)
        one.read(options.limits, target.observer.advance, has_timeline=bool(folder.timelines))
        run.sources.append(Source(source_id, name, kind.kind, one.size_bytes, one.digest))
        run.blocks += [(source_id, *block) for block in one.blocks]
        coarse_bytes = max(coarse_bytes, one.coarse_bytes)
    add_held_memory(target, coarse_bytes)


def _place(path: Path) -> int:
    kind = spec().kind_of(path.name)
    return _ORDER.index(kind.kind) if kind is not None and kind.kind in _ORDER else len(_ORDER)


def _facts(folder: VendorFolder, run: _Run) -> dict[str, object]:
    """The content of small files that describe the recording, by name."""
    names = ((folder.name_of(file), file) for file in folder.facts)
    read = {name: read_json(file, name, _FACT_BYTES, run.log) for name, file in names}
    return {name: content for name, content in read.items() if content is not None}


def _bounds(target: RunTarget, run: _Run) -> None:
    """Extend the run's bounds to rows from tables."""
    low, high = target.fetch(
        "SELECT min(ns), max(ns) FROM (SELECT min(start_ns) AS ns FROM task WHERE run_id = $run UNION ALL "
        "SELECT max(start_ns + coalesce(dur_ns, 0)) FROM task WHERE run_id = $run UNION ALL "
        "SELECT unnest([min(ts_ns), max(ts_ns)]) FROM counter WHERE run_id = $run UNION ALL "
        "SELECT unnest([min(alloc_ns), max(coalesce(free_ns, alloc_ns))]) FROM memory WHERE run_id = $run UNION ALL "
        "SELECT unnest([min(coalesce(start_ns, fp_start_ns, end_ns)), max(end_ns)]) FROM step WHERE run_id = $run)"
    )[0]
    if low is not None:
        run.start_ns = low if run.start_ns is None else min(run.start_ns, low)
        run.end_ns = high if run.end_ns is None else max(run.end_ns, high)


def _fingerprint(folder: VendorFolder) -> str:
    """A digest that identifies the output: of each file's name, size and both ends.

    communication.json, which earlier versions did not read, is not in it: stores know the same folders.
    """
    digest = hashlib.blake2b(digest_size=16)
    for file in (*folder.timelines, *folder.tables, *folder.facts):
        name = folder.name_of(file).encode("utf-8", "surrogateescape")
        try:
            size = file.stat().st_size
            digest.update(len(name).to_bytes(8, "little") + name + size.to_bytes(8, "little"))
            with file.open("rb") as stream:
                digest.update(stream.read(_EDGE_BYTES))
                stream.seek(max(0, size - _EDGE_BYTES))
                digest.update(stream.read(_EDGE_BYTES))
        except OSError as error:
            raise InputError(f"can't read {printable(str(file))}: {reason_of(error)}") from error
    return digest.hexdigest()
