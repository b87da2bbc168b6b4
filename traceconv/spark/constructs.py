"""What gives the same rows in DuckDB and Spark: constructs that are the same in both, and those that are rewritten.

Integers wider than 64 bits are DECIMAL(38,0) in Spark. Its ANSI mode, the default since Spark 4, makes an overflow an
error, as in DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

from traceconv.base.errors import UsageError

#: An expression of sqlglot, whose parts are attributes that its types don't have.
Node: TypeAlias = Any

_WIDE = "DECIMAL(38, 0)"
#: sqlglot's types of DuckDB's results; sums of integers, the only ones here, have 128 bits.
TYPES = {
    **DuckDB.EXPRESSION_METADATA,
    exp.Sum: {"returns": exp.DType.INT128},
    exp.PercentileDisc: {
        "annotator": lambda self, node: self._annotate_by_args(
            node, "this", array=isinstance(node.expression, exp.Array)
        )
    },
}
_WIDE_TYPES = {exp.DType.INT128, exp.DType.DECIMAL}
_INTEGERS = exp.DataType.INTEGER_TYPES
_TEXTS = exp.DataType.TEXT_TYPES
_REALS = {exp.DType.DOUBLE}
#: Characters of a construct that an error shows.
_MOST_SHOWN = 60
#: The mark of a TRY in an expression's `meta`.
TRY = "try"
#: The name of a member of a JSON object, as the only step of a path.
_MEMBER = re.compile(r"[a-z][a-z0-9_]*")
#: A regular expression of letters, sets, groups and repetitions.
_PLAIN_PATTERN = re.compile(r"(\(\?i\))?([A-Za-z0-9_ ^?+*|()]|\[[A-Za-z0-9_-]+\]|\\z)*")

#: Constructs with the same meaning and the same syntax in both engines, or whose syntax sqlglot translates.
_SAME: frozenset[type[exp.Expr]] = frozenset(
    {
        exp.Abs, exp.Add, exp.Alias, exp.And, exp.Array, exp.Between, exp.Boolean, exp.Case, exp.Coalesce, exp.Column,
        exp.ConcatWs, exp.Count, exp.DataType, exp.DataTypeParam, exp.DenseRank, exp.Distinct, exp.EQ, exp.Exists,
        exp.FirstValue, exp.From, exp.Greatest, exp.Group, exp.GT, exp.GTE, exp.Having, exp.Identifier,
        exp.If, exp.In, exp.Is, exp.Join, exp.Lag, exp.Lead, exp.Least, exp.Literal, exp.LT, exp.LTE, exp.Mul,
        exp.Neg, exp.NEQ, exp.Not, exp.Null, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif, exp.Or, exp.Order,
        exp.Ordered, exp.Placeholder, exp.Qualify, exp.RowNumber, exp.Star, exp.Sub,
        exp.Subquery, exp.Table, exp.TableAlias, exp.TimeToStr, exp.Tuple, exp.UnixToTime, exp.Values, exp.Where,
        exp.Window, exp.WindowSpec, exp.With,
        # Checked where they are used, by _member and _generated.
        exp.Explode, exp.JSONPath, exp.JSONPathKey, exp.JSONPathRoot,
    }
)  # fmt: skip

#: The parts that any construct may have.
_COMMON_PARTS = frozenset(
    {"this", "expression", "expressions", "alias", "to", "ifs", "default", "true", "low", "high", "table", "quoted"}
    | {"is_string", "ignore_nulls", "safe", "coalesce", "big_int", "desc", "nulls_first"}
)
#: Construct → the parts that it may have besides.
_PARTS: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.CTE: frozenset({"materialized"}),  # see _plain
    exp.Join: frozenset({"on", "side", "kind"}),
    exp.GroupConcat: frozenset({"separator"}),
    exp.Max: frozenset({"count"}),
    exp.Min: frozenset({"count"}),
    exp.RegexpReplace: frozenset({"replacement", "single_replace"}),
    exp.Select: frozenset(
        {"with_", "from_", "joins", "where", "group", "having", "qualify", "windows", "order", "distinct"}
    ),
    exp.TableAlias: frozenset({"columns"}),
    exp.TimeToStr: frozenset({"format"}),
    exp.Union: frozenset({"with_", "distinct"}),
    exp.UnixToTime: frozenset({"scale"}),
    exp.Window: frozenset({"partition_by", "order", "spec", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
}
_JOINS = {("", ""), ("LEFT", ""), ("", "INNER"), ("", "CROSS")}


class NotPortableError(UsageError):
    """A report uses a construct that may give other rows in Spark."""


def rewrite(tree: Node) -> None:
    """Rewrite the constructs of a query in place, the innermost first. Raises NotPortableError."""
    for node in [*tree.dfs()][::-1]:
        _check_parts(node)
        rewritten = _REWRITTEN.get(type(node))
        if rewritten is not None:
            found = rewritten(node)
            if found is not node:
                found.type = node.type
                node.replace(found)
        elif type(node) not in _SAME:
            raise _refused(node)


def _refused(node: Node) -> NotPortableError:
    return NotPortableError(f"it uses {_shown(node)}")


def _shown(node: Node) -> str:
    text = str(node.sql("duckdb"))
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _check_parts(node: Node) -> None:
    parts = {name for name, value in node.args.items() if value not in (None, False, [])}
    unknown = parts - _COMMON_PARTS - _PARTS.get(type(node), frozenset())
    if isinstance(node, exp.Join) and (node.side, node.kind) not in _JOINS:
        unknown = {f"{node.side} {node.kind}".strip()}
    if unknown:
        raise _refused(node)


def _kind(node: Node) -> exp.DType | None:
    return node.type.this if isinstance(node.type, exp.DataType) else None


def _is_integer(node: Node) -> bool:
    return _scale(node) == 0


def _scale(node: Node) -> int | None:
    """Return the number of decimals of an exact number; None if it is not one, or unknown."""
    if isinstance(node, (exp.Paren, exp.Sum, exp.Min, exp.Max, exp.Neg, exp.Filter, exp.Window, exp.Nullif)):
        return _scale(node.this)
    if isinstance(node, exp.Literal):
        return None if node.is_string or "e" in node.name.lower() else len(node.name.partition(".")[2])
    if isinstance(node, (exp.Cast, exp.TryCast)) and _kind(node) == exp.DType.DECIMAL:
        sizes = node.to.expressions
        return int(sizes[1].name) if len(sizes) > 1 else None
    if isinstance(node, exp.Mul):
        left, right = _scale(node.left), _scale(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, (exp.Add, exp.Sub)):
        return _most_decimals([node.left, node.right])
    if isinstance(node, exp.Coalesce):
        return _most_decimals([node.this, *node.expressions])
    if isinstance(node, exp.Null):
        return 0
    return 0 if _kind(node) in _INTEGERS else None


def _most_decimals(nodes: Sequence[Node]) -> int | None:
    scales = [_scale(node) for node in nodes]
    return None if None in scales else max(scale or 0 for scale in scales)


def _wide(node: Node) -> Node:
    """Return an integer as DECIMAL(38,0)."""
    if not _is_integer(node):
        raise NotPortableError(f"{_shown(node)} may not be an integer")
    return exp.cast(node.copy(), _WIDE)


def _as_double(node: Node) -> Node:
    kind = _kind(node.unnest())
    if kind in _REALS:
        return node.copy()
    if kind not in _WIDE_TYPES:
        return exp.cast(node.copy(), "DOUBLE")
    return exp.cast(_wide(node), "DOUBLE")  # the nearest one, as in DuckDB 2


def _divided(node: Node) -> Node:
    """DuckDB divides as doubles; division by zero is infinite there, and an error in Spark."""
    over, by = _as_double(node.left), _as_double(node.right)
    divided = exp.Div(this=over, expression=by, typed=False, safe=False)
    divisor = node.right.unnest()
    divisor = divisor.this.unnest() if isinstance(divisor, exp.Cast) else divisor
    if isinstance(divisor, exp.Nullif) or (isinstance(divisor, exp.Literal) and float(divisor.name) != 0):
        return divided
    zero = exp.EQ(this=by.copy(), expression=exp.Literal.number("0"))
    infinite = exp.Mul(this=over.copy(), expression=exp.cast(exp.Literal.string("Infinity"), "DOUBLE"))
    return exp.paren(exp.Case(ifs=[exp.If(this=zero, true=infinite)], default=divided))


def _quotient(node: Node) -> Node:
    """The quotient of integers without its fraction. Spark's DIV returns 64 bits, so it is (a − a mod b) / b.

    Division by 0 is an error in both engines.
    """
    over, by = _wide(node.left), _wide(node.right)
    multiple = exp.paren(exp.Sub(this=over, expression=exp.Mod(this=over.copy(), expression=by)))
    return exp.cast(exp.Div(this=multiple, expression=by.copy(), typed=False, safe=False), _WIDE)


def _cast(node: Node) -> Node:
    """Casts of numbers that lose no digits, and of texts from a JSON object that ingest writes."""
    to, scale = node.to, _scale(node.this)
    source = node.this.unnest()
    if to.this in _INTEGERS:
        is_same = scale == 0 or isinstance(source, (exp.Placeholder, exp.JSONExtractScalar))
        is_same = is_same or _kind(source) == exp.DType.BOOLEAN
    elif to.this == exp.DType.DECIMAL:
        is_same = scale is not None and len(to.expressions) > 1 and int(to.expressions[1].name) >= scale
    elif to.this in _REALS:
        is_same = scale == 0 or _kind(source) in _REALS or isinstance(source, exp.JSONExtractScalar)
        if is_same and scale == 0:
            return _as_double(node.this)
    else:
        is_same = to.this in _TEXTS and (scale == 0 or _kind(source) in _TEXTS)
    if not is_same:
        raise NotPortableError(f"the cast {_shown(node)} may round")
    if to.this == exp.DType.INT128:
        return exp.cast(node.this.copy(), _WIDE)
    if to.this == exp.DType.UBIGINT:
        return exp.cast(node.this.copy(), "DECIMAL(20, 0)")
    return node


_TRIED: Mapping[type[exp.Expr], str] = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply"}


def _tried(node: Node) -> Node:
    """TRY(a − b) is NULL when it overflows."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        inner = exp.Sub(this=exp.cast(exp.Literal.number("0"), "BIGINT"), expression=inner.this.copy())
    if type(inner) not in _TRIED:
        raise NotPortableError(f"it uses TRY({_shown(node)})")
    sides = [_tried(side) if type(side.unnest()) in _TRIED else side.copy() for side in (inner.left, inner.right)]
    return _call(_TRIED[type(inner)], *sides)


def _member(node: Node) -> Node:
    """A member of a flat JSON object, of which a number is read."""
    steps = [step for step in node.expression.expressions if not isinstance(step, exp.JSONPathRoot)]
    if not isinstance(node.find_ancestor(exp.Cast), exp.Cast) or len(steps) != 1:
        raise _refused(node)
    [step] = steps
    if not isinstance(step, exp.JSONPathKey) or not _MEMBER.fullmatch(str(step.this)):
        raise _refused(node)
    return node


def _listed(node: Node) -> Node:
    """list(x ORDER BY a, b): Spark's lists have no order, so structs (a, b, x) are sorted; NULLs come last."""
    order = node.this
    if not isinstance(order, exp.Order) or any(term.args.get("desc") for term in order.expressions):
        raise NotPortableError(f"the order of {_shown(node)} may differ")
    keys = [part for term in order.expressions for part in (exp.Is(this=term.this, expression=exp.null()), term.this)]
    rows = _call("collect_list", _struct([*keys, order.this]))
    value = exp.Dot(this=exp.to_identifier("r"), expression=exp.to_identifier(f"v{len(keys) + 1}"))
    taken = exp.Lambda(this=value, expressions=[exp.to_identifier("r")])
    return _call("transform", _call("array_sort", rows), taken)


def _call(name: str, *arguments: Node) -> Node:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _struct(members: Iterable[Node]) -> Node:
    """Return a struct with the members v1, v2 …"""
    named = ((exp.Literal.string(f"v{place}"), member.copy()) for place, member in enumerate(members, start=1))
    return _call("named_struct", *chain.from_iterable(named))


def _of_extreme(name: str) -> Callable[[Node], Node]:
    """arg_max((a, b), key): the key is a struct that ends with an ID, so it is unique, and the value is not NULL."""

    def rewritten(node: Node) -> Node:
        value, key = node.this, node.expression
        if not isinstance(value, exp.Tuple) or not isinstance(key, exp.Tuple) or not _is_id(key.expressions[-1]):
            raise NotPortableError(f"the row of {_shown(node)} may not be unique")
        return _call(name, _struct(value.expressions), _struct(key.expressions))

    return rewritten


def _is_id(node: Node) -> bool:
    return isinstance(node, exp.Column) and (node.name == "id" or node.name.endswith("_id"))


def _entry(node: Node) -> Node:
    """An entry of a list, NULL beyond its ends, or a member of a struct without names, as Spark checks."""
    [index] = node.expressions
    if not isinstance(index, exp.Literal):
        # sqlglot leaves these places as they are: from 1, and from the end if negative.
        if not _is_integer(index) or _kind(node.this) != exp.DType.ARRAY:
            raise _refused(node)
        place = exp.Nullif(this=exp.cast(index.copy(), "INT"), expression=exp.Literal.number("0"))
        return _call("try_element_at", node.this.copy(), place)
    # sqlglot counts from 0.
    if _kind(node.this) == exp.DType.ARRAY or isinstance(node.this, exp.Anonymous):
        return _call("get", node.this.copy(), index.copy())
    if not isinstance(node.this, exp.Column):
        raise _refused(node)
    return exp.Dot(this=node.this.copy(), expression=exp.to_identifier(f"v{int(index.name) + 1}"))


def _extremes(node: Node) -> Node:
    """max(x, n), min(x, n): a list of the largest or smallest."""
    count = node.args.get("count")
    if count is None:
        return node
    ascending = exp.true() if isinstance(node, exp.Min) else exp.false()
    values = _call("sort_array", _call("collect_list", node.this.copy()), ascending)
    return _call("slice", values, exp.Literal.number("1"), count.copy())


def _texts(node: Node) -> Node:
    """string_agg(x, separator ORDER BY a): NULL if there is no text."""
    separator = node.args.get("separator")
    order = node.this
    if not isinstance(order, exp.Order) or not isinstance(separator, exp.Literal):
        raise NotPortableError(f"the order of {_shown(node)} may differ")
    joined = _call("array_join", _listed(node), separator.copy())
    some = exp.GT(this=exp.Count(this=order.this.copy()), expression=exp.Literal.number("0"))
    return exp.paren(exp.Case(ifs=[exp.If(this=some, true=joined)]))


def _filtered(node: Node) -> Node:
    """f(x) FILTER (WHERE a): f may have become a function of other aggregates. In DuckDB, an empty list is NULL."""
    if isinstance(node.this, exp.AggFunc):
        return node
    found = node.this.copy()
    for part in list(found.find_all(exp.Anonymous, exp.Count)):
        if isinstance(part, exp.Count) or part.name == "collect_list":
            part.replace(exp.Filter(this=part.copy(), expression=node.expression.copy()))
        elif part.name in ("max_by", "min_by", "bool_or"):
            return node
    is_list = isinstance(found, exp.Anonymous)
    return exp.Nullif(this=found, expression=_call("array")) if is_list else found


def _percentile(node: Node) -> Node:
    """The smallest value that at least this part of the values does not exceed, as in DuckDB; one, or a list."""
    parts = node.expression.expressions if isinstance(node.expression, exp.Array) else [node.expression]
    if not all(isinstance(part, exp.Literal) and _scale(part) for part in parts):
        raise _refused(node)
    found = []
    for part in parts:
        whole = 10 ** (_scale(part) or 0)
        above = whole - round(float(part.name) * whole)
        found.append(f"get(v, CAST(greatest(1, size(v) - CAST(size(v) AS BIGINT) * {above} DIV {whole}) - 1 AS INT))")
    result = f"array({', '.join(found)})" if isinstance(node.expression, exp.Array) else found[0]
    value = node.this.copy()
    return sqlglot.parse_one(f"transform(array(array_sort(collect_list(x))), v -> {result})[0]", "spark").transform(
        lambda one: value if isinstance(one, exp.Column) and one.name == "x" else one
    )


def _plain(node: Node) -> Node:
    """A CTE; whether it is computed once changes no row."""
    node.set("materialized", None)
    return node


def _shifted(node: Node) -> Node:
    """A power of two."""
    one = node.this.unnest()
    one = one.this if isinstance(one, exp.Cast) else one
    if not isinstance(one, exp.Literal) or not isinstance(node.expression, exp.Literal):
        raise _refused(node)
    return exp.cast(exp.Literal.number(str(int(one.name) << int(node.expression.name))), "BIGINT")


def _pattern(node: Node) -> Node:
    """A regular expression of what RE2 and Java understand alike."""
    pattern = node.expression
    if not isinstance(pattern, exp.Literal) or not _PLAIN_PATTERN.fullmatch(pattern.name) or node.args.get("flag"):
        raise NotPortableError(f"its pattern {_shown(pattern)} may match other texts there")
    # In RE2, ignoring case is ignoring that of all letters.
    pattern.replace(exp.Literal.string(pattern.name.replace("(?i)", "(?iu)")))
    return node


def _replaced(node: Node) -> Node:
    """A replacement at the end of a text, of which there is one at most."""
    _pattern(node)
    if not node.expression.name.endswith(r"\z") or node.args["replacement"].name != "":
        raise _refused(node)
    return node


def _generated(node: Node) -> Node:
    """Lists unnested side by side become one call of stack(), which Spark allows once per SELECT."""
    columns = [column for column in node.expressions if isinstance(column.unalias(), exp.Explode)]
    if columns and not isinstance(node.parent, exp.Union):
        lists = [column.unalias().this.expressions for column in columns]
        rows = zip(*lists, strict=True)
        stack = _call("stack", exp.Literal.number(str(len(lists[0]))), *(one.copy() for row in rows for one in row))
        names = [exp.to_identifier(column.alias) for column in columns]
        kept = [column for column in node.expressions if column not in columns]
        node.set("expressions", [*kept, exp.Aliases(this=stack, expressions=names)])
    elif columns:
        raise NotPortableError("it unnests a list in a union")
    return node


def _joined(node: Node) -> Node:
    if _kind(node.left) not in _TEXTS or _kind(node.right) not in _TEXTS:
        raise NotPortableError(f"{_shown(node)} joins what may not be texts")
    return node


def _all(node: Node) -> Node:
    if node.args.get("distinct"):
        raise NotPortableError("it uses a union of distinct rows")
    return node


_REWRITTEN: Mapping[type[exp.Expr], Callable[[Node], Node]] = {
    exp.ArgMax: _of_extreme("max_by"),
    exp.ArgMin: _of_extreme("min_by"),
    exp.ArrayAgg: _listed,
    exp.BitwiseLeftShift: _shifted,
    exp.Bracket: _entry,
    exp.CTE: _plain,
    exp.Cast: _cast,
    exp.Div: _divided,
    exp.DPipe: _joined,
    exp.IntDiv: _quotient,
    exp.JSONExtractScalar: _member,
    exp.LogicalOr: lambda node: _call("bool_or", node.this.copy()),
    exp.Filter: _filtered,
    exp.GroupConcat: _texts,
    exp.Max: _extremes,
    exp.Min: _extremes,
    exp.PercentileDisc: _percentile,
    exp.Mod: lambda node: exp.Mod(this=_wide(node.left), expression=_wide(node.right)),
    exp.Paren: lambda node: _tried(node.this) if node.meta.get(TRY) else node,
    exp.RegexpLike: _pattern,
    exp.RegexpReplace: _replaced,
    exp.Select: _generated,
    # Sums of integers are exact; those of doubles depend on the order of the rows.
    exp.Sum: lambda node: exp.Sum(this=_wide(node.this)),
    exp.TryCast: _cast,
    exp.Union: _all,
}
