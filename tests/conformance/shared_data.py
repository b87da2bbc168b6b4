"""Sample files of other systems, outside the project: in TRACECONV_SHARED, or in `shared` next to the clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TRACECONV_SHARED") or Path(__file__).resolve().parents[3] / "shared") / "conformance"


def shared(name: str) -> Path:
    """Return a folder of `shared/conformance`; skip the test module if it doesn't exist."""
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"no {folder.name} of shared/conformance here; set TRACECONV_SHARED", allow_module_level=True)
    return folder
