"""Where things end in JSON text: also when the text is cut off, and then without looking at it again and again."""

from __future__ import annotations

import pytest

from traceconv.readers.chrome_json import scan


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'{"a":"}"}x', 9),
        (rb'{"a":"\"}"}', 11),
        (rb'{"a":"\\"}', 10),
        (rb'{"a":"\\\"}"}', 13),
        (b'{"a":[{},[]]}', 13),
        (b'{"a":"}', None),
        (rb'{"a":"}\"', None),
        (b'{"a":"}\\', None),
        (rb'{"a":"}\\', None),
        (b'{"a":1', None),
        (b"[1,2]]", 5),
    ],
)
def test_the_end_of_an_object(text: bytes, end: int | None) -> None:
    assert scan.end_of_bracketed(text, 0) == end


def test_a_string_that_is_cut_off_is_looked_at_once() -> None:
    """A source text in a value, as VizTracer keeps it, cut at the end of a chunk: it may be a megabyte of quotes."""
    text = b'{"files":{"a.py":"' + rb"\"x" * 2000
    tokens = [match[0] for match in scan._TOKEN.finditer(text)]
    assert tokens == [b"{", b'"files"', b"{", b'"a.py"', text[text.index(b'"' + rb"\"x") :]]
    assert scan.end_of_bracketed(text, 0) is None
    assert scan.end_of_bracketed(text + b'"}}', 0) == len(text) + 3
