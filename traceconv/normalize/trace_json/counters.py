"""Args of counter events → samples: every number is a series, exact where it is whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from traceconv.normalize.trace_json.times import exact_number

_OBJECT = msgspec.json.Decoder(dict[str, Raw])

#: (event, series, value, value as a whole number or None)
Sample = tuple[int, str, float, "int | None"]


def counter_rows(args: Sequence[bytes]) -> tuple[list[Sample], list[int], list[int]]:
    """The samples of events; the events that have a value which is no number; the events without any sample."""
    samples: list[Sample] = []
    bad: list[int] = []
    empty: list[int] = []
    for event, text in enumerate(args):
        try:
            series = _OBJECT.decode(text) if text else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            series = {}
        before = len(samples)
        for name, raw in series.items():
            value = exact_number(bytes(raw).decode("utf-8", "replace"))
            if value is None:
                bad.append(event)
                continue
            whole = int(value) if value == value.to_integral_value() else None
            if whole is not None and not -(2**63) <= whole < 2**63:
                whole = None
            samples.append((event, name, float(value), whole))
        if len(samples) == before:
            empty.append(event)
    return samples, bad, empty
