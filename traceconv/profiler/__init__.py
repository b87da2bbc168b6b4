"""`traceconv.profile(...)`: profile a program's work on the reference NPU, in a `with` block or a function.

    with traceconv.profile(output="raw", aic_metrics="Memory") as p, traceconv.Session("resnet50") as session:
        with p.record("warm up"):
            session.run(inputs)
        session.run(inputs)
    for row in p.report("op-statistic", top=5):
        print(row["op_type"], row["total_ns"])

Each entry of the block and each call of the function is one profile, with its own capture. Entries of a profiler may
be nested, or concurrent in several threads and asyncio tasks: each exit ends the profile of its entry.
"""

from traceconv.profiler.environment import start_from_environment
from traceconv.profiler.profiler import Profiler, profile

__all__ = ["Profiler", "profile", "start_from_environment"]
