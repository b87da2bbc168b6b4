"""Export a report in Nsight Systems' own format to SQLite with its program `nsys`, if that is installed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from traceconv.base.errors import InputError, printable, reason_of
from traceconv.base.interrupts import are_held, interrupts_held
from traceconv.base.temporary_folder import temporary_folder
from traceconv.formats.common.files import SQLITE_MAGIC, opened
from traceconv.formats.nsys.format import REPORT_SUFFIXES

if TYPE_CHECKING:
    import subprocess

#: Environment variable with the path of the program; without it, `nsys` on PATH.
PROGRAM_VARIABLE = "TRACECONV_NSYS"
#: Suffix of exports that `nsys` writes next to reports.
_EXPORT_SUFFIX = ".sqlite"
#: What such a file is where the program is not installed, to be appended to its name.
NOT_INSTALLED = (
    "is a report of Nsight Systems in its own format; ingest the output of nsys export --type sqlite, or install nsys "
    f"on PATH or set {PROGRAM_VARIABLE} to its path: traceconv then runs it itself"
)
#: With NVTX payloads, which have the sizes of collectives; without, for versions that don't know the option.
_OPTIONS = (("--include-blobs=true",), ())
_LINE_BYTES = 4096


def program() -> str | None:
    """Return the path of the program; None if it is not installed."""
    return os.environ.get(PROGRAM_VARIABLE) or shutil.which("nsys")


def why_skipped(path: Path) -> str | None:
    """Return why a report or an export in a folder is not ingested: the other one of the two is; None: it is."""
    is_report = path.suffix.lower() in REPORT_SUFFIXES
    for suffix in (_EXPORT_SUFFIX,) if is_report else REPORT_SUFFIXES if program() else ():
        other = path.with_suffix(suffix)
        report, export = (path, other) if is_report else (other, path)
        with suppress(OSError):  # there is no other
            if (export.stat().st_mtime_ns >= report.stat().st_mtime_ns) is is_report:
                return f"is the same recording as {printable(other.name)}, which is read instead"
    return None


@contextmanager
def sqlite_file(path: Path) -> Iterator[Path]:
    """Yield the SQLite file of a report, which is the file itself or an export that is deleted afterwards.

    Raises InputError if it can't be exported.
    """
    with ExitStack() as stack:
        if path.suffix.lower() in REPORT_SUFFIXES and not _is_sqlite(path):
            try:
                folder = stack.enter_context(temporary_folder())
            except OSError as error:
                message = f"can't export {printable(str(path))}: no temporary folder: {reason_of(error)}"
                raise InputError(message) from error
            export = folder / f"report{_EXPORT_SUFFIX}"
            _run(path, export)
            path = export
        yield path


def _is_sqlite(path: Path) -> bool:
    with opened(path) as stream:
        return stream.read(16).startswith(SQLITE_MAGIC)


def _run(path: Path, export: Path) -> None:
    shown, nsys = printable(str(path)), program()
    if nsys is None:
        raise InputError(f"{shown} {NOT_INSTALLED}")
    for options in _OPTIONS:
        # An absolute path is no option, whatever the name begins with.
        command = [nsys, "export", *options, "--type", "sqlite", "--output", str(export), str(path.absolute())]
        code, last = _ended(command, shown)
        if code == 0 and export.is_file() and _is_sqlite(export):
            return
        export.unlink(missing_ok=True)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    reason = printable(last.decode("utf-8", "replace"), 300) or "it gave no reason"
    hint = f"{PROGRAM_VARIABLE} selects another version, TMPDIR the folder for its output"
    raise InputError(f"can't export {shown}: {printable(nsys)} {how}: {reason}; {hint}")


def _ended(command: list[str], shown: str) -> tuple[int, bytes]:
    """Run a command until it ends; return its code and the last line of its errors."""
    import subprocess  # most files are exports already

    is_own_group, last = not are_held(), b""
    with ExitStack() as stack:
        try:
            with interrupts_held():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=is_own_group,
                )
                stack.callback(_end, process)  # before an interrupt can be raised
        except OSError as error:
            message = (
                f"can't run {printable(command[0])} to export {shown}: {reason_of(error)}; {PROGRAM_VARIABLE} is its "
                "path"
            )
            raise InputError(message) from error
        assert process.stderr is not None
        while line := process.stderr.readline(_LINE_BYTES):
            last = line.strip() or last
        return process.wait(), last


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program with the processes that it started, if it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):  # it is in the group of this process
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    assert process.stderr is not None
    process.stderr.close()
