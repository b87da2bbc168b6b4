"""The files to recount, with the writer of each by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recount import chrome, furiosa_csv, megengine_static, perfetto, writers, xplane
from recount.chrome import Classify
from recount.tally import Tally

#: Folders and files of shared/conformance with Chrome traces, and their writers.
CHROME: dict[str, Classify] = {
    "real/ascend/msprof_analyze_trace_view.json": writers.ascend,
    "real/ascend/torch_npu_level1_rank1/trace_view.json": writers.ascend,
    "real/bazel": writers.bazel,
    "real/chrome": writers.ranges,
    "real/clang": writers.clang,
    "real/dftracer": writers.dftracer,
    "real/mindspore": writers.ascend,
    "real/onnxruntime": writers.onnxruntime,
    "real/speedscope_trace_event": writers.ranges,
    "real/tensorflow": writers.tensorflow,
    "real/torch": writers.kineto,
    "real/viztracer": writers.viztracer,
    "perfetto_json": writers.ranges,
    "seed_systems/furiosa": writers.furiosa,
    "seed_systems/megengine": writers.megengine,
    "seed_systems/raf": writers.raf,
}
#: Files among them that are not traces.
_OTHERS = (
    "dynamic_shape_info_0.json",
    "seed_tables.json",
    "synthetic_expected.json",
    "profiling.json",
)
#: Chrome traces of 8 to 35 MB: six of 155, with six sevenths of the text.
_LARGE = (
    "b200_eager_trace.json.gz",
    "big_train.chrome_timeline.json.gz",
    "chrome_big.json.gz",
    "kineto_resnet50_worker0.pt.trace.json.gz",
    "nccl_metadata.json.gz",
    "ns_resolution_rank0.pt.trace.json.gz",
)


def chrome_traces(shared: Path, *, small: bool = False) -> dict[Path, Classify]:
    """Every Chrome trace of shared/conformance, or those that are not large."""
    return {
        path: classify
        for name, classify in CHROME.items()
        for path in ([shared / name] if (shared / name).is_file() else sorted((shared / name).rglob("*")))
        if path.name.endswith((".json", ".json.gz", ".pfw", ".pfw.gz")) and not path.name.endswith(_OTHERS)
        if not (small and path.name in _LARGE)
    }


def real_traces(shared: Path) -> list[str]:
    """The names of the Chrome traces in shared/conformance/real."""
    folder = shared / "real"
    return sorted(str(path.relative_to(folder)) for path in chrome_traces(shared) if path.is_relative_to(folder))


def count(path: Path, classify: Classify) -> Tally:
    """Sum up a Chrome trace. MegEngine doesn't reuse flow IDs."""
    events = chrome.events_of(chrome.read(path))
    tally = chrome.add_up(events, classify, chains=classify is writers.megengine)
    if any(event.get("name") == "StopStep" for event in events):
        tally.steps |= writers.megengine_steps(events)
    return tally


#: Files of other formats, and the function that sums them up.
OTHERS: dict[str, Callable[[Path], Tally]] = {
    "perfetto_proto/*/trace.pftrace": perfetto.add_up,
    "real/jax/*.xplane.pb": xplane.add_up,
    "seed_systems/furiosa/*.csv": furiosa_csv.add_up,
    "seed_systems/megengine/*.profiling.json": megengine_static.add_up,
}


def others(shared: Path) -> dict[Path, Callable[[Path], Tally]]:
    """Every file of these formats in shared/conformance."""
    return {path: add_up for pattern, add_up in OTHERS.items() for path in sorted(shared.glob(pattern))}
