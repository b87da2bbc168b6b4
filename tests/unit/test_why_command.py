"""`traceconv why`: its output, and the errors if there is nothing to show."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import duckdb
import pytest
from ingest_checks import taken
from stores import query

from traceconv.cli import app
from traceconv.formats.locate import MAX_BYTES
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.text import pretty

FIRST = 1 << 40


def stored(tmp_path: Path, events: list[dict[str, object]], name: str = "trace.json") -> tuple[Path, Path]:
    return tmp_path / name, taken(events, tmp_path, name)[1]


def event(name: str = "one", **more: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 2, **more}


def ask(capfd: pytest.CaptureFixture[str], store: Path, *words: str) -> tuple[int, str, str]:
    code = app.run(["why", *words, "--db", str(store)])
    out, err = capfd.readouterr()
    return code, out, err


def test_event_is_shown_with_its_byte_offset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, store = stored(tmp_path, [event(), event("two", args={"a": 1.50})])
    code, out, err = ask(capfd, store, "slice", str(FIRST + 1))
    at = path.read_bytes().index(b'{"ph": "X", "name": "two"')
    size = path.stat().st_size - 1 - at
    assert code == 0
    assert err == ""
    assert f"trace.json, bytes {at} to {at + size} ({size} bytes)" in out
    assert '"name": "two"' in out
    assert "start_ns" in out


def test_json_contains_the_row_and_its_evidence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, store = stored(tmp_path, [event()])
    code, out, _ = ask(capfd, store, "range", str(FIRST), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["rows"][0]["dur_ns"] == 2000
    (piece,) = found["evidence"]
    assert path.read_text()[piece["byte_offset"] :][: piece["byte_count"]] == piece["text"]


def test_control_characters_in_names_are_escaped_on_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = '[{"ph":"X","name":"\x1b[31mred","cat":"\x9b2J","pid":1,"tid":1,"ts":1,"dur":1}]'
    _, store = taken(text, tmp_path)
    code, out, _ = ask(capfd, store, "slice", str(FIRST))
    assert code == 0
    assert "red" in out
    assert all(character.isprintable() or character == "\n" for character in out)


def test_large_event_is_truncated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, store = stored(tmp_path, [event(args={"text": "x" * 300_000})])
    code, out, _ = ask(capfd, store, "slice", str(FIRST))
    assert code == 0
    assert len(out) < 2 * MAX_BYTES
    assert "more bytes" in out
    code, out, _ = ask(capfd, store, "slice", str(FIRST), "--json")
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
        (("slice", str(FIRST), "--run", "all"), "the origin of a row needs a single run"),
    ],
)
def test_unknown_row_is_an_error_that_names_the_nearest(
    words: tuple[str, ...], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, store = stored(tmp_path, [event()])
    code, out, err = ask(capfd, store, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_missing_or_changed_source_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, store = stored(tmp_path, [event("one"), event("two")])
    text = path.read_bytes()
    path.write_bytes(text.replace(b"two", b"owt"))
    code, _, err = ask(capfd, store, "slice", str(FIRST))
    assert code == 1
    assert "has changed since ingest: its checksum" in err
    path.write_bytes(text[:-9])
    code, _, err = ask(capfd, store, "slice", str(FIRST))
    assert code == 1
    assert f"it has {len(text) - 9} bytes and had {len(text)}" in err
    path.write_bytes(text + b"\n")  # it only grew: what was read is there
    assert ask(capfd, store, "slice", str(FIRST))[0] == 0
    moved = path.rename(tmp_path / "elsewhere.json")
    code, _, err = ask(capfd, store, "slice", str(FIRST))
    assert code == 1
    assert err.count("\n") == 1
    assert "does not exist; if it was moved, use --source PATH" in err
    assert ask(capfd, store, "slice", str(FIRST), "--source", str(moved))[0] == 0
    assert ask(capfd, store, "slice", str(FIRST), "--source", str(tmp_path / "none"))[0] == 1


def test_standard_input_cannot_be_read_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "trace.duckdb"
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps([event()]))
    with kept.open("rb") as stdin:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stdin})())
        ingest([Path("-")], store)
    code, _, err = ask(capfd, store, "slice", str(FIRST))
    assert code == 1
    assert "read from standard input" in err
    assert ask(capfd, store, "slice", str(FIRST), "--source", str(kept))[0] == 0


def test_relative_path_is_found_next_to_the_store(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.json.gz").write_bytes(gzip.compress(json.dumps([event()]).encode()))
    ingest([Path("trace.json.gz")], Path("trace.duckdb"))
    monkeypatch.chdir("/")
    code, out, _ = ask(capfd, tmp_path / "trace.duckdb", "slice", str(FIRST))
    assert code == 0
    assert "of the decompressed gzip data" in out


def test_replaced_raw_log_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sample = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"
    shutil.copytree(sample, tmp_path / "raw")
    store = tmp_path / "trace.duckdb"
    ingest([tmp_path / "raw"], store)
    (log,) = (tmp_path / "raw").rglob("task.slice_0.bin")
    damaged = bytearray(log.read_bytes())
    damaged[1300] ^= 1  # inside of the first tasks
    log.write_bytes(damaged)
    with_tasks = ask(capfd, store, "task", _some_task(store))
    assert with_tasks[0] == 1
    assert "has changed since ingest" in with_tasks[2]
    log.unlink()
    code, _, err = ask(capfd, store, "task", _some_task(store))
    assert code == 1
    assert "does not exist" in err


def test_single_log_file_outside_a_capture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (log,) = (Path(__file__).parents[2] / "sample_traces" / "mini_resnet").rglob("task.slice_0.bin")
    alone = tmp_path / "alone" / log.name
    alone.parent.mkdir()
    shutil.copy(log, alone)
    store = tmp_path / "trace.duckdb"
    ingest([alone], store)
    code, out, _ = ask(capfd, store, "task", _some_task(store))
    assert code == 0
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


@pytest.mark.parametrize("offset, count", [(-5, 10), (1 << 62, 10), (0, 1 << 62), (3, 7)])
def test_invalid_byte_range_in_the_store(
    offset: int, count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, store = stored(tmp_path, [event("one"), event("two")])
    with duckdb.connect(str(store)) as connection:
        connection.execute("UPDATE source_block SET byte_offset = ?, byte_count = ?", [offset, count])
    code, _, err = ask(capfd, store, "slice", str(FIRST))
    assert code in (0, 1)
    assert "Traceback" not in err
