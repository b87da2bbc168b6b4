"""traceconv: profiler logs of NPUs and GPUs into one DuckDB store, and answers out of it."""

__version__ = "0.1.0"
