"""A process that samples a file while this one ingests it."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO

from traceconv.base.interrupts import interrupts_held
from traceconv.base.quick_imports import make_imports_quick
from traceconv.base.temporary_folder import temporary_folder
from traceconv.sampling.answer import SampledAnswer

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from traceconv.base.malloc_tuning import limit_arenas; limit_arenas(); "
    "from traceconv.sampling.process import main; main()"
)
#: After the first answer, which people wait for, the ingest goes first where both want a core.
_NICENESS = 19


@contextmanager
def first_answers(
    path: Path,
    report: str,
    on_answer: Callable[[SampledAnswer], None],
    on_refusal: Callable[[str], None] = lambda reason: None,
) -> Iterator[None]:
    """Within the block, call `on_answer` in a thread with answers from larger and larger samples of a file.

    There are none if the file can't be sampled: then `on_refusal` is called with the reason. Nothing is called if a
    process can't be started. Samples that are not ready at the end of the block are given up.
    """
    if not sys.executable or hasattr(sys, "frozen"):  # there is no interpreter: the program would start itself
        yield
        return
    with temporary_folder() as folder, ExitStack() as stack:
        try:
            with interrupts_held():
                program = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM.format(path=sys.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "TMPDIR": str(folder)},
                )
                assert program.stdin is not None
                assert program.stdout is not None
                receiver = Thread(target=_receive, args=(program.stdout, on_answer, on_refusal), daemon=True)
                stack.callback(_end, program, receiver)  # before an interrupt can be raised
        except OSError:
            yield
            return
        receiver.start()
        with suppress(OSError):  # it has ended already
            pickle.dump((path.absolute(), report), program.stdin)
            program.stdin.flush()
        yield


def _end(program: subprocess.Popen[bytes], receiver: Thread) -> None:
    program.kill()
    program.wait()
    if receiver.is_alive():
        receiver.join()
    for pipe in (program.stdout, program.stdin):
        with suppress(OSError):  # what it has not read can't be written
            if pipe is not None:
                pipe.close()


def _receive(stream: IO[bytes], on_answer: Callable[[SampledAnswer], None], on_refusal: Callable[[str], None]) -> None:
    while True:
        try:
            answer = pickle.load(stream)  # sent by our own process
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            return
        if isinstance(answer, str):
            on_refusal(answer)
        else:
            on_answer(answer)


def main() -> None:
    """Read a path and a report from standard input; write answers, or why there are none, to standard output."""
    make_imports_quick()
    gc.set_threshold(150_000)  # as in the program
    from traceconv.base.errors import TraceconvError
    from traceconv.sampling.blocks import NotSampled
    from traceconv.sampling.sample import samples

    path, report = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        for number, answer in enumerate(samples(path, report)):
            _send(answer)
            if not number:
                os.nice(_NICENESS)
    except NotSampled as reason:
        _send(str(reason))
    except (TraceconvError, OSError):  # the ingest reports what is wrong with the file
        return


def _send(found: SampledAnswer | str) -> None:
    sys.stdout.buffer.write(pickle.dumps(found))
    sys.stdout.buffer.flush()


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        continue
    os._exit(1)
