"""The shape of a real trace, without its content: what `benchmarks.shaped_trace` makes long traces from.

    python -m benchmarks.trace_shape TRACE -o benchmarks/shapes/KIND.json

A shape has the layouts of events (keys, order and blanks), and samples of consecutive events from all parts of it:
the layout, name, track, time, duration and IDs of each. So phases and categories, flows, nesting, the number of tracks
and the order of events are in the proportions of the trace. Other values are sampled per key.

A shape has no text of the trace except keys, categories and other values of the format: texts become other words of the
same lengths.
"""

from __future__ import annotations

import argparse
import json
import re
import string
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.repeated_trace import ID_KEYS, events_of, separator_of, start_of_events, text_of
from traceconv.normalize.trace.rule_files import built_in

#: Samples of events, and events of each.
_SAMPLES, _SAMPLE_EVENTS = 40, 50
#: Choices of samples that are compared, and the share of a kind of events from which its proportion is to be exact.
_CHOICES, _RARE = 4000, 0.015
#: Values that are kept per key of a layout, and the longest text that is kept as a value.
_VALUES, _LONGEST = 20, 60
#: Places in a row.
_NAME, _TIME, _IDS = 1, 3, 6
#: Metadata events.
_METADATA = 200
#: Keys whose values are of the format.
_FORMAT_KEYS = ("ph", "cat", "bp", "s")
#: Parts of names that are of the format: rules find events by them.
_FORMAT_NAME = re.compile(r"\[memory\]|ProfilerStep#|nn\.Module: |[A-Za-z]+@|cuda(?=[A-Z])|cu(?=[A-Z])|")
_WORDS = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|[a-z]+|[A-Z]+|[0-9]+|[^\x00-\x7f]+")
_STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_LEAD = re.compile(r"[\s,]*")


class _Disguise:
    """Replaces each word of a text by another of the same length, always the same one."""

    def __init__(self) -> None:
        self._random = Random(1)
        self._words: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Disguise a plain text."""
        return _WORDS.sub(lambda word: self._word(word.group()), text)

    def value(self, value: str) -> str:
        """Disguise the strings in the JSON text of a value, except keys."""
        return _STRINGS.sub(lambda found: found.group() if found[2] else f'"{self.text(found[1])}"', value)

    def _word(self, word: str) -> str:
        if word[0] == "\\":
            return word
        if word not in self._words:
            letters = string.digits if word.isdigit() else string.ascii_uppercase if word.isupper() else None
            drawn = self._random.choices(letters or string.ascii_lowercase, k=len(word))
            self._words[word] = "".join(drawn) if letters != string.digits else "1" + "".join(drawn[1:])
        return self._words[word]


class _Shape:
    """Collects layouts, names, tracks and values."""

    def __init__(self) -> None:
        self.disguise = _Disguise()
        self.layouts: dict[str, int] = {}
        self.names: dict[str, int] = {}
        self.tracks: dict[tuple[str | None, str | None], int] = {}
        self.values: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        self.text_ids: dict[str, int] = {}
        self.known_labels = {
            pattern
            for rules in built_in()
            for rule in rules.rules
            for pattern in (rule.process, rule.thread)
            if pattern
        }

    def row(self, event: dict[str, Any], text: str) -> list[Any]:
        """Return an event as a row: layout, name, track, ts (whole units, and the rest as text), dur as text, IDs."""
        layout, values, ids = "", [], []
        times = {"ts": ("0", ""), "dur": ("", "")}
        for lead, key, value in _members(text):
            where = key.removeprefix("args.")
            layout += lead
            plain = value.strip('"')
            if key in _FORMAT_KEYS:
                layout += value
            elif key == "name" and value.startswith('"'):
                layout += '"<name>"'
            elif key in ("pid", "tid"):
                layout += f"<{key}>"
            elif key in times and re.fullmatch(r"\d+(\.\d+)?", plain):
                whole, dot, rest = plain.partition(".")
                times[key] = whole, dot + rest
                layout += value.replace(plain, f"<{key}>")
            elif where in ID_KEYS and plain.isdigit():
                ids.append(int(plain))
                layout += value.replace(plain, "<id>")
            elif where == "id" and value.startswith('"'):  # a text: numbered
                ids.append(10 ** (len(plain) - 1) + self.text_ids.setdefault(plain, len(self.text_ids)))
                layout += '"<id>"'
            elif re.fullmatch(r"\s*\{\s*\}|\s*\[\s*\]|\s*", value):
                layout += value
            else:
                layout += "<value>"
                values.append(value)
        number = self.layouts.setdefault(layout, len(self.layouts))
        for place, value in enumerate(values):
            self.values[number, place].append(value)
        name = self.names.setdefault(str(event.get("name")), len(self.names))
        track = tuple(json.dumps(event[key]) if key in event else None for key in ("pid", "tid"))
        track_number = self.tracks.setdefault(track, len(self.tracks))  # type: ignore[arg-type]  # two of them
        return [number, name, track_number, int(times["ts"][0]), times["ts"][1], "".join(times["dur"]), *ids]

    def metadata(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return a metadata event; names of processes and threads are kept if rules know them."""
        args = event.get("args")
        if isinstance(args, dict):
            args = {key: self._label(value) if isinstance(value, str) else 0 for key, value in args.items()}
        track: dict[str, Any] = {
            key: json.loads(self._id(json.dumps(event[key]))) for key in ("pid", "tid") if key in event
        }
        return {"ph": "M", "name": event.get("name"), **track, "args": args}

    def _label(self, text: str) -> str:
        known = any(
            pattern.fullmatch(text) and pattern.pattern.strip(".*?") and not pattern.fullmatch("any other text")
            for pattern in self.known_labels
        )
        return text if known or text == "PyTorch Profiler" else self.disguise.text(text)

    def _id(self, value: str) -> str:
        """Return the JSON text of a pid or tid; words are disguised, numbers and known labels kept."""
        plain = value.strip('"')
        if plain.lstrip("-").isdigit() or re.fullmatch(r"stream \d+", plain):
            return value
        return json.dumps(self._label(plain))

    def tables(self) -> dict[str, object]:
        """Return layouts, names, tracks and values."""
        names: list[object] = []
        for name in self.names:
            kept = _FORMAT_NAME.match(name)
            prefix = "" if kept is None else kept.group()
            names.append(prefix + self.disguise.text(name[len(prefix) :])[:200] if prefix != "[memory]" else name)
        return {
            "layouts": list(self.layouts),
            "values": [
                [self._sampled(self.values[number, place]) for place in range(layout.count("<value>"))]
                for layout, number in self.layouts.items()
            ],
            "names": names,
            "tracks": [[value and self._id(value) for value in track] for track in self.tracks],
        }

    def _sampled(self, values: list[str]) -> list[object]:
        """Return whether values are mostly different, and samples in even steps from the shortest to the longest.

        A sample is JSON text or, instead of a long string, its length.
        """
        varied = len(set(values)) > max(_VALUES, len(values) // 2)
        ordered = sorted(values, key=len)
        count = min(_VALUES, len(values))
        chosen = [self.disguise.value(ordered[(2 * place + 1) * len(ordered) // (2 * count)]) for place in range(count)]
        return [varied, *(value if len(value) <= _LONGEST else len(value) for value in chosen)]


def _members(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the members of an event and of its args: the text before the value, the key, the text of the value.

    The last one is the text after all values, with no key.
    """
    decoder = json.JSONDecoder()
    at, lead, prefix = 1, "{", ""
    while True:
        blanks = _LEAD.match(text, at)
        assert blanks is not None
        lead, at = lead + blanks.group(), blanks.end()
        if text[at] == "}":
            lead, at = lead + "}", at + 1
            if not prefix:
                yield lead, "", ""
                return
            prefix = ""
            continue
        key, end = decoder.raw_decode(text, at)
        start = end + len(re.match(r"\s*:\s*", text[end:]).group())  # type: ignore[union-attr]  # valid JSON
        lead += text[at:start]
        if key == "args" and text[start] == "{" and not prefix:
            at, lead, prefix = start + 1, lead + "{", "args."
            continue
        _, at = decoder.raw_decode(text, start)
        yield lead, prefix + key, text[start:at]
        lead = ""


def _representative(events: list[tuple[dict[str, Any], str]]) -> list[int]:
    """Return where samples begin: one in each part, of several choices the one with the most exact proportions."""
    words = [(event.get("ph"), event.get("cat")) for event, _ in events]
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    codes, sizes = np.array([numbers[word] for word in words]), np.array([len(text) for _, text in events])
    whole, mean = np.bincount(codes) / len(codes), sizes.mean()
    stretch = max(_SAMPLE_EVENTS, len(events) // _SAMPLES)
    firsts = np.arange(0, len(events) - _SAMPLE_EVENTS + 1, stretch)
    best, least = firsts, np.inf
    for seed in range(_CHOICES):
        starts = firsts + np.random.default_rng(seed).integers(0, stretch, len(firsts))
        starts = np.minimum(starts, len(events) - _SAMPLE_EVENTS)
        rows = (starts[:, None] + np.arange(_SAMPLE_EVENTS)).ravel()
        found = np.bincount(codes[rows], minlength=len(whole)) / len(rows)
        wrong = np.abs(found - whole)[whole > _RARE] / whole[whole > _RARE]
        worst = max(wrong.max(), abs(sizes[rows].mean() / mean - 1))
        if worst < least:
            best, least = starts, worst
    return [int(start) for start in best]


def _link_flows(samples: list[list[list[Any]]], layouts: list[str], started: set[tuple[str, int]]) -> None:
    """Give ends of flows whose start is in no sample the name and ID of a start; not those that have none at all.

    started: category and ID of all starts of the trace
    """
    starts, ends = (
        [row for sample in samples for row in sample if f'"ph":"{ph}"' in layouts[row[0]].replace(" ", "")]
        for ph in "sf"
    )
    for category in {_category(layouts[row[0]]) for row in starts}:
        own, other = ([row for row in rows if _category(layouts[row[0]]) == category] for rows in (starts, ends))
        sampled, ended = ({row[_IDS] for row in rows} for rows in (own, other))
        free = [row for row in own if row[_IDS] not in ended] + own
        loose = [row for row in other if row[_IDS] not in sampled and (category, row[_IDS]) in started]
        for row, start in zip(loose, free, strict=False):
            row[_NAME], row[_IDS] = start[_NAME], start[_IDS]


def _category(layout: str) -> str:
    found = re.search(r'"cat": ?"([^"]*)"', layout)
    return "" if found is None else found[1]


def _is_start(event: dict[str, Any]) -> bool:
    return event["ph"] == "s" and str(event.get("id")).isdigit()


def shape_of(source: Path) -> dict[str, object]:
    """Return the shape of a trace."""
    text = text_of(source)
    first_event = start_of_events(text)
    every = list(events_of(text, first_event))
    timed = [one for one in every if one[0].get("ph") != "M"]
    shape = _Shape()
    samples = [[shape.row(*one) for one in timed[start : start + _SAMPLE_EVENTS]] for start in _representative(timed)]
    started = {(event.get("cat", ""), int(event["id"])) for event, _ in timed if _is_start(event)}
    _link_flows(samples, list(shape.layouts), started)
    first_id = min((number for sample in samples for row in sample for number in row[_IDS:]), default=0)
    for sample in samples:
        first_time = min(row[_TIME] for row in sample)
        for row in sample:
            row[_TIME] -= first_time
            row[_IDS:] = [number - first_id for number in row[_IDS:]]
    is_object = text.lstrip().startswith("{")
    keys = json.loads(text) if is_object else {}
    empty: dict[type, object] = {list: [], dict: {}}
    # trace_processor refuses other units than ms and ns.
    kept = {key: value for key, value in keys.items() if key == "displayTimeUnit"}
    return {
        "keys": {key: empty.get(type(value), 0) for key, value in keys.items() if key != "traceEvents"} | kept,
        "is_object": is_object,
        "between": separator_of(text, first_event),
        "metadata": [shape.metadata(event) for event, _ in every if event.get("ph") == "M"][:_METADATA],
        "first_id": first_id,
        **shape.tables(),
        "samples": samples,
    }


def main() -> None:
    """Write the shape of a trace."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("trace", type=Path)
    arguments.add_argument("-o", "--output", type=Path, required=True)
    options = arguments.parse_args()
    shape = shape_of(options.trace)
    samples = shape.pop("samples")
    assert isinstance(samples, list)
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in shape.items()]
    rows = ",\n".join(json.dumps(sample, separators=(",", ":")) for sample in samples)
    options.output.write_text("{\n" + ",\n".join(lines) + f',\n"samples": [\n{rows}\n]\n}}\n')


if __name__ == "__main__":
    main()
