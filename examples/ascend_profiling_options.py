"""Select what to record with Ascend's `profiling_options`: JSON text, or the path of a JSON file."""

import json

import traceconv

options = json.dumps(
    {
        "output": "profiling",
        "training_trace": "on",
        "task_trace": "on",
        "aic_metrics": "PipeUtilization",
        "fp_point": "",
        "bp_point": "",
    }
)
with traceconv.profile(profiling_options=options) as profiler, traceconv.Session("mini_resnet") as session:
    for _ in range(3):
        session.run(session.random_inputs())

for row in profiler.report("step-trace"):
    print("iteration", row["iteration"], row["iteration_time_ns"], "ns")
for row in profiler.report("op-statistic", top=3):
    print(row["op_type"], row["core_type"], row["count"], row["total_ns"])
