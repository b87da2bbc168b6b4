"""Raw records → the tables of msprof's databases, in a SQLite file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import coded
from traceconv.formats.ascend_raw.device_records import DeviceRecords
from traceconv.formats.ascend_raw.framework import Framework
from traceconv.formats.ascend_raw.host_records import HostRecords
from traceconv.formats.ascend_raw.names import (
    ACL,
    FFTS_PLUS,
    HCCL,
    MASTER,
    MODEL,
    NODE,
    RUNTIME,
    WIDE_CHIPS,
    enums,
    numbers,
)
from traceconv.formats.ascend_raw.pmu import fill_counters
from traceconv.formats.ascend_raw.recording import Recording
from traceconv.formats.ascend_raw.records import NONE
from traceconv.formats.ascend_raw.staging import Staging, schema
from traceconv.formats.ascend_raw.steps import fill_steps
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_reader import renamed

#: A database that a failure leaves behind is of no use: no journal, and no flushing.
_SETTINGS = (
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000; PRAGMA temp_store = FILE; "
    "PRAGMA raw.journal_mode = OFF; PRAGMA raw.synchronous = OFF; PRAGMA raw.cache_size = -64000"
)
_SECTION = re.compile(r"^-- section: (\w+)$", re.MULTILINE)
#: Calls that began before a record and are looked at for one that has not ended.
_MOST_OPEN = 1000
#: Tables of records, and the calls in which they were made, by level.
_ENCLOSED = {
    "basic": (NODE,),
    "attr": (NODE,),
    "tensor": (NODE,),
    "context": (NODE, HCCL),
    "hccl_op": (NODE,),
    "hccl": (HCCL,),
    "copy": (ACL, MODEL, NODE, HCCL),
    "track": (ACL, MODEL, NODE, HCCL),
}
_LEVEL_NAMES = {ACL: "acl", MODEL: "model", NODE: "node", HCCL: "hccl"}
#: Tables of records that need a time, the column that has it, and what they are.
_TIMED = {
    "point": ("ns", "starts and ends of tasks"),
    "flip": ("ns", "flips of task IDs"),
    "mark": ("ns", "marks of steps"),
    "job_mark": ("ns", "marks of steps of jobs"),
    "frequency": ("ns", "frequencies"),
    "module_memory": ("ns", "sizes of memory of modules"),
    "tx": ("start_ns", "marks and ranges of the program"),
    "fwk_op": ("start_ns", "framework ops"),
    "fwk_mark": ("ns", "entries of the framework's queue"),
    "fwk_call": ("ns", "calls of functions"),
    "fwk_collection": ("start_ns", "collections of garbage"),
}
#: Between the class of a module and what identifies the module, in the name of its call.
_MODULE = "######"
#: Points of tasks that are paired at once.
_POINTS = 1 << 18
#: Types of parts of FFTS+ tasks follow those of entries.
_CONTEXT_TYPES = 1000


def write_database(
    recording: Recording, path: Path, log: ImportLog, accounts: Accounts, advance: Callable[[int], None]
) -> None:
    """Write the database of a recording to a new file; what is left of a damaged recording is in it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.executescript(f"ATTACH '' AS raw; {_SETTINGS}")
        connection.executescript(files(__package__).joinpath("schema.sql").read_text("utf-8"))
        connection.executescript(schema())
        _Tables(connection, recording, log, accounts, advance).fill()
    finally:
        connection.close()


class _Tables:
    def __init__(
        self,
        connection: sqlite3.Connection,
        recording: Recording,
        log: ImportLog,
        accounts: Accounts,
        advance: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._recording = recording
        self._log = log
        self._accounts = accounts
        self._staging = Staging(connection, log, accounts, advance, recording.chip)
        self._host = HostRecords(self._staging)
        text = files(__package__).joinpath("joined.sql").read_text("utf-8")
        parts = _SECTION.split(text)
        self._known_ids: dict[str, int] = {}
        self._sections = dict(zip(parts[1::2], parts[2::2], strict=True))

    def fill(self) -> None:
        """Read the streams, join what belongs together, and fill the tables."""
        recording = self._recording
        self._connection.execute("BEGIN")
        self._host.read(recording.folder.host, recording.host_clock)
        for side in recording.folder.devices:
            DeviceRecords(self._staging, side.device or 0).read(side, recording.device_clocks.get(side.device))
        if recording.framework_clock is not None:
            Framework(self._staging, recording.framework_clock).read(recording.folder.framework)
        self._count_untimed()
        self._pair_points()
        if recording.chip in WIDE_CHIPS:
            self._find_streams()
        self._run("calls")
        self._name_unknown_types()
        self._run("batches")
        for table, levels in _ENCLOSED.items():
            self._enclose(table, levels)
        self._run("operators")
        self._describe_tensors()
        self._run("launches")
        self._run("tables")
        self._run("jobs")
        self._run("copies")
        self._run("collectives")
        self._name_collectives()
        self._run("others")
        self._run("marks")
        self._name_marks()
        self._run("program")
        self._name_entries()
        self._run("framework")
        self._run("functions")
        self._name_functions()
        self._run("frames")
        fill_counters(self._connection, self._log, self._accounts)
        fill_steps(self._connection, self._log)
        self._describe_recording()
        self._count_losses()
        self._name_texts()
        for (table,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not self._connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall():  # noqa: S608 - a name of ours
                self._connection.execute(f"DROP TABLE {table}")
        self._connection.execute("COMMIT")

    def _run(self, section: str) -> None:
        recording = self._recording
        values = {
            "none": NONE,
            "node": NODE,
            "hccl": HCCL,
            "runtime": RUNTIME,
            "pid": recording.pid,
            "ffts_plus": FFTS_PLUS,
            "master": MASTER,
            "has_contexts": int(recording.chip not in WIDE_CHIPS),
            **{text: self._text_id(text) for text in ("static", "dynamic", "YES", "NO")},
        }
        # Numbers of ours, in statements that would need them in another order each.
        text = re.sub(r"\$(\w+)", lambda match: str(values[match[1]]), self._sections[section])
        for statement in text.split(";\n"):
            self._connection.execute(statement)

    def _count_untimed(self) -> None:
        """Report the records that are left out because their time is out of range."""
        for table, (column, what) in _TIMED.items():
            ((lost,),) = self._connection.execute(f"SELECT count(*) FROM raw.{table} WHERE {column} IS NULL")  # noqa: S608 - names above
            if lost:
                self._log.count(Code.BAD_TIME, f"{what} whose time is out of range", lost, SOURCE_ID)
                self._accounts[what].add(lost=lost)

    # -- tasks of devices --

    def _pair_points(self) -> None:
        """Pair the starts and the ends of tasks.

        As many starts as ends belong together in their order; otherwise, an end belongs to the start right before it.
        """
        self._connection.execute(
            "CREATE TABLE raw.done (id INTEGER PRIMARY KEY, device INTEGER, stream INTEGER, task INTEGER, "
            "context INTEGER, start_ns INTEGER, end_ns INTEGER, type INTEGER, batch INTEGER DEFAULT 0, launch INTEGER)"
        )
        loose = 0
        for points in self._points():
            rows, ends, count = _pairs(points)
            loose += count
            columns = [points[rows, place].tolist() for place in (0, 1, 2, 3, 4)]
            times = pa.array(points[ends, 4], mask=ends < 0).to_pylist()
            types = renamed(coded(pa.array(points[rows, 6])), self._type_of)
            self._connection.executemany(
                "INSERT INTO raw.done (device, stream, task, context, start_ns, end_ns, type) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                zip(*columns, times, types, strict=True),
            )
        # Of tasks that began before the recording.
        self._log.count(Code.END_WITHOUT_BEGIN, "ends of tasks without a start", loose, SOURCE_ID)
        self._connection.execute("DROP TABLE raw.point")
        self._connection.execute("CREATE INDEX raw.done_at ON done (device, stream, start_ns, task)")

    def _points(self) -> Iterator[Int64]:
        """Yield the starts and ends of whole tasks, by task and time."""
        cursor = self._connection.execute(
            "SELECT device, stream, task, context, ns, is_end, type FROM raw.point WHERE ns IS NOT NULL "
            "ORDER BY device, stream, task, context, ns, is_end"
        )
        kept = np.zeros((0, 7), np.int64)
        while rows := cursor.fetchmany(_POINTS):
            kept = np.concatenate([kept, np.array(rows, np.int64)])
            last = int(np.flatnonzero(_begins(kept))[-1])
            if last:
                yield kept[:last]
                kept = kept[last:]
        if len(kept):
            yield kept

    def _type_of(self, kind: int) -> int:
        table = "contexts" if kind >= _CONTEXT_TYPES else self._recording.queue_types
        number = kind % _CONTEXT_TYPES
        return self._text_id(numbers(table).get(number, f"{'CONTEXT' if kind >= _CONTEXT_TYPES else 'SQE'} {number}"))

    def _text_id(self, text: str) -> int:
        found = self._known_ids.get(text)
        if found is None:
            found = self._known_ids[text] = self._staging.text_id(text)
        return found

    def _find_streams(self) -> None:
        """Give the tasks of chips whose records have no streams those of the host's tasks with the same ID."""
        self._connection.execute("CREATE INDEX raw.track_of ON track (device, task, stream)")
        for table in ("done", "pmu"):
            self._connection.execute(
                f"UPDATE raw.{table} SET stream = coalesce((SELECT max(t.stream) FROM raw.track AS t "  # noqa: S608 - a name above
                f"WHERE t.device = {table}.device AND t.task = {table}.task), -1)"
            )

    # -- calls --

    def _enclose(self, table: str, levels: Sequence[int]) -> None:
        """Find the innermost call of each level during which a record was made, of the same thread.

        It began before the record, and ended then or later.
        """
        last = (
            "FROM raw.call WHERE thread = r.thread AND level = {level} AND start_ns < r.ns "
            "ORDER BY start_ns DESC, end_ns LIMIT "
        )
        earlier = f"SELECT id FROM (SELECT id, end_ns {last}{_MOST_OPEN}) WHERE end_ns >= r.ns LIMIT 1"  # noqa: S608 - text above
        call = f"(SELECT CASE WHEN end_ns >= r.ns THEN id WHEN open_until >= r.ns THEN ({earlier}) END {last}1)"
        found = ", ".join(f"{call.format(level=level)} AS {_LEVEL_NAMES[level]}" for level in levels)
        self._connection.execute(f"CREATE TABLE raw.{table}_in AS SELECT r.*, {found} FROM raw.{table} AS r")  # noqa: S608 - names above

    def _name_unknown_types(self) -> None:
        missing = self._connection.execute(
            f"SELECT level, type FROM raw.api UNION SELECT {RUNTIME}, type FROM raw.track "  # noqa: S608 - a number
            "EXCEPT SELECT level, type FROM raw.type"
        ).fetchall()
        rows = [(level, kind, self._text_id(f"{level}_{kind & 2**64 - 1}")) for level, kind in missing]
        self._connection.executemany("INSERT INTO raw.type VALUES (?, ?, ?)", rows)
        ids = [(number, self._text_id(name)) for number, name in numbers("op_types").items()]
        self._connection.execute("CREATE TABLE raw.op_name (number INTEGER PRIMARY KEY, text INTEGER)")
        self._connection.executemany("INSERT INTO raw.op_name VALUES (?, ?)", ids)
        if any(level == RUNTIME for level, _ in missing):
            message = "types of tasks or calls that additional.type_info_dic doesn't name"
            self._log.count(Code.MISSING_TEXT, message, len(missing), SOURCE_ID)

    def _describe_tensors(self) -> None:
        self._connection.execute(
            "CREATE TABLE raw.described (tensors TEXT PRIMARY KEY, input_shapes INTEGER, input_types INTEGER, "
            "input_formats INTEGER, output_shapes INTEGER, output_types INTEGER, output_formats INTEGER) WITHOUT ROWID"
        )
        cursor = self._connection.execute("SELECT DISTINCT tensors FROM raw.shape")
        while rows := cursor.fetchmany(4096):
            lists = [[int(number) for number in text.split()] for (text,) in rows]
            described = self._host.tensors.describe(lists)
            values = [
                (text, *(self._text_id(one) for one in found)) for (text,), found in zip(rows, described, strict=True)
            ]
            self._connection.executemany("INSERT INTO raw.described VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def _name_collectives(self) -> None:
        """Name collectives as msprof does: operator, end of the group's name, number in the group, execution."""
        rows = self._connection.execute(
            "SELECT c.id, h.text, g.text, c.grp, c.place, c.turn FROM raw.collective AS c LEFT JOIN raw.hash AS h "
            "ON h.id = c.item LEFT JOIN raw.hash AS g ON g.id = c.grp"
        ).fetchall()
        names = []
        for number, name, group_name, group, place, turn in rows:
            group_text = group_name or ("" if group is None else str(group & 2**64 - 1))
            names.append((self._text_id(f"{name or 'collective'}_{group_text[-3:]}_{place}_{turn}"), number))
        self._connection.execute("CREATE TABLE raw.named (name INTEGER, id INTEGER PRIMARY KEY)")
        self._connection.executemany("INSERT INTO raw.named VALUES (?, ?)", names)
        self._connection.execute(
            "INSERT INTO COMMUNICATION_OP SELECT n.name, c.start_ns, c.end_ns, c.node, c.grp, c.id, c.relay, c.retry, "
            "c.data_type, c.alg, c.count, c.op_type, c.device, c.rank_size FROM raw.collective AS c "
            "JOIN raw.named AS n USING (id) ORDER BY c.start_ns"
        )
        self._run("parts")

    def _name_marks(self) -> None:
        rows = self._connection.execute("SELECT DISTINCT message FROM raw.tx_whole").fetchall()
        self._connection.execute("CREATE TABLE raw.tx_message (message TEXT PRIMARY KEY, id INTEGER) WITHOUT ROWID")
        named = [(text, self._text_id(text)) for (text,) in rows]
        self._connection.executemany("INSERT INTO raw.tx_message VALUES (?, ?)", named)

    def _name_entries(self) -> None:
        """Name the entries of the framework's queue, as torch_npu does."""
        rows = self._connection.execute(
            "SELECT DISTINCT m.is_dequeue, m.name, h.text FROM raw.fwk_mark AS m "
            "LEFT JOIN raw.hash AS h ON h.id = m.name"
        ).fetchall()
        self._connection.execute("CREATE TABLE raw.fwk_shown (is_dequeue INTEGER, name INTEGER, shown INTEGER)")
        named = [
            (is_dequeue, name, self._text_id(f"Dequeue@{text or ''}" if is_dequeue else "Enqueue"))
            for is_dequeue, name, text in rows
        ]
        self._connection.executemany("INSERT INTO raw.fwk_shown VALUES (?, ?, ?)", named)

    def _name_functions(self) -> None:
        """Name functions, and modules by class and number: of their class, in the order of their first calls."""
        rows = self._connection.execute(
            "SELECT f.thread, f.key, h.text, min(f.start_ns) FROM raw.fwk_frame AS f "
            "LEFT JOIN (SELECT key, max(text) AS text FROM raw.fwk_function GROUP BY key) AS n ON n.key = f.key "
            "LEFT JOIN raw.hash AS h ON h.id = n.text GROUP BY f.thread, f.key ORDER BY 4"
        ).fetchall()
        numbers_of: dict[tuple[int, str], dict[str, int]] = {}
        named = []
        for thread, key, text, _ in rows:
            shown = str(key & 2**64 - 1) if text is None else text
            module, delimiter, unique = shown.partition(_MODULE)
            if delimiter:
                of_class = numbers_of.setdefault((thread, module), {})
                shown = f"nn.Module: {module}_{of_class.setdefault(unique, len(of_class))}"
            named.append((thread, key, self._text_id(shown)))
        self._connection.execute(
            "CREATE TABLE raw.fwk_frame_name (thread INTEGER, key INTEGER, name INTEGER, PRIMARY KEY (thread, key)) "
            "WITHOUT ROWID"
        )
        self._connection.executemany("INSERT INTO raw.fwk_frame_name VALUES (?, ?, ?)", named)

    # -- what is not an event --

    def _describe_recording(self) -> None:
        recording, put = self._recording, self._connection.executemany
        put("INSERT INTO META_DATA VALUES (?, ?)", recording.about)
        put("INSERT INTO HOST_INFO VALUES (?, ?)", recording.hosts)
        put("INSERT INTO NPU_INFO VALUES (?, ?)", recording.devices)
        put("INSERT INTO RANK_DEVICE_MAP VALUES (?, ?)", recording.ranks)
        put("INSERT INTO SESSION_TIME_INFO VALUES (?, ?)", recording.sessions)
        for table, names in enums().items():
            self._connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT)")
            put(f"INSERT INTO {table} VALUES (?, ?)", names.items())  # noqa: S608 - a name of ours

    def _count_losses(self) -> None:
        """Report what belongs to nothing."""
        count = self._connection.execute
        ((shared,),) = count("SELECT coalesce(sum(count), 0) FROM raw.known WHERE count > 1")
        message = "launches with the same device, stream, ID and context: which task is whose is unknown"
        self._log.count(Code.UNCLEAR_LAUNCH, message, shared, SOURCE_ID)
        for table in ("basic", "attr", "tensor", "hccl_op", "hccl"):
            column = "hccl" if table == "hccl" else "node"
            ((loose,),) = count(f"SELECT count(*) FROM raw.{table}_in WHERE {column} IS NULL")  # noqa: S608 - names above
            message = f"records of {table} during no call of their thread"
            self._log.count(Code.NOT_READ, message, loose, SOURCE_ID)
        ((unfinished,),) = count("SELECT count(*) FROM raw.done WHERE end_ns IS NULL")
        self._log.count(Code.UNFINISHED, "tasks without an end: their duration is NULL", unfinished, SOURCE_ID)
        ((called,),) = count("SELECT count(*) FROM raw.fwk_frame WHERE is_open")
        message = "functions that had not returned: they end at the last event of their thread"
        self._log.count(Code.UNFINISHED, message, called, SOURCE_ID)

    def _name_texts(self) -> None:
        """Fill the texts; the name of a number without one is the number."""
        self._connection.execute("INSERT INTO STRING_IDS SELECT id, text FROM raw.hash")
        used = (
            "SELECT name AS id FROM COMPUTE_TASK_INFO UNION SELECT opType FROM COMPUTE_TASK_INFO "
            "UNION SELECT attrInfo FROM COMPUTE_TASK_INFO UNION SELECT name FROM COMMUNICATION_TASK_INFO "
            "UNION SELECT groupName FROM COMMUNICATION_OP UNION SELECT algType FROM COMMUNICATION_OP "
            "UNION SELECT name FROM CANN_API UNION SELECT name FROM OP_MEMORY"
        )
        missing = self._connection.execute(
            f"SELECT id FROM ({used}) WHERE id IS NOT NULL AND id <> 0 EXCEPT SELECT id FROM STRING_IDS"  # noqa: S608 - the text above
        ).fetchall()
        rows = [(number, str(number & 2**64 - 1)) for (number,) in missing]
        self._connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", rows)
        message = "names that additional.hash_dic lacks: their numbers are shown"
        self._log.count(Code.MISSING_TEXT, message, len(rows), SOURCE_ID)


def _begins(points: Int64) -> Mask:
    """Where the points of a task begin, which are next to each other."""
    found: Mask = np.ones(len(points), np.bool_)
    found[1:] = (points[1:, :4] != points[:-1, :4]).any(axis=1)
    return found


def _pairs(points: Int64) -> tuple[Int64, Int64, int]:
    """Return the places of starts, that of the end of each, -1 for none, and the number of ends that are left."""
    group = np.cumsum(_begins(points)) - 1
    is_end = points[:, 5] == 1
    starts, ends = np.flatnonzero(~is_end), np.flatnonzero(is_end)
    count = int(group[-1]) + 1
    balance = np.bincount(group[starts], minlength=count) - np.bincount(group[ends], minlength=count)
    found = np.full(len(starts), -1)
    even = balance[group[starts]] == 0
    found[even] = ends[balance[group[ends]] == 0]
    # The point after a start, if it is an end of the same task.
    following = np.minimum(starts + 1, len(points) - 1)
    direct = ~even & (starts + 1 < len(points)) & is_end[following] & (group[following] == group[starts])
    found[direct] = following[direct]
    # An end that is earlier than its start belongs to another one.
    found[(found >= 0) & (points[found, 4] < points[starts, 4])] = -1
    return starts, found, len(ends) - int(np.count_nonzero(found >= 0))
