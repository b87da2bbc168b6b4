"""The names of numbers in records."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import tomli

#: Levels of the host's calls, from the outermost to the innermost.
ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
#: The type of a call of HCCL whose tasks make up the time of a collective.
MASTER = 0x10001
#: Types of tasks of the host that are no tasks: IDs of tasks begin again; maintenance.
FLIP, MAINTENANCE = 98, 6
#: The type of kernels that are launched with a grid of blocks.
SIMT = "KERNEL_SIMT"
#: The type of an operator that is a whole FFTS+ graph.
FFTS_PLUS = 6
#: Chips by `platform_version`: with the scheduler STARS; with 32-bit IDs of tasks; without records of flips.
STARS_CHIPS, WIDE_CHIPS, CHIPS_WITHOUT_FLIPS = (5, 7, 8, 11), (15, 16), (0, 2, 11)

#: The chip whose frequency changes during a recording.
LOW_POWER_CHIP = 5

Numbered: TypeAlias = dict[int, str]


@cache
def numbers(table: str) -> Numbered:
    """Return a table of numbers.toml."""
    return {int(number): str(name) for number, name in _loaded()[table].items()}


@cache
def enums() -> dict[str, Numbered]:
    """Return the enums that a database has, by table."""
    return {table: {int(number): name for number, name in names.items()} for table, names in _loaded()["enums"].items()}


@cache
def _loaded() -> dict[str, dict[str, Any]]:
    text = files("traceconv.formats.ascend_raw").joinpath("numbers.toml").read_text("utf-8")
    loaded: dict[str, dict[str, Any]] = tomli.loads(text)
    return loaded
