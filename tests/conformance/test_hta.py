"""HTA, run on all real Kineto traces with a device, has the numbers of traceconv, except for its known errors.

docs/how-to/compare-with-other-tools.md explains these.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared

from traceconv import open_store

TORCH = shared("real") / "torch"
RESULTS = Path(__file__).with_name("hta_results.py")
PACKAGES = ("HolisticTraceAnalysis==0.5.0", "pandas==2.2.3")
pytestmark = pytest.mark.long
#: What HTA has no comparable numbers of, and why.
EXCEPT = {
    # Waits count as kernels.
    "alexnet_critical_path.json.gz": {"temporal"},
    "cuda_event_sync_multi_stream.json.gz": {"temporal"},
    # Host slices of Triton count as kernels, and only certain calls as launches.
    "b200_eager_trace.json.gz": {"temporal", "kernels", "launches", "queues"},
    "triton_example.json.gz": {"temporal", "kernels", "launches"},
    # hipLaunchKernel isn't matched.
    "mi250_rocm6.2_minitoy.json.gz": {"launches"},
}
#: In whole µs, launches and starts at equal times are counted in any order.
QUEUE_ERROR = 0.02


@pytest.fixture(scope="module")
def hta() -> Path:
    """The interpreter of an environment with HTA, which is kept for the next time."""
    folder = Path(__file__).resolve().parents[2] / "build" / "hta"
    python = folder / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of pytest may install it
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            install = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
            if subprocess.run(install, capture_output=True, check=False).returncode:
                pytest.skip("no package index, or HTA can't be installed")
            (folder / "complete").touch()
    return python


@pytest.mark.parametrize("name", sorted(path.name for path in TORCH.iterdir() if "cpu_only" not in path.name))
def test_hta_has_the_same_numbers(name: str, hta: Path) -> None:
    printed = subprocess.run([hta, RESULTS, TORCH / name], check=True, capture_output=True).stdout
    found: dict[str, Any] = json.loads(printed)
    other = EXCEPT.get(name, set())
    with open_store(TORCH / name) as store:

        def row(sql: str) -> list[float]:
            return [float(one) for one in store.query(sql).fetchall()[0]]

        if "temporal" not in other:
            sql = "idle_ns / 1000, compute_ns / 1000, (busy_ns - compute_ns) / 1000, window_ns / 1000"
            # HTA's times are doubles since 1970, in µs.
            assert row(f"SELECT {sql} FROM breakdown") == pytest.approx(found["temporal"], abs=0.1)
        kernels = "SELECT name, sum(dur_ns) / 1000, min(dur_ns) / 1000, max(dur_ns) / 1000 FROM task GROUP BY 1"
        ours = {name: list(map(float, times)) for name, *times in store.query(kernels).fetchall()}
        assert found["kernels"]
        if "kernels" not in other:
            for kernel, times in found["kernels"].items():
                assert ours[kernel] == pytest.approx(times, abs=0.05), kernel
            assert {one for one in ours.keys() - found["kernels"].keys() if not one.endswith(" Sync")} == set()
        if "launches" not in other:
            sums = "sum(call_ns) / 1000, sum(dur_ns) / 1000, sum(greatest(0, after_call_ns)) / 1000"
            assert row(f"SELECT count(*), {sums} FROM launch") == pytest.approx(found["launches"], rel=1e-6, abs=0.01)
        if "queues" not in other:
            lengths = "avg_length, std_length, min_length, p25_length, p50_length, p75_length, max_length"
            queues = store.query(f"SELECT stream_id, 2 * task_count, {lengths} FROM launch_queue").fetchall()
            assert {str(stream) for stream, *_ in queues} == found["queues"].keys()
            for stream, *numbers in queues:
                assert list(map(float, numbers)) == pytest.approx(
                    found["queues"][str(stream)], abs=QUEUE_ERROR if "resnet50" in name or "ns_res" in name else 1e-6
                )
