"""Formats that are known and not read: one line says so, and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import SHARED

from traceconv.errors import InputError
from traceconv.pipeline import ingest
from traceconv.readers import choose_reader

XPLANE = SHARED / "real" / "jax" / "te_fused_attn.xplane.pb"
#: A plane of XSpace: id 1, name, a line; and packets of a Perfetto trace: a clock, a track, an event.
SPACE = b"\x0a\x11\x08\x01\x12\x09/host:CPU\x1a\x02\x08\x05"
PACKETS = b"".join(
    b"\x0a" + bytes([len(one)]) + one
    for one in (b"\x50\x01\x68\x01", b"\x50\x01\xe2\x03\x02\x08\x05", b"\x40\x09\x50\x01\x5a\x04\x48\x01\x58\x05")
)


def refused(path: Path, tmp_path: Path, reader: str, advice: str) -> None:
    assert choose_reader(path) == reader
    with pytest.raises(InputError, match=advice) as error:
        ingest([path], tmp_path / "trace.duckdb")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "trace.duckdb").exists()


@pytest.mark.parametrize(
    ("data", "reader", "advice"), [(SPACE, "xplane", "trace.json.gz"), (PACKETS, "perfetto_proto", "as JSON")]
)
def test_a_format_that_is_not_read_is_refused_in_words(data: bytes, reader: str, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(data)
    refused(path, tmp_path, reader, advice)


@pytest.mark.skipif(not XPLANE.exists(), reason="no real files here; set TRACECONV_SHARED")
def test_a_real_xspace(tmp_path: Path) -> None:
    refused(XPLANE, tmp_path, "xplane", "trace.json.gz")
