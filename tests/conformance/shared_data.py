"""Where files of other systems lie that are not part of the project: TRACECONV_SHARED, or `shared` beside the clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TRACECONV_SHARED") or Path(__file__).resolve().parents[3] / "shared") / "conformance"


def shared(name: str) -> Path:
    """A folder of `shared/conformance`; skips the test module when it is not there."""
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"no {folder.name} of shared/conformance here; set TRACECONV_SHARED", allow_module_level=True)
    return folder
