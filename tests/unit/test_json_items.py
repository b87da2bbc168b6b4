"""Items of JSON documents that are not traces: read exactly as a rule file specifies, from any document."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import duckdb
import ijson
import pytest
from commands import Command

from traceconv.base.diagnostics import Account, Accounts, Code, ImportLog
from traceconv.base.errors import InputError
from traceconv.cli.app import run
from traceconv.events.items import Items
from traceconv.events.trace import TOO_LONG
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.json_items import reader
from traceconv.formats.json_items.outline import outline
from traceconv.formats.json_items.reader import JsonItemsReader
from traceconv.provenance.find import why
from traceconv.store.database import open_store

PLAIN = Items("r.k.item", "us", "name", "begin", end="end", device="dev", stream="q", thread="t", category="kind")


class Read:
    """What the reader makes of a text."""

    def __init__(self, folder: Path, text: bytes, *items: Items, limits: Limits | None = None) -> None:
        path = folder / "doc.json"
        path.write_bytes(text)
        self.log, self.accounts = ImportLog(), Accounts()
        request = ReadRequest(path, self.log, self.accounts, limits or Limits(), items=items or (PLAIN,))
        reader = JsonItemsReader(request)
        self.rows: list[tuple[Any, ...]] = []
        self.batch_rows: list[int] = []
        self.tracks: list[Any] = []
        for batch in reader.batches():
            columns, self.tracks = batch.columns, [*self.tracks, *batch.names]
            self.batch_rows.append(columns.count)
            labels = [list(columns.label(field)) for field in ("name", "cat", "pid", "tid")]
            raw = [columns.raw[field].to_pylist() for field in ("ts", "dur", "args")]
            self.rows += zip(*labels, *raw, strict=True)
        self.blocks, self.size_bytes = reader.blocks, reader.size_bytes
        self.accounts.check()

    @property
    def codes(self) -> list[Code]:
        return [entry.code for entry in self.log]


def recount(text: bytes, unit: int = 1000) -> list[tuple[Any, ...]]:
    """The rows of a sound document as PLAIN has them, by other means."""
    found = []
    for item in json.loads(text, parse_float=Decimal)["r"]["k"]:
        start, end = (int((Decimal(item[key]) * unit).to_integral_value(ROUND_HALF_EVEN)) for key in ("begin", "end"))
        found.append((item["name"], start, end - start))
    return found


def document(count: int, **more: object) -> bytes:
    items = [
        {"name": f"k{i % 7}", "begin": i + 0.125, "end": i + 3, "dev": i % 2, "q": 5, "kind": "x", "n": {"a": [i, {}]}}
        for i in range(count)
    ]
    return json.dumps({"meta": {"v": [1, 2]}, "r": {"k": items, **more}, "z": [[]]}).encode()


def test_all_fields_of_an_item(tmp_path: Path) -> None:
    item = (
        b'{"name":"gemm","begin":"1.5","end":2.0005,"dev":1,"q":"copy","t":3,"kind":7,"f":1.50,'
        b'"big":123456789012345678901234567890,"n":{"a":[1e5,"\\u00e9"]},"no":null}'
    )
    read = Read(tmp_path, b'{"r":{"k":[' + item + b',{"name":5,"begin":3,"end":4,"t":9}]}}')
    args = b'{"f":1.50,"big":123456789012345678901234567890,"n":{"a":[1E+5,"\xc3\xa9"]},"no":null}'
    assert read.rows == [
        ("gemm", "7", "device 1", "copy", 1500, 500, args),
        ("5", None, None, "thread 9", 3000, 1000, b""),
    ]
    assert read.codes == [Code.FINE_TIME]  # 2000.5 ns
    assert ("device 1", "copy", "copy") in [name[:3] for name in read.tracks]


@pytest.mark.parametrize(("unit", "factor"), [("ns", 1), ("us", 1000), ("ms", 10**6), ("s", 10**9)])
def test_units_and_durations(tmp_path: Path, unit: str, factor: int) -> None:
    items = Items("item", unit, "n", "at.start", duration="at.len", duration_unit="ns", args=("x.y", "z"))
    text = b'[{"n":"a","at":{"start":3,"len":7},"x":{"y":1},"z":2,"w":3},{"n":"b","at":{"start":-1e0,"len":-5}}]'
    read = Read(tmp_path, text, items)
    assert [row[4:] for row in read.rows] == [(3 * factor, 7, b'{"x.y":1,"z":2}'), (-factor, -5, b"")]


def test_limits_of_64_bits_and_values_that_are_not_numbers(tmp_path: Path) -> None:
    items = Items("item", "ns", "n", "s", duration="d")
    far, bad = 2**63, ('"x"', "true", "[1]", "null", "1e999999", '"1e99999999999999999999"', '"' + "1" * 500 + '"')
    pairs = [(str(far - 1), "0"), (str(far), "1"), (str(1 - far), str(far - 1)), (str(-far), "1"), ("0", str(far))]
    pairs += [("9223372036854775806.5", "0.5")] + [("1", one) for one in bad] + [(one, "1") for one in bad]
    text = ",".join(f'{{"n":"a","s":{start},"d":{dur}}}' for start, dur in pairs)
    read = Read(tmp_path, f"[{text}]".encode(), items)
    starts, durs = [row[4] for row in read.rows], [row[5] for row in read.rows]
    assert starts[:6] == [far - 1, None, 1 - far, None, 0, far - 2]
    assert durs[:6] == [0, 1, far - 1, 1, TOO_LONG, 0]
    assert durs[6:13] == [None if one == "null" else TOO_LONG for one in bad]
    assert starts[13:] == [None] * len(bad)


@pytest.mark.parametrize("digits", [399, 400, 5000, 100_000])
def test_huge_numbers_are_kept(tmp_path: Path, digits: int) -> None:
    number = b"7" * digits
    text = b'{"r":{"k":[{"name":"a","begin":1,"end":2},{"name":"b","begin":2,"end":3,"x":' + number + b"}]}}"
    read = Read(tmp_path, text)
    assert read.rows[1][6] == b'{"x":' + number + b"}"
    assert [row[0] for row in read.rows] == ["a", "b"]


def test_a_recount(tmp_path: Path) -> None:
    text = document(5000)
    read = Read(tmp_path, text)
    assert [(row[0], *row[4:6]) for row in read.rows] == recount(text)
    assert read.size_bytes == len(text)
    assert not read.codes
    assert read.accounts.by_record == {"items r.k.item": Account(5000, used=5000)}
    assert sum(count for _, count, _, _ in read.blocks) == 5000
    # Each block is a stretch in which all of its items begin and end, of the size of a chunk.
    place = 0
    for _, count, offset, size in read.blocks:
        assert offset is not None
        assert size is not None
        assert size <= 3 << 16
        piece = text[offset : offset + size]
        assert piece.count(b'"begin"') == count
        assert offset >= place
        place = offset + size


def test_memory_is_bounded(tmp_path: Path) -> None:
    read = Read(tmp_path, document(60_000))
    assert len(read.rows) == 60_000
    assert max(read.batch_rows) < 20_000


def test_damage_at_every_byte_keeps_all_intact_items(tmp_path: Path) -> None:
    text = (
        b'{"r":{"k":['
        + b",".join(b'{"name":"k%d","begin":%d,"end":%d,"a":{"b":[1,"]"]}}' % (i, i, i + 1) for i in range(5))
        + b"]}}"
    )
    places = [(text.index(b'{"name":"k%d"' % i), text.index(b'"]"]}}', text.index(b'"k%d"' % i)) + 6) for i in range(5)]
    for at in range(text.index(b"{", 11), len(text)):
        for damaged in (text[:at] + b"\x01" + text[at + 1 :], text[:at]):
            try:
                read = Read(tmp_path, damaged)
            except InputError:
                read = None
            names = [row[0] for row in read.rows] if read is not None else []
            intact = [
                f"k{i}" for i, (start, end) in enumerate(places) if end <= at or (start > at and len(damaged) > at)
            ]
            assert [name for name in names if name in intact] == intact, damaged
            assert len(names) == len(set(names)), damaged
            if read is not None and len(names) < 5:
                assert any(code in read.codes for code in (Code.DAMAGED_EVENT, Code.CUT_EVENT, Code.NO_END)), damaged


def test_surrogates_do_not_change(tmp_path: Path) -> None:
    names = [b"\\ud83d\\ude00", b"a\\ud800b", b"\\ude00", b"plain", "\U0001f600".encode()]
    items = b",".join(b'{"name":"%s","begin":%d,"end":9}' % (name, i) for i, name in enumerate(names))
    read = Read(tmp_path, b'{"r":{"k":[' + items + b"]}}")
    assert [row[0] for row in read.rows] == ["\U0001f600", "a\\ud800b", "\\ude00", "plain", "\U0001f600"]
    far = document(3000).replace(b'"k5"', b'"\\ud83d\\ude00"')
    assert [row[0] for row in Read(tmp_path, far).rows] == [row[0] for row in recount(far)]


def test_keys_with_a_dot_and_duplicate_keys(tmp_path: Path) -> None:
    text = b'{"r":{"k":[{"name":"a","name":"b","begin":1,"end":2,"t.x":4,"n":{"c":1,"c":2}}]}}'
    items = Items("r.k.item", "us", "name", "begin", end="end", thread="t.x")
    for one in (text, text.replace(b'"a"', b'"\\ud800"')):
        read = Read(tmp_path, one, items)
        assert [row[:4] for row in read.rows] == [("b", None, None, None)]
        assert read.rows[0][6] == b'{"t.x":4,"n":{"c":2}}'
        (dotted,) = [entry for entry in read.log if entry.code is Code.UNADDRESSABLE]
        assert "t.x" in dotted.message
        assert [entry.event_count for entry in read.log if entry.code is Code.REPEATED_KEY] == [2]


def test_items_that_are_not_objects(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are arrays"):
        Read(tmp_path, b'{"r":{"k":[[1,2],[3,4]]}}')
    with pytest.raises(InputError, match=r"no items at 'r\.k\.item'; list the document's prefixes"):
        Read(tmp_path, b'{"r":{"kernels":[{}]}}')
    read = Read(tmp_path, b'{"r":{"k":[1,[2],{"name":"a","begin":1,"end":2},null]}}')
    assert len(read.rows) == 1
    assert read.accounts["items r.k.item"] == Account(4, used=1, lost=3)
    assert {entry.event_count for entry in read.log if entry.code is Code.NOT_AN_EVENT} == {3}


def test_concatenated_documents_and_single_items(tmp_path: Path) -> None:
    line = b'{"name":"%s","begin":1,"end":2}\n'
    lines = Items("", "us", "name", "begin", end="end")
    for third in (b"c", b"\\ud83d\\ude00"):
        read = Read(tmp_path, b"\xef\xbb\xbf" + line % b"a" + line % b"b" + line % third, lines)
        assert len(read.rows) == 3
    one = Items("r.k", "us", "name", "begin", end="end")
    assert len(Read(tmp_path, b'{"r":{"k":{"name":"a","begin":1,"end":2}}}', one).rows) == 1


@pytest.mark.parametrize("nested", [b"[" * 100_000, b'{"a":' * 50_000, b'["]",' * 50_000])
def test_deep_nesting_does_no_harm(tmp_path: Path, nested: bytes) -> None:
    text = b'{"r":{"k":[{"name":"a","begin":1,"end":2},{"name":"b","begin":2,"end":3,"x":'
    read = Read(tmp_path, text + nested)
    assert [row[0] for row in read.rows] == ["a"]
    assert read.log.lossy


COPIES = Items("r.c.item", "ns", "what", "from", duration="for", thread="engine", fixed_category="copy")


def two_tables(count: int, *, mixed: bool) -> bytes:
    """Kernels and copies: one list after the other, or some of both on each line."""
    copies = [{"what": f"c{i % 3}", "from": 7 * i, "for": i % 5, "engine": i % 2, "bytes": i} for i in range(count)]
    if not mixed:
        return document(count, c=copies)
    kernels = json.loads(document(count))["r"]["k"]
    pairs = ({"r": {"c": copies[i : i + 3], "k": kernels[i : i + 3]}} for i in range(0, count, 3))
    return "\n".join(map(json.dumps, pairs)).encode()


@pytest.mark.parametrize("mixed", [False, True])
def test_two_tables_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mixed: bool) -> None:
    monkeypatch.setattr(JsonItemsReader, "_continued", None)  # the limit of one event is not that of a table
    monkeypatch.setattr(reader, "_BATCH", 1000)
    text = two_tables(6000, mixed=mixed)
    read = Read(tmp_path, text, PLAIN, COPIES, limits=Limits(event_bytes=200_000))
    kernels = [row for row in read.rows if row[0].startswith("k")]
    copies = [row for row in read.rows if row[0].startswith("c")]
    assert [(row[0], *row[4:6]) for row in kernels] == recount(two_tables(6000, mixed=False))
    assert [row[:6] for row in copies] == [
        (f"c{i % 3}", "copy", None, f"thread {i % 2}", 7 * i, i % 5) for i in range(6000)
    ]
    assert [json.loads(row[6])["bytes"] for row in copies] == list(range(6000))
    assert read.accounts.by_record == {
        "items r.k.item": Account(6000, used=6000), "items r.c.item": Account(6000, used=6000),
    }  # fmt: skip
    assert max(read.batch_rows) < 3000
    assert not read.codes
    ids = [first for first, _, _, _ in read.blocks]
    assert ids == [(1 << 40) + sum(count for _, count, _, _ in read.blocks[:i]) for i in range(len(ids))]


def test_damage_at_every_byte_of_two_tables_keeps_all_intact_items(tmp_path: Path) -> None:
    kernels = [b'{"name":"k%d","begin":%d,"end":%d}' % (i, i, i + 1) for i in range(3)]
    copies = [b'{"what":"c%d","from":%d,"for":1}' % (i, i) for i in range(3)]
    text = b'{"r":{"c":[' + b",".join(copies) + b'],"k":[' + b",".join(kernels) + b"]}}"
    places = {item[9:11].decode(): (text.index(item), text.index(item) + len(item)) for item in (*copies, *kernels)}
    between = text.index(b'}],"k":['), text.index(kernels[0])
    for at in range(text.index(copies[0]), len(text)):
        read = Read(tmp_path, text[:at] + b"\x01" + text[at + 1 :], PLAIN, COPIES)
        names = [row[0] for row in read.rows]
        # Without the bracket that ends the last copy, or the key of the next list, that list can't be found.
        if not between[0] <= at < between[1]:
            intact = [name for name, (start, end) in places.items() if not start <= at <= end]
            assert sorted(name for name in names if name in intact) == intact, at
        assert len(names) == len(set(names)), at
        assert len(names) == 6 or read.log.lossy or Code.NO_ITEMS in read.codes, at


def test_a_table_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    read = Read(tmp_path, document(3), PLAIN, COPIES)
    assert [(entry.code, entry.message) for entry in read.log] == [(Code.NO_ITEMS, "no items at 'r.c.item'")]
    assert read.accounts["items r.c.item"] == Account()
    with pytest.raises(InputError, match=r"no items at 'r\.x', 'r\.y'; list the document's prefixes"):
        Read(tmp_path, document(3), *(Items(prefix, "us", "n", "s", end="e") for prefix in ("r.x", "r.y")))


RULES = """
title = "Orca"
[items]
prefix = "r.k.item"
unit = "us"
name = "name"
start = "begin"
end = "end"
device = "dev"
stream = "q"
[[rule]]
process = 'device (?P<device_id>\\d+)'
thread = 'stream (?P<stream_id>\\d+)'
table = "task"
set = { kind = "compute" }
"""


def test_ingest_and_why(tmp_path: Path, command: Command) -> None:
    text = document(3000)
    (tmp_path / "doc.json").write_bytes(text)
    (tmp_path / "damaged.json").write_bytes(text[:70_000] + b"\x01" + text[70_001:])
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "other.json").write_text('{"rows": [1]}')
    store = ["--db", str(tmp_path / "s.duckdb")]
    names = ["doc.json", "damaged.json"]
    command("ingest", *(str(tmp_path / name) for name in names), "--rules", tmp_path / "rules.toml", *store, code=3)
    expected = recount(text)
    with duckdb.connect(str(tmp_path / "s.duckdb"), read_only=True) as connection:
        sql = "SELECT name, start_ns, dur_ns, device_id, stream_id, kind FROM task WHERE run_id = 1 ORDER BY start_ns"
        rows = connection.execute(sql).fetchall()
        places = connection.execute("SELECT run_id, id, start_ns FROM task ORDER BY run_id, start_ns").fetchall()
        lost = connection.execute("SELECT sum(event_count) FROM import_log WHERE severity = 'data_loss'").fetchone()
    assert rows == [(*row, i % 2, 5, "compute") for i, row in enumerate(expected)]
    assert len(places) == 5999
    assert lost == (1,)
    for run_id, task_id, start_ns in (places[0], places[777], places[2999], places[3000], places[-2], places[-1]):
        (found,) = json.loads(command("why", "task", task_id, "--run", run_id, "--json", *store).out)["evidence"]
        item = text[found["byte_offset"] : found["byte_offset"] + found["byte_count"]]
        assert json.loads(item, parse_float=Decimal)["begin"] * 1000 == start_ns
    done = command("ingest", tmp_path / "other.json", "--rules", tmp_path / "rules.toml", *store, code=1)
    assert "no items at 'r.k.item'" in done.err
    done = command("ingest", tmp_path / "doc.json", "--reader", "json_items", "--replace", *store, code=2)
    assert "--rules FILE" in done.err


TWO_RULES = f"""{RULES.replace("[items]", "[[items]]").split("[[rule]]")[0]}
[[items]]
prefix = "r.c.item"
unit = "ns"
name = "what"
start = "from"
duration = "for"
thread = "engine"
fixed_category = "copy"
[[rule]]
categories = ["copy"]
table = "task"
set = {{ kind = "copy" }}
args = {{ size_bytes = ["bytes"] }}
[[rule]]{RULES.split("[[rule]]")[1]}"""


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_two_tables_are_accounted_for_and_located(tmp_path: Path, mixed: bool) -> None:
    text = two_tables(300, mixed=mixed)
    (tmp_path / "doc.json").write_bytes(text)
    (tmp_path / "rules.toml").write_text(TWO_RULES)
    store = tmp_path / "s.duckdb"
    assert run(["ingest", str(tmp_path / "doc.json"), "--rules", str(tmp_path / "rules.toml"), "--db", str(store)]) == 0
    with duckdb.connect(str(store), read_only=True) as connection:
        account = "SELECT record, record_count, row_count, used_count, lost_count FROM import_account ORDER BY ALL"
        assert connection.execute(account).fetchall() == [
            ("X events", 600, 600, 0, 0), ("items r.c.item", 300, 0, 300, 0), ("items r.k.item", 300, 0, 300, 0),
        ]  # fmt: skip
        rows = connection.execute("SELECT kind, id, start_ns, size_bytes FROM task ORDER BY kind, start_ns").fetchall()
    assert [row[0] for row in rows] == ["compute"] * 300 + ["copy"] * 300
    assert [row[2:] for row in rows[300:]] == [(7 * i, i) for i in range(300)]
    with open_store(store) as connection:
        for kind, id_, start_ns, _ in (*rows[:300:60], rows[299], *rows[300::60], rows[-1]):
            found = why(connection, store, "task", str(id_)).evidence
            items = [json.loads(piece.data, parse_float=Decimal) for piece in found]
            assert [item["from"] if kind == "copy" else int(item["begin"] * 1000) for item in items] == [start_ns]


def test_the_outline_of_a_document(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "doc.json"
    path.write_bytes(document(2000, **{"a.b": [{"\x1b[31m": "\x1b[2J"}], "": {"x": 1}, "mixed": [1, "1", None, True]}))
    out = command("info", path).out
    assert "\x1b" not in out
    assert "2,000  object   r.k.item\n" in out
    assert 'k.item.name: "k0", "k1", "k2"\n' in out
    assert 'r.mixed.item: 1, "1", true\n' in out
    (found,) = json.loads(command("info", path, "--json").out)
    by_prefix = {one["prefix"]: one for one in found["prefixes"]}
    assert by_prefix["r.k.item"]["counts"] == {"object": 2000}
    assert by_prefix["r.mixed.item"]["counts"] == {"number": 1, "string": 1, "null": 1, "boolean": 1}
    assert [one["prefix"] for one in found["prefixes"] if not one["addressable"]] == [
        "r.a.b", "r.a.b.item", "r.a.b.item.\x1b[31m", 'r.""', 'r."".x',
    ]  # fmt: skip
    path.write_bytes(path.read_bytes()[:90_000])
    (cut,) = json.loads(command("info", path, "--json", code=3).out)
    assert (cut["intact"], cut["stopped_at"]) == (False, 90_000)


def test_the_outline_of_many_keys_shows_arrays_first_then_the_top(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "doc.json"
    path.write_text(json.dumps({f"k{i}": {"a": i} for i in range(100)} | {"late": [{"ms": i} for i in range(90)]}))
    lines = command("info", path).out.splitlines()
    assert [line.split()[2] for line in lines[3:-2]] == [
        "(the", *(f"k{i}" for i in range(27)), "late.item", "late.item.ms:",
    ]  # fmt: skip
    values = 1 + 2 * 100 + 1 + 2 * 90
    assert lines[-2] == f"  {values - 1 - 27 - 2 * 90:>10,}  at other prefixes, which --json lists"
    assert "late" in {one["prefix"] for one in json.loads(command("info", path, "--json").out)[0]["prefixes"]}


def test_a_list_of_objects_that_are_no_events_is_outlined(tmp_path: Path, command: Command) -> None:
    """Such as trtexec writes them (`--exportTimes`); ingest says how to get there."""
    path = tmp_path / "times.json"
    path.write_text('[{"startComputeMs": 2, "endComputeMs": 3.5}, {"startComputeMs": 4, "endComputeMs": 5}]')
    assert "2  number   item.startComputeMs: 2, 4\n" in command("info", path).out
    assert "traceconv info FILE shows what a rule file needs" in command("ingest", path, code=1).err


def test_the_outline_of_a_hostile_document_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "doc.json"
    path.write_text(json.dumps({f"key {i}" * 20: {"x" * 10_000: i} for i in range(3000)}))
    found = outline(path)
    assert len(found.prefixes) <= 500
    assert found.left_out > 2500
    assert sum(len(prefix) + sum(map(len, one.samples)) for prefix, one in found.prefixes.items()) < 200_000
    for nested in ("[" * 1_000_000, '{"a":[' * 200_000, '{"a":' + "1" * 10_000 + "}"):
        path.write_text(nested)
        assert outline(path).stopped_at is not None


def test_the_plain_parser_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiled one, whose parsers complain when they are collected in the middle of a text."""
    text = document(2000)
    texts = (text, text[:90_000], text[:90_000] + b"\x01" + text[90_001:], text.replace(b"k3", b"\\ud83d\\ude00"))
    compiled = [Read(tmp_path, one).rows for one in texts]
    monkeypatch.setattr(reader.ijson, "items_coro", ijson.get_backend("python").items_coro)
    assert [Read(tmp_path, one).rows for one in texts] == compiled
