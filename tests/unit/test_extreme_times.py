"""Times up to both ends of 64 bits: each reader keeps them exactly, and no sum or difference wraps around."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nsys_builder
import perfetto_builder
import pytest
from capture_builder import CaptureBuilder
from round_trip import differences
from stores import query

import traceconv
from traceconv.cli.app import run
from traceconv.pipeline.ingest import ingest
from traceconv.reports.catalog import reports

MOST = 2**63 - 1
HALF = 2**62
#: Starts and ends; a duration is known where it and the end fit.
SPANS: dict[str, list[tuple[int, int]]] = {
    "late": [
        *((0, 5), (HALF - 1, HALF), (HALF, HALF + 1), (HALF + 2, HALF + 9)),
        *((MOST - 1000, MOST - 10), (MOST - 900, MOST - 500), (MOST - 7, MOST), (MOST, MOST)),
    ],
    "early": [(-MOST, -MOST), (-MOST + 1, -MOST + 8), (-HALF - 1, -HALF), (-1, 0), (0, 3)],
    "long": [(0, MOST), (1, MOST), (2, HALF)],
    "whole": [(-MOST, -HALF), (-HALF, HALF - 9), (-1, 1), (HALF, MOST)],
    "too long": [(-MOST, -MOST + 4), (-5, MOST), (7, 9), (MOST - 4, MOST)],
    "alike": [(-HALF, HALF - 1), (-HALF + 1, HALF - 1), (-HALF + 2, HALF - 1)],
}
Spans = list[tuple[int, int]]


def us(ns: int) -> str:
    """Microseconds, with three decimals."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03}"


def events(spans: Spans, unit: Callable[[int], str], shape: str) -> str:
    """Trace JSON: kernels with their calls, annotations, counters and markers."""
    found = []
    for place, (start, end) in enumerate(spans):
        args = {"device": 0, "stream": 7, "correlation": place + 1, "bytes": 4}
        kinds = {"gpu_memcpy": (0, 7), "kernel": (0, 8 + place), "cuda_runtime": (9, 1), "user_annotation": (9, 2)}
        for category, (pid, tid) in kinds.items():
            args_text = json.dumps({**args, "stream": tid})
            one = f'"name":"{category} {place}","cat":"{category}","pid":{pid},"tid":{tid}'
            if shape == "X":
                found.append(f'{{"ph":"X",{one},"ts":{unit(start)},"dur":{unit(end - start)},"args":{args_text}}}')
            else:
                # Ends of slices with a duration come first, so that they are matched in the order of time.
                found.append(f'{{"ph":"B",{one},"ts":{unit(start)},"args":{args_text}}}')
                found.insert(0 if end > start else len(found), f'{{"ph":"E",{one},"ts":{unit(end)}}}')
        found.append(f'{{"ph":"C","name":"c","pid":9,"ts":{unit(start)},"args":{{"v":{place}}}}}')
        found.append(f'{{"ph":"i","name":"i","pid":9,"tid":3,"ts":{unit(end)}}}')
        for ph, pid, tid in (("s", 9, 1), ("f", 0, 7)):
            found.append(
                f'{{"ph":"{ph}","id":{place + 1},"cat":"ac2g","name":"ac2g","bp":"e","pid":{pid},"tid":{tid},'
                f'"ts":{unit(start)}}}'
            )
    return ",\n".join(found)


def trace_us(path: Path, spans: Spans) -> None:
    path.write_text('{"schemaVersion":1,"traceEvents":[' + events(spans, us, "X") + "]}")


def trace_quoted(path: Path, spans: Spans) -> None:
    path.write_text("[" + events(spans, lambda ns: f'"{us(ns)}"', "X") + "]")


def trace_pairs(path: Path, spans: Spans) -> None:
    path.write_text('{"schemaVersion":1,"traceEvents":[' + events(spans, us, "B") + "]}")


def perfetto(path: Path, spans: Spans) -> None:
    data = perfetto_builder.process(1, 9, "p")
    for place, (start, end) in enumerate(spans):
        track = 100 + place
        data += perfetto_builder.thread(track, 9, track, f"t{place}")
        data += perfetto_builder.begin(start, track, f"n{place}") + perfetto_builder.end(end, track)
    path.write_bytes(data)


def speedscope(path: Path, spans: Spans) -> None:
    frames = [{"name": f"n{place}"} for place in range(len(spans))]
    profiles = [
        {
            "type": "evented", "name": f"p{place}", "unit": "nanoseconds", "startValue": start, "endValue": end,
            "events": [{"type": "O", "frame": place, "at": start}, {"type": "C", "frame": place, "at": end}],
        }
        for place, (start, end) in enumerate(spans)
    ] + [
        {
            "type": "sampled", "name": f"s{place}", "unit": "nanoseconds", "startValue": start, "endValue": end,
            "samples": [[place]], "weights": [end - start],
        }
        for place, (start, end) in enumerate(spans)
        if end - start <= MOST
    ]  # fmt: skip
    schema = "https://www.speedscope.app/file-format-schema.json"
    path.write_text(json.dumps({"$schema": schema, "shared": {"frames": frames}, "profiles": profiles}))


def nsys(path: Path, spans: Spans) -> None:
    db = nsys_builder.new_report(path)
    kernels = [nsys_builder.kernel(start, end, 1, place + 1) for place, (start, end) in enumerate(spans)]
    calls = [nsys_builder.call(start, end, 10, place + 1) for place, (start, end) in enumerate(spans)]
    nsys_builder.insert(db, "CUPTI_ACTIVITY_KIND_KERNEL", kernels)
    nsys_builder.insert(db, "CUPTI_ACTIVITY_KIND_RUNTIME", calls)
    db.commit()
    db.close()


def rocprofv3(path: Path, spans: Spans) -> None:
    times = [{"start_timestamp": start, "end_timestamp": end} for start, end in spans]
    agent = {"handle": 7}
    kernels = [
        {
            **one, "kind": 0, "operation": 0, "thread_id": 1, "correlation_id": {"internal": place + 1, "external": 0},
            "dispatch_info": {
                "agent_id": agent, "queue_id": {"handle": 1}, "kernel_id": 1, "dispatch_id": place + 1,
            },
        }
        for place, one in enumerate(times)
    ]  # fmt: skip
    calls = [
        {**one, "kind": 1, "operation": 0, "thread_id": 1, "correlation_id": {"internal": place + 1, "external": 0}}
        for place, one in enumerate(times)
    ]
    strings = {"buffer_records": [{"kind": "K", "operations": ["k"]}, {"kind": "H", "operations": ["hipLaunch"]}]}
    process = {
        "metadata": {"pid": 9, "node": {}},
        "agents": [{"id": agent, "type": 2, "name": "gfx90a", "logical_node_type_id": 0, "node_id": 0}],
        "counters": [],
        "strings": strings,
        "code_objects": [],
        "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": "k"}],
        "callback_records": {},
        "buffer_records": {"kernel_dispatch": kernels, "hip_api": calls},
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))


def furiosa(path: Path, spans: Spans) -> None:
    rows = [
        f"t1,,s{place},{start},{end},{category},n{place},1,0,0"
        for place, (start, end) in enumerate(spans)
        for category in ("Runtime", "NPU")
    ]
    head = "trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,pe_index,execution_index"
    path.write_text("\n".join([head, *rows, ""]))


def raw_log(path: Path, spans: Spans) -> None:
    # The last reading of the host's clock is where all spans begin, or nearly: a tick is 10 ns.
    base = sorted(start for start, _ in spans)[len(spans) // 2]
    builder = CaptureBuilder(path)
    room = base <= MOST - 2_000_000_000
    for place in (-2, -1, 0, 1) if room and base > -MOST + 4_000_000_000 else ():
        builder.sync(10**9 + place * 10**8, base + place * 10**9)
    for place, (start, end) in enumerate(spans):
        builder.call(place + 1, start, end, thread_id=place + 1)
        builder.task(place + 1, 10**9 + place * 10, 10**9 + place * 10 + 5, name="k", correlation_id=place + 1)
        builder.add("range", host_ns=start, thread_id=place + 1, span_id=place + 1, event="begin", kind="inference")
        builder.add("range", host_ns=end, thread_id=place + 1, span_id=place + 1, event="end")
        builder.add("memory", host_ns=start, block_id=place + 1, size_bytes=4, event="alloc", kind="block")
        builder.add("memory", host_ns=end, block_id=place + 1, size_bytes=4, event="free", kind="block")
    builder.close()


WRITERS: dict[str, tuple[Callable[[Path, Spans], None], str, str, int]] = {
    # writer, name of the file, table, rows of a span in it
    "trace JSON": (trace_us, "t.json", "slice", 4),
    "quoted times": (trace_quoted, "t.json", "slice", 4),
    "begins and ends": (trace_pairs, "t.json", "slice", 4),
    "Perfetto": (perfetto, "t.pftrace", "slice", 1),
    "speedscope": (speedscope, "t.speedscope.json", "slice", 2),
    "nsys": (nsys, "t.sqlite", "slice", 2),
    "rocprofv3": (rocprofv3, "t.json", "slice", 2),
    "Furiosa": (furiosa, "t.csv", "slice", 2),
    "raw log": (raw_log, "raw", "range", 1),
}


#: All that reports ask for is in what these write.
ASKED = {("begins and ends", name) for name in SPANS} | {
    ("Furiosa", "whole"),
    ("raw log", "whole"),
    ("raw log", "long"),
}
#: Writers of different tables; exports don't depend on the reader of a row.
ROUND_TRIPS = {"trace JSON", "begins and ends", "Perfetto", "speedscope", "raw log"}
#: Their reports differ little from those of others.
SIMILAR = {("begins and ends", "early"), ("begins and ends", "alike"), ("begins and ends", "long"), ("raw log", "long")}
CASES = [
    pytest.param(writer, name, marks=[pytest.mark.long] if (writer, name) in SIMILAR else [])
    for writer in WRITERS
    for name in SPANS
    if (writer, name) in ASKED or name in ("late", "too long")
]


@pytest.mark.parametrize(("writer", "name"), CASES)
def test_times_of_all_sizes(tmp_path: Path, capfd: pytest.CaptureFixture[str], writer: str, name: str) -> None:
    write, file, table, each = WRITERS[writer]
    path, store, spans = tmp_path / file, tmp_path / "s.duckdb", SPANS[name]
    write(path, spans)
    ingest([path], store)
    found = query(store, f'SELECT start_ns, dur_ns FROM "{table}" ORDER BY ALL')
    wanted = [(start, end - start if end - start <= MOST else None) for start, end in spans]
    expected = [one for one in wanted for _ in range(1 if one[1] is None and writer == "speedscope" else each)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    too_long = sum(dur is None for _, dur in found)
    logged = query(store, "SELECT sum(event_count) FROM import_log WHERE code = 'bad_duration'")
    assert (logged[0][0] or 0) >= too_long
    if (writer, name) in ASKED:
        answered(store, path, tmp_path, capfd)
    # It reads durations, but doesn't compute those of begin and end events.
    assert run(["info", str(path)]) in ((0, 3) if too_long else (0,))
    if writer in ROUND_TRIPS:
        round_trips(store, tmp_path)


def answered(store: Path, path: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Everything that can be asked has an answer, or one clear sentence."""
    row_ids = query(store, "SELECT table_name, id FROM slice ORDER BY start_ns, id LIMIT 3")
    with traceconv.open_store(store) as opened:
        for name in reports():
            opened.report(name).fetchall()
    commands = [["info", str(store)], ["verify", str(path)]]
    commands += [["why", table, str(id_), "--db", str(store)] for table, id_ in row_ids]
    commands += [["query", f"FROM {view}", "--db", str(store)] for view in ("launch_delay", "launching_range")]
    commands += [["query", f"FROM {view}", "--db", str(store)] for view in ("memory_usage", "perfetto.slice")]
    commands += [["query", "FROM perfetto.flow", "--db", str(store)]]
    commands += [["export", "memory-flow", "-o", str(folder / "m.svg"), "--db", str(store)]]
    for command in commands:
        code = run(command)
        out, err = capfd.readouterr()
        text = out + err
        assert code in (0, 1, 3), (command, text)
        assert "Traceback" not in text, (command, text)
        assert "verflow" not in text, (command, text)
        assert "Error:" not in text.replace("error: ", ""), (command, text)
        assert command[0] != "query" or code == 0, (command, text)


def round_trips(store: Path, folder: Path) -> None:
    """Exports are read again to the same rows."""
    for kind, file in (("chrome", "e.json"), ("perfetto", "e.pftrace")):
        assert run(["export", kind, "-o", str(folder / file), "--db", str(store)]) == 0
        again = folder / f"{kind}.duckdb"
        assert run(["ingest", str(folder / file), "--db", str(again)]) in (0, 3)
        if kind == "chrome":
            assert differences(store, again) == []
        else:
            rows = "SELECT start_ns, dur_ns FROM slice ORDER BY ALL"
            assert query(again, rows) == query(store, rows)
