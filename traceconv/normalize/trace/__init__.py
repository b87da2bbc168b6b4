"""Events of trace JSON → rows: the first pass spills them, the second makes rows once tracks and flows are known."""
