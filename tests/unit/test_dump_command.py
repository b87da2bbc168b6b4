"""`traceconv dump`: every record as it is in the file, without interpretation."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capture_builder import CaptureBuilder
from commands import Command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traceconv.schema import record, records
from traceconv.schema.dtypes import dtype_of
from traceconv.schema.model import Field, RecordSchema
from traceconv.wire.codec import encode_block
from traceconv.wire.frames import FileHeader, encode_block_header, encode_file_header
from traceconv.wire.log_writer import CaptureWriter
from traceconv.wire.text import hash_text


def dump(command: Command, *arguments: object, code: int = 0) -> tuple[list[str], str]:
    out, err = command("dump", *arguments, code=code)
    return out.splitlines(), err


def rows(command: Command, *arguments: object) -> list[dict[str, Any]]:
    lines, err = dump(command, *arguments, "--json")
    assert err == ""
    return [json.loads(line) for line in lines]


def write_file(path: Path, schema: RecordSchema, *blocks: bytes) -> Path:
    header = encode_file_header(FileHeader(7, None, "host", 1, 0, 0, (schema,)))
    path.write_bytes(header + b"".join(blocks))
    return path


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    builder = CaptureBuilder(tmp_path / "PROF_1", block_bytes=128)
    builder.call(1, 100, 250, "aclInit", level="acl").call(2, 1 << 62, None, "Straße 50 %", op_index=3)
    builder.task(9, 2**64 - 1, None, "conv", size_bytes=2**64 - 1, correlation_id=2)
    return builder.close()


def test_json_has_all_fields_and_the_origin(command: Command, capture: Path) -> None:
    found = rows(command, capture, "--type", "api")
    assert [row["_sequence"] for row in found] == [0, 1, 2]
    assert found[0] == {
        "_type": "api",
        "_file": "host/data/api.slice_0.bin",
        "_sequence": 0,
        "_offset": found[0]["_offset"],
        "host_ns": 100,
        "correlation_id": 1,
        "name": "aclInit",
        "thread_id": 1,
        "op_index": None,
        "step_id": None,
        "event": "begin",
        "level": "acl",
        "pad": 0,
    }
    assert (found[1]["name"], found[1]["event"]) == (None, "end")
    assert (found[2]["name"], found[2]["host_ns"], found[2]["op_index"]) == ("Straße 50 %", 1 << 62, 3)
    content = (capture / "host/data/api.slice_0.bin").read_bytes()
    for row in found:
        assert int.from_bytes(content[row["_offset"] : row["_offset"] + 8], "little") == row["host_ns"]


def test_json_integers_are_exact_and_missing_values_are_null(command: Command, capture: Path) -> None:
    (task,) = rows(command, capture, "--type", "task")
    assert (task["ticks"], task["size_bytes"], task["context_id"]) == (2**64 - 1, None, None)
    assert (task["task_type"], task["event"], task["name"]) == ("AI_CORE", "start", "conv")


def test_all_types_in_the_order_of_the_files(command: Command, capture: Path) -> None:
    found = rows(command, capture)
    assert [row["_type"] for row in found] == ["api"] * 3 + ["dictionary"] * 3 + ["task"]
    assert [row["_text"] for row in found[3:6]] == ["aclInit", "Straße 50 %", "conv"]
    assert found[3]["hash"] == hash_text("aclInit")
    assert bytes.fromhex(found[3]["text_bytes"]) == b"aclInit".ljust(48, b"\0")


def test_text_columns(command: Command, capture: Path) -> None:
    lines, err = dump(command, capture, "--type", "api")
    assert err == ""
    assert lines[0] == "# host/data/api.slice_0.bin: api"
    assert lines[1].split() == [
        *("#", "sequence", "host_ns", "correlation_id", "name", "thread_id", "op_index", "step_id", "event", "level")
    ]
    assert lines[2].split() == ["0", "100", "1", "aclInit", "1", "NULL", "NULL", "begin", "acl"]
    assert lines[3].split() == ["1", "250", "1", "NULL", "1", "NULL", "NULL", "end", "acl"]
    assert "Straße 50 %" in lines[4]
    assert len(lines) == 5
    assert lines[1].index("event") == lines[2].index("begin")
    assert not any(line.endswith(" ") for line in lines)


def test_limit_counts_records_over_all_files(command: Command, capture: Path) -> None:
    every = rows(command, capture)
    for limit in range(9):
        assert rows(command, capture, "--limit", limit) == every[:limit]
    assert [row["name"] for row in rows(command, capture, "--type", "task", "--limit", "5")] == ["conv"]


def test_single_file_uses_the_dictionary_of_its_capture(command: Command, capture: Path) -> None:
    assert rows(command, capture / "device_0/data/task.slice_0.bin")[0]["name"] == "conv"


def test_string_missing_from_the_dictionary_is_its_hash(command: Command, tmp_path: Path, capture: Path) -> None:
    lonely = tmp_path / "task.bin"
    lonely.write_bytes((capture / "device_0/data/task.slice_0.bin").read_bytes())
    assert rows(command, lonely)[0]["name"] == hash_text("conv")
    assert f"0x{hash_text('conv'):016x}" in dump(command, lonely)[0][2]


def test_control_characters_are_escaped(command: Command, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "PROF_1")
    builder.call(1, 2, None, "\x1b[2J\u202e\n\x9b31m", level="acl").close()
    for arguments in ([], ["--json"]):
        lines, _ = dump(command, tmp_path / "PROF_1", *arguments)
        assert all(line.isprintable() for line in lines)
    assert rows(command, tmp_path / "PROF_1", "--type", "api")[0]["name"] == "\x1b[2J\u202e\n\x9b31m"


def test_unknown_type_is_decoded_by_the_schema_in_the_file(command: Command, tmp_path: Path) -> None:
    schema = RecordSchema(
        "spin",
        900,
        "host",
        "",
        "",
        (
            Field("speed", "f64", "", ""),
            Field("mode", "u8", "enum", "", 9, {0: "slow", 1: "fa%st\x1b"}),
            Field("raw", "bytes[3]", "", ""),
        ),
    )
    data = np.zeros(4, dtype_of(schema))
    data["speed"] = [1.5, math.nan, math.inf, -0.0]
    data["mode"] = [0, 1, 9, 5]
    data["raw"] = np.frombuffer(b"abcdefghijkl", "V3")
    path = write_file(tmp_path / "spin.bin", schema, b"".join(encode_block(schema, data, 0)))
    found = rows(command, path, "--type", "spin")
    assert [row["speed"] for row in found] == [1.5, "nan", "inf", -0.0]
    assert [row["mode"] for row in found] == ["slow", "fa%st\x1b", None, 5]
    assert [row["raw"] for row in found] == ["616263", "646566", "676869", "6a6b6c"]
    lines, _ = dump(command, path)
    assert lines[3].split() == ["1", "nan", "fa%st\\x1b", "646566"]


def test_type_without_a_schema_is_shown_as_bytes(command: Command, tmp_path: Path) -> None:
    payload = bytes(range(10))
    path = write_file(tmp_path / "x.bin", record("api"), encode_block_header(999, 5, 0, payload) + payload)
    found = rows(command, path)
    assert [(row["_type"], row["_bytes"]) for row in found] == [("tag_999", "0001020304"), ("tag_999", "0506070809")]


def test_record_longer_than_its_schema_shows_the_rest(command: Command, tmp_path: Path) -> None:
    payload = bytes(16) + b"rest" * 2
    path = write_file(tmp_path / "x.bin", record("stream"), encode_block_header(21, 24, 0, payload) + payload)
    assert rows(command, path)[0]["_rest"] == (b"rest" * 2).hex()


def test_longer_record_of_a_newer_writer_shows_its_fields(command: Command, tmp_path: Path) -> None:
    ours = record("stream")
    newer = dataclasses.replace(ours, fields=(*ours.fields, Field("priority", "i64", "", "")))
    data = np.zeros(2, dtype_of(newer))
    data["priority"] = [-1, 7]
    path = write_file(tmp_path / "stream.bin", newer, b"".join(encode_block(newer, data, 0)))
    assert [row["priority"] for row in rows(command, path)] == [-1, 7]


def test_known_types_are_decoded_without_a_header(command: Command, tmp_path: Path) -> None:
    schema = record("sync")
    data = np.zeros(1, dtype_of(schema))
    data["ticks"] = 5
    path = write_file(tmp_path / "sync.bin", schema, b"".join(encode_block(schema, data, 0)))
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)
    lines, err = dump(command, path, "--json", code=3)
    assert err.startswith("sync.bin: the file header is damaged (byte 0 to ")
    assert json.loads(lines[0])["ticks"] == 5


def test_damage_is_reported_and_intact_records_are_shown(command: Command, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "PROF_1", block_bytes=40)
    for number in range(5):
        builder.add("api", host_ns=number)
    folder = builder.close()
    path = folder / "host/data/api.slice_0.bin"
    content = bytearray(path.read_bytes())
    content[-1 - 72 * 2] ^= 1
    path.write_bytes(content)
    lines, err = dump(command, folder, "--json", code=3)
    assert [json.loads(line)["host_ns"] for line in lines] == [0, 1, 3, 4]
    size = len(content)
    assert err == f"host/data/api.slice_0.bin: damaged bytes (byte {size - 216:,} to {size - 144:,}; 1 records)\n"


def test_truncated_capture_is_shown_with_exit_code_3(command: Command, tmp_path: Path) -> None:
    folder = CaptureBuilder(tmp_path / "PROF_1").call(1, 2, 3).cut()
    lines, err = dump(command, folder, "--type", "api", "--json", code=3)
    assert len(lines) == 2
    assert err == "PROF_1: manifest.json is missing: the recording is incomplete\n"


@pytest.mark.parametrize("name", records())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_json_values_of_random_records_are_exact(
    command: Command, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """For random bytes as records, the JSON values equal a direct decoding of the bytes."""
    schema = record(name)
    count = data.draw(st.integers(1, 4))
    payload = data.draw(st.binary(min_size=count * schema.size_bytes, max_size=count * schema.size_bytes))
    same = data.draw(st.booleans())
    payload = payload[: schema.size_bytes] * count if same else payload
    path = tmp_path_factory.mktemp("any") / f"{name}.bin"
    write_file(path, schema, encode_block_header(schema.tag, schema.size_bytes, 5, payload) + payload)
    lines, _ = dump(command, path, "--json", code=3)  # the records before are missing
    found = [json.loads(line) for line in lines]
    assert len(found) == count
    for index, row in enumerate(found):
        offset = index * schema.size_bytes
        for field in schema.fields:
            raw = payload[offset : offset + field.size_bytes]
            offset += field.size_bytes
            value = int.from_bytes(raw, "little", signed=field.type == "i64")
            shown = row[field.name]
            if field.type.startswith("bytes"):
                assert bytes.fromhex(shown) == raw
            elif value == field.null:
                assert shown is None
            elif field.values is not None and value in field.values:
                assert shown == field.values[value]
            elif not (field.type == "str" and isinstance(shown, str)):  # a dictionary may define itself
                assert shown == value


def test_large_block_is_shown_in_parts_with_correct_offsets(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = record("sync")
    data = np.zeros(10, dtype_of(schema))
    data["ticks"] = np.arange(10)
    path = write_file(tmp_path / "sync.bin", schema, b"".join(encode_block(schema, data, 0)))
    whole = rows(command, path)
    monkeypatch.setattr("traceconv.formats.npulog.dump._PART_RECORDS", 3)
    assert rows(command, path) == whole
    assert rows(command, path, "--limit", "7") == whole[:7]
    assert [row["_sequence"] for row in whole] == list(range(10))
    assert len(dump(command, path)[0]) == 12


def test_slices_are_read_in_order(command: Command, tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "PROF_1", writer_id=1, device_clock_hz={}, slice_bytes=1, block_bytes=24)
    for number in range(12):
        records_ = np.zeros(1, dtype_of(record("range")))
        records_["host_ns"] = number
        writer.append("range", records_)
    writer.close({})
    assert [row["host_ns"] for row in rows(command, tmp_path / "PROF_1")] == list(range(12))
