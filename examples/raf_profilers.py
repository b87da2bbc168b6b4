"""Measure op latency and memory with start, stop, get, clear and dump, as with RAF's profilers."""

import traceconv

session = traceconv.Session("mini_transformer")
inputs = session.random_inputs()
for _ in range(3):  # not profiled
    session.run(inputs)

profiler = traceconv.profile()
profiler.clear()
profiler.start(level=2)
session.run(inputs)
profiler.stop()

trace = profiler.get()
print(len(trace["traceEvents"]), "events")  # type: ignore[arg-type]
profiler.dump("profile.json")

for row in profiler.report("memory-peak"):
    if row["pool"] is None:
        print("max used:", row["peak_used_bytes"], "bytes; max allocated:", row["peak_reserved_bytes"], "bytes")
for row in profiler.report("memory-trace", top=3):
    print(row)
profiler.clear()
