"""The SQL of a module, in a file of its name: sections of one or more statements, each under a line `--- NAME`.

Words in braces are replaced by values, also in comments; braces that are SQL are written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

_SECTION = re.compile(r"^--- (\w+)\n", re.MULTILINE)


def section(module: str, name: str, /, **values: object) -> str:
    """Return a section of a module's file with these values in it."""
    return _sections(module)[name].format(**values)


@cache
def _sections(module: str) -> Mapping[str, str]:
    package, _, name = module.rpartition(".")
    text = (resources.files(package) / f"{name}.sql").read_text("utf-8")
    _, *parts = _SECTION.split(text)
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
