"""What ingest has to say about its input: a log of losses and oddities, and the books that must balance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from traceconv.base.errors import InternalError, printable


class Severity(str, Enum):
    """How bad it is. `data_loss` and `error` make the program end with exit code 3."""

    INFO = "info"
    DATA_LOSS = "data_loss"
    ERROR = "error"


class Code(Enum):
    """Every way that input can be odd or bad: a name, a severity and what it means."""

    NO_MANIFEST = ("no_manifest", Severity.DATA_LOSS, "The capture has no manifest: the recording was cut off.")
    CUT_AT = ("cut_at", Severity.INFO, "How far a recording goes that was cut off: the last time of a stream.")
    BAD_MANIFEST = ("bad_manifest", Severity.ERROR, "The manifest can't be read; the files are read without it.")
    MISSING_FILE = ("missing_file", Severity.ERROR, "A file that the manifest names is not there.")
    UNREADABLE_FILE = ("unreadable_file", Severity.ERROR, "A file could not be opened or read.")
    NOT_A_LOG = ("not_a_log", Severity.ERROR, "A file does not begin as a log does.")
    BAD_FILE_HEADER = ("bad_file_header", Severity.ERROR, "The header of a file is damaged: it can't be read.")
    NEWER_VERSION = ("newer_version", Severity.ERROR, "A file was written in a newer version of the format.")
    DAMAGED_BLOCK = ("damaged_block", Severity.DATA_LOSS, "A block is damaged; reading went on at the next whole one.")
    TRUNCATED = ("truncated", Severity.DATA_LOSS, "A file ends inside a block.")
    MISSING_RECORDS = ("missing_records", Severity.DATA_LOSS, "Sequence numbers show records that are not there.")
    REPEATED_RECORDS = ("repeated_records", Severity.INFO, "Records that were read already come again: dropped.")
    CONFLICTING_RECORDS = (
        "conflicting_records",
        Severity.ERROR,
        "Records with the same sequence numbers say different things: the first are kept.",
    )
    REPEATED_MARK = ("repeated_mark", Severity.DATA_LOSS, "Marks that their step has already, or that come too late.")
    EXTRA_RECORDS = ("extra_records", Severity.ERROR, "Records that the manifest does not count: kept.")
    MOVED_FILE = ("moved_file", Severity.INFO, "A file that the manifest names is gone; others have its records.")
    FOREIGN_FILE = ("foreign_file", Severity.ERROR, "A file of another capture lies in this one: not read.")
    SAME_CONTENT = ("same_content", Severity.INFO, "Another run has the same times and counts: one recording, twice.")
    STRAY_BLOCK = ("stray_block", Severity.ERROR, "A block of another stream stands in a file: not read.")
    UNKNOWN_RECORD = ("unknown_record", Severity.DATA_LOSS, "Records of a type that this version does not know.")
    LONGER_RECORD = ("longer_record", Severity.INFO, "Records have fields that this version does not know.")
    SHORTER_RECORD = ("shorter_record", Severity.INFO, "Records lack fields that this version knows.")
    MISSING_TEXT = ("missing_text", Severity.DATA_LOSS, "Names whose text is not in the dictionary: NULL.")
    BAD_TEXT = ("bad_text", Severity.DATA_LOSS, "Dictionary text that is not whole, or not UTF-8.")
    CUT_TEXT = ("cut_text", Severity.DATA_LOSS, "Names or attributes that were cut when they were recorded.")
    TOO_MUCH_TEXT = ("too_much_text", Severity.DATA_LOSS, "More dictionary text than the limit; the rest is NULL.")
    UNKNOWN_VALUE = ("unknown_value", Severity.DATA_LOSS, "Values that an enum does not name: NULL.")
    UNMATCHED_END = ("unmatched_end", Severity.DATA_LOSS, "Ends whose begin is not in the source.")
    UNFINISHED = ("unfinished", Severity.INFO, "Begins whose end is not in the source: duration is NULL.")
    NEGATIVE_DURATION = ("negative_duration", Severity.DATA_LOSS, "Ends before their begin: duration is NULL.")
    OVERLAP = ("overlap", Severity.INFO, "Tasks of one stream that overlap.")
    NO_CLOCK_SYNC = ("no_clock_sync", Severity.ERROR, "A device has no sync records: its times can't be aligned.")
    BAD_CLOCK_SYNC = ("bad_clock_sync", Severity.DATA_LOSS, "Sync records that contradict their neighbours; not used.")
    BAD_TIME = ("bad_time", Severity.DATA_LOSS, "Times out of the range that 64 bits of nanoseconds can hold.")
    OUT_OF_RANGE = (
        "out_of_range",
        Severity.DATA_LOSS,
        "Numbers that do not fit a signed 64-bit column: NULL.",
    )
    ODD_CONTAINER = ("odd_container", Severity.INFO, "A file is packed in another way than its name says.")
    BAD_CONTAINER = ("bad_container", Severity.DATA_LOSS, "Packed data is damaged, cut off, or more than the limit.")
    ENCODING = ("encoding", Severity.INFO, "Text in UTF-16 or UTF-32: read; byte offsets are those of its UTF-8 form.")
    NO_END = (
        "no_end",
        Severity.INFO,
        "The text ends before its brackets close, or inside its last line: its writer was killed, or never ends them.",
    )
    PADDING = ("padding", Severity.INFO, "NUL bytes that hold nothing.")
    SEVERAL_ARRAYS = ("several_arrays", Severity.INFO, "Events stand in more than one array or document.")
    ODD_JSON = ("odd_json", Severity.INFO, "Text that is no strict JSON, and was read as it is meant.")
    BAD_BYTES = ("bad_bytes", Severity.DATA_LOSS, "Bytes that are not UTF-8: U+FFFD in their place.")
    DAMAGED_EVENT = ("damaged_event", Severity.DATA_LOSS, "An event that can't be read; reading went on at the next.")
    TOO_LARGE = ("too_large", Severity.DATA_LOSS, "Events larger than the limit, or large and too many: left out.")
    CUT_EVENT = ("cut_event", Severity.DATA_LOSS, "The text ends inside an event.")
    CUT_OFF = ("cut_off", Severity.DATA_LOSS, "The text ends where more was to come: behind a comma.")
    DAMAGED_TEXT = ("damaged_text", Severity.DATA_LOSS, "Text beside the events that can't be read.")
    REPEATED_KEY = ("repeated_key", Severity.DATA_LOSS, "An event has a key twice; the last value counts.")
    NOT_AN_EVENT = ("not_an_event", Severity.DATA_LOSS, "Elements among the events that are no objects.")
    NO_PHASE = ("no_phase", Severity.DATA_LOSS, "Events that don't say of what kind they are (ph).")
    UNKNOWN_PHASE = ("unknown_phase", Severity.DATA_LOSS, "Events of a kind (ph) that this version does not know.")
    NO_TIME = ("no_time", Severity.DATA_LOSS, "Events without a time that can be read.")
    FINE_TIME = ("fine_time", Severity.INFO, "Times finer than a nanosecond: rounded, half to even.")
    BAD_DURATION = (
        "bad_duration",
        Severity.DATA_LOSS,
        "Durations that are no numbers, are longer than 2^63 - 1 ns, or end later than that: NULL.",
    )
    NO_DURATION = ("no_duration", Severity.INFO, "Complete events without a duration: NULL.")
    BACKWARD = ("backward", Severity.INFO, "Durations below 0: NULL, and the value kept in args.")
    END_WITHOUT_BEGIN = ("end_without_begin", Severity.INFO, "Ends whose begin is not in the source.")
    UNCLEAR_LAUNCH = (
        "unclear_launch",
        Severity.INFO,
        "Tasks with the correlation id of calls of several processes: which call launched them is not known.",
    )
    LOOSE_FLOW = ("loose_flow", Severity.INFO, "Ends of flows without their start, and starts without an end.")
    PARTIAL_OVERLAP = ("partial_overlap", Severity.INFO, "Slices of one track that overlap without nesting.")
    NO_NAME = ("no_name", Severity.INFO, "Events without a name.")
    BAD_NUMBER = ("bad_number", Severity.DATA_LOSS, "Values of counters that are no numbers.")
    CHANGED_EXPORT = (
        "changed_export",
        Severity.INFO,
        "A trace that traceconv exported, changed since then: read as the trace of any writer.",
    )
    NOT_READ = ("not_read", Severity.INFO, "Parts of a source that hold no events of their own: not read.")
    COMPLETED = ("completed", Severity.INFO, "Records of a table beside a timeline: whether they tell of its tasks.")
    UNCLEAR_RECORD = ("unclear_record", Severity.DATA_LOSS, "Records of a table that could belong to several tasks.")
    NO_COLUMN = ("no_column", Severity.ERROR, "A table lacks columns without which it can't be used.")
    UNADDRESSABLE = (
        "unaddressable",
        Severity.INFO,
        "Keys of items that contain a dot, which a rule file can't name: their values are kept in args only.",
    )
    NOT_TIME = ("not_time", Severity.INFO, "Values of a profile that are no times: each is taken for a nanosecond.")
    ORPHAN_PMU = ("orphan_pmu", Severity.DATA_LOSS, "Counters of tasks that are not in the source.")

    def __init__(self, text: str, severity: Severity, doc: str) -> None:
        self.text = text
        self.severity = severity
        self.doc = doc


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One row of import_log. `source_id` None: the run as a whole."""

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
    """Collects log entries, in bounded memory: past `LIMIT` of one code in one file, they are summed up."""

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
        """Notes one thing; None says that a number is not known."""
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

    def put_first(self, other: ImportLog) -> None:
        """Puts the entries of another log before those of this one."""
        self._entries[:0] = other._entries
        for key, seen in other._seen.items():
            self._seen[key] = self._seen.get(key, 0) + seen
        for key, numbers in other._summed.items():
            total = self._summed.setdefault(key, [0, 0, 0])
            total[:] = [one + more for one, more in zip(total, numbers, strict=True)]

    def __iter__(self) -> Iterator[LogEntry]:
        yield from self._entries
        for (code, source_id), (times, byte_count, event_count) in self._summed.items():
            message = f"{times} more of the same, summed up"
            yield LogEntry(code, message, source_id, None, byte_count, event_count)

    @property
    def lossy(self) -> bool:
        """Whether anything was lost or could not be read."""
        return any(code.severity is not Severity.INFO for code, _ in self._seen)


@dataclass(slots=True)
class Account:
    """The books of one record type: records = rows + merged + consumed + lost."""

    records: int = 0
    rows: int = 0
    merged: int = 0
    consumed: int = 0
    lost: int = 0

    @property
    def balanced(self) -> bool:
        return self.records == self.rows + self.merged + self.consumed + self.lost


@dataclass(slots=True)
class Accounts:
    """The books of one ingest, by record type."""

    by_record: dict[str, Account] = field(default_factory=dict)

    def __getitem__(self, record: str) -> Account:
        return self.by_record.setdefault(record, Account())

    def check(self) -> None:
        """Raises InternalError when a record was counted in and not out, or the other way round."""
        for record, account in self.by_record.items():
            if not account.balanced:
                raise InternalError(f"the accounting of '{printable(record)}' does not balance ({account})")
