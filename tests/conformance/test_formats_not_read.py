"""Formats that are known and not read: one line says so, and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import SHARED

from traceconv.errors import InputError
from traceconv.pipeline import ingest
from traceconv.readers import choose_reader

XPLANE = SHARED / "real" / "jax" / "te_fused_attn.xplane.pb"
#: A plane of XSpace: id 1, name, a line.
SPACE = b"\x0a\x11\x08\x01\x12\x09/host:CPU\x1a\x02\x08\x05"


def refused(path: Path, tmp_path: Path, reader: str, advice: str) -> None:
    assert choose_reader(path) == reader
    with pytest.raises(InputError, match=advice) as error:
        ingest([path], tmp_path / "trace.duckdb")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "trace.duckdb").exists()


def test_a_format_that_is_not_read_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(SPACE)
    refused(path, tmp_path, "xplane", "trace.json.gz")


@pytest.mark.skipif(not XPLANE.exists(), reason="no real files here; set TRACECONV_SHARED")
def test_a_real_xspace(tmp_path: Path) -> None:
    refused(XPLANE, tmp_path, "xplane", "trace.json.gz")
