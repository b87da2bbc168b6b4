"""Benchmarks write traces with the proportions of a real one, but without its texts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import shaped_trace
from benchmarks.trace_shape import shape_of

SECRETS = ("gemm_secret", "/home/secret/model.py", "secret answer")


def _events(count: int) -> list[dict[str, object]]:
    """Return slices inside of each other, with flows and instants on two tracks."""
    found: list[dict[str, object]] = []
    for number in range(count):
        ts = 1_000_000 + 100 * number
        track = {"pid": 7, "tid": 1 + number % 2}
        args = {"correlation": number, "stack": SECRETS[1] * (1 + number % 3), "why": [SECRETS[2], number % 5]}
        found.append({"ph": "X", "cat": "cpu_op", "name": f"{SECRETS[0]}_{number % 9}", **track, "ts": ts, "dur": 90.5})
        found.append({"ph": "X", "cat": "kernel", "name": SECRETS[0], **track, "ts": ts + 5, "dur": 3, "args": args})
        found.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": number, **track, "ts": ts + 6})
        if number:
            found.append({"ph": "f", "cat": "ac2g", "name": "ac2g", "id": number - 1, **track, "ts": ts, "bp": "e"})
        if not number % 4:
            found.append({"ph": "i", "s": "t", "name": "[memory]", **track, "ts": ts, "args": {"Bytes": number}})
    return found


def test_trace_has_the_shape_but_not_the_texts_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = tmp_path / "original.json"
    metadata = {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": SECRETS[2]}}
    events = _events(1500)
    original.write_text(json.dumps({"host": SECRETS[2], "traceEvents": [metadata, *events]}))
    shape = json.dumps(shape_of(original))
    (tmp_path / "own.json").write_text(shape)
    monkeypatch.setattr(shaped_trace, "SHAPES", tmp_path)
    for name in ("one.json", "two.json"):
        shaped_trace.write_shaped(tmp_path / name, "own", 2_000_000)
    text = (tmp_path / "one.json").read_text()
    written = json.loads(text)["traceEvents"]

    assert (tmp_path / "two.json").read_text() == text
    assert 2_000_000 <= len(text) < 2_500_000
    for secret in ("secret", "gemm", "answer"):
        assert secret not in shape and secret not in text

    def shares(some: list[dict[str, object]]) -> dict[str, float]:
        timed = [one for one in some if one["ph"] != "M"]
        counts = Counter(str(one["ph"]) + str(one.get("cat")) for one in timed)
        return {kind: count / len(timed) for kind, count in counts.items()}

    real, made = shares(events), shares(written)
    assert real.keys() == made.keys()
    assert all(abs(made[kind] / share - 1) < 0.1 for kind, share in real.items())
    assert abs(len(text) / len(written) * len(events) / len(json.dumps(events)) - 1) < 0.1
    starts, ends = ({one["id"] for one in written if one["ph"] == ph} for ph in "sf")
    assert len(starts & ends) > 0.9 * len(ends)


def test_every_committed_shape_gives_a_trace(tmp_path: Path) -> None:
    assert len(shaped_trace.KINDS) == 7
    for kind in shaped_trace.KINDS:
        path = tmp_path / f"{kind}.json"
        shaped_trace.write_shaped(path, kind, 1_000_000)
        text = path.read_text()
        events = (
            [json.loads(line) for line in text.splitlines() if line[:1] == "{"]
            if kind == "dftracer"
            else (json.loads(text))
        )
        assert len(events["traceEvents"] if isinstance(events, dict) else events) > 1500
