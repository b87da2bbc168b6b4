"""First answers: time until one is shown, and what they cost, compared with the same report without them.

    python -m benchmarks.first_answers [--gigabytes 5] [--kind compact] [--report summary] [--rounds 3] [--json]

A trace of a kind that benchmarks.chrome_json writes is read by turns with and without first answers, in new processes.
Elapsed time, CPU time of all processes and memory of the largest one; the slowdown is the median ratio of adjacent
pairs. The exact rows of both must be the same. On a machine that does other work, only CPU times can be compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.chrome_json import KINDS, write
from benchmarks.measure import Measured, traceconv
from benchmarks.shaped_trace import KINDS as SHAPED
from benchmarks.shaped_trace import write_shaped

#: Longest accepted time until an answer is shown, and largest accepted slowdown.
SHOWN_GOAL_S, SLOWDOWN_GOAL = 3.0, 1.03


def measure(
    kind: str, size_bytes: int, report: str, rounds: int, within: Path | None = None
) -> list[tuple[Measured, Measured]]:
    """Return pairs of measurements: without and with first answers. Raises RuntimeError if there are none.

    within  folder for the trace; default: that of temporary files
    """
    found = []
    with tempfile.TemporaryDirectory(dir=within) as folder:
        path = Path(folder) / "trace.json"
        (write_shaped if kind in SHAPED else write)(path, kind, size_bytes)
        for number in range(rounds):
            pair: dict[bool, Measured] = {}
            for first in (number % 2 == 0, number % 2 == 1):  # so that the state of the file cache affects both
                option = "--first-answers" if first else "--no-first-answers"
                pair[first] = traceconv("report", report, path, "--no-cache", option)
            if pair[True].message_seconds is None:
                raise RuntimeError(f"no first answer for {kind}: the file may be too small")
            if pair[True].output != pair[False].output:
                raise RuntimeError(f"first answers changed the rows of {report} for {kind}")
            found.append((pair[False], pair[True]))
    return found


def main() -> None:
    """Measure, print, and compare with the goals."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gigabytes", type=float, default=5)
    sound = [kind for kind in KINDS if kind not in ("damaged", "wrecked")]  # losses are messages, too
    arguments.add_argument("--kind", choices=sound, default="compact")
    arguments.add_argument("--report", default="summary")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", action="store_true", help="print the results as JSON")
    options = arguments.parse_args()
    pairs = measure(options.kind, int(options.gigabytes * 1e9), options.report, options.rounds)
    shown = statistics.median(first.message_seconds or 0 for _, first in pairs)
    results = {
        name: {
            "seconds": statistics.median(one.seconds for one in side),
            "cpu_seconds": statistics.median(one.cpu_seconds for one in side),
            "peak_bytes": max(one.peak_bytes for one in side),
        }
        for name, side in zip(("without", "with"), zip(*pairs, strict=True), strict=True)
    }
    slower = statistics.median(first.seconds / plain.seconds for plain, first in pairs)
    cpu = statistics.median(first.cpu_seconds / plain.cpu_seconds for plain, first in pairs)
    if options.json:
        print(json.dumps({**results, "first_answer_seconds": shown, "slowdown": slower, "cpu_ratio": cpu}))
        return
    for name, one in results.items():
        print(
            f"{name + ' first answers':<22}{one['seconds']:8.2f} s{one['cpu_seconds']:8.2f} s CPU"
            f"{one['peak_bytes'] / 1e6:8.0f} MB"
        )
    verdict = "met" if shown <= SHOWN_GOAL_S else "MISSED"
    print(f"first answer after    {shown:8.2f} s, goal {SHOWN_GOAL_S:g} s: {verdict}")
    verdict = "met" if slower <= SLOWDOWN_GOAL else "MISSED"
    print(
        f"slowdown              {slower - 1:+8.1%}, goal {SLOWDOWN_GOAL - 1:+.0%}: {verdict}; CPU time {cpu - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
