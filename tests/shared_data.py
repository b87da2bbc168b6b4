"""Sample files of other systems, outside the project: in TRACECONV_SHARED, or in `shared` next to the clone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("TRACECONV_SHARED") or Path(__file__).resolve().parents[2] / "shared") / "conformance"
REAL = SHARED / "real"
ROCPROFV3 = REAL / "rocm" / "rocprofv3_908_results.json.gz"
TORCH_NPU = REAL / "ascend" / "torch_npu_level1_rank1"


def shared(name: str) -> Path:
    """Return a folder of `shared/conformance`; skip the test module if it doesn't exist."""
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"no {folder.name} of shared/conformance here; set TRACECONV_SHARED", allow_module_level=True)
    return folder
