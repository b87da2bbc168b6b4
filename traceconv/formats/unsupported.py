"""Formats that people have recordings in and that are not read: what a file is, and what to do instead."""

from __future__ import annotations

import re

#: The first bytes of a file's text, and what it is.
_BY_HEAD: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[\s*\{\s*"id"\s*:\s*\d+\s*,\s*"callFrame"'),
        "is a CPU profile of V8 (.cpuprofile), which is not read; open it in speedscope and export it from there",
    ),
    (
        re.compile(rb'\s*\{\s*"head"\s*:\s*\{\s*"callFrame"'),
        "is a heap profile of V8, which has no times and is not read",
    ),
    (
        re.compile(rb'\s*\{\s*"(?:session"\s*:\s*\{\s*")?start_time"\s*:[^{]{1,2000}"root_frame"\s*:'),
        "is pyinstrument's own JSON, which is not read; write the profile with pyinstrument -r speedscope",
    ),
    (
        re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE),
        "is a page of HTML, which is not read; ingest the recording that it was made of",
    ),
    (re.compile(rb"PERFILE2"), "is a recording of perf, which is not read; perf script and speedscope can convert it"),
    (re.compile(rb"FLR\x00"), "is a recording of Java's Flight Recorder, which is not read"),
    (re.compile(rb"PAR1"), "is a Parquet file, which is not read"),
    (re.compile(rb"PK\x03\x04"), "is a ZIP archive; unpack it first"),
    (re.compile(rb"\xfd7zXZ\x00"), "is packed with xz; unpack it first (gzip and zstd are read as they are)"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "is packed with bzip2; unpack it first (gzip and zstd are read as they are)"),
    (re.compile(rb".{257}ustar", re.DOTALL), "is a tar archive; unpack it first"),
    (re.compile(rb".{8}DUCK", re.DOTALL), "is not a trace but a DuckDB file; name a store with --db"),
)
#: The ends of files' names, and what they are.
_BY_NAME = (
    (
        (".nsys-rep", ".qdrep", ".qdstrm"),
        "is a report of Nsight Systems in its own format, which is not read; ingest what "
        "nsys export --type sqlite makes of it",
    ),
    ((".ncu-rep",), "is a report of Nsight Compute, which is not read"),
    ((".etl",), "is a recording of Event Tracing for Windows, which is not read"),
)


def what_it_is(head: bytes, name: str) -> str | None:
    """What a file with these first bytes of text and this name is, and what to do, for a line that begins with its
    name; None when it is in none of these formats."""
    for pattern, what in _BY_HEAD:
        if pattern.match(head):
            return what
    return next((what for endings, what in _BY_NAME if name.lower().endswith(endings)), None)
