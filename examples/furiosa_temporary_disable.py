"""Pause and resume a profile, as in Furiosa's example `temporary_disable`."""

import traceconv

with traceconv.Session("mini_resnet") as session:
    inputs = session.random_inputs()
    with traceconv.profile("profiles") as profiler:
        with profiler.record("recorded"):
            session.run(inputs)
        profiler.pause()
        with profiler.record("not recorded"):
            for _ in range(5):
                session.run(inputs)
        profiler.resume()
        with profiler.record("recorded again"):
            session.run(inputs)

names = [row["name"] for row in profiler.arrow("SELECT name FROM range WHERE kind = 'annotation'").to_pylist()]
print("ranges:", ", ".join(names))
print("inferences:", len(list(profiler.report("inference"))))
