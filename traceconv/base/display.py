"""Results that show themselves as text, in a Python shell and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable


class TextDisplay:
    """Its repr is the text that the command prints; notebooks show the same, with markup escaped."""

    __slots__ = ()

    def lines(self) -> Iterable[str]:
        """Yield the lines of the text."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        import html  # takes longer to import than this module and all of its users

        # The style of some notebooks has no fixed width for it.
        return f'<pre style="font-family: monospace">{html.escape(repr(self))}</pre>'
