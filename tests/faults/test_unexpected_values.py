"""Valid trace JSON with a value of an unexpected type: rows or log entries, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.oracle import read_rows
from traceconv.base.errors import TraceconvError

ODD = (
    *(None, True, False, "", "\u00b2", "--5", "+-5", "\u0663", "0x1g", "0x", "nan", "inf", "true", "null", "1_0"),
    *(-1, 0, 1.5, -0.0, 2**63, 2**64, -(2**63) - 1, 10**30, "9" * 25, [], [1], {}, {"a": 1}, "a\0b", "\ud800"),
)
#: Spelled as they are: none of them comes out of json.dumps.
RAW = ("1e400", "-1e-400", "1E+5", "0.1e-3", "NaN", "-Infinity", "01", "1.", "+1")
BASE = {"ph": "X", "name": "base", "cat": "c", "pid": 1, "tid": 1, "ts": 0, "dur": 100}
DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "begins": [
        {**BASE, "ph": "B", "ts": 1, "tts": 1, "id": 3, "bp": "e", "s": "t", "cname": "x", "sf": 1, "args": {"x": 1}},
        {**BASE, "ph": "E", "ts": 2, "tts": 2, "args": {"y": 2}},
    ],
    "asynchronous": [
        *({**BASE, "ph": ph, "id2": {"local": "0x1"}, "scope": "s", "ts": 1} for ph in "bne"),
        *({**BASE, "ph": ph, "id": 7, "ts": 2} for ph in "STpF"),
    ],
    "arrows": [
        *({**BASE, "ph": ph, "id": 1, "scope": "x", "bp": "e", "ts": 2} for ph in "stf"),
        *({**BASE, "bind_id": "0x5", key: True, "ts": 3, "dur": 1} for key in ("flow_out", "flow_in")),
    ],
    "metadata": [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "t"}},
        {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 3}},
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": 3}},
        {"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "l"}},
    ],
    "points": [
        {**BASE, "ph": "C", "id": 2, "args": {"a": 1, "b": 2.5}},
        {**BASE, "ph": "i", "s": "g", "args": {"a": 1}},
        {**BASE, "ph": "O", "id": "0x1", "args": {"snapshot": {"a": 1}}},
    ],
    "pytorch": [
        {**BASE, "cat": "user_annotation", "name": "ProfilerStep#1"},
        {**BASE, "cat": "cuda_runtime", "args": {"correlation": 1, "cbid": 2, "External id": 3}},
        {**BASE, "cat": "kernel", "tid": 7, "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1]}},
        {**BASE, "cat": "gpu_memcpy", "tid": 7, "args": {"device": 0, "stream": 7, "correlation": 1, "bytes": 9}},
        {**BASE, "cat": "cpu_op", "args": {"Input Dims": [[1, 2], []], "Input type": ["float", ""]}},
        *(
            {
                **BASE,
                "ph": "i",
                "name": "[memory]",
                "args": {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": size},
            }
            for size in (512, -512)
        ),
    ],
}
AROUND = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "GPU", "totalGlobalMem": 5}],
    "distributedInfo": {"rank": 0, "world_size": 2, "backend": "nccl"},
    "baseTimeNanoseconds": 5,
    "displayTimeUnit": "ms",
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*path, key)
        yield from places(child, (*path, key))


def texts(document: dict[str, Any]) -> Iterator[str]:
    """The document with each of its values replaced by each odd one."""
    for path in places(document):
        for odd in (*ODD, *(f"@{raw}@" for raw in RAW)):
            changed = copy.deepcopy(document)
            holder: Any = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = odd
            text = json.dumps(changed)
            for raw in RAW:
                text = text.replace(f'"@{raw}@"', raw)
            yield text


def check(kind: str, every: int, folder: Path) -> int:
    path, count = folder / "trace.json", 0
    for number, text in enumerate(texts({**AROUND, "traceEvents": [BASE, *DOCUMENTS[kind]]})):
        if number % every:
            continue
        path.write_text(text)
        count += 1
        try:
            read_rows("chrome_json", path)
        except TraceconvError:
            continue
        except Exception as error:
            raise AssertionError(f"{error!r}, of {text}") from error
    return count


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_some_values_are_unexpected(kind: str, tmp_path: Path) -> None:
    assert check(kind, 61, tmp_path) > 20


@pytest.mark.long
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_value_is_unexpected_once(kind: str, tmp_path: Path) -> None:
    assert check(kind, 1, tmp_path) > 1500
