"""Write a long trace of the shape of a real one (see trace_shape): the same events in number and form, made-up content.

python -m benchmarks.shaped_trace KIND --megabytes 500 -o FILE
"""

from __future__ import annotations

import argparse
import json
import re
import string
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

SHAPES = Path(__file__).with_name("shapes")
KINDS = tuple(sorted(path.stem for path in SHAPES.glob("*.json")))
#: Texts of all samples with different values, which are used in turn.
_VARIANTS = 8
#: Time between two samples, in the unit of times.
_GAP = 1000
_MARK = re.compile(r"<(name|pid|tid|ts|dur|id|value)>")
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\d+')
_BLANKS = " /._"


def write_shaped(path: Path, kind: str, size_bytes: int, seed: int = 1) -> None:
    """Write a trace of about `size_bytes`. The same seed gives the same bytes."""
    shape = json.loads((SHAPES / f"{kind}.json").read_text())
    between = shape["between"]
    numbers, steps = _numbers(shape)
    with path.open("w") as file:
        written = file.write(_head(shape))
        variants = [between + between.join(_events(shape, Random(seed + number))) for number in range(_VARIANTS)]
        number = 0
        while written < size_bytes:
            shifted = tuple([value + number * step for value, step in zip(numbers, steps, strict=True)])
            text = variants[number % _VARIANTS] % shifted
            written += file.write(text if number or shape["metadata"] else text[len(between) :])
            number += 1
        file.write("\n]}\n" if shape["is_object"] else "\n]\n")


def _head(shape: dict[str, Any]) -> str:
    """Return what comes before the events that are repeated."""
    metadata: str = shape["between"].join(json.dumps(event) for event in shape["metadata"])
    keys = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in shape["keys"].items())
    return (f'{{\n{keys}"traceEvents": [\n' if shape["is_object"] else "[") + metadata


def _numbers(shape: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return the times and IDs of all events, and by how much each rises from one repetition to the next."""
    numbers: list[int] = []
    is_time: list[bool] = []
    base = 1_700_000_000_000_000
    first_base = base
    for sample in shape["samples"]:
        end = 0
        for layout, _, _, ts, _, dur, *ids in sample:
            given = iter(ids)
            for mark in _MARK.findall(shape["layouts"][layout]):
                if mark in ("ts", "id"):
                    numbers.append(base + ts if mark == "ts" else shape["first_id"] + next(given))
                    is_time.append(mark == "ts")
            end = max(end, ts + int(float(dur or 0)))
        base += end + _GAP
    ids = [number for number, time in zip(numbers, is_time, strict=True) if not time]
    id_step = max(ids, default=0) - min(ids, default=0) + 1
    return numbers, [base - first_base if time else id_step for time in is_time]


def _events(shape: dict[str, Any], random: Random) -> Iterator[str]:
    """Yield the text of each event, with %d for its times and IDs and drawn values."""
    for sample in shape["samples"]:
        for layout, name, track, _, fraction, dur, *_ in sample:
            pid, tid = shape["tracks"][track]
            values = iter(shape["values"][layout])
            filled = {"name": shape["names"][name], "pid": pid, "tid": tid, "dur": dur}

            def text_of(
                mark: re.Match[str],
                filled: dict[str, str] = filled,
                values: Iterator[list[Any]] = values,
                fraction: str = fraction,
            ) -> str:
                what = mark[1]
                if what in ("ts", "id"):
                    return "%d" + (fraction if what == "ts" else "")
                return (_drawn(next(values), random) if what == "value" else str(filled[what])).replace("%", "%%")

            yield _MARK.sub(text_of, shape["layouts"][layout].replace("%", "%%"))


def _drawn(values: list[Any], random: Random) -> str:
    """Return a value: one of those given, with other digits and letters if they vary."""
    varied, *some = values
    value = random.choice(some)
    if isinstance(value, int):
        return _long_text(value, random if varied else Random(value))
    return _WORD.sub(lambda word: _varied(word.group(), random), value) if varied else str(value)


def _long_text(size: int, random: Random) -> str:
    """Return a string of `size` bytes."""
    words = ["".join(random.choices(string.ascii_lowercase, k=random.randrange(2, 9))) for _ in range(24)]
    text = ""
    while len(text) < size:
        text += random.choice(words) + random.choice(_BLANKS)
    return f'"{text[: size - 2]}"'


def _varied(word: str, random: Random) -> str:
    """Return a number or a string with another second half."""
    kept = (len(word) + 1) // 2
    if word.isdigit():
        return word[:kept] + "".join(random.choices(string.digits, k=len(word) - kept))
    if not word[1:-1].isalnum():
        return word
    return word[:kept] + "".join(random.choices(string.ascii_lowercase, k=len(word) - kept - 1)) + '"'


def main() -> None:
    """Write a trace."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("kind", choices=KINDS)
    arguments.add_argument("--megabytes", type=int, default=500)
    arguments.add_argument("-o", "--output", type=Path, required=True)
    options = arguments.parse_args()
    write_shaped(options.output, options.kind, options.megabytes * 1_000_000)


if __name__ == "__main__":
    main()
