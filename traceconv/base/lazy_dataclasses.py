"""Make definitions of data classes cheap: each of their methods is compiled when it is called first.

`dataclasses` writes and compiles up to six methods for each class. A command defines a hundred classes, a third of them
DuckDB's, and calls few of these methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

_Method = Callable[..., Any]


def compile_methods_on_use() -> None:
    """Prepare this process, which runs only our code, before most data classes are defined.

    Does nothing since Python 3.13, which compiles all methods of a class at once.
    """
    create: Callable[..., _Method] | None = getattr(dataclasses, "_create_fn", None)
    if create is not None:
        dataclasses._create_fn = lambda name, *given, **named: (  # type: ignore[attr-defined]
            _on_use(name, lambda: create(name, *given, **named))
        )


def _on_use(name: str, create: Callable[[], _Method]) -> _Method:
    """Return a method that replaces itself by `create()` in its class when it is called."""
    made: _Method | None = None

    def method(self: object, /, *given: Any, **named: Any) -> Any:
        nonlocal made
        if made is None:
            made = create()
            made.__qualname__ = method.__qualname__
            for owner in type(self).__mro__:
                if vars(owner).get(name) is method:
                    setattr(owner, name, made)
        return made(self, *given, **named)

    method.__name__ = name
    return method
