"""Import one recording as a run: the steps that captures, trace files and vendors' folders share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog, Severity
from traceconv.base.errors import InputError, option, printable
from traceconv.formats.common.files import STDIN, head_of
from traceconv.formats.common.identity import Identity, RunNames
from traceconv.formats.json_items.format import may_have_items
from traceconv.pipeline.result import IngestedRun, Observer
from traceconv.pipeline.run_sql import RunSql
from traceconv.schema import table
from traceconv.schema.model import SCHEMA_VERSION

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter


#: Smaller recordings are read without threads that read ahead and prepare rows, and don't make memory worth returning.
SMALL_BYTES = 1 << 20


class Source(NamedTuple):
    """A row of the table source."""

    source_id: int
    path: str
    format: str
    size_bytes: int | None
    digest: str | None


@dataclass(frozen=True, slots=True)
class RunTarget(RunSql):
    """Where the rows of one run go."""

    label: str
    observer: Observer

    def insert(self, name: str, batches: Iterator[pa.RecordBatch]) -> int:
        """Store rows of a table and report the progress; return the number of rows."""

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                self.observer.stored(batch.num_rows)
                yield batch

        return self.writer.insert(name, self.run_id, counted())


class RunContent(NamedTuple):
    """A run whose events are stored.

    columns   of the table run: those that depend on the format
    identity  rank, host and group, as far as the recording has them
    blocks    rows of source_block, without the run
    complete  nothing is missing, as far as the recording shows
    """

    columns: Mapping[str, object]
    identity: Identity
    sources: Sequence[Source]
    blocks: Sequence[tuple[int, int, int, int | None, int | None]]
    size_bytes: int
    complete: bool
    log: ImportLog
    accounts: Accounts


class Recording(Protocol):
    """A recording to import."""

    @property
    def path(self) -> Path:
        """The file or folder."""

    @property
    def format(self) -> str:
        """The value for `run.source_format`."""

    @property
    def size_bytes(self) -> int:
        """Size of its files; 0 if unknown."""

    def digest(self) -> str | None:
        """A digest that identifies the recording; None for standard input."""

    def read(self, target: RunTarget) -> RunContent:
        """Store its events. Raises InputError if it contains no usable events."""


def import_run(
    recording: Recording, names: RunNames, writer: StoreWriter, observer: Observer, *, replace: bool = False
) -> IngestedRun:
    """Import a recording in the open transaction of a store.

    replace  import a recording that is already in the store again, replacing its run

    Raises InputError if it contains no usable events, StoreError if the store can't be written.
    """
    started = time.perf_counter()
    source_path = path_text(recording.path)
    digest = recording.digest()
    known = writer.run_of(digest)
    if known is not None and not replace:
        lossy, label = writer.lossy(known[0]), names.label
        return IngestedRun(known[0], known[1], source_path, "kept", was_lossy=lossy, given_label=label)
    if known is not None:
        writer.delete_run(known[0])
    run_id = known[0] if known is not None else writer.next_run_id()
    content = recording.read(RunTarget(writer, run_id, names.label, observer))
    identity = names.columns(content.identity)
    row = {
        **content.columns,
        **identity._asdict(),
        "source_path": source_path,
        # Reports depend on it: an export of ours has that of the exported run.
        "source_format": content.columns.get("source_format", recording.format),
        "source_digest": digest,
        "complete": content.complete,
        "schema_version": SCHEMA_VERSION,
    }
    writer.insert_tuples("run", run_id, tuple(row), [tuple(row.values())])
    _insert_provenance(writer, run_id, content)
    return IngestedRun(
        run_id,
        identity.label,
        source_path,
        "ingested" if known is None else "replaced",
        time.perf_counter() - started,
        content.size_bytes,
        content.complete,
        content.accounts,
        tuple(content.log),
        {source.source_id: source.path for source in content.sources},
        rank=identity.rank,
        host=identity.host,
        group_label=identity.group_label,
    )


def no_usable_events(path: Path, log: ImportLog, otherwise: str) -> InputError:
    """The error for a recording without usable events, with the first loss as the reason, or `otherwise`."""
    reasons = [entry.message for entry in log if entry.severity is not Severity.INFO]
    reason = printable(reasons[0]) if reasons else otherwise
    return InputError(f"{printable(str(path))} contains no usable events ({reason})")


def not_a_trace(path: Path, log: ImportLog, size_bytes: int) -> InputError:
    """The error for a file, or standard input, that the reader of traces found no events in."""
    if path == STDIN and not size_bytes:
        return InputError("standard input is empty")
    hint = "is it a trace?"
    if path.is_file() and may_have_items(head_of(path)):
        what = option("traceconv info FILE", "info(FILE)")
        hint = f"if it has items with times, {what} shows what a rule file needs to describe them"
    if path == STDIN:
        path = Path("standard input")
        hint = "only traces in Chrome's JSON are read from there; specify the path of other files"
    return InputError(f"{no_usable_events(path, log, 'it has no array of events')}; {hint}")


def insert_log_entry(writer: StoreWriter, run_id: int, code: Code, message: str) -> None:
    """Add an entry to the import log of a stored run."""
    _insert(writer, run_id, "import_log", [(None, code.severity.value, code.text, None, None, None, message)])


def _insert_provenance(writer: StoreWriter, run_id: int, content: RunContent) -> None:
    """Store sources, blocks, import log and accounting."""
    entries = [
        (e.source_id, e.severity.value, e.code.text, e.byte_offset, e.byte_count, e.event_count, e.message)
        for e in content.log
    ]
    accounts = [
        (name, a.records, a.rows, a.paired, a.used, a.lost) for name, a in sorted(content.accounts.by_record.items())
    ]
    _insert(
        writer, run_id, "source", [(s.source_id, s.path, s.format, s.size_bytes, s.digest) for s in content.sources]
    )
    _insert(writer, run_id, "source_block", content.blocks)
    _insert(writer, run_id, "import_log", entries)
    _insert(writer, run_id, "import_account", accounts)


def _insert(writer: StoreWriter, run_id: int, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    if not rows:
        return
    columns = _columns(name)
    writer.insert_tuples(name, run_id, columns, rows)


@cache
def _columns(name: str) -> tuple[str, ...]:
    """Return the columns of a table without the run."""
    return tuple(column.name for column in table(name).columns if column.name != "run_id")


def path_text(path: object) -> str:
    """A path as text, with escapes for bytes that are not UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()
