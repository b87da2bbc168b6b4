"""Print the results of HTA for a trace as JSON. Runs in the environment of HTA, not of traceconv."""

import json
import logging
import os
import sys
import warnings
from pathlib import Path

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

path = sys.argv[1]
found = TraceAnalysis(trace_files={0: path}, trace_dir=str(Path(path).parent), include_last_profiler_step=True)
temporal = found.get_temporal_breakdown(visualize=False).iloc[0]
_, kernels = found.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)
launches = found.get_cuda_kernel_launch_stats(visualize=False)[0]
queues = found.get_queue_length_summary()
times = ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")
json.dump(
    {
        "temporal": [float(temporal[name]) for name in times],
        "kernels": {
            row["name"]: [float(row[f"{what} (us)"]) for what in ("sum", "min", "max")] for _, row in kernels.iterrows()
        },
        "launches": [
            len(launches),
            *(float(launches[c].sum()) for c in ("cpu_duration", "gpu_duration", "launch_delay")),
        ],
        "queues": {
            int(key[-1]): [float(one) for one in row] for key, row in zip(queues.index, queues.values, strict=True)
        },
    },
    sys.stdout,
)
