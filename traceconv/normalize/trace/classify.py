"""Classification of events by the rules of their writer: TOML files, one per writer; the first matching rule applies.

A rule file has a `title`, a `priority` (files are tried in this order), `[detect]` (patterns of complete words that
identify the writer: keys next to the events, categories, names of processes and threads, args of the first events), and
`[[rule]]` tables. An event that no rule matches is a range of kind annotation.

    [[rule]]
    doc = "Kernels"
    categories = ["kernel"]                  # any of them, exactly; default: any category
    process = "GPU .*"                       # patterns of complete names; default: any name
    thread = "stream (?P<stream_id>\\d+)"    # a named group is a column
    name = "…"                               # a group `name` is the name of the row, source_name the event's own name;
                                             # "@collective" is the pattern for kernels of collectives
    table = "task"                           # task, api or range
    set = { kind = "compute" }               # columns with a constant value
    args = { stream_id = ["stream"] }        # columns from args: the first of these keys that exists
    op = true                                # the task executes an op: its name, and its type (see op_types)
    step = true                              # a step, whose number is the group `step` of the name
    moments = { end_ns = ["End", "@end"] }   # columns of a step, from the slice's args, its start or its end
    signature = "args_string"                # the key of its types: "inputs|outputs", as T<2x3xf32>,|T<2xf16>

If no arg contains the type of an op, it is taken from the op's name: by the first of the file's `op_types` (patterns of
complete names with a group `op_type`) that matches, else the name itself. `op.op_type_source` tells which.

A file with `[items]` (see `events.items.Items`) reads JSON documents that are not traces.

A file may also describe how its writer marks allocations and frees (`[memory]`, with the fields of `MemoryMarkers`),
and which flows lead from a call to the task that it launched (`launch_flows`, a list of categories).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tomli
from numpy.typing import NDArray

from traceconv.base.errors import InputError, printable, regular_expression, suggestion
from traceconv.events.items import ITEMS_KEY, UNITS, Items
from traceconv.normalize.trace.distinct import distinct_of
from traceconv.normalize.trace.kernel_names import SHARED
from traceconv.normalize.trace.steps import MOMENTS
from traceconv.schema import table as table_schema

TABLES = ("task", "api", "range")
#: More words than this are reduced to those that patterns match.
_MANY_WORDS = 1 << 12
#: Tracks and categories whose rules are cached.
_MOST_CACHED = 1 << 15
#: Columns that a rule may take from args for the op of a task.
OP_COLUMNS = (
    "op_type",
    "input_shapes",
    "input_dtypes",
    "input_formats",
    "output_shapes",
    "output_dtypes",
    "output_formats",
)

_TEXT, _INTEGER, _BOOLEAN = "a string", "a 64-bit integer", "true or false"
_TEXTS, _TABLE, _TABLES = "a list of strings", "a table", "a list of tables"
#: What a key of a rule file takes → the check of a value.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    _TEXT: lambda value: isinstance(value, str),
    _INTEGER: lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63,
    _BOOLEAN: lambda value: isinstance(value, bool),
    _TEXTS: lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    _TABLE: lambda value: isinstance(value, dict),
    _TABLES: lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
}
_OF_COLUMN = {"str": _TEXT, "json": _TEXT, "i32": _INTEGER, "i64": _INTEGER, "bool": _BOOLEAN}
_FILE_KEYS = {
    **dict.fromkeys(("title", "device_kind"), _TEXT),
    **dict.fromkeys(("launch_flows", "op_types"), _TEXTS),
    **dict.fromkeys(("detect", "memory", "items"), _TABLE),
    "priority": _INTEGER,
    "flow_chains": _BOOLEAN,
    "rule": _TABLES,
}
_ITEM_KEYS = {one.name: _TEXTS if one.name == "args" else _TEXT for one in fields(Items)}
_JSON_PATH = re.compile(r"\$|\[|/|\.\.|^\.|\.$")
_DETECT_KEYS = dict.fromkeys(("keys", "categories", "processes", "threads", "args"), _TEXTS)
_RULE_KEYS = {
    **dict.fromkeys(("doc", "process", "thread", "name", "table", "signature"), _TEXT),
    **dict.fromkeys(("set", "args", "moments"), _TABLE),
    **dict.fromkeys(("op", "step"), _BOOLEAN),
    "categories": _TEXTS,
}
_NOT_SETTABLE = frozenset(
    ("run_id", "id", "track_id", "parent_id", "depth", "start_ns", "dur_ns", "self_ns", "kind_source", "args")
)


class _RuleError(ValueError):
    """An error in a rule file; the message says what is wrong, and where."""


@dataclass(frozen=True)
class Rule:
    """One rule. None and empty: matches anything."""

    table: str
    categories: frozenset[str] | None = None
    process: re.Pattern[str] | None = None
    thread: re.Pattern[str] | None = None
    name: re.Pattern[str] | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    op: bool = False
    step: bool = False
    signature: str | None = None
    moments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name_groups(self) -> frozenset[str]:
        """Columns taken from the event's name."""
        return frozenset(self.name.groupindex if self.name is not None else ()) - {"step"}

    @property
    def track_groups(self) -> frozenset[str]:
        """Columns taken from the names of process and thread. A step's model is not a column of its slice."""
        groups = {group for one in (self.process, self.thread) if one is not None for group in one.groupindex}
        return frozenset(groups - {"model_id"} if self.moments else groups)

    def matches_track(self, category: str | None, process: str | None, thread: str | None) -> bool:
        """Whether the rule matches everything but the event's own name."""
        return (self.categories is None or category in self.categories) and self.named(process, thread) is not None

    def named(self, process: str | None, thread: str | None) -> dict[str, str] | None:
        """Return the columns from the names of process and thread; None if they don't match."""
        found: dict[str, str] = {}
        for pattern, text in ((self.process, process), (self.thread, thread)):
            if pattern is None:
                continue
            match = pattern.fullmatch(text or "")
            if match is None:
                return None
            found.update({key: value for key, value in match.groupdict().items() if value is not None})
        return found


@dataclass(frozen=True, slots=True)
class MemoryMarkers:
    """How a writer marks allocations and frees: the name of its instant events, and keys of their args.

    size_bytes   bytes, negative for a free
    device_type  0 is the host, which has no number, whatever `device_id` is
    total_bytes  bytes allocated on the device afterwards
    """

    name: str
    size_bytes: str
    address: str
    device_id: str
    device_type: str
    total_bytes: str


@dataclass(frozen=True)
class RuleSet:
    """The rules for one writer.

    flow_chains   flow IDs are not reused: all points of an ID are one chain, including a second start
    launch_flows  categories of flows that lead from a call to the task that it launched
    op_types      patterns of op names with a group `op_type`, for ops without a type
    items         where this writer's JSON documents, which are not traces, contain items
    """

    title: str
    priority: int
    detect: Mapping[str, tuple[str, ...]]
    rules: tuple[Rule, ...]
    device_kind: str | None = None
    flow_chains: bool = False
    launch_flows: frozenset[str] = frozenset()
    memory: MemoryMarkers | None = None
    op_types: tuple[re.Pattern[str], ...] = ()
    items: Items | None = None

    def type_in(self, name: str) -> str:
        """Return the type of an op by its name."""
        for pattern in self.op_types:
            match = pattern.fullmatch(name)
            if match is not None and match["op_type"]:
                return match["op_type"]
        return name

    def knows(self, words: Mapping[str, Iterable[str]]) -> bool:
        """Whether a trace with these words is this writer's: `keys` next to its events, `categories` …"""
        return any(
            re.fullmatch(pattern, word)
            for what, patterns in self.detect.items()
            for pattern in patterns
            for word in words.get(what, ())
        )


#: For unknown writers.
PLAIN = RuleSet("", 1000, {}, ())


@cache
def built_in() -> tuple[RuleSet, ...]:
    """Return the rule files of the package, in order of priority."""
    folder = resources.files("traceconv.normalize") / "rules"
    sets = [parse_rules(file.read_text("utf-8"), file.name) for file in folder.iterdir() if file.name.endswith(".toml")]
    return tuple(sorted(sets, key=lambda rules: (rules.priority, rules.title)))


def rules_of(words: Mapping[str, Iterable[str]], rule_sets: Iterable[RuleSet]) -> RuleSet:
    """Return the first rules that know a trace with these words (see RuleSet.knows), or PLAIN."""
    return next((rules for rules in rule_sets if rules.knows(words)), PLAIN)


def read_rules(path: Path) -> RuleSet:
    """Read a user's rule file. InputError if it can't be read or contains errors."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't read the rules in {printable(str(path))}: {error}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, where: str) -> RuleSet:
    """Parse rules. InputError, with the place, for anything that the module docs don't allow."""
    try:
        raw = tomli.loads(text)
        _check(raw, _FILE_KEYS, where, "title")
        detect = raw.get("detect", {})
        _check(detect, _DETECT_KEYS, f"{where}: detect")
        rules = tuple(_rule(entry, f"{where}: rule {number}") for number, entry in enumerate(raw.get("rule", []), 1))
        found = {key: tuple(values) for key, values in detect.items()}
        items = _items(raw["items"], f"{where}: items") if "items" in raw else None
        if items is not None:
            found["keys"] = (*found.get("keys", ()), ITEMS_KEY)
        for patterns in found.values():
            for pattern in patterns:
                regular_expression(pattern)
        return RuleSet(
            raw["title"],
            raw.get("priority", 0),
            found,
            rules,
            raw.get("device_kind"),
            raw.get("flow_chains", False),
            frozenset(raw.get("launch_flows", ())),
            _memory_markers(raw["memory"], f"{where}: memory") if "memory" in raw else None,
            tuple(_op_type(pattern, where) for pattern in raw.get("op_types", ())),
            items,
        )
    except _RuleError as error:
        raise InputError(printable(str(error), 400)) from error
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{printable(where)}: not a rule file: {printable(str(error))}") from error


def _op_type(text: str, where: str) -> re.Pattern[str]:
    pattern = regular_expression(text)
    if "op_type" not in pattern.groupindex:
        raise _RuleError(f"{where}: each of op_types needs a group for the type, such as '(?P<op_type>[a-z]+)_[0-9]+'")
    return pattern


def _memory_markers(entry: Mapping[str, Any], where: str) -> MemoryMarkers:
    _check(entry, dict.fromkeys(MemoryMarkers.__slots__, _TEXT), where, *MemoryMarkers.__slots__)
    return MemoryMarkers(**entry)


def _items(entry: Mapping[str, Any], where: str) -> Items:
    _check(entry, _ITEM_KEYS, where, "prefix", "unit", "name", "start")
    for key in ("unit", "duration_unit"):
        if entry.get(key, "ns") not in UNITS:
            raise _RuleError(f"{where}: {key} must be one of {', '.join(UNITS)}")
    if ("end" in entry) == ("duration" in entry):
        raise _RuleError(f"{where}: an item needs either end or duration; set one of them")
    if "duration_unit" in entry and "duration" not in entry:
        raise _RuleError(f"{where}: duration_unit needs duration; set it, or remove duration_unit")
    if _JSON_PATH.search(entry["prefix"]):
        raise _RuleError(
            f"{where}: prefix must be like result.kernels.item: keys separated by dots, item for array elements"
        )
    args = entry.get("args")
    return Items(**{**entry, "args": None if args is None else tuple(args)})


def _rule(entry: Mapping[str, Any], where: str) -> Rule:
    _check(entry, _RULE_KEYS, where, "table")
    table = entry["table"]
    if table not in TABLES:
        raise _RuleError(f"{where}: table must be one of {', '.join(TABLES)}")
    columns = {column.name: _OF_COLUMN.get(column.type, "") for column in table_schema(table).columns}
    columns = {name: kind for name, kind in columns.items() if kind and name not in _NOT_SETTABLE}
    if entry.get("op"):
        columns |= dict.fromkeys(OP_COLUMNS, _TEXT)
    texts = {key: entry[key] for key in ("process", "thread", "name") if key in entry}
    patterns = {key: regular_expression(SHARED.get(text, text)) for key, text in texts.items()}
    named = {group for pattern in patterns.values() for group in pattern.groupindex} - {"step"}
    moments = entry.get("moments", {})
    if moments:
        named -= {"model_id"}
        if not entry.get("step"):
            raise _RuleError(f"{where}: moments needs step = true")
        _check(moments, dict.fromkeys(MOMENTS, _TEXTS), f"{where}: moments")
    if entry.get("step") and "step" not in (patterns["name"].groupindex if "name" in patterns else ()):
        raise _RuleError(f"{where}: step needs a name pattern with its number, such as name = 'step (?P<step>\\d+)'")
    values, args = entry.get("set", {}), entry.get("args", {})
    if "signature" in entry and not entry.get("op"):
        raise _RuleError(f"{where}: signature needs op = true")
    for name in sorted({*values, *named, *args} - columns.keys()):
        raise _RuleError(f"{where}: {table} has no column {name!r}.{suggestion(name, sorted(columns))}")
    _check(values, columns, f"{where}: set")
    _check(args, dict.fromkeys(columns, _TEXTS), f"{where}: args")
    return Rule(
        table,
        frozenset(entry["categories"]) if "categories" in entry else None,
        patterns.get("process"),
        patterns.get("thread"),
        patterns.get("name"),
        dict(values),
        {column: tuple(keys) for column, keys in args.items()},
        entry.get("op", False),
        entry.get("step", False),
        entry.get("signature"),
        {column: tuple(words) for column, words in moments.items()},
    )


def _check(entry: Mapping[str, Any], keys: Mapping[str, str], where: str, *needed: str) -> None:
    """Check that `entry` has only known keys with valid values, and all that are needed."""
    for key in sorted(entry.keys() - keys.keys()):
        raise _RuleError(f"{where}: unknown key {key!r}.{suggestion(key, sorted(keys))}")
    for key, value in entry.items():
        if not _CHECKS[keys[key]](value):
            raise _RuleError(f"{where}: {key} must be {keys[key]}")
    for key in needed:
        if key not in entry:
            raise _RuleError(f"{where}: {key} is missing")


def telling(words: Iterable[str], what: str, rule_sets: Iterable[RuleSet]) -> set[str]:
    """Return the words of a kind that choose a rule set: all of them or, of many, one match for each pattern."""
    patterns = {pattern for rules in rule_sets for pattern in rules.detect.get(what, ())}
    found: set[str] = set()
    for word in words:
        found.add(word)
        if len(found) > _MANY_WORDS:
            matching = (next((one for one in found if re.fullmatch(pattern, one)), None) for pattern in patterns)
            found = {one for one in matching if one is not None}
    return found


class Classifier:
    """Finds the rule of each event, with a cache by track and category."""

    def __init__(self, rules: Sequence[Rule], names_of_track: Callable[[int], tuple[str | None, str | None]]) -> None:
        self._rules = rules
        self._names = names_of_track
        self._matching: dict[tuple[int, str | None], list[int]] = {}

    def _candidates(self, track: int, category: str | None) -> list[int]:
        key = (track, category)
        found = self._matching.get(key)
        if found is None:
            process, thread = self._names(track)
            found = []
            for number, rule in enumerate(self._rules):
                if rule.matches_track(category, process, thread):
                    found.append(number)
                    if rule.name is None:
                        break
            if len(self._matching) == _MOST_CACHED:
                self._matching.clear()
            self._matching[key] = found
        return found

    def codes(
        self, track: NDArray[np.int32], categories: pa.DictionaryArray, names: pa.DictionaryArray
    ) -> NDArray[np.int16]:
        """Return the number of each event's rule, −1 for none."""
        codes = np.full(len(track), -1, np.int16)
        if not self._rules or not len(track):
            return codes
        texts = [*categories.dictionary.to_pylist(), None]
        category = categories.indices.fill_null(len(texts) - 1).to_numpy().astype(np.int64)
        name_texts = [*names.dictionary.to_pylist(), ""]
        name = names.indices.fill_null(len(name_texts) - 1).to_numpy()
        firsts, pairs = distinct_of(track * np.int64(len(texts)) + category, (int(track.max()) + 1) * len(texts))
        for number, row in enumerate(firsts.tolist()):
            candidates = self._candidates(int(track[row]), texts[category[row]])
            if not candidates:
                continue
            rows = np.flatnonzero(pairs == number)
            if self._rules[candidates[0]].name is None:
                codes[rows] = candidates[0]
                continue
            one_each, which = distinct_of(name[rows], len(name_texts))
            found = [self._of_name(candidates, name_texts[code]) for code in name[rows[one_each]].tolist()]
            codes[rows] = np.array(found, np.int16)[which]
        return codes

    def _of_name(self, candidates: Sequence[int], name: str) -> int:
        for number in candidates:
            pattern = self._rules[number].name
            if pattern is None or pattern.fullmatch(name):
                return number
        return -1
