from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = bytes | NDArray[np.generic]
Int64: TypeAlias = NDArray[np.int64]
#: Records; those of begins by the paths entered, and what adds them; an end; whether parents are known; the step.
ModuleTarget: TypeAlias = tuple[
    Buffer, dict[tuple[str, ...], bytes], Callable[[tuple[str, ...]], bytes], bytes, bool, int
]

def append(buffer: Buffer, /, *words: int) -> None: ...
def append_memory(buffer: Buffer, heads: dict[Any, int], /, *fields: object) -> None: ...
def append_tasks(buffer: Buffer, waits: Buffer, tasks: list[Any], heads: dict[Any, int], /) -> None: ...
def apart(lines: Int64, starts: Int64, ends: Int64, order: Int64, last: Int64, /) -> bool: ...
def causes(causes: Int64, first: int, last: int, out: Int64, /) -> int: ...
def delays(
    times: Int64,
    previous: Int64,
    groups: NDArray[np.int8],
    added_sources: Int64,
    added_targets: Int64,
    added_kinds: NDArray[np.int8],
    waits: NDArray[np.bool_],
    kinds: NDArray[np.int8],
    edge_kinds: NDArray[np.int8],
    offsets: Int64,
    sources: Int64,
    line_ns: Int64,
    edge_ns: Int64,
    /,
) -> None: ...
def change_modules(
    clock: Clock,
    ids: Iterator[int],
    open: Buffer,
    parent: int,
    targets: tuple[ModuleTarget, ...],
    leave: int,
    paths: tuple[str, ...],
    /,
) -> None: ...
def differences(numbers: Int64, /) -> bytes: ...
def end_of_bracketed(text: bytes, at: int, stop: int, /) -> int | None: ...
def events(
    text: bytes, lines: bool, labels: tuple[bytes, ...], raws: tuple[bytes, ...], partly: bool, /
) -> tuple[int, int, list[tuple[bytes, list[bytes]] | None], list[tuple[bytes, bytes] | None], bytes] | None: ...
def expand(
    words: Int64,
    width: int,
    codes: int,
    links: Int64 | None,
    templates: NDArray[np.void],
    plan: NDArray[np.int32],
    out: NDArray[np.void],
    size: int,
    /,
) -> int: ...
def fields(data: bytes, start: int, end: int, /) -> list[tuple[int, int, int, int]] | None: ...
def find(ids: Int64, wanted: Int64, found: Int64, /) -> None: ...
def fit(
    previous: Int64, delays: Int64, offsets: Int64, sources: Int64, edge_delays: Int64, times: Int64, causes: Int64, /
) -> None: ...
def id_numbers(offsets: Bytes, data: Bytes, /) -> bytes: ...
def members(
    offsets: Bytes, data: Bytes, rows: Bytes | None, keys: tuple[tuple[bytes, bool], ...], /
) -> list[tuple[bytes | None, bytes | None, bytes, list[bytes]]] | None: ...
def merge(offsets: Bytes, data: Bytes, other_offsets: Bytes, other_data: Bytes, /) -> tuple[bytes, bytes] | None: ...
def messages(data: bytes, at: int, end: int, tag: int, most: int, /) -> tuple[bytes, int]: ...
def nest(
    threads: NDArray[np.uint32],
    keys: NDArray[np.uint64],
    halves: NDArray[np.uint8],
    ns: Int64,
    ids: Int64,
    child_ns: Int64,
    rows: Int64,
    /,
) -> tuple[int, int, int, int, int]: ...
def objects(
    keys: tuple[tuple[bytes, Bytes, Bytes | None, Bytes | None, Bytes | None], ...], rows: int, /
) -> tuple[bytes, bytes]: ...
def order(
    starts: Int64,
    ends: Int64,
    lines: Int64,
    parents: Int64,
    line_count: int,
    low: int,
    high: int,
    times: Int64,
    slices: Int64,
    is_end: NDArray[np.bool_],
    place: Int64,
    previous: Int64,
    kinds: NDArray[np.int8],
    inside: Int64,
    /,
) -> int | None: ...
def packets(data: bytes, bounds: Int64, kinds: NDArray[np.int8], /) -> tuple[bytes, bytes, bytes]: ...
def pair(points: NDArray[np.void], /) -> tuple[bytes, bytes] | None: ...
def patch(text: bytes, deepest: int, /) -> tuple[bytes, int, int, int, int] | None: ...
def records(
    parts: tuple[tuple[int, int, int, int, bytes, bytes], ...],
    columns: tuple[tuple[object, object, object, int, int], ...],
    order: Int64,
    first: int,
    out: bytearray | memoryview,
    /,
) -> tuple[int, int]: ...
def replay(
    previous: Int64, delays: Int64, offsets: Int64, sources: Int64, edge_delays: Int64, times: Int64, /
) -> None: ...
def series(offsets: Bytes, data: Bytes, /) -> tuple[bytes, bytes, list[bytes], bytes, bytes, bytes, bytes] | None: ...
def simulate(
    previous: Int64,
    offsets: Int64,
    sources: Int64,
    tasks: Int64,
    devices: Int64,
    replays: list[tuple[Int64, Int64, Int64, Int64, Int64]],
    /,
) -> None: ...
def sqlite_rows(
    pages: bytes | memoryview,
    page_bytes: int,
    usable_bytes: int,
    wanted: Bytes,
    columns: int,
    rowids: int,
    first: int,
    most: int,
    after: int,
    /,
) -> tuple[int, int, list[tuple[bytes, bytes, list[bytes]]]] | None: ...
def times(offsets: Bytes, data: Bytes, places: int, /) -> tuple[bytes, bytes, int]: ...
def track_events(
    data: bytes,
    packets: NDArray[np.void],
    at: int,
    state: tuple[object, ...],
    codes: tuple[object, ...],
    out: tuple[bytearray, bytearray, bytearray, bytearray],
    most_args: int,
    /,
) -> tuple[int, int, int]: ...
def typed_fields(
    data: bytes, start: int, end: int, fields: Mapping[int, object], locations: object, depth: int, /
) -> str | None: ...
def walk(data: bytes, bounds: Int64, /) -> tuple[bytes, bytes]: ...
def work(
    tasks: Int64,
    times: Int64,
    devices: Int64,
    busy_ns: Int64,
    alone_ns: Int64,
    demands: Int64,
    work: Int64,
    rounds: int,
    exact: int,
    /,
) -> None: ...

class Buffer:
    def __len__(self) -> int: ...
    def extend(self, bytes: bytes, /) -> None: ...
    def take(self, out: NDArray[np.uint8], /) -> int: ...

class CallLog:
    def __init__(self, buffer: Buffer, clock: Clock, numbers: Iterator[int], /) -> None: ...
    def call(self, word: int, step_id: int, has_inner: bool, /) -> AbstractContextManager[int]: ...
    def dispatch(
        self,
        put: Callable[[Any], object],
        words: dict[int, int],
        add_word: Callable[[int], int],
        step_id: int,
        op_index: int,
        work: Any,
        /,
    ) -> None: ...
    def enter(self) -> None: ...
    def launched(self, submit_ns: int, word: int, step_id: int, /) -> int: ...

class Clock:
    source: Callable[[], int] | None
    stopped_ns: int
    is_stopped: bool
    def now(self) -> int: ...

class Nester:
    start_step_ns: int
    @property
    def overlaps(self) -> int: ...
    def feed(self, spans: Bytes, /) -> tuple[bytes, bytes]: ...
    def finish(self) -> tuple[bytes, bytes]: ...

class Paths:
    @property
    def counts(self) -> tuple[int, int, int, int]: ...
    def feed(
        self,
        run_ids: Int64,
        ids: Int64,
        parent_ids: Int64,
        names: Int64,
        kinds: Int64,
        step_ids: Int64,
        starts: Int64,
        durs: Int64,
        selfs: Int64,
        /,
    ) -> None: ...
    def limit(self, count: int, /) -> None: ...
    def place(self, start_ns: int, /) -> None: ...
    def look_up(self, run_ids: Int64, ids: Int64, /) -> bytes: ...
    def add(self, paths: Int64, device_ids: Int64, step_ids: Int64, durs: Int64, /) -> None: ...
    def sums(self) -> bytes: ...
    def paths(self) -> bytes: ...
    def missing(self) -> bytes: ...

_S = TypeVar("_S", bound=Span)

class Span:
    _name: str
    _attributes: dict[str, object] | None
    _stream: object
    _open: list[Any] | None
    _before: int
    def __init__(self, name: str, *, stream: object = None, **attributes: object) -> None: ...
    def __enter__(self: _S) -> _S: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class SpanLog:
    @property
    def is_on(self) -> bool: ...
    def __init__(
        self,
        clock: Clock,
        ids: Iterator[int],
        current: ContextVar[int],
        begin_thread: Callable[[], int],
        parent: Callable[[int], int],
        /,
    ) -> None: ...
    def aim(
        self,
        is_on: bool,
        inside: dict[int, int] = ...,
        records: Buffer = ...,
        text: Callable[[str], int] = ...,
        templates: bytes = ...,
        /,
    ) -> None: ...
    def close(self) -> None: ...
    def forget(self, span_id: int, /) -> bool: ...
    def holds(self, span_id: int, /) -> bool: ...
    def opened(self) -> list[tuple[int, int, str, str | None, int]]: ...
