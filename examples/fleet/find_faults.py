"""Find what holds up a job: late ranks, slow links and clocks that are off, from a lake with the traces of all ranks.

Usage: python find_faults.py LAKE [duckdb|spark]
"""

from __future__ import annotations

import sys

import traceconv

#: Less is chance: ends of collectives are this far apart.
NOISE_NS = 100_000


def find_faults(lake: str, engine: str = "duckdb") -> None:
    """Print a line for each fault."""
    with traceconv.open_store(lake) as runs:
        late = runs.report("stragglers", run="all", engine=engine, filters=[f"late_ns>{NOISE_NS}"])
        for row in sorted(late, key=lambda row: row["iteration"]):
            print(f"step {row['iteration']}: rank {row['rank']} is {row['late_ns']} ns late, in {row['late_in']}")
            if row["late_in"] == "compute":
                # What it computes longer than its neighbour, which does the same.
                base, new, steps = (
                    f"rank={row['rank'] ^ 1}",
                    f"rank={row['rank']}",
                    f"{row['step_id']}-{row['step_id']}",
                )
                ops = traceconv.compare(base, new, db=lake, steps=steps, anyway=True).to_dict()["ops"]
                slower = [op["change_ns"] for op in ops if op["kind"] == "compute"]
                print(f"  {len(slower)} ops take {sum(slower)} ns longer than on rank {row['rank'] ^ 1}")

        groups = list(runs.report("collectives", run="all", engine=engine))
    speeds: dict[tuple[int, int], dict[str, int]] = {}
    offsets: dict[int, int] = {}
    for row in groups:
        # Groups of the same size that exchange the same bytes can be compared.
        alike = speeds.setdefault((row["group_size"], row["message_bytes"]), {})
        speed = row["transfer_bus_bytes_per_s"]
        alike[row["comm_group"]] = min(speed, alike.get(row["comm_group"], speed))
        if abs(row["clock_offset_ns"]) > max(NOISE_NS, row["clock_error_ns"]):
            offsets[row["rank"]] = row["clock_offset_ns"]
    for alike in speeds.values():
        usual = max(alike.values())
        for group, speed in sorted(alike.items()):
            if 2 * speed < usual:
                print(f"group {group}: its link has {speed / 1e9:.1f} GB/s, others {usual / 1e9:.1f} GB/s")
    if offsets:
        ahead = -min(offsets.values(), key=abs)
        print(f"ranks {min(offsets)} to {max(offsets)}: their clock is about {ahead / 1e6:.1f} ms ahead")


if __name__ == "__main__":
    find_faults(*sys.argv[1:])
