"""The targets: what is mutated, how, and which reader gets it. An input is a file name and bytes from a number."""

from __future__ import annotations

import gzip
import lzma
import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from unittest import mock

import numpy as np
import zstandard

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.base.errors import InputError, TraceconvError
from traceconv.events.trace import DeviceTables
from traceconv.formats.format import ReadRequest
from traceconv.formats.perfetto_proto import translate
from traceconv.formats.registry import open_source
from traceconv.formats.vendor_folder.records import CsvRecords
from traceconv.normalize.trace.classify import Classifier
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.normalize.vendor_csv.spec import spec
from traceconv.normalize.vendor_csv.typed import CellIssues, series, typed
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.find import why
from traceconv.provenance.rows import EVENT_TABLES
from traceconv.store.database import open_store
from traceconv.wire.frames import Damage, FrameDecoder

from . import corpus, mutate
from .oracle import Broken, read_capture, read_events, read_rows

Input = tuple[str, bytes]


class Target(ABC):
    """One way in. `work`: a folder of its own; `weight`: its share of all inputs."""

    name: str
    weight: float
    structured: Sequence[mutate.Mutation] = ()

    def __init__(self, work: Path) -> None:
        self.work = work
        self.samples: list[Input] = []

    def input(self, rng: random.Random) -> Input:
        """A mutated sample."""
        name, data = rng.choice(self.samples)
        others = [other for _, other in self.samples]
        return name, mutate.mutate(data, rng, others, self.structured)

    @abstractmethod
    def run(self, one: Input) -> None:
        """Reads an input. Only TraceconvError may come out."""


class Frames(Target):
    """Frames of a log, in pieces of any size: the same blocks whatever the pieces."""

    name, weight = "frames", 30
    structured = (mutate.records, mutate.header)

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.samples = [
            (path.name, path.read_bytes())
            for folder in corpus.captures(work / "captures")
            for path in sorted(folder.rglob("*.bin"))
        ]

    def run(self, one: Input) -> None:
        data = one[1]
        size = 1 + data[:1].hex().__hash__() % 97 if len(data) % 2 else 4096
        if _decoded(data, len(data) or 1) != _decoded(data, size):
            raise Broken(f"other blocks in pieces of {size} bytes")


def _decoded(data: bytes, size: int) -> list[tuple[object, ...]]:
    decoder, found, items = FrameDecoder(), [], []
    for at in range(0, len(data), size):
        items += decoder.feed(data[at : at + size])
    items += decoder.finish()
    end = 0
    for item in items:
        if not 0 <= item.byte_offset <= item.byte_offset + item.byte_count <= len(data):
            raise Broken("a place outside of the file")
        if isinstance(item, Damage):
            found.append((item.code, item.byte_offset, item.byte_count, item.event_count))
            continue
        if item.byte_offset < end:
            raise Broken("blocks that overlap")
        end = item.byte_offset + item.byte_count
        found.append(("block", item.tag, item.sequence, item.record_count, item.byte_offset, bytes(item.payload)))
    return found


class Folder(Target):
    """A folder that is read as one, with one changed file."""

    def __init__(self, work: Path, folder: Path) -> None:
        super().__init__(work)
        self.folder = folder
        self.samples = [
            (path.relative_to(self.folder).as_posix(), path.read_bytes())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        ]
        self.originals = dict(self.samples)

    def run(self, one: Input) -> None:
        path = self.folder / one[0]
        path.write_bytes(one[1])
        try:
            self.read()
        finally:
            path.write_bytes(self.originals[one[0]])

    def read(self) -> None:
        """Read the folder. Raises Broken."""
        raise NotImplementedError


class Capture(Folder):
    """A complete capture: rows and accounting."""

    name, weight = "capture", 0.5
    structured = (mutate.records, mutate.records, mutate.header)

    def __init__(self, work: Path) -> None:
        super().__init__(work, corpus.captures(work / "captures")[0])

    def read(self) -> None:
        read_capture(self.folder)


class AscendRaw(Folder):
    """Raw data of an Ascend NPU: events, blocks of memory, counters and accounting."""

    weight = 0.5

    def __init__(self, work: Path, name: str, write: Callable[[Path], Path]) -> None:
        self.name = name
        self.recording = write(work / "recording")
        super().__init__(work, self.recording.parent)

    def read(self) -> None:
        request = ReadRequest(self.recording)
        with suppress(InputError):
            reader = open_source("ascend_raw", request)
            assert isinstance(reader, DeviceTables)
            for _ in reader.batches():  # type: ignore[attr-defined]
                pass
            list(reader.memory_blocks())
            list(reader.task_counters(lambda name: True))
        request.accounts.check()


#: Readers of SQLite files, which aren't compressed.
_SQLITE = ("ascend_db", "nsys", "rocpd", "rpd")


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


class Events(Target):
    """A trace file of one reader, read into events (`rows`: and on into rows). `own`: an export of ours."""

    def __init__(self, work: Path, reader: str, weight: float, *, rows: bool, own: bool = False) -> None:
        super().__init__(work)
        self.reader = reader
        self.name = f"{reader}_rows" if rows else reader
        self.weight = weight
        self.read: Callable[[str, Path], int] = read_rows if rows else read_events
        if own:
            self.name = f"own_{reader}"
        self.samples = corpus.own_export(reader) if own else corpus.READERS[reader]()
        text = reader not in (*_SQLITE, "perfetto_proto", "torch_memory", "xplane")
        self.structured = (mutate.json_values, mutate.number) if text else (mutate.overwrite,)
        if reader in ("furiosa_csv", "ncu_csv", "rocprof_csv"):
            self.structured = (mutate.lines, mutate.number)

    def input(self, rng: random.Random) -> Input:
        """Some are packed, whole or damaged in the packing."""
        name, data = super().input(rng)
        if self.reader in (*_SQLITE, "perfetto_proto") or rng.random() < 0.7:
            return name, data
        packed = rng.choice((_gzip, zstandard.compress, lzma.compress))(data)
        if rng.random() < 0.3:
            packed += _gzip(data[:100]) if rng.random() < 0.5 else zstandard.compress(data[:100])
        if rng.random() < 0.5:
            packed = mutate.mutate(packed, rng, [packed], ())
        return name + rng.choice((".gz", ".zst", ".xz", "")), packed

    def run(self, one: Input) -> None:
        path = self.work / one[0]
        path.write_bytes(one[1])
        in_c = translate.IN_C and len(one[1]) % 2 == 0
        try:
            with mock.patch.object(translate, "IN_C", in_c):
                self.read(self.reader, path)
        finally:
            path.unlink()


class VendorTables(Target):
    """Tables of vendors' folders: records and typed cells."""

    name, weight = "vendor_csv", 8
    structured = (mutate.lines, mutate.lines, mutate.number)

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.samples = corpus.vendor_csv()

    def run(self, one: Input) -> None:
        name, data = one
        kind = spec().kind_of(name)
        if kind is None:
            raise Broken(f"{name} is not a table of ours")
        account = Account()
        records = CsvRecords([data[:100], data[100:]], ImportLog(), account, name)
        layout = spec().layout(kind, records.open())
        count = 0
        for batch in records.batches():
            if not len(batch.rows) == len(batch.offsets) == len(batch.lines):
                raise Broken("records without a place")
            if any(not 0 <= offset < len(data) for offset in batch.offsets):
                raise Broken("a record outside of the file")
            count += len(batch.rows)
            if not layout.missing:
                ids = np.arange(len(batch.rows), dtype=np.int64)
                typed(layout, batch.rows, ids, CellIssues()).validate(full=True)
                series(layout, batch.rows)
        if account.records != account.lost:
            raise Broken(f"account of lost records: {account}")


class Rules(Target):
    """Files of rules, and what they say of events."""

    name, weight = "rules", 10
    structured = (mutate.lines, mutate.number)

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        self.samples = corpus.rules()

    def run(self, one: Input) -> None:
        rules = parse_rules(one[1].decode("utf-8", "replace"), one[0])
        rules.knows({"keys": ["a"], "categories": ["kernel"], "processes": [], "threads": [], "args": ["x"]})
        Classifier(rules.rules, {1: ("p", "t"), 2: (None, None)}.__getitem__)


class Ingest(Target):
    """The whole way: any sample, under any name, through `ingest` into a store."""

    name, weight = "ingest", 0.03

    def __init__(self, work: Path) -> None:
        super().__init__(work)
        for samples in corpus.READERS.values():
            self.samples += samples()
        self.samples += corpus.vendor_csv()
        self.samples += [(path.name, path.read_bytes()) for path in corpus.captures(work / "raw")[0].rglob("*.bin")]
        self.structured = (mutate.json_values, mutate.lines, mutate.records)

    def run(self, one: Input) -> None:
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            path, store = Path(folder) / "in" / one[0], Path(folder) / "a.duckdb"
            path.parent.mkdir()
            path.write_bytes(one[1])
            table = path.suffix == ".csv" and spec().kind_of(path.name) is not None
            try:
                for run in ingest([path.parent if table else path], store):
                    if not all(account.balanced for account in run.accounts.by_record.values()):
                        raise Broken(f"the accounting does not balance: {run.accounts}")
                _trace_back(store)
            except TraceconvError:
                if store.exists():
                    raise Broken("nothing was ingested, and there is a store") from None
                raise


def _trace_back(store: Path) -> None:
    """The first and the last row of each table of events lead back to their bytes."""
    with open_store(store) as connection:
        for table in EVENT_TABLES:
            ends = connection.execute(f'SELECT min(id), max(id) FROM "{table}"').fetchall()[0]
            for row_id in {one for one in ends if one is not None}:
                answer = why(connection, store, table, str(row_id))
                if answer.problems:
                    raise Broken(f"{table} {row_id} does not lead back: {answer.problems[0]}")


#: Target → how it is made in a folder.
TARGETS: dict[str, Callable[[Path], Target]] = {
    "frames": Frames,
    "capture": Capture,
    "chrome_json": lambda work: Events(work, "chrome_json", 22, rows=False),
    "chrome_json_rows": lambda work: Events(work, "chrome_json", 2, rows=True),
    "own_chrome_json": lambda work: Events(work, "chrome_json", 0.25, rows=True, own=True),
    "own_perfetto_proto": lambda work: Events(work, "perfetto_proto", 0.25, rows=True, own=True),
    "speedscope": lambda work: Events(work, "speedscope", 8, rows=False),
    "speedscope_rows": lambda work: Events(work, "speedscope", 0.5, rows=True),
    "json_items": lambda work: Events(work, "json_items", 4, rows=False),
    "json_items_rows": lambda work: Events(work, "json_items", 0.5, rows=True),
    "rocprofv3": lambda work: Events(work, "rocprofv3", 4, rows=False),
    "rocprofv3_rows": lambda work: Events(work, "rocprofv3", 0.5, rows=True),
    "megengine_static": lambda work: Events(work, "megengine_static", 10, rows=False),
    "megengine_static_rows": lambda work: Events(work, "megengine_static", 0.3, rows=True),
    "furiosa_csv": lambda work: Events(work, "furiosa_csv", 18, rows=False),
    "furiosa_csv_rows": lambda work: Events(work, "furiosa_csv", 0.5, rows=True),
    "ascend_db": lambda work: Events(work, "ascend_db", 0.5, rows=False),
    "ascend_db_rows": lambda work: Events(work, "ascend_db", 0.3, rows=True),
    "ascend_raw": lambda work: AscendRaw(work, "ascend_raw", corpus.ascend_raw),
    "ascend_job": lambda work: AscendRaw(work, "ascend_job", corpus.ascend_job),
    "ncu_csv": lambda work: Events(work, "ncu_csv", 6, rows=False),
    "ncu_csv_rows": lambda work: Events(work, "ncu_csv", 0.5, rows=True),
    "rocpd": lambda work: Events(work, "rocpd", 0.5, rows=False),
    "rocprof_csv": lambda work: Events(work, "rocprof_csv", 6, rows=False),
    "rocprof_csv_rows": lambda work: Events(work, "rocprof_csv", 0.5, rows=True),
    "rpd": lambda work: Events(work, "rpd", 0.5, rows=False),
    "torch_memory": lambda work: Events(work, "torch_memory", 4, rows=False),
    "torch_memory_rows": lambda work: Events(work, "torch_memory", 0.5, rows=True),
    "nsys": lambda work: Events(work, "nsys", 1, rows=False),
    "nsys_rows": lambda work: Events(work, "nsys", 0.3, rows=True),
    "perfetto_proto": lambda work: Events(work, "perfetto_proto", 2, rows=False),
    "perfetto_proto_rows": lambda work: Events(work, "perfetto_proto", 0.5, rows=True),
    "xplane": lambda work: Events(work, "xplane", 4, rows=False),
    "xplane_rows": lambda work: Events(work, "xplane", 0.5, rows=True),
    "vendor_csv": VendorTables,
    "rules": Rules,
    "ingest": Ingest,
}


def clear(work: Path) -> None:
    """Takes a target's folder away."""
    shutil.rmtree(work, ignore_errors=True)
