"""Results of the benchmarks: as lines, as the page results.md, and compared with those of an earlier run."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results.md"
#: By how much a ratio of a quick run may be worse than in results.md: they vary that much.
QUICK_LOSS = 0.3
_QUICK_TITLE = "## Ratios of a quick run"


@dataclass(frozen=True)
class Result:
    """A measurement. `met` is None without a target, or if the input is too small for it.

    value  NaN if it failed
    ratio  to another measurement of the same run, the higher the better; None if there is none
    """

    name: str
    value: float
    shown: str
    target: str
    met: bool | None
    ratio: float | None


def line(result: Result) -> str:
    """Return a result as a line of the terminal."""
    verdict = {True: "met", False: "MISSED", None: ""}[result.met]
    return f"{result.name:<30} {result.shown:<46} {result.target:<24} {verdict}".rstrip()


def ratios(text: str) -> dict[str, float]:
    """Return the ratios of the quick run in the text of results.md, by measurement."""
    rows = (line.strip("|").split("|") for line in text.partition(_QUICK_TITLE)[2].splitlines() if line.startswith("|"))
    return {row[0].strip(): float(row[1]) for row in rows if row[0].strip() not in ("measurement", "---")}


def worse(results: Sequence[Result], before: dict[str, float]) -> list[str]:
    """Return a line for each ratio that is clearly worse than before, and each failure."""
    return [
        f"{one.name}: ratio {one.ratio:.3g}, {before[one.name]:.3g} in {RESULTS.name}"
        for one in results
        if one.ratio is not None and one.ratio < (1 - QUICK_LOSS) * before.get(one.name, 0)
    ] + [f"{one.name}: {one.shown}" for one in results if math.isnan(one.value)]


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def markdown(results: Sequence[Result], quick: Sequence[Result]) -> str:
    """Return the text of results.md."""
    verdicts = {True: "met", False: "**missed**", None: ""}
    lines = [
        "# Results of the benchmarks", "",
        f"Written by `make bench` on {os.cpu_count()} cores with {_memory_gb():.0f} GB of memory, "
        f"Python {platform.python_version()}. The methods are in [README.md](README.md).", "",
        "| measurement | measured | target | |", "| --- | --- | --- | --- |",
        *(
            f"| {one.name} | {one.shown.replace('|', '/')} | {one.target} | {verdicts[one.met]} |" for one in results
        ), "",
        _QUICK_TITLE, "", "`make bench-quick` compares its ratios with these; the higher the better.", "",
        "| measurement | ratio |", "| --- | --- |",
        *(f"| {one.name} | {one.ratio:.3g} |" for one in quick if one.ratio is not None),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
