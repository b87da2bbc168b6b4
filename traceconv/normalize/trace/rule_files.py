"""Rule files: TOML files, one per writer, whose rules classify events; the first matching rule applies.

A rule file has a `title`, a `priority` (files are tried in this order), `[detect]` (patterns of complete words that
identify the writer: keys next to the events, categories, names of processes and threads, args of the first events), and
`[[rule]]` tables. An event that no rule matches is a range of kind annotation.

    [[rule]]
    doc = "Kernels"
    categories = ["kernel"]                  # any of them, exactly, "" for none; default: any category
    where = { device = "\\d+" }              # args that an event must have, with patterns of their complete values; ""
                                             # for args that it must not have
    with_category = "launch"                 # only in traces that also have events of this category
    process = "GPU .*"                       # patterns of complete names; default: any name
    thread = "stream (?P<stream_id>\\d+)"    # a named group is a column
    name = "…"                               # a group `name` is the name of the row, and source_name of a call the
                                             # event's own name; "@collective" is the pattern for kernels of collectives
    table = "task"                           # task, api or range
    set = { kind = "compute" }               # columns with a constant value
    set_if_no_args = { kind = "module" }     # the same, for slices without args, also at their end
    args = { stream_id = ["stream"] }        # columns from args: the first of these keys that exists
    launches = true                          # a range that launches the tasks with its correlation_id
    op = true                                # the task executes an op: its name, and its type (see op_types)
    step = true                              # a step, whose number is the group `step` of the name
    step_arg = "step_num"                    # or the value of this key of its args: other slices are no steps
    times = { end_ns = ["End", "@end"] }     # times of a step, from the slice's args, its start or its end
    signature = "args_string"                # the key of its types: "inputs|outputs", as T<2x3xf32>,|T<2xf16>

If no arg contains the type of an op, it is taken from the op's name: by the first of the file's `op_types` (patterns of
complete names with a group `op_type`) that matches, else the name itself. `op.op_type_source` is the method used.

A file with `[[items]]` (see `events.items.Items`), or one table `[items]`, reads JSON documents that are not traces.

A file may also describe how its writer marks allocations and frees (`[memory]`, with the fields of `MemoryMarkers`),
how instants mark the ends of steps (`[step_ends]`, with the fields of `StepEnds`), which flows lead from a call to the
task that it launched (`launch_flows`, patterns of their categories), which arg shows it in files without correlation
IDs (`launch_arg`), which complete events are instants, whatever their duration (`instants`, a list of categories),
which have no end if their arg `finished` is false (`unfinished`, a list of categories),
which events are on threads of the host and which on streams of devices, if their pids and tids may be equal
(`host_categories`, `device_categories`), which args contain the name of the host (`[[host]]`, with the fields of
`HostArg`), how many complete events it keeps (`event_limit`), which keys outside the events show that it dropped some
(`overflow_keys`), whether its files have no starts, but only durations (`no_starts`), to multiples of how many ns it
rounds starts down, while durations are exact (`start_step_ns`), and which args have exact times where those of events
are whole microseconds (`[time_args]`, with the fields of `TimeArgs`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, overload

import tomli

from traceconv.base.errors import InputError, printable, reason_of, regular_expression, suggestion
from traceconv.events.items import ITEMS_KEY, UNITS, Items
from traceconv.normalize.trace.classify import (
    OP_COLUMNS,
    TABLES,
    HostArg,
    MemoryMarkers,
    Rule,
    RuleSet,
    StepEnds,
    TimeArgs,
)
from traceconv.normalize.trace.kernel_names import SHARED
from traceconv.normalize.trace.steps import TIME_COLUMNS
from traceconv.normalize.trace.tracks import DEVICE, HOST
from traceconv.schema import table as table_schema

_TEXT, _INTEGER, _BOOLEAN = "a string", "a 64-bit integer", "true or false"
_TEXTS, _TABLE, _TABLES, _ITEMS = "a list of strings", "a table", "a list of tables", "a table or a list of tables"
#: What a key of a rule file takes → the check of a value.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    _TEXT: lambda value: isinstance(value, str),
    _INTEGER: lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63,
    _BOOLEAN: lambda value: isinstance(value, bool),
    _TEXTS: lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    _TABLE: lambda value: isinstance(value, dict),
    _TABLES: lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
    _ITEMS: lambda value: isinstance(value, dict) or (_CHECKS[_TABLES](value) and len(value) > 0),
}
_OF_COLUMN = {"str": _TEXT, "json": _TEXT, "i32": _INTEGER, "i64": _INTEGER, "bool": _BOOLEAN}
#: Keys with categories whose events are on this side of a pid and tid that both use.
SIDES = {"host_categories": HOST, "device_categories": DEVICE}
#: Keys whose values are 1 or more, up to the limits.
_COUNTS = {"event_limit": 2**63 - 1, "start_step_ns": 10**9}
_FILE_KEYS = {
    **dict.fromkeys(("title", "device_kind", "launch_arg"), _TEXT),
    **dict.fromkeys(("launch_flows", "op_types", "instants", "unfinished", "overflow_keys", *SIDES), _TEXTS),
    **dict.fromkeys(("detect", "memory", "step_ends", "time_args"), _TABLE),
    "items": _ITEMS,
    **dict.fromkeys(("priority", *_COUNTS), _INTEGER),
    **dict.fromkeys(("flow_chains", "no_starts"), _BOOLEAN),
    **dict.fromkeys(("rule", "host"), _TABLES),
}
_ITEM_KEYS = {name: _TEXTS if name == "args" else _TEXT for name in Items._fields}
_JSON_PATH = re.compile(r"\$|\[|/|\.\.|^\.|\.$")
_DETECT_KEYS = dict.fromkeys(("keys", "categories", "processes", "threads", "args"), _TEXTS)
_RULE_KEYS = {
    **dict.fromkeys(("doc", "process", "thread", "name", "table", "signature", "step_arg", "with_category"), _TEXT),
    **dict.fromkeys(("set", "set_if_no_args", "args", "times", "where"), _TABLE),
    **dict.fromkeys(("op", "step", "launches"), _BOOLEAN),
    "categories": _TEXTS,
}
_HOST_TABLES = (*TABLES, "marker")
_NOT_SETTABLE = frozenset(
    ("run_id", "id", "track_id", "parent_id", "depth", "start_ns", "dur_ns", "self_ns", "kind_source", "args")
)


_Texts = TypeVar("_Texts", MemoryMarkers, StepEnds, HostArg, TimeArgs)


class _RuleError(ValueError):
    """An error in a rule file; the message has the problem and its place."""


@cache
def built_in() -> tuple[RuleSet, ...]:
    """Return the rule files of the package, in order of priority."""
    folder = resources.files("traceconv.normalize") / "rules"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    sets = [parse_rules(file.read_text("utf-8"), file.name, is_ours=True) for file in files]
    return tuple(sorted(sets, key=lambda rules: (rules.priority, rules.title)))


def read_rules(path: Path) -> RuleSet:
    """Read a user's rule file. InputError if it can't be read or contains errors."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't read the rules in {printable(str(path))}: {reason_of(error)}") from error
    return parse_rules(text, str(path))


class _RulesOnUse(Sequence[Rule]):
    """Rules that are parsed on first use: most files of the package only serve to identify a writer."""

    def __init__(self, rules: Iterator[Rule]) -> None:
        self._unparsed: Iterator[Rule] | None = rules
        self._parsed: tuple[Rule, ...] = ()

    def _rules(self) -> tuple[Rule, ...]:
        if self._unparsed is not None:
            self._parsed, self._unparsed = tuple(self._unparsed), None
        return self._parsed

    @overload
    def __getitem__(self, place: int) -> Rule: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Rule, ...]: ...

    def __getitem__(self, place: int | slice) -> Rule | tuple[Rule, ...]:
        return self._rules()[place]

    def __len__(self) -> int:
        return len(self._rules())

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules())


def parse_rules(text: str, where: str, *, is_ours: bool = False) -> RuleSet:
    """Parse rules. InputError, with the place, for anything that the module docs don't allow.

    is_ours  the file was checked before: rules are parsed, and patterns that identify a writer compiled, on use
    """
    try:
        raw = tomli.loads(text)
        _check(raw, _FILE_KEYS, where, "title")
        detect = raw.get("detect", {})
        _check(detect, _DETECT_KEYS, f"{where}: detect")
        parsed = (_rule(entry, f"{where}: rule {number}") for number, entry in enumerate(raw.get("rule", []), 1))
        rules = _RulesOnUse(parsed) if is_ours else tuple(parsed)
        found = {key: tuple(values) for key, values in detect.items()}
        hosts = enumerate(raw.get("host", []), 1)
        items = _all_items(raw.get("items", []), f"{where}: items")
        if items:
            found["keys"] = (*found.get("keys", ()), ITEMS_KEY)
        for pattern in () if is_ours else itertools.chain.from_iterable(found.values()):
            regular_expression(pattern)
        return RuleSet(
            raw["title"],
            raw.get("priority", 0),
            found,
            rules,
            device_kind=raw.get("device_kind"),
            flow_chains=raw.get("flow_chains", False),
            launch_flows=_any_of(raw["launch_flows"]) if "launch_flows" in raw else None,
            memory=_memory_markers(raw["memory"], f"{where}: memory") if "memory" in raw else None,
            op_types=tuple(_op_type(pattern, where) for pattern in raw.get("op_types", ())),
            items=items,
            hosts=tuple(_host_arg(entry, f"{where}: host {number}") for number, entry in hosts),
            step_ends=_texts_of(StepEnds, raw["step_ends"], f"{where}: step_ends") if "step_ends" in raw else None,
            instants=frozenset(raw.get("instants", ())),
            unfinished=frozenset(raw.get("unfinished", ())),
            event_limit=_count(raw, "event_limit", where),
            launch_arg=raw.get("launch_arg"),
            overflow_keys=tuple(raw.get("overflow_keys", ())),
            sides={category: side for key, side in SIDES.items() for category in raw.get(key, ())},
            no_starts=raw.get("no_starts", False),
            start_step_ns=_count(raw, "start_step_ns", where) or 1,
            time_args=_texts_of(TimeArgs, raw["time_args"], f"{where}: time_args") if "time_args" in raw else None,
        )
    except _RuleError as error:
        raise InputError(printable(str(error), 400)) from error
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{printable(where)}: not a rule file: {printable(str(error))}") from error


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return regular_expression("|".join(f"(?:{regular_expression(one).pattern})" for one in patterns))


def _count(raw: Mapping[str, Any], key: str, where: str) -> int | None:
    count: int | None = raw.get(key)
    if count is not None and count < 1:
        raise _RuleError(f"{where}: {key} must be 1 or more")
    if count is not None and count > _COUNTS[key]:
        raise _RuleError(f"{where}: {key} must be {_COUNTS[key]:,} or less")
    return count


def _op_type(text: str, where: str) -> re.Pattern[str]:
    pattern = regular_expression(text)
    if "op_type" not in pattern.groupindex:
        raise _RuleError(f"{where}: each of op_types needs a group for the type, such as '(?P<op_type>[a-z]+)_[0-9]+'")
    return pattern


def _texts_of(kind: type[_Texts], entry: Mapping[str, Any], where: str) -> _Texts:
    """Return a table whose keys are the fields of a named tuple, and whose values are strings."""
    names = kind._fields
    _check(entry, dict.fromkeys(names, _TEXT), where, *(name for name in names if name not in kind._field_defaults))
    return kind(**entry)


def _memory_markers(entry: Mapping[str, Any], where: str) -> MemoryMarkers:
    found = _texts_of(MemoryMarkers, entry, where)
    if len({key in entry for key in ("op_id", "op_name", "ops")}) > 1:
        raise _RuleError(f"{where}: op_id, op_name and ops belong together")
    return found


def _host_arg(entry: Mapping[str, Any], where: str) -> HostArg:
    found = _texts_of(HostArg, entry, where)
    if found.table not in _HOST_TABLES:
        raise _RuleError(f"{where}: table must be one of {', '.join(_HOST_TABLES)}")
    return found


def _all_items(tables: Mapping[str, Any] | list[Mapping[str, Any]], where: str) -> tuple[Items, ...]:
    if isinstance(tables, Mapping):
        return (_items(tables, where),)
    found = tuple(_items(entry, f"{where} {number}") for number, entry in enumerate(tables, 1))
    for one, other in itertools.permutations(found, 2):
        if f"{one.prefix}.".startswith(f"{other.prefix}.") or not other.prefix:
            raise _RuleError(
                f"{where}: prefix {one.prefix!r} is {other.prefix!r} or inside it; tables can't contain each other"
            )
    return found


def _items(entry: Mapping[str, Any], where: str) -> Items:
    _check(entry, _ITEM_KEYS, where, "prefix", "unit", "name", "start")
    for key in ("unit", "duration_unit"):
        if entry.get(key, "ns") not in UNITS:
            raise _RuleError(f"{where}: {key} must be one of {', '.join(UNITS)}")
    if ("end" in entry) == ("duration" in entry):
        raise _RuleError(f"{where}: an item needs either end or duration; set one of them")
    if "category" in entry and "fixed_category" in entry:
        raise _RuleError(f"{where}: an item has either category or fixed_category; remove one of them")
    if "duration_unit" in entry and "duration" not in entry:
        raise _RuleError(f"{where}: duration_unit needs duration; set it, or remove duration_unit")
    if _JSON_PATH.search(entry["prefix"]):
        raise _RuleError(
            f"{where}: prefix must be like result.kernels.item: keys separated by dots, item for array elements"
        )
    args = entry.get("args")
    return Items(**{**entry, "args": None if args is None else tuple(args)})


def _expanded(text: str) -> str:
    for name, pattern in SHARED.items():
        text = text.replace(name, pattern)
    return text


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
    patterns = {key: regular_expression(_expanded(text)) for key, text in texts.items()}
    named = {group for pattern in patterns.values() for group in pattern.groupindex} - {"step"}
    times = entry.get("times", {})
    if times:
        named -= {"model_id"}
        if not entry.get("step"):
            raise _RuleError(f"{where}: times needs step = true")
        _check(times, dict.fromkeys(TIME_COLUMNS, _TEXTS), f"{where}: times")
    in_name = "step" in (patterns["name"].groupindex if "name" in patterns else ())
    if entry.get("step") and in_name == ("step_arg" in entry):
        example = "such as name = 'step (?P<step>\\d+)'"
        raise _RuleError(f"{where}: step needs a name pattern with its number, {example}, or step_arg")
    if "step_arg" in entry and not entry.get("step"):
        raise _RuleError(f"{where}: step_arg needs step = true")
    values, args, bare = entry.get("set", {}), entry.get("args", {}), entry.get("set_if_no_args", {})
    if entry.get("launches") and (table != "range" or "correlation_id" not in args):
        raise _RuleError(f"{where}: launches needs table = 'range' and a correlation_id in args")
    if "signature" in entry and not entry.get("op"):
        raise _RuleError(f"{where}: signature needs op = true")
    for name in sorted({*values, *bare, *named, *args} - columns.keys()):
        raise _RuleError(f"{where}: {table} has no column {name!r}.{suggestion(name, sorted(columns))}")
    _check(values, columns, f"{where}: set")
    _check(bare, columns, f"{where}: set_if_no_args")
    _check(args, dict.fromkeys(columns, _TEXTS), f"{where}: args")
    wanted = entry.get("where", {})
    _check(wanted, dict.fromkeys(wanted, _TEXT), f"{where}: where")
    return Rule(
        table,
        frozenset(entry["categories"]) if "categories" in entry else None,
        **patterns,
        set=dict(values),
        args={column: tuple(keys) for column, keys in args.items()},
        op=entry.get("op", False),
        step=entry.get("step", False),
        signature=entry.get("signature"),
        times={column: tuple(words) for column, words in times.items()},
        set_if_no_args=dict(bare),
        launches=entry.get("launches", False),
        step_arg=entry.get("step_arg"),
        where={key: regular_expression(text) for key, text in wanted.items()},
        with_category=entry.get("with_category"),
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
