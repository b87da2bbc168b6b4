"""What ingest reports about its input: the import log and the accounting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from traceconv.base.errors import InternalError, printable


class Severity(str, Enum):
    """`data_loss` and `error` make the program exit with code 3."""

    INFO = "info"
    DATA_LOSS = "data_loss"
    ERROR = "error"


class Code(Enum):
    """Every finding about input: a severity and its meaning; `text` is its name in the store."""

    NO_MANIFEST = (Severity.DATA_LOSS, "No manifest: the recording did not finish.")
    CUT_AT = (Severity.INFO, "Last timestamp of a stream of an unfinished recording.")
    BAD_MANIFEST = (Severity.ERROR, "The manifest can't be read; the files are read without it.")
    MISSING_FILE = (Severity.ERROR, "A file named by the manifest is missing.")
    UNREADABLE_FILE = (Severity.ERROR, "A file could not be opened or read.")
    NOT_A_LOG = (Severity.ERROR, "Bad magic: a file is not a log.")
    BAD_FILE_HEADER = (Severity.ERROR, "A file has a damaged header and can't be read.")
    NEWER_VERSION = (Severity.ERROR, "A file has a newer version of the format.")
    DAMAGED_BLOCK = (Severity.DATA_LOSS, "A damaged block; reading resumed at the next intact one.")
    TRUNCATED = (Severity.DATA_LOSS, "A file ends inside a block.")
    MISSING_RECORDS = (
        Severity.DATA_LOSS,
        "Gaps in sequence numbers, as many events as a writer keeps, or events that it dropped: records are missing.",
    )
    PROFILER_WARNING = (
        Severity.INFO,
        "Warnings and errors of the profiler about its recording: events may be missing.",
    )
    REPEATED_RECORDS = (Severity.INFO, "Repeated records: dropped.")
    CONFLICTING_RECORDS = (Severity.ERROR, "Different records with the same sequence numbers: the first are kept.")
    REPEATED_MARK = (Severity.DATA_LOSS, "Step marks that are repeated or too late.")
    EXTRA_RECORDS = (Severity.ERROR, "More records than the manifest counts: kept.")
    MOVED_FILE = (Severity.INFO, "A file named by the manifest is missing, but other files have its records.")
    FOREIGN_FILE = (Severity.ERROR, "A file of another capture: skipped.")
    SAME_CONTENT = (Severity.INFO, "Another run has the same timestamps and counts: probably the same recording.")
    STRAY_BLOCK = (Severity.ERROR, "A block of another stream: skipped.")
    UNKNOWN_RECORD = (Severity.DATA_LOSS, "Records of an unknown type.")
    LONGER_RECORD = (Severity.INFO, "Records with fields that this version doesn't know.")
    SHORTER_RECORD = (Severity.INFO, "Records that lack fields that this version knows.")
    MISSING_TEXT = (Severity.DATA_LOSS, "Names whose text is missing from the dictionary: NULL.")
    BAD_TEXT = (Severity.DATA_LOSS, "Dictionary text that is incomplete or not UTF-8.")
    CLOCK_STOPPED = (Severity.INFO, "Spans of other threads while emulation stopped the host clock: too short.")
    CUT_TEXT = (Severity.DATA_LOSS, "Names or attributes that were truncated when recorded.")
    TOO_MUCH_TEXT = (Severity.DATA_LOSS, "More dictionary text than the limit; the rest is NULL.")
    UNKNOWN_VALUE = (Severity.DATA_LOSS, "Unknown enum values: NULL.")
    UNMATCHED_END = (Severity.DATA_LOSS, "End records without a begin.")
    UNFINISHED = (Severity.INFO, "Begin records without an end: duration is NULL, unless the message says otherwise.")
    NEGATIVE_DURATION = (Severity.DATA_LOSS, "Ends before their begin: duration is NULL.")
    OVERLAP = (Severity.INFO, "Tasks of one stream that overlap.")
    NO_CLOCK_SYNC = (Severity.ERROR, "No sync records for a clock: its timestamps can't be aligned.")
    BAD_CLOCK_SYNC = (Severity.DATA_LOSS, "Sync records that contradict their neighbours: ignored.")
    BAD_TIME = (Severity.DATA_LOSS, "Timestamps that don't fit 64 bits of nanoseconds.")
    OUT_OF_RANGE = (Severity.DATA_LOSS, "Numbers that don't fit a signed 64-bit column: NULL.")
    UNEXPECTED_CONTAINER = (Severity.INFO, "A file's compression does not match its name.")
    BAD_CONTAINER = (Severity.DATA_LOSS, "Compressed data that is damaged, truncated or beyond the limit.")
    ENCODING = (Severity.INFO, "Text in UTF-16 or UTF-32; byte offsets refer to its UTF-8 form.")
    NO_END = (
        Severity.INFO,
        "The text ends before its brackets close or inside its last line: its writer was killed, or never closes them.",
    )
    PADDING = (Severity.INFO, "NUL padding.")
    SEVERAL_ARRAYS = (Severity.INFO, "Events in more than one array or document.")
    ODD_JSON = (Severity.INFO, "Non-standard JSON, repaired.")
    BAD_BYTES = (Severity.DATA_LOSS, "Bytes that are not UTF-8, replaced by U+FFFD.")
    DAMAGED_EVENT = (Severity.DATA_LOSS, "A malformed event; reading resumed at the next.")
    TOO_LARGE = (Severity.DATA_LOSS, "Events skipped because one, or all large ones together, exceed the limit.")
    CUT_EVENT = (Severity.DATA_LOSS, "The text ends inside an event.")
    CUT_OFF = (Severity.DATA_LOSS, "The text ends after a comma: more events were expected.")
    DAMAGED_TEXT = (Severity.DATA_LOSS, "Malformed text outside the events.")
    REPEATED_KEY = (Severity.DATA_LOSS, "A duplicate key in an event; the last value is used.")
    NOT_AN_EVENT = (Severity.DATA_LOSS, "Non-object elements among the events.")
    NO_PHASE = (Severity.DATA_LOSS, "Events without a phase (ph).")
    UNKNOWN_PHASE = (Severity.DATA_LOSS, "Events with an unknown phase (ph).")
    LONG_PHASE = (Severity.INFO, "Phases (ph) of several letters: read by their first.")
    NO_TIME = (Severity.DATA_LOSS, "Events without a valid timestamp.")
    FINE_TIME = (Severity.INFO, "Timestamps finer than a nanosecond: rounded, half to even.")
    COARSE_TIME = (Severity.INFO, "Durations that the source rounds to more than a nanosecond.")
    UNORDERED_TIME = (
        Severity.INFO,
        "Entries of a list in order of time that are earlier than the one before: moved to it.",
    )
    BAD_DURATION = (Severity.DATA_LOSS, "Durations that are not numbers, exceed 2^63 - 1 ns, or end beyond it: NULL.")
    NO_DURATION = (Severity.INFO, "Complete events without a duration: NULL.")
    BACKWARD = (Severity.INFO, "Negative durations: NULL, with the value kept in args.")
    END_WITHOUT_BEGIN = (Severity.INFO, "End events without a begin.")
    UNCLEAR_LAUNCH = (
        Severity.INFO,
        "Tasks whose correlation ID matches several calls, of one process or more: the launching call is unknown.",
    )
    LOOSE_FLOW = (Severity.INFO, "Unmatched flow starts and ends.")
    PARTIAL_OVERLAP = (Severity.INFO, "Slices of one track that overlap without nesting.")
    NO_NAME = (Severity.INFO, "Events without a name.")
    BAD_NUMBER = (
        Severity.DATA_LOSS,
        "Counter values and sizes of memory that are not numbers, and counters' args that are not an object.",
    )
    CHANGED_EXPORT = (Severity.INFO, "A trace exported by traceconv and changed since: read like any other trace.")
    FOR_VIEWERS = (
        Severity.INFO,
        "A timeline that traceconv exported without args, or with several runs: devices, among others, are unknown.",
    )
    NOT_READ = (Severity.INFO, "Parts of a source without events of their own: not read.")
    COMPLETED = (Severity.INFO, "Whether the records of a table match the tasks of a timeline.")
    UNCLEAR_RECORD = (Severity.DATA_LOSS, "Table records that could belong to several tasks.")
    NO_COLUMN = (Severity.ERROR, "A table lacks columns that it can't be used without.")
    UNADDRESSABLE = (
        Severity.INFO,
        "Item keys that contain a dot, which a rule file can't name: their values are kept in args only.",
    )
    NO_ITEMS = (Severity.INFO, "Tables of items in a rule file that match nothing in a document.")
    NOT_TIME = (Severity.INFO, "Values of a profile that are not times: each counts as a nanosecond.")
    NO_START = (Severity.INFO, "Tasks of a source without timestamps: they have durations, and NULL as start.")
    ORPHAN_PMU = (Severity.DATA_LOSS, "Counters of tasks that are not in the source.")
    ORPHAN_WAIT = (Severity.DATA_LOSS, "Events of waits that are not in the source.")

    def __init__(self, severity: Severity, doc: str) -> None:
        self.text = self.name.lower()
        self.severity = severity
        self.doc = doc


class LogEntry(NamedTuple):
    """One row of import_log. `source_id` None: the finding concerns the run."""

    code: Code
    message: str
    source_id: int | None = None
    byte_offset: int | None = None
    byte_count: int | None = None
    event_count: int | None = None

    @property
    def severity(self) -> Severity:
        return self.code.severity


class ImportLog:
    """Collect log entries in bounded memory: beyond `LIMIT` per code and source they are summed."""

    LIMIT = 100

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self._seen: dict[tuple[Code, int | None], int] = {}
        self._summed: dict[tuple[Code, int | None], list[int]] = {}

    def add(
        self,
        code: Code,
        message: str,
        *,
        source_id: int | None = None,
        byte_offset: int | None = None,
        byte_count: int | None = None,
        event_count: int | None = None,
    ) -> None:
        """Add an entry; numbers that are None are unknown."""
        key = (code, source_id)
        seen = self._seen.get(key, 0)
        self._seen[key] = seen + 1
        if seen < self.LIMIT:
            self._entries.append(LogEntry(code, message, source_id, byte_offset, byte_count, event_count))
            return
        total = self._summed.setdefault(key, [0, 0, 0])
        total[0] += 1
        total[1] += byte_count or 0
        total[2] += event_count or 0

    def count(self, code: Code, message: str, event_count: int, source_id: int | None = None) -> None:
        """Add an entry about events, unless there are none."""
        if event_count:
            self.add(code, message, source_id=source_id, event_count=event_count)

    def put_first(self, other: ImportLog) -> None:
        """Insert the entries of another log before those of this one."""
        self._entries[:0] = other._entries
        for key, seen in other._seen.items():
            self._seen[key] = self._seen.get(key, 0) + seen
        for key, numbers in other._summed.items():
            total = self._summed.setdefault(key, [0, 0, 0])
            total[:] = [one + more for one, more in zip(total, numbers, strict=True)]

    def __iter__(self) -> Iterator[LogEntry]:
        yield from self._entries
        for (code, source_id), (times, byte_count, event_count) in self._summed.items():
            message = f"{times} more of the same kind"
            yield LogEntry(code, message, source_id, None, byte_count, event_count)

    @property
    def lossy(self) -> bool:
        """Whether any entry is worse than `info`."""
        return any(code.severity is not Severity.INFO for code, _ in self._seen)


@dataclass(slots=True)
class Account:
    """The accounting of one record type: records = rows + paired + used + lost."""

    records: int = 0
    rows: int = 0
    paired: int = 0
    used: int = 0
    lost: int = 0

    def add(self, *, rows: int = 0, paired: int = 0, used: int = 0, lost: int = 0) -> None:
        """Count records by their outcome."""
        self.records += rows + paired + used + lost
        self.rows += rows
        self.paired += paired
        self.used += used
        self.lost += lost

    @property
    def balanced(self) -> bool:
        return self.records == self.rows + self.paired + self.used + self.lost


@dataclass(slots=True)
class Accounts:
    """The accounting of one ingest, by record type."""

    by_record: dict[str, Account] = field(default_factory=dict)

    def __getitem__(self, record: str) -> Account:
        return self.by_record.setdefault(record, Account())

    def check(self) -> None:
        """Raise InternalError if a record type doesn't balance."""
        for record, account in self.by_record.items():
            if not account.balanced:
                raise InternalError(f"the accounting of '{printable(record)}' does not balance ({account})")
