"""Profile a few inferences with labels, as in Furiosa's example `simple`."""

import traceconv

with traceconv.Session("mini_resnet") as session:
    inputs = session.random_inputs()
    with traceconv.profile("tracing.json", format="chrome_timeline.json") as profiler:
        with profiler.record("warm up"):
            session.run(inputs)
        with profiler.record("inference"):
            for _ in range(3):
                session.run(inputs)

print("written: tracing.json")
for row in profiler.report("inference-latency"):
    print(row["count"], "inferences, median", row["median_ns"], "ns")
