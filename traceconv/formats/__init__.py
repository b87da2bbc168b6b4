"""One package for each source format, and `registry.py`, the only list of them."""
