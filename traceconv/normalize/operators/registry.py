"""The formula of each operator, by its name in profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from traceconv.normalize.operators import (
    attention,
    convolution,
    elementwise,
    matmul,
    memory,
    normalization,
    optimizers,
    pooling,
    reduction,
)
from traceconv.normalize.operators.arguments import UnknownWork, fits, parse_arguments
from traceconv.normalize.operators.work import Formula, Work

#: Operators that only call others with a formula need none.
_FORMULAS: Mapping[str, Formula] = {
    name: formula
    for family in (
        matmul, convolution, attention, normalization, elementwise, reduction, pooling, optimizers, memory,
    )
    for name, formula in family.FORMULAS.items()
}  # fmt: skip


def work_of(name: str, dims: str, types: str, values: str | None) -> Work | None:
    """Return the work of an operator with these args of its event (JSON); None if it is unknown.

    Its name may end with the overload (aten::add.Tensor), which the args show, too.
    """
    formula = _FORMULAS.get(name.partition(".")[0])
    found = None if formula is None else parse_arguments(dims, types, values)
    if formula is None or found is None:
        return None
    try:
        work = formula(found)
    except UnknownWork:
        return None
    return Work(
        work.category, work.compute_type, fits(work.flops), fits(work.read_bytes), fits(work.write_bytes),
        work.is_composite,
    )  # fmt: skip


def names_with_formula() -> Iterable[str]:
    """Return the names of all operators that have a formula."""
    return _FORMULAS.keys()
