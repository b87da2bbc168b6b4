"""Find plug-ins: objects that other packages provide through entry points. A package is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from traceconv.base.errors import TraceconvError, printable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Plugin = TypeVar("Plugin")


class PluginError(TraceconvError):
    """An installed plug-in can't be used."""


class PluginWarning(UserWarning):
    """An installed plug-in can't be used, and is skipped."""


def find_plugin(group: str, name: str, kind: type[Plugin]) -> Plugin | None:
    """Return the plug-in with this name, None if no package provides it. Raises PluginError."""
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        return _load(point, kind)
    return None


def all_plugins(group: str, kind: type[Plugin], on_error: Callable[[PluginError], None]) -> Iterator[Plugin]:
    """Yield every plug-in of a group, by name; pass errors of unusable ones to `on_error`."""
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            yield _load(point, kind)
        except PluginError as error:
            on_error(error)


def _load(point: EntryPoint, kind: type[Plugin]) -> Plugin:
    label = f"plug-in '{printable(point.name, 60)}' ({printable(point.value, 100)})"
    try:
        found = point.load()
    except Exception as error:  # the package may raise anything
        why = printable(f"{type(error).__name__}: {error}")
        raise PluginError(f"can't load {label}: {why}; update or uninstall its package") from error
    if not isinstance(found, kind) or getattr(found, "name", None) != point.name:
        expected = f"{kind.__module__}.{kind.__name__}"
        raise PluginError(f"{label} is not an object of {expected} with that name; update or uninstall its package")
    return found
