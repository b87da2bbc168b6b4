"""Check the arguments of public functions, so that a mistake is one clear error where it was made."""

from __future__ import annotations

import functools
import inspect
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

from traceconv.base.errors import DataLossWarning, UsageError, printable, suggestion

PathLike: TypeAlias = "str | os.PathLike[str]"

_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_P = ParamSpec("_P")
_R = TypeVar("_R")


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function with a check of its arguments: the names of options, and values by their annotations.

    Types other than those of `_TYPES` are not checked. Raises UsageError; TypeError for missing arguments, as Python
    does.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    named = [one.name for one in parameters.values() if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
    options = [name for name in named if name != "self"]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in kwargs:
            if name not in options and not takes_any:
                near = suggestion(name, options) or f" It has: {', '.join(options) or 'none'}."
                raise UsageError(f"{function.__name__} has no option '{printable(name)}'.{near}")
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises the error with the function's name
        for name, value in given.arguments.items():
            parameter = parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                for one in value:
                    if isinstance(one, (list, tuple, set)):
                        raise UsageError(
                            f"{function.__name__} takes {name} as separate arguments: {function.__name__}(*{name})"
                        )
                given.arguments[name] = tuple(check(name, one, str(parameter.annotation)) for one in value)
            elif parameter.kind is not parameter.VAR_KEYWORD:
                given.arguments[name] = check(name, value, str(parameter.annotation))
        return function(*given.args, **given.kwargs)

    return call


def check(name: str, value: Any, annotation: str) -> Any:
    """Return a value of an annotated type; numpy's integers become int. Raises UsageError for another type."""
    kinds = annotation.split(" | ")
    if any(kind not in _TYPES for kind in kinds) or any(_TYPES[kind][1](value) for kind in kinds):
        return operator.index(value) if "int" in kinds and _is_integer(value) else value
    wanted = " or ".join(_TYPES[kind][0] for kind in kinds if kind != "None")
    shown = printable(repr(value), 60)
    what = f"the string {shown}" if isinstance(value, str) else f"{shown} ({type(value).__name__})"
    raise UsageError(f"{name} must be {wanted}, not {'None' if value is None else what}")


def path_of(path: PathLike) -> Path:
    """Return a path that a user gave. Raises UsageError if it can't be one."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise UsageError(f"'{printable(text, 60)}' is not a path: it is empty or contains a NUL character")
    return Path(text)


def optional_path(path: PathLike | None) -> Path | None:
    """Return a path that a user gave, or None. Raises UsageError if it can't be one."""
    return None if path is None else path_of(path)


def paths_of(function: str, paths: Sequence[PathLike]) -> list[Path]:
    """Return the paths given to a function that needs at least one. Raises UsageError."""
    if not paths:
        raise UsageError(f"{function} needs at least one path")
    return [path_of(path) for path in paths]


def warn_of_loss(message: str) -> None:
    """Warn of lost data at the line of the user's program."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, DataLossWarning, stacklevel=level)


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not _is_flag(value)


def _is_flag(value: object) -> bool:
    return type(value).__name__ in ("bool", "bool_")  # also numpy's


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_list(value: object, is_item: Callable[[object], bool]) -> bool:
    single = isinstance(value, (str, bytes, os.PathLike, Mapping))
    return isinstance(value, Iterable) and not single and all(map(is_item, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


#: Annotation → the type in words, and its test.
_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "None": ("None", lambda value: value is None),
    "int": ("an integer", _is_integer),
    "float": ("a number", lambda value: hasattr(value, "__float__") and not _is_flag(value)),
    "bool": ("True or False", _is_flag),
    "str": ("a string", _is_text),
    "PathLike": ("a path", _is_path),
    "Sequence[str]": ("a list of strings", lambda value: _is_list(value, _is_text)),
    "Sequence[PathLike]": ("a list of paths", lambda value: _is_list(value, _is_path)),
    "Mapping[str, object]": ("a dict", lambda value: isinstance(value, Mapping) and all(map(_is_text, value))),
}
