"""Events that end in a value of any type at the end of a text: it is read completely, and no byte after it."""

from __future__ import annotations

import pytest

from traceconv.formats.chrome_json.decode import decode_events

ONE = b'{"ph":"X","name":"abcdefgh","cat":"fee","pid":1,"tid":1,"ts":1.5,"dur":2}'


@pytest.mark.parametrize("field", ["ph", "name", "cat", "pid", "tid", "s", "scope", "bp"])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 33])
def test_a_value_at_the_very_end(field: str, size: int) -> None:
    value = "X" * size
    last = b'{"ts":3,"%s":"%s"}' % (field.encode(), value.encode())
    decoded = decode_events(b",".join([*[ONE] * 300, last]), lines=False)
    assert decoded.columns.count == 301
    assert decoded.columns.label(field)[300] == value
    assert decoded.columns.raw["ts"][300].as_py() == b"3"
