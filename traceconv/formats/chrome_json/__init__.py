"""Reader of trace JSON (Chrome's trace event format) in all its containers."""
