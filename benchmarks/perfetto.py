"""Perfetto traces: the reader and the exports, compared with other implementations in the same run.

    python -m benchmarks.perfetto [--events 1000000] [--store STORE] [--json]

The trace has the structure that Perfetto's SDK writes: four threads, each a sequence with interned strings, timestamps
as differences in microseconds, and annotations. It is parsed by the message classes of the package `perfetto` (whose
parser is in C), parsed and read event by event, read by traceconv's reader alone, and ingested, each in a new process.

With `--store`, its run is exported: to Perfetto with and without args, compared with building and encoding messages for
as many slices, and to Chrome's trace JSON, compared with json.dumps of each row. The rates of the other implementations
are measured on a part of the rows.

Seconds are CPU time (user and system, all threads), which other load on the machine hardly changes.
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
#: Rows for measuring encoders that work row by row.
SAMPLE_ROWS = 100_000


@dataclass(frozen=True)
class Reading:
    """CPU time of `count` events. `peak_bytes`: 0 if only a part of the events was processed."""

    what: str
    by: str
    count: int
    cpu_seconds: float
    peak_bytes: int

    @property
    def per_second(self) -> float:
        """Events per second of CPU time."""
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
    """Write a trace of `count` events."""
    with path.open("wb", buffering=1 << 20) as file:
        file.writelines(_packets(count))


def readings(events: int, folder: Path) -> Iterator[Reading]:
    """Measure the readers on a generated trace in `folder`."""
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
    """Measure both exports of a store's run."""
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


#: What each measurement of traceconv is compared with.
_AGAINST = {
    "traceconv reader": "messages, read",
    "traceconv ingest": "messages, read",
    "traceconv export perfetto": "message objects",
    "traceconv export chrome": "json.dumps",
}


def ratio(one: Reading, found: list[Reading]) -> float | None:
    """Ratio of the rate to that of its comparison in the same run; None for the comparisons themselves."""
    against = next((other for other in found if other.what == one.what and other.by == _AGAINST.get(one.by)), None)
    return None if against is None else one.per_second / against.per_second


def main() -> None:
    """Measure the reader, and with a store the exports."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--events", type=int, default=1_000_000)
    arguments.add_argument("--store", type=Path, help="a store to export")
    arguments.add_argument("--json", action="store_true", help="print the results as JSON")
    options = arguments.parse_args()
    found: list[Reading] = []
    with tempfile.TemporaryDirectory() as folder:
        sources = [readings(options.events, Path(folder))]
        if options.store is not None:
            sources.append(exports(options.store, Path(folder)))
        for source in sources:
            for one in source:
                found.append(one)
                compared = ratio(one, found)
                if not options.json:
                    shown = f"{one.peak_bytes / 1e6:6.0f} MB" if one.peak_bytes else " " * 9
                    more = "" if compared is None else f"  {compared:5.2f} × {_AGAINST[one.by]}"
                    print(f"{one.what:<19}{one.by:<27}{one.per_second / 1e6:7.3f} M/s {shown}{more}", flush=True)
    if options.json:
        print(json.dumps([asdict(one) for one in found]))


if __name__ == "__main__":
    main()
