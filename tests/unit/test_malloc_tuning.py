"""Limits on malloc's free memory are set before Arrow is loaded; the user's settings take precedence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from traceconv.base import malloc_tuning

_POOL = (
    "from traceconv.base.malloc_tuning import trim_heap, limit_arenas; limit_arenas(); trim_heap(); "
    "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
)


def pool(**environment: str) -> str:
    plain = {key: value for key, value in os.environ.items() if key != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(
        [sys.executable, "-c", _POOL], env={**plain, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_arrow_takes_memory_from_the_system() -> None:
    assert pool() == "system"


def test_the_users_settings_take_precedence() -> None:
    import pyarrow

    other = next(name for name in pyarrow.supported_memory_backends() if name != "system")
    assert pool(ARROW_DEFAULT_MEMORY_POOL=other) == other


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    malloc_tuning.limit_arenas()
    malloc_tuning.trim_heap()
