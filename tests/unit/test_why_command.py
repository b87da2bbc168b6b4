"""`traceconv why`: its output, and the errors if there is nothing to show."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import duckdb
import pytest
from commands import Command, Written
from ingest_checks import taken
from stores import query

from traceconv.formats.locate import MAX_BYTES
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.text import pretty

FIRST = 1 << 40


def stored(tmp_path: Path, events: list[dict[str, object]], name: str = "trace.json") -> tuple[Path, Path]:
    return tmp_path / name, taken(events, tmp_path, name)[1]


def event(name: str = "one", **more: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 2, **more}


def ask(command: Command, store: Path, *words: object, code: int = 0) -> Written:
    return command("why", *words, "--db", store, code=code)


def test_event_is_shown_with_its_byte_offset(tmp_path: Path, command: Command) -> None:
    path, store = stored(tmp_path, [event(), event("two", args={"a": 1.50})])
    out, err = ask(command, store, "slice", FIRST + 1)
    at = path.read_bytes().index(b'{"ph": "X", "name": "two"')
    size = path.stat().st_size - 1 - at
    assert err == ""
    assert f"trace.json, bytes {at} to {at + size} ({size} bytes)" in out
    assert '"name": "two"' in out
    assert "start_ns" in out


def test_json_contains_the_row_and_its_evidence(tmp_path: Path, command: Command) -> None:
    path, store = stored(tmp_path, [event()])
    out = ask(command, store, "range", FIRST, "--json").out
    found = json.loads(out)
    assert found["rows"][0]["dur_ns"] == 2000
    (piece,) = found["evidence"]
    assert path.read_text()[piece["byte_offset"] :][: piece["byte_count"]] == piece["text"]


def test_control_characters_in_names_are_escaped_on_a_terminal(tmp_path: Path, command: Command) -> None:
    text = '[{"ph":"X","name":"\x1b[31mred","cat":"\x9b2J","pid":1,"tid":1,"ts":1,"dur":1}]'
    _, store = taken(text, tmp_path)
    out = ask(command, store, "slice", FIRST).out
    assert "red" in out
    assert all(character.isprintable() or character == "\n" for character in out)


def test_large_event_is_truncated(tmp_path: Path, command: Command) -> None:
    _, store = stored(tmp_path, [event(args={"text": "x" * 300_000})])
    out = ask(command, store, "slice", FIRST).out
    assert len(out) < 2 * MAX_BYTES
    assert "more bytes" in out
    out = ask(command, store, "slice", FIRST, "--json").out
    (piece,) = json.loads(out)["evidence"]
    assert piece["cut"]
    assert len(piece["text"]) == MAX_BYTES
    assert len(out) < 4 * MAX_BYTES


@pytest.mark.parametrize(
    "words, message",
    [
        (("slice", "7"), f"Nearest: {FIRST}"),
        (("task", str(FIRST)), f"It is in range; use: traceconv why range {FIRST}"),
        (("slice", "9" * 30), "is not an id"),
        (("op_statistic", "1"), "computed"),
        (("import_log", "1"), "by ingest itself"),
        (("slice", str(FIRST), "--run", "7"), "unknown run '7'"),
    ],
)
def test_unknown_row_is_an_error_that_names_the_nearest(
    words: tuple[str, ...], message: str, tmp_path: Path, command: Command
) -> None:
    _, store = stored(tmp_path, [event()])
    out, err = ask(command, store, *words, code=2)
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_missing_or_changed_source_is_reported(tmp_path: Path, command: Command) -> None:
    path, store = stored(tmp_path, [event("one"), event("two")])
    text = path.read_bytes()
    path.write_bytes(text.replace(b"two", b"owt"))
    err = ask(command, store, "slice", FIRST, code=1).err
    assert "has changed since ingest: its checksum" in err
    path.write_bytes(text[:-9])
    err = ask(command, store, "slice", FIRST, code=1).err
    assert f"it has {len(text) - 9} bytes and had {len(text)}" in err
    path.write_bytes(text + b"\n")  # it only grew: what was read is there
    ask(command, store, "slice", FIRST)
    moved = path.rename(tmp_path / "elsewhere.json")
    err = ask(command, store, "slice", FIRST, code=1).err
    assert err.count("\n") == 1
    assert "does not exist; if it was moved, use --source PATH" in err
    ask(command, store, "slice", FIRST, "--source", moved)
    ask(command, store, "slice", FIRST, "--source", tmp_path / "none", code=1)


def test_standard_input_cannot_be_read_again(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "trace.duckdb"
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps([event()]))
    with kept.open("rb") as stdin:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stdin})())
        ingest([Path("-")], store)
    err = ask(command, store, "slice", FIRST, code=1).err
    assert "read from standard input" in err
    ask(command, store, "slice", FIRST, "--source", kept)


def test_relative_path_is_found_next_to_the_store(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.json.gz").write_bytes(gzip.compress(json.dumps([event()]).encode()))
    ingest([Path("trace.json.gz")], Path("trace.duckdb"))
    monkeypatch.chdir("/")
    out = ask(command, tmp_path / "trace.duckdb", "slice", FIRST).out
    assert "of the decompressed gzip data" in out


def test_replaced_raw_log_is_reported(tmp_path: Path, command: Command) -> None:
    sample = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"
    shutil.copytree(sample, tmp_path / "raw")
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path / "raw"], store)
    (log,) = (tmp_path / "raw").rglob("task.slice_0.bin")
    damaged = bytearray(log.read_bytes())
    damaged[1300] ^= 1  # inside of the first tasks
    log.write_bytes(damaged)
    assert "has changed since ingest" in ask(command, store, "task", _some_task(store), code=1).err
    log.unlink()
    err = ask(command, store, "task", _some_task(store), code=1).err
    assert "does not exist" in err


def test_single_log_file_outside_a_capture(tmp_path: Path, command: Command) -> None:
    (log,) = (Path(__file__).parents[2] / "sample_traces" / "mini_resnet").rglob("task.slice_0.bin")
    alone = tmp_path / "alone" / log.name
    alone.parent.mkdir()
    shutil.copy(log, alone)
    store = tmp_path / "trace.duckdb"
    ingest([alone], store)
    out = ask(command, store, "task", _some_task(store)).out
    assert "its start: task.slice_0.bin, bytes" in out


def _some_task(store: Path) -> str:

    return str(query(store, "SELECT min(id) FROM task")[0][0])


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1.50,"b":[1,2,{"c":"x\\u00e9"}],"d":-1e5}',
        '{"args":{"long":"' + "x" * 90 + '","more":[' + ",".join(["12345678901234567890"] * 9) + "]}}",
        '{"a":"' + "y" * 80 + '"}',
        "[]",
        '{"open": [1, 2',
    ],
)
def test_pretty_changes_only_whitespace(text: str) -> None:
    shown = pretty(text)
    assert "".join(shown.split()) == "".join(text.split())


@pytest.mark.parametrize("offset, count, code", [(-5, 10, 1), (1 << 62, 10, 0), (0, 1 << 62, 0), (3, 7, 0)])
def test_invalid_byte_range_in_the_store(offset: int, count: int, code: int, tmp_path: Path, command: Command) -> None:
    _, store = stored(tmp_path, [event("one"), event("two")])
    with duckdb.connect(str(store)) as connection:
        connection.execute("UPDATE source_block SET byte_offset = ?, byte_count = ?", [offset, count])
    assert "Traceback" not in ask(command, store, "slice", FIRST, code=code).err
