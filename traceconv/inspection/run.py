"""Identify files and folders: what they are, what they contain, and whether they are intact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError, printable
from traceconv.formats.find_traces import NOT_A_TRACE
from traceconv.lake.folder import is_lake
from traceconv.store.database import is_duckdb


@dataclass(frozen=True, slots=True, repr=False)
class FileInfo(TextDisplay):
    """A file or folder. Its repr is what `traceconv info` prints.

    kind     capture, trace, vendor_folder, json_document, store or lake
    intact   whether nothing is damaged or missing
    usable   whether it contains anything to read
    details  the object that `traceconv info --json` prints; its keys depend on `kind`
    """

    kind: str
    path: Path
    intact: bool
    usable: bool
    details: Mapping[str, Any]
    text: tuple[str, ...] = field(compare=False)

    def lines(self) -> Sequence[str]:
        """The description in lines of 80 columns."""
        return self.text


class FileInfos(TextDisplay, list[FileInfo]):
    """The identified files and folders. `problems`: a line for each one that can't be used."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    @property
    def intact(self) -> bool:
        """Whether everything can be used and is intact."""
        return not self.problems and all(one.intact for one in self)

    def lines(self) -> Iterator[str]:
        """The descriptions, and the problems."""
        for one in self:
            yield from one.text
        yield from self.problems


def info(
    paths: Sequence[Path], *, quick: bool = False, on_found: Callable[[FileInfo], None] = lambda found: None
) -> FileInfos:
    """Identify captures, trace files, folders that contain some, log files, stores and lakes.

    quick     only read headers and manifest, the first events of a trace, or the sizes of a lake's files
    on_found  gets each result as soon as it is known

    Raises InputError if a path does not exist or nothing can be used, StoreError for a store that can't be read.
    """
    found = FileInfos()

    def add(details: dict[str, Any], lines: Iterable[str], *, intact: bool = True, usable: bool = True) -> None:
        one = FileInfo(details["kind"], Path(details["path"]), intact, usable, details, tuple(lines))
        found.append(one)
        on_found(one)

    stores = [path for path in paths if is_duckdb(path)]
    lakes = [path for path in paths if is_lake(path)]
    if stores or lakes:
        from traceconv.inspection.stores import describe_lake, describe_store, lake_lines, store_lines

        for path in stores:
            store = describe_store(path)
            add(store, store_lines(store))
        for path in lakes:
            lake = describe_lake(path, check=not quick)
            add(lake, lake_lines(lake), intact=not lake["problems"], usable=bool(lake["runs"]))
    others = [path for path in paths if path not in stores and path not in lakes]
    if others:
        doubtful = _inspect(others, quick, add, found.problems)
        if not found and not found.problems:
            found.problems += doubtful
    if found.problems and not found:
        more = f"; and {len(found.problems) - 1} similar problems" if len(found.problems) > 1 else ""
        raise InputError(found.problems[0] + more)
    return found


def _inspect(paths: Sequence[Path], quick: bool, add: Callable[..., None], problems: list[str]) -> list[str]:
    """Inspect everything but stores. Returns a line for each file of a folder that is not a trace after all."""
    from traceconv.pipeline.discover import find_sources

    sources = find_sources(paths, None)
    if sources.captures:
        from traceconv.formats.npulog.inspect import inspect_capture
        from traceconv.inspection.captures import capture_lines, describe_capture

        for capture, _ in sources.captures:
            state = inspect_capture(capture, scan=not quick)
            add(describe_capture(state), capture_lines(state), intact=state.intact, usable=state.usable)
    doubtful = [f"{printable(str(one.path))} {one.message}" for one in sources.others if one.message != NOT_A_TRACE]
    if not (sources.folders or sources.traces or sources.unusable):
        return doubtful
    from traceconv.inspection import traces
    from traceconv.pipeline.inspect import inspect_document, inspect_trace

    for folder, _ in sources.folders:
        add(traces.describe_folder(folder), traces.folder_lines(folder))
        problems += traces.unreadable_in(folder)

    def add_document(path: Path, problem: str) -> None:
        """Outline a document without a reader; any other file is a problem."""
        document = inspect_document(path, scan=not quick)
        if document is None:
            problems.append(problem)
        else:
            add(
                traces.describe_document(document),
                traces.document_lines(document),
                intact=document.stopped_at is None,
            )

    for unusable in sources.unusable:
        add_document(unusable.path, unusable.message)
    for file in sources.traces:
        try:
            trace = inspect_trace(file.path, file.reader, scan=not quick)
        except InputError as error:
            if file.top is None:
                add_document(file.path, str(error))
            else:
                (problems if file.sure else doubtful).append(str(error))
            continue
        add(traces.describe_trace(trace), traces.trace_lines(trace), intact=trace.intact)
    return doubtful
