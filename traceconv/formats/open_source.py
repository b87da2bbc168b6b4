"""The reader of a trace file by its name, loaded when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError, UsageError, printable
from traceconv.events.trace import TraceSource
from traceconv.formats.common.limits import Limits


def open_source(
    name: str, path: Path, log: ImportLog, accounts: Accounts, limits: Limits, advance: Callable[[int], None]
) -> TraceSource:
    """A source of events. Raises InputError for a file in a format that is known and not read."""
    if name == "chrome_json":
        from traceconv.formats.chrome_json.reader import TraceFileReader

        return TraceFileReader(path, log, accounts, limits, advance)
    if name == "furiosa_csv":
        from traceconv.formats.furiosa_csv.reader import FuriosaCsvReader

        return FuriosaCsvReader(path, log, accounts, limits, advance)
    if name == "megengine_static":
        from traceconv.formats.megengine_static.reader import MegEngineStaticReader

        return MegEngineStaticReader(path, log, accounts, limits, advance)
    if name == "nsys":
        from traceconv.formats.nsys.reader import NsysReader

        return NsysReader(path, log, accounts, advance)
    if name == "perfetto_proto":
        from traceconv.formats.perfetto_proto.reader import PerfettoReader

        return PerfettoReader(path, log, accounts, limits, advance)
    if name == "rocprofv3":
        from traceconv.formats.rocprofv3.reader import Rocprofv3Reader

        return Rocprofv3Reader(path, log, accounts, limits, advance)
    if name == "speedscope":
        from traceconv.formats.speedscope.reader import SpeedscopeReader

        return SpeedscopeReader(path, log, accounts, limits, advance)
    if name == "xplane":
        raise InputError(
            f"{printable(str(path))} is a profile of JAX or XLA in protobuf (XSpace), which is not read yet; "
            "ingest the trace.json.gz that lies beside it"
        )
    raise UsageError(f"the reader '{printable(name)}' does not read trace files")
