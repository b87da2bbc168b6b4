"""Profile one convolution, as with RAF's op profiler: latency, workspace and cache."""

import traceconv
from traceconv.runtime import op_cache

# RAF: ResetCache(device); res = Profile(conv2d(x, w), device)
op_cache.reset()
result = traceconv.profile_op("Conv", [(16, 3, 224, 224), (3, 3, 5, 5)], repeat=3)
print("Latency (µs):", result.latencies_us)
print("Workspace size (bytes):", result.workspace_bytes)
print("Profiles kept:", op_cache.size().entry_count)

again = traceconv.profile_op("Conv", [(16, 3, 224, 224), (3, 3, 5, 5)], repeat=3)
print("From the cache:", again.cached)
