"""Get the trace as a data frame and print the tables of Furiosa's profiler, as in its `trace_with_dataframe`."""

import traceconv

session = traceconv.Session("mini_quantized")
with traceconv.profile(format="data frame") as profiler, profiler.record("record"):
    for _ in range(4):
        session.run(session.random_inputs())

slices = profiler.df()  # all slices: tasks, API calls and ranges
print(len(slices), "slices,", int(slices["dur_ns"].max()), "ns is the longest")
print(profiler.df("inference-latency").T)
print(profiler.df("npu-execution").head())
print(profiler.df("npu-operator").head())
print(profiler.df("external-operator").head())
profiler.export("chrome", "trace.json")
