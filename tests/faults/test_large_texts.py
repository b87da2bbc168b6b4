"""Large texts are stored up to the limit; beyond it, only the text that exceeds it is lost."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from ingest_checks import taken
from stores import query

from traceconv import Store
from traceconv.formats.common.limits import Limits
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.trace_file import TraceOptions

MB = 1 << 20
SMALL = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}'


def large(size: int, key: str = "args") -> str:
    text = f'"{"x" * size}"'
    value = {"args": f'"args":{{"s":{text}}}', "name": f'"name":{text}', "extra": f'"cname":{text}'}[key]
    return f'{{"ph":"X","pid":1,"tid":1,"ts":5,"dur":2,{value}}}'


@pytest.mark.parametrize("key", ["args", "name", pytest.param("extra", marks=pytest.mark.long)])
def test_a_text_of_50_mb_is_stored_and_does_not_stop_other_files(key: str, tmp_path: Path) -> None:
    one, two, store = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "t.duckdb"
    one.write_text(f'{{"traceEvents":[{SMALL},{large(50 * MB, key)},{SMALL}]}}')
    two.write_text(f"[{SMALL}]")
    runs = ingest([one, two], store)
    assert [run.lossy for run in runs] == [False, False]
    assert query(store, "SELECT count(*) FROM slice GROUP BY run_id ORDER BY run_id") == [(3,), (1,)]
    column = "name" if key == "name" else "args"
    assert query(store, f"SELECT max(length({column})) > {50 * MB - 1} FROM range") == [(True,)]


def test_a_key_of_50_mb_next_to_the_events_is_stored(tmp_path: Path) -> None:
    run, store = taken(f'{{"traceEvents":[{SMALL}],"notes":"{"x" * 50 * MB}"}}', tmp_path, "one.json")
    assert not run.lossy
    assert query(store, f"SELECT length(options) > {50 * MB} FROM run") == [(True,)]


@pytest.mark.parametrize("layout", ["[{0},{1},{0}]", '{{"traceEvents":[{0},{1},{0}],"a":1}}', "{0}\n{1}\n{0}\n"])
def test_an_event_beyond_the_limit_is_one_loss(layout: str, tmp_path: Path) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "t.duckdb"
    path.write_text(layout.format(SMALL, large(30 * MB)))
    (run,) = ingest([path], store, trace_options=TraceOptions(Limits(event_bytes=16 * MB)))
    assert [entry.code.text for entry in run.log if entry.event_count] == ["too_large"]
    assert sum(entry.event_count or 0 for entry in run.log) == 1
    assert next(entry for entry in run.log).byte_offset == path.read_text().index(large(1)[:40])
    assert query(store, "SELECT count(*) FROM slice") == [(2,)]


def test_many_large_events_are_skipped_one_by_one(tmp_path: Path) -> None:
    run, store = taken(
        "[" + ",".join([SMALL, *[large(14 * MB) + "," + SMALL] * 5]) + "]",
        tmp_path,
        trace_options=TraceOptions(Limits(event_bytes=16 * MB)),
    )
    assert [entry.code.text for entry in run.log if entry.code.severity.value != "info"] == ["too_large"] * 3
    assert query(store, "SELECT count(*) FROM slice") == [(8,)]


HOSTILE = {
    "endless string": (b'[{"ph":"X","name":"', b"x" * MB, 120),
    "endless nesting": (b'[{"ph":"X","args":', b"[" * MB, 120),
    "endless keys": (b'[{"ph":"X","args":{', b'"k":1,' * 170_000, 120),
    "endless key": (b'{"', b"k" * MB, 90),
    "endless padding": (b"[" + SMALL.encode() + b"]", b"\0" * MB, 200),
    "endless blanks": (b"[" + SMALL.encode(), b" " * MB, 200),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process its peak")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind == "endless padding" else ()) for kind in HOSTILE]
)
def test_memory_is_bounded_for_any_unterminated_value(kind: str, tmp_path: Path) -> None:
    lead, unit, count = HOSTILE[kind]
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(lead)
        for _ in range(count):
            file.write(unit)
    # The peak of a process that was forked is that of its parent at first: the program asks for its own.
    program = (
        "import sys\nfrom traceconv.cli.app import run\ncode = run(sys.argv[1:])\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))\nsys.exit(code)"
    )
    command = [sys.executable, "-c", program, "ingest", str(path), "--db", str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 3), done.stderr
    assert int(done.stdout.split()[1]) < 480 << 10


@pytest.mark.parametrize(("key", "size", "count"), [("name", 1500, 80_000), ("args", 120_000, 1200)])
def test_many_different_texts_are_stored_and_read_again(key: str, size: int, count: int, tmp_path: Path) -> None:
    path, store = tmp_path / "trace.json", tmp_path / "t.duckdb"
    with path.open("w") as file:
        file.write("[" + SMALL)
        for number in range(count):
            text = f"{number:06d}" + "x" * (size - 6)
            named = f'"name":"{text}"' if key == "name" else f'"name":"n","args":{{"s":"{text}"}}'
            file.write(f',{{"ph":"X","pid":1,"tid":1,"ts":{5 * number + 9},"dur":2,{named}}}')
        file.write("]")
    ingest([path], store)
    place = 1 if key == "name" else len('{"s":"') + 1
    texts = f"SELECT count(*), count(DISTINCT substr({key}, {place}, 6)), min(length({key})), max(length({key}))"
    stored = f"{texts} FROM range WHERE length({key}) > 1"
    [(rows, different, shortest, longest)] = query(store, stored)
    assert (rows, different) == (count, count) and size <= shortest == longest
    with Store(store) as opened:
        opened.export_chrome(tmp_path / "out.json")
        opened.export_parquet(tmp_path / "lake")
    for source in ("out.json", "lake"):
        other = tmp_path / f"{source}.duckdb"
        ingest([tmp_path / source], other)
        assert query(other, stored) == [(rows, different, shortest, longest)]
