"""What `spans.span` is made of: in C, or the same in Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from traceconv import native

if TYPE_CHECKING or native.AVAILABLE:
    from traceconv.native import Span as Span
    from traceconv.native import SpanLog as SpanLog
else:

    class SpanLog:
        """Leaves all spans to Python."""

        is_on = False

        def __init__(self, *given: object) -> None: ...

        def aim(self, is_on: bool, *given: object) -> None:
            """Note whether there is a profile."""
            SpanLog.is_on = is_on

        def close(self) -> None: ...

        def opened(self) -> tuple[()]:
            """Return the open spans that only C knows."""
            return ()

        def holds(self, span_id: int) -> bool:
            """Whether this is one of them."""
            return False

    class Span:
        """A span until the first entry during a profile; then `spans.span` continues."""

        __slots__ = ("_attributes", "_before", "_name", "_open", "_stream")

        def __init__(self, name: str, *, stream: object = None, **attributes: object) -> None:
            self._name = name
            self._attributes = attributes or None
            self._stream = stream
            #: Entries opened while or after there was a profile; None before the first, when a span costs nothing.
            self._open = None
            #: Number of open entries from before the first profile.
            self._before = 0

        def __enter__(self):
            if SpanLog.is_on or self._open is not None:
                self._begin(sys._getframe(1))
            else:
                self._before += 1
            return self

        def __exit__(self, kind, error, trace) -> None:
            self._leave(sys._getframe(1), kind)
