"""Control flow: If, Loop and Scan run body by body and trip by trip, so that what each trip executes is known.

A model's ops of control flow whose bodies can't be lowered (they carry a sequence, for example) run in one piece,
without trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from traceconv.base.errors import ModelError
from traceconv.runtime.control_bodies import ControlOp, Flow, Lowering, Trip, Variant, without_bodies
from traceconv.runtime.control_estimate import Assumption, assume, workspace_bytes
from traceconv.runtime.fusion import fuse
from traceconv.runtime.graph import Graph
from traceconv.runtime.lower import DeviceOp, Program, lower
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.workspace import aligned

#: Trips of Loop and Scan, per op of the model and run, whose tasks are logged one by one.
LOGGED_TRIPS = 100
#: Most numbers that a model's ops inside bodies may take; after this many, counts of trips are powers of two.
MAX_BODY_OPS = 1 << 20
_EXACT_COUNTS = 1 << 16


class ControlFlow:
    """The ops of control flow of a program.

    controls  index of the op → its bodies; ops that run in one piece are missing
    """

    def __init__(self, graph: Graph, spec: DeviceSpec) -> None:
        self.lowering = Lowering(graph, spec)
        self.controls: dict[int, ControlOp] = {}
        self.assumed: dict[int, Flow] = {}
        self.assumptions: list[Assumption] = []
        self.program: Program
        self._numbers: dict[tuple[Variant, int, int], DeviceOp] = {}

    # What a run launches

    def launched(self, index: int, flow: Flow, logged: int = LOGGED_TRIPS) -> Iterator[tuple[DeviceOp, str | None]]:
        """Yield the ops that an op of control flow executes in these trips, in order, each with the name of its task.

        After `logged` trips, there is one op for all remaining executions of each: `repeats` of it.
        """
        if not flow:
            return
        rest: dict[tuple[Variant, int], int] = {}
        yield from self._launched(flow, self.controls[index].path, [logged], rest)
        for (variant, place), count in rest.items():
            for part in self._counts(count):
                yield self._numbered(variant, place, part), None

    def _launched(
        self, flow: Flow, path: str, left: list[int], rest: dict[tuple[Variant, int], int]
    ) -> Iterator[tuple[DeviceOp, str | None]]:
        number = 0
        for trip, count in flow:
            body, variant = trip.variant.body, trip.variant
            repeats = body.label == "body"
            now = min(count, left[0]) if repeats else int(left[0] > 0)
            for _ in range(now):
                left[0] -= repeats
                scope = f"{path}/{body.label}[{number}]" if repeats else f"{path}/{body.label}"
                number += 1
                for op in variant.program.ops:
                    yield self._numbered(variant, op.index, 1), f"{scope}/{op.name.strip('/')}"
                    inner = trip.inner.get(op.nodes[0].name)
                    if inner:
                        name = f"{scope}/{op.nodes[0].name.strip('/')}"
                        yield from self._launched(inner, name, left, rest)
            if count > now:
                _count(trip, count - now, rest)

    def _counts(self, count: int) -> list[int]:
        if len(self._numbers) < _EXACT_COUNTS:
            return [count]
        return [1 << place for place in range(count.bit_length()) if count >> place & 1]

    def _numbered(self, variant: Variant, place: int, repeats: int) -> DeviceOp:
        """Return an op of a body with its number among the ops of the model."""
        key = (variant, place, repeats)
        found = self._numbers.get(key)
        if found is not None:
            return found
        with self.lowering.lock:
            if key not in self._numbers:
                op, index = variant.program.ops[place], len(self.program.ops) + len(self._numbers)
                if len(self._numbers) >= MAX_BODY_OPS:
                    raise ModelError(f"{variant.path}: more than {MAX_BODY_OPS:,} ops in bodies can't be logged")
                times = f" x{repeats}" if repeats > 1 else ""
                numbered = replace(
                    op,
                    index=index,
                    name=f"{variant.path}/{op.name.strip('/')}{times}",
                    flops=op.flops * repeats,
                    fusion_id=None if op.fusion_id is None else index,
                    repeats=repeats,
                )
                self.program.inner.append(numbered)
                self._numbers[key] = numbered
            return self._numbers[key]


def _count(trip: Trip, times: int, rest: dict[tuple[Variant, int], int]) -> None:
    """Add the executions of all ops of a trip, with those inside, that happens `times`."""
    for op in trip.variant.program.ops:
        key = (trip.variant, op.index)
        rest[key] = rest.get(key, 0) + times
        for inner, count in trip.inner.get(op.nodes[0].name, ()):
            _count(inner, times * count, rest)


def lower_with_control(graph: Graph, spec: DeviceSpec) -> tuple[Program, ControlFlow]:
    """Lower a graph and the bodies of its control flow, whose workspace is that of a trip."""
    program, control = lower(fuse(graph), spec), ControlFlow(graph, spec)
    ops = list(program.ops)
    for op in program.ops:
        node = op.nodes[0]
        if not node.has_subgraph:
            continue
        assumptions: list[Assumption] = []
        try:
            found = ControlOp(control.lowering, node, op.name)
            control.assumed[op.index] = assume(found, program.graph, assumptions)
        except ModelError as error:
            control.assumptions.append(Assumption(op.name, f"runs as one op, without its bodies ({error})"))
            continue
        control.controls[op.index] = found
        control.assumptions += assumptions
        ops[op.index] = without_bodies(op, spec, aligned(workspace_bytes(found)))
    control.program = replace(program, ops=tuple(ops))
    return control.program, control
