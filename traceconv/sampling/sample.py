"""A trace file → answers of a report from samples of it, each larger than the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from traceconv.base.errors import InputError, UsageError, option, printable, reason_of
from traceconv.formats.common.files import STDIN, container_of, file_size, opened
from traceconv.formats.registry import choose_reader
from traceconv.sampling.answer import SampledAnswer, sampled_report, shown_name
from traceconv.sampling.blocks import FIRST_BLOCKS, NotSampled, SampledText, first_text, sampled_text
from traceconv.sampling.estimated_rows import estimated_rows

#: Text of a first answer from the beginning of a file: all of one that is too small for FIRST_BLOCKS.
FIRST_TEXT_BYTES = 18 << 20
#: Each sample has this many times as many blocks, or as much text, as the one before.
_GROWTH = 4
#: Another sample may read this share of a file: what it takes must not be noticed next to reading all of it (ADR 29).
_MOST_OF_FILE = 0.003
#: The exact answer of smaller files comes soon enough: of plain ones, and of compressed ones.
_LEAST_BYTES, _LEAST_COMPRESSED_BYTES = 2 << 30, 200 << 20
_SAMPLED_READER = "chrome_json"


def sample(path: Path, report: str, *, blocks: int = FIRST_BLOCKS, seed: int = 0) -> SampledAnswer:
    """Answer a report from a sample of a trace in JSON: from blocks, or else from the beginning of the file.

    Raises UsageError for a report without estimates and for another format, InputError if nothing can be used.
    """
    what = option("--sample", "sample=True")
    name = sampled_report(report, what)
    if path != STDIN and not os.path.exists(path):
        raise InputError(f"{printable(str(path))} does not exist")
    if not is_sampled(path):
        raise UsageError(f"{what} needs one trace file in JSON, which {printable(str(path))} is not; omit it")
    try:
        return _answer_of(path, name, blocks, FIRST_TEXT_BYTES, seed)
    except NotSampled as reason:
        raise InputError(f"{printable(str(path))} can't be sampled: {reason}") from None
    except OSError as error:
        raise InputError(f"can't read {printable(str(path))}: {reason_of(error)}") from None


def samples(path: Path, report: str) -> Iterator[SampledAnswer]:
    """Yield answers from larger and larger samples, until they would take a noticeable share of the file.

    Raises NotSampled if there are none.
    """
    name = sampled_report(report, option("--first-answers", "first_answers"))
    blocks, text_bytes = FIRST_BLOCKS, FIRST_TEXT_BYTES
    while True:
        found = _answer_of(path, name, blocks, text_bytes)
        yield found
        blocks, text_bytes = blocks * _GROWTH, text_bytes * _GROWTH
        if found.exact or found.read_bytes * _GROWTH > _MOST_OF_FILE * found.size_bytes:
            return


def is_sampled(path: Path) -> bool:
    """Whether a path is a file of a format that can be sampled. Raises InputError if it can't be read."""
    return path != STDIN and os.path.isfile(path) and choose_reader(path) == _SAMPLED_READER


def is_large(path: Path) -> bool:
    """Whether the exact answer for a file takes so long that samples are worth their time."""
    size = file_size(path)
    if size < _LEAST_COMPRESSED_BYTES:
        return False
    with opened(path) as stream:
        compressed = container_of(stream.read(1 << 10)) != "plain"
    return compressed or size >= _LEAST_BYTES


def _answer_of(path: Path, name: str, blocks: int, text_bytes: int, seed: int = 0) -> SampledAnswer:
    """Answer from blocks, or else from the beginning, with the reason. Raises NotSampled if that tells nothing, too."""
    try:
        return _answer(sampled_text(path, blocks=blocks, seed=seed), name)
    except NotSampled as refused:
        reason = str(refused)
    text = first_text(path, text_bytes)
    return _answer(text, name, None if text.is_all else reason)


def _answer(text: SampledText, name: str, reason: str | None = None) -> SampledAnswer:
    rows, losses = estimated_rows(text, name)
    blocks = text.drawn - text.missing
    return SampledAnswer(shown_name(name), text.read_bytes, text.size_bytes, blocks, text.is_all, rows, losses, reason)
