"""The programs in examples/ run and print the expected output."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_runs import run_python

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Texts that each example prints, and patterns of the files that it writes.
OUTPUT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ascend_profiling_options": (("iteration 3 ", "Conv2D AI_CORE 18 "), ("profiling/PROF_*/manifest.json",)),
    "furiosa_dataframe": (("ns is the longest", "QuantMatMulV2"), ("trace.json",)),
    "furiosa_simple": (("4 inferences, median ",), ("tracing.json",)),
    "furiosa_temporary_disable": (
        ("ranges: recorded, recorded again\n", "inferences: 2\n"),
        ("profiles/PROF_*/manifest.json",),
    ),
    "megengine_profiles": (
        ("3 profiles", "forward and backward: "),
        ("profile/*.chrome_timeline.json", "profile/*.memory_flow.svg"),
    ),
    "op_profiler": (("Profiles kept: 1\n", "From the cache: True\n"), ()),
    "raf_profilers": (("max used: ", "used_bytes"), ("profile.json",)),
}


def test_every_example_is_tested() -> None:
    assert sorted(OUTPUT) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(OUTPUT))
@pytest.mark.usefixtures("own_cache")
def test_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_python([str(EXAMPLES / f"{name}.py")])
    printed = capfd.readouterr()
    assert code == 0, printed.err
    prints, writes = OUTPUT[name]
    for text in prints:
        assert text in printed.out
    for pattern in writes:
        assert list(tmp_path.glob(pattern)), pattern
    assert "Traceback" not in printed.err
