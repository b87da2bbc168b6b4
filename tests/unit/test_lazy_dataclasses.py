"""Data classes whose methods are compiled when they are called are the same as those of a normal definition."""

from __future__ import annotations

import subprocess
import sys

_SAME = """
import dataclasses, pickle
from dataclasses import dataclass, field
from traceconv.base.lazy_dataclasses import compile_methods_on_use

def classes():
    @dataclass(frozen=True, slots=True)
    class Frozen:
        x: int
        y: list = field(default_factory=list)

    @dataclass(order=True)
    class Ordered:
        x: int
        self: int = 2

    class Derived(Ordered):
        pass

    return Frozen, Ordered, Derived

def results(Frozen, Ordered, Derived):
    one = Frozen(1)
    yield one == Frozen(1), one != Frozen(2), repr(one), dataclasses.replace(one, x=3), dataclasses.asdict(one)
    yield hash(Frozen(1, ())) == hash(Frozen(1, ())), Frozen(1, ()) in {Frozen(1, ())}
    for change in (lambda: setattr(one, "x", 2), lambda: delattr(one, "x"), lambda: Frozen(), lambda: hash(one)):
        try:
            change()
        except Exception as error:
            yield type(error), str(error)
    yield Derived(1) < Derived(2), Derived(1, self=1) <= Derived(1), Derived(1), Derived.__eq__(Derived(1), 1)
    yield Frozen.__init__.__qualname__, Frozen.__init__.__name__, Frozen.__eq__(one, 1)

usual = [str(one) for one in results(*classes())]
compile_methods_on_use()
lazy = classes()
assert [str(one) for one in results(*lazy)] == usual, usual
# Called a second time, they are those of a normal definition.
assert lazy[0].__eq__.__code__.co_filename == "<string>"
assert [str(one) for one in results(*lazy)] == usual
"""


def test_methods_are_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", _SAME], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
