"""A damaged store: a report returns the right rows or a one-line error, never wrong rows."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from traceconv.store.database import open_store

#: Runs the command lines of a file, one a line, each with the store of that line, and prints what came of each.
_RUNNER = """
import contextlib, io, json, sys
from traceconv.cli.app import run
for line in sys.stdin:
    with contextlib.redirect_stderr(io.StringIO()) as talk:
        code = run(json.loads(line))
    print(code, talk.getvalue().strip(), flush=True)
"""


@pytest.fixture
def store(make_store: Callable[..., Path]) -> Path:
    path = make_store(op=[{"op_id": n, "op_type": f"T{n}"} for n in range(9)])
    with open_store(path, read_only=False) as connection:
        connection.execute(
            "INSERT INTO task (run_id, id, device_id, op_id, dur_ns, name) "
            "SELECT 1, range, 0, range % 9, hash(range) % 1000000, 'k' || hash(range) FROM range(20000)"
        )
    return path


def damaged(store: Path, folder: Path) -> list[Path]:
    intact = store.read_bytes()
    chance = random.Random(7)
    made = []
    for n in range(12):
        data = bytearray(intact)
        if n % 4 == 3:
            data = data[: chance.randrange(len(data))]
        else:
            place = chance.randrange(len(data) - 64)
            data[place : place + 64] = bytes(64) if n % 2 else chance.randbytes(64)
        path = folder / f"damaged-{n}.duckdb"
        path.write_bytes(data)
        made.append(path)
    return made


def test_damage_is_found_or_does_no_harm(store: Path, tmp_path: Path) -> None:
    import json

    paths = [store, *damaged(store, tmp_path)]
    outputs = [tmp_path / f"{n}.csv" for n in range(len(paths))]
    lines = [
        json.dumps(["report", "op-statistic", "--db", str(path), "-o", str(output)])
        for path, output in zip(paths, outputs, strict=True)
    ]
    # In a process of its own: a library that reads damaged files might end it.
    done = subprocess.run([sys.executable, "-c", _RUNNER], input="\n".join(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = done.stdout.splitlines()
    assert len(results) == len(paths)
    assert results[0].startswith("0")
    right = outputs[0].read_text()
    for result, output in zip(results, outputs, strict=True):
        code, _, talk = result.partition(" ")
        if code == "0":
            assert output.read_text() == right
        else:
            assert code == "1"
            assert talk.startswith("traceconv: ")
            assert not output.exists()
    assert any(result.startswith("1") for result in results)
