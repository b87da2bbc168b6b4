"""TRACECONV_OUTPUT and TRACECONV_OPTIONS: profile a program without changing it."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from traceconv.base.errors import TraceconvError, printable
from traceconv.profiler.profiler import Profiler, log_folder
from traceconv.profiler.temporary import print_stderr
from traceconv.runtime.profile_options import ProfileOptions

OUTPUT_VARIABLE = "TRACECONV_OUTPUT"
OPTIONS_VARIABLE = "TRACECONV_OPTIONS"
#: ID of the first process that writes to the output; processes started by it inherit the variable.
PROCESS_VARIABLE = "TRACECONV_PROCESS"

_lock = threading.Lock()
_was_read = False


def start_from_environment(started_in: str | None = None) -> None:
    """Profile the rest of this process if TRACECONV_OUTPUT names an output. A forked child is not profiled.

    started_in  base of relative paths; None: the current folder

    Raises UsageError and OutputError for invalid values of the variables.
    """
    global _was_read
    output = os.environ.get(OUTPUT_VARIABLE)
    with _lock:
        if not output or _was_read:
            return
        _was_read = True
    start = Path(started_in or "")
    options = os.environ.get(OPTIONS_VARIABLE) or None
    if options is not None and not options.lstrip().startswith("{"):
        options = str(start / options)
    try:
        profiler = Profiler(start / output, profiling_options=options)
        profiler.options = _for_this_process(profiler.options)
        profiler.start()
    except TraceconvError as error:
        raise type(error)(f"{OUTPUT_VARIABLE}, {OPTIONS_VARIABLE}: {error}") from error
    file = profiler.options.file
    if file is not None:
        # A killed process can't report where its log is.
        log = printable(str(log_folder(file)))
        print_stderr(f"{printable(str(file))} is written when the program ends; until then its log is in {log}")


def _for_this_process(options: ProfileOptions) -> ProfileOptions:
    """Return the options; in all processes but the first, with the process ID in the name of the file."""
    first = os.environ.setdefault(PROCESS_VARIABLE, str(os.getpid()))
    if options.file is None or first == str(os.getpid()):
        return options
    stem, dot, rest = options.file.name.partition(".")
    return replace(options, file=options.file.with_name(f"{stem}.{os.getpid()}{dot}{rest}"))
