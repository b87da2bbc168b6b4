"""Formats of other packages, which join through the entry point group `traceconv.formats`.

What their code raises becomes an error of the file, so that they don't stop other formats.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from traceconv.base.errors import InputError, TraceconvError, printable
from traceconv.base.plugins import PluginWarning, all_plugins
from traceconv.events.trace import TraceBatch
from traceconv.formats.format import Format, ReadRequest

GROUP = "traceconv.formats"


@cache
def plugin_formats() -> tuple[Format, ...]:
    """The formats of all installed packages, imported at the first call. One that can't be used causes a warning."""
    return tuple(all_plugins(GROUP, Format, lambda error: _warn(str(error))))


def confidence_of(plugin: Format, head: bytes) -> int:
    """The confidence of a plug-in that a file has its format; 0 and a warning if it fails."""
    try:
        return plugin.sniff(head)
    except Exception as error:  # noqa: BLE001 - the code of another package may raise anything
        _warn(f"the plug-in for {plugin.name} failed: {_shown(error)}; update or uninstall its package")
        return 0


@contextmanager
def as_input_error(plugin: Format, path: Path) -> Iterator[None]:
    """Turn what a plug-in raises into an InputError."""
    try:
        yield
    except TraceconvError:
        raise
    except Exception as error:  # the code of another package may raise anything
        raise InputError(
            f"{printable(str(path))}: the plug-in for {plugin.name} failed: {_shown(error)}; update its package"
        ) from error


class PluginSource:
    """A `TraceSource` of a plug-in's reader. Raises InputError for anything that the reader raises."""

    keeps_all = False
    more_sources = ()

    def __init__(self, plugin: Format, request: ReadRequest) -> None:
        self._plugin = plugin
        self._path = request.path
        with as_input_error(plugin, request.path):
            self._source = plugin.load_reader()(request)

    def batches(self) -> Iterator[TraceBatch]:
        with as_input_error(self._plugin, self._path):
            yield from self._source.batches()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def _shown(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")


def _warn(message: str) -> None:
    warnings.warn(PluginWarning(message), stacklevel=2)
