"""Perfetto's protobuf: the reader, and exports of a store, side by side with what else does such work, in the same run.

    python -m benchmarks.perfetto [--events 1000000] [--store STORE] [--json]

The trace is written as Perfetto's SDK writes them: four threads, each a sequence with numbered texts, times that are
differences of microseconds, and annotations. It is parsed by the message classes of the package `perfetto` (whose
parser is C), then also looked at event by event, read by our reader alone, and ingested, each in a process of its own.

With a store, its run is exported: to Perfetto with and without args, against the same message classes filled in and
encoded for as many slices, and to Chrome's trace JSON, against json.dumps of a row for each event. Rates of those are
measured on a part of the rows.

Seconds are of the processor (user and system, all threads): other work on the machine changes them little.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import part, traceconv

_SEQUENCES = range(2, 6)
_MICROSECONDS = 1000
#: Rows on which the rates of encoders are measured that take one row after another.
SAMPLE_ROWS = 100_000


@dataclass(frozen=True)
class Reading:
    """What something took for so many events. `peak_bytes`: 0 where only a part was done."""

    what: str
    by: str
    count: int
    cpu_seconds: float
    peak_bytes: int

    @property
    def per_second(self) -> float:
        """Events a second of the processor."""
        return self.count / self.cpu_seconds


def _packets(count: int) -> Iterator[bytes]:
    from traceconv.export.perfetto_records import bytes_field, number_field

    def packet(*parts: bytes) -> bytes:
        return bytes_field(1, b"".join(parts))

    def clock(number: int, ns: int, more: bytes = b"") -> bytes:
        return bytes_field(1, number_field(1, number) + number_field(2, ns) + more)

    rng = random.Random(1)
    process = bytes_field(3, number_field(1, 7) + bytes_field(6, b"app"))
    yield packet(number_field(10, 1), bytes_field(60, number_field(1, 1) + process))
    for sequence in _SEQUENCES:
        own = clock(64, 1_000_000, number_field(3, 1) + number_field(4, _MICROSECONDS))
        yield packet(number_field(10, sequence), bytes_field(6, clock(6, 1_000_000_000) + own))
        thread = bytes_field(4, number_field(1, 7) + number_field(2, sequence) + bytes_field(5, b"thread"))
        track = number_field(1, sequence) + number_field(5, 1) + thread
        defaults = number_field(58, 64) + bytes_field(11, number_field(11, sequence))
        yield packet(number_field(10, sequence), number_field(13, 1), bytes_field(59, defaults), bytes_field(60, track))
    known: dict[int, set[tuple[int, int]]] = {sequence: set() for sequence in _SEQUENCES}
    depth = dict.fromkeys(_SEQUENCES, 0)
    for number in range(count):
        sequence = rng.choice(_SEQUENCES)
        head = number_field(8, rng.randrange(5, 200)) + number_field(10, sequence) + number_field(13, 2)
        if depth[sequence] and rng.random() < 0.5:
            depth[sequence] -= 1
            yield packet(head, bytes_field(11, number_field(9, 2)))
            continue
        named, category = rng.randrange(1, 400), rng.randrange(1, 10)
        texts = {(2, named): b"Function::name_%d" % named, (1, category): b"category_%d" % category}
        event = number_field(9, 1) + number_field(10, named) + number_field(3, category)
        depth[sequence] += 1
        if rng.random() < 0.7:
            texts |= {(3, 1): b"number", (3, 2): b"text"}
            event += bytes_field(4, number_field(1, 1) + number_field(4, number))
            event += bytes_field(4, number_field(1, 2) + bytes_field(6, b"value %d" % rng.randrange(1000)))
        new = [key for key in texts if key not in known[sequence]]
        known[sequence].update(new)
        entries = [bytes_field(key[0], number_field(1, key[1]) + bytes_field(2, texts[key])) for key in new]
        interned = [bytes_field(12, b"".join(entries))] if entries else []
        yield packet(head, bytes_field(11, event), *interned)


def write(path: Path, count: int) -> None:
    """A trace of so many events."""
    with path.open("wb", buffering=1 << 20) as file:
        file.writelines(_packets(count))


def readings(events: int, folder: Path) -> Iterator[Reading]:
    """The reader of Perfetto's protobuf. The trace and a store are left in the folder."""
    path, store = folder / "benchmark.pftrace", folder / "benchmark_perfetto.duckdb"
    write(path, events)
    for by, name in (
        ("messages, parsed", "perfetto_parse"),
        ("messages, read", "perfetto_messages"),
        ("traceconv reader", "perfetto_reader"),
    ):
        found = part(name, path)
        yield Reading("read", by, found["events"], found["cpu_seconds"], found["peak_bytes"])
    store.unlink(missing_ok=True)
    done = traceconv("ingest", path, "--db", store)
    yield Reading("read", "traceconv ingest", events, done.cpu_seconds, done.peak_bytes)
    path.unlink()
    store.unlink()


def exports(store: Path, folder: Path) -> Iterator[Reading]:
    """Both exports of a store's run."""
    rows = part("counts", store)
    slices = rows["task"] + rows["api"] + rows["range"]
    target = folder / "benchmark.export"
    for what, with_args, arguments in (
        ("perfetto, no args", "", ("perfetto", "--no-args")),
        ("perfetto", "args", ("perfetto",)),
        ("chrome", None, ("chrome",)),
    ):
        if with_args is None:
            found, by = part("json_rows", store, str(SAMPLE_ROWS)), "json.dumps"
        else:
            found, by = part("perfetto_objects", store, str(SAMPLE_ROWS), with_args), "message objects"
        yield Reading(what, by, found["rows"], found["cpu_seconds"], 0)
        done = traceconv("export", *arguments, "-o", target, "--db", store)
        yield Reading(what, f"traceconv export {arguments[0]}", slices, done.cpu_seconds, done.peak_bytes)
        target.unlink()


#: What each of ours is compared with.
_AGAINST = {
    "traceconv reader": "messages, read",
    "traceconv ingest": "messages, read",
    "traceconv export perfetto": "message objects",
    "traceconv export chrome": "json.dumps",
}


def ratio(one: Reading, found: list[Reading]) -> float | None:
    """The rate against that of what it is compared with, in the same run; None for what others are compared with."""
    against = next((other for other in found if other.what == one.what and other.by == _AGAINST.get(one.by)), None)
    return None if against is None else one.per_second / against.per_second


def main() -> None:
    """Measures the reader, and the exports where there is a store."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--store", type=Path, help="a store whose run is exported")
    arguments.add_argument("--json", action="store_true", help="print the readings as JSON")
    asked = arguments.parse_args()
    found: list[Reading] = []
    with tempfile.TemporaryDirectory() as folder:
        sources = [readings(asked.events, Path(folder))]
        if asked.store is not None:
            sources.append(exports(asked.store, Path(folder)))
        for source in sources:
            for one in source:
                found.append(one)
                beside = ratio(one, found)
                if not asked.json:
                    shown = f"{one.peak_bytes / 1e6:6.0f} MB" if one.peak_bytes else " " * 9
                    more = "" if beside is None else f"  {beside:5.2f} × {_AGAINST[one.by]}"
                    print(f"{one.what:<19}{one.by:<27}{one.per_second / 1e6:7.3f} M/s {shown}{more}", flush=True)
    if asked.json:
        print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
