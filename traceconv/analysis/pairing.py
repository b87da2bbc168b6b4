"""Which ops of one run are which ops of another: by structure first, so that kernels with other names still pair."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from traceconv.analysis.step_times import Op
from traceconv.reports.short_names import short_name

#: An operator that launches more tasks at once is a region, such as a compiled graph: its kernels pair one by one.
_MOST_TASKS = 16
#: Ops at the same place that are joined if their numbers differ in the two runs, such as parts of a fused op.
_MOST_JOINED = 8
#: Parts of an operator's name that depend on the library or its version.
_VENDOR = re.compile(
    r"autograd::engine::evaluate_function: |^aten::|^_+|(?<![a-z])(cudnn|miopen|mkldnn|native|cuda)_?|\d+$"
)
#: Source and destination in the name of a copy: HtoD, H2D, Host-to-Device, HOST_TO_DEVICE, CopyHostToDevice.
_DIRECTION = re.compile(
    r"(?i:(host|device|peer|array)[-_ ]?(?:to|2)[-_ ]?(host|device|peer|array))"
    r"|([A-Z])(?:to|To|TO|2)([A-Z])(?![A-Za-z])|(?<![a-z])([a-z])2([a-z])(?![a-z])"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is paired: a framework's operator at a place of the op tree with its kernels, or a single op.

    ops     indices of its `Op`s in the order of their first launch
    joined  number of units that were joined to pair them
    """

    op: Op
    by_operator: bool
    ops: tuple[int, ...]
    joined: int = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """A unit of both runs, or of one; `paired_by` says how: the name of the rule, None if it is in one run."""

    base: Unit | None
    new: Unit | None
    paired_by: str | None


_Signature = Callable[[Unit], Hashable]


def _kind_of(op: Op) -> tuple[str | None, str | None]:
    """Return what ops of one pair have in common: the kind, and for copies the direction, if the name has it."""
    found = _DIRECTION.search(op.name) if op.kind == "copy" and op.name is not None else None
    return op.kind, "".join(end[0].upper() for end in found.groups() if end) if found else None


def _family(name: str) -> str:
    return _VENDOR.sub("", name.lower())


def _operator(*parts: str) -> _Signature:
    def signature(unit: Unit) -> Hashable:
        op = unit.op
        if not op.path:
            return None
        values = {
            "scope": op.scope, "path": op.path, "outer": op.path[0], "shapes": op.shapes,
            "family": _family(op.path[0]), "inner": _family(op.path[-1]),
            "kernel": None if unit.by_operator else op.name,
        }  # fmt: skip
        return (_kind_of(op), *(values[part] for part in parts))

    return signature


def _name(*parts: str) -> _Signature:
    def signature(unit: Unit) -> Hashable:
        op = unit.op
        if unit.by_operator:
            return None
        values = {
            "scope": op.scope, "name": op.name, "short": None if op.name is None else short_name(op.name),
            "type": op.op_type, "shapes": op.shapes,
        }  # fmt: skip
        found = tuple(values[part] for part in parts)
        return None if found[-1] is None else (_kind_of(op), *found)

    return signature


@dataclass(frozen=True, slots=True)
class _Rule:
    """Units with the same signature are paired.

    at_place  only between the same paired units
    joins     as one pair, even if their numbers are equal
    """

    name: str
    signature: _Signature
    at_place: bool = False
    joins: bool = False


#: From the strictest to the loosest: first the op tree, then names, places in the sequence, types and shapes.
_RULES = (
    _Rule("operator", _operator("scope", "path", "shapes", "kernel")),
    _Rule("operator", _operator("path", "shapes", "kernel")),
    _Rule("operator", _operator("path", "kernel"), at_place=True),
    _Rule("operator", _operator("path", "kernel")),
    _Rule("name", _name("scope", "type", "shapes", "name")),
    _Rule("name", _name("scope", "type", "name")),
    _Rule("operator", _operator("path", "shapes")),
    _Rule("operator", _operator("outer", "shapes"), at_place=True),
    _Rule("operator", _operator("outer", "shapes")),
    _Rule("operator", _operator("family", "inner", "shapes")),
    _Rule("operator", _operator("family", "inner")),
    _Rule("operator", _operator("family"), joins=True),
    _Rule("operator", _operator("inner", "shapes")),  # in a compiled graph, the operators around it are others
    _Rule("name", _name("name")),
    _Rule("sequence", _name("shapes", "type"), at_place=True),
    _Rule("sequence", _name("type"), at_place=True),
    _Rule("sequence", _name("short"), at_place=True),
    _Rule("type and shape", _name("type", "shapes")),
    _Rule("short name", _name("short")),
    _Rule("sequence", lambda unit: _kind_of(unit.op), at_place=True),
)


def pair_ops(base: Sequence[Op], new: Sequence[Op]) -> list[Pair]:
    """Pair the ops of two runs, which are in the order of their first launch.

    Each rule pairs what the rules before it left. As many units with a signature in both runs are paired in their
    order, unless the rule joins them; other numbers are joined into one pair, at a place only a few. Operators, modules
    and shapes that only one run has don't tell units apart.
    """
    both = [list(base), list(new)]
    if not all(any(op.path for op in ops) for ops in both):
        both = [[replace(op, path=()) for op in ops] for ops in both]
    if not all(any(op.path and op.shapes for op in ops) for ops in both):
        both = [[replace(op, shapes=None) if op.path else op for op in ops] for ops in both]
    if not all(any(op.scope for op in ops) for ops in both):
        both = [[replace(op, scope="") for op in ops] for ops in both]
    regions = {op.path for ops in both for op in ops if op.task_count > _MOST_TASKS}
    bases, news = (list(_units(ops, regions)) for ops in both)
    pairs: list[tuple[list[int], list[int], str]] = []
    for rule in _RULES:
        left = _left(bases, _places(len(bases), [ours for ours, _, _ in pairs]), rule)
        right = _left(news, _places(len(news), [theirs for _, theirs, _ in pairs]), rule)
        for key in left:
            if key in right:
                pairs += _matched(left[key], right[key], rule)
    found = [Pair(_joined(bases, ours), _joined(news, theirs), rule) for ours, theirs, rule in pairs]
    matched = {place for ours, _, _ in pairs for place in ours}
    found += [Pair(unit, None, None) for place, unit in enumerate(bases) if place not in matched]
    matched = {place for _, theirs, _ in pairs for place in theirs}
    return found + [Pair(None, unit, None) for place, unit in enumerate(news) if place not in matched]


def _units(ops: Sequence[Op], regions: set[tuple[str, ...]]) -> Iterator[Unit]:
    """Join the kernels of an operator, in the order of its first launch."""
    groups: dict[tuple[bool, Hashable], list[int]] = {}
    for place, op in enumerate(ops):
        by_operator = bool(op.path) and op.path not in regions
        key = (_kind_of(op), op.scope, op.path, op.shapes) if by_operator else replace(op, task_count=1)
        groups.setdefault((by_operator, key), []).append(place)
    for (by_operator, _), places in groups.items():
        yield Unit(ops[places[0]], by_operator, tuple(places))


def _places(count: int, paired: Sequence[Sequence[int]]) -> list[tuple[int | None, int | None] | None]:
    """Return the pairs before and after each unit; None for a paired one."""
    pair_of = {place: i for i, places in enumerate(paired) for place in places}
    after: list[int | None] = [None] * (count + 1)
    for place in range(count - 1, -1, -1):
        after[place] = pair_of.get(place, after[place + 1])
    found: list[tuple[int | None, int | None] | None] = []
    before: int | None = None
    for place in range(count):
        found.append(None if place in pair_of else (before, after[place]))
        before = pair_of.get(place, before)
    return found


def _left(
    units: Sequence[Unit], places: Sequence[tuple[int | None, int | None] | None], rule: _Rule
) -> dict[Hashable, list[int]]:
    """Return the unpaired units by what they must have in common."""
    found: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, (unit, place) in enumerate(zip(units, places, strict=True)):
        signature = None if place is None else rule.signature(unit)
        # A run in which nothing is paired has no places.
        if signature is not None and not (rule.at_place and place == (None, None)):
            found[signature, place if rule.at_place else None].append(index)
    return found


def _matched(ours: list[int], theirs: list[int], rule: _Rule) -> Iterator[tuple[list[int], list[int], str]]:
    if len(ours) == len(theirs) and not rule.joins:
        for one, other in zip(ours, theirs, strict=True):
            yield [one], [other], rule.name
    elif rule.name == "operator" or max(len(ours), len(theirs)) <= _MOST_JOINED:
        yield ours, theirs, rule.name


def _joined(units: Sequence[Unit], places: Sequence[int]) -> Unit:
    first = units[places[0]]
    ops = tuple(sorted(op for place in places for op in units[place].ops))
    return replace(first, ops=ops, joined=len(places))
