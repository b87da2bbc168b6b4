"""The frame of an HTML page that loads nothing: its policy allows a single script, by its hash."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib import resources

from traceconv._version import __version__
from traceconv.base.errors import printable


def head(title: str) -> str:
    """Return the start of a page up to its heading; `title` is text of a trace."""
    script = base64.b64encode(hashlib.sha256(_file("page.js").encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><meta name="generator" content="traceconv {__version__}">'
        f"<title>{text(title)}</title><style>{_file('page.css')}</style></head><body><h1>{text(title)}</h1>"
    )


def filter_field() -> str:
    """Return the field that hides rows of the tables after it."""
    return '<p><input id="filter" type="search" placeholder="filter rows"></p>'


def end(command: str) -> str:
    """Return the end of a page that `command` wrote."""
    footer = f"<footer>Written by traceconv {__version__} ({command}).</footer>"
    return f"{footer}<script>{_file('page.js')}</script></body></html>\n"


def text(value: object) -> str:
    """Escape text of a trace: one line without control characters or markup."""
    return escape(printable(str(value)))


def _file(name: str) -> str:
    return (resources.files("traceconv.reports") / "page" / name).read_text("utf-8")
