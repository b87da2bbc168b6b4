"""Events of trace JSON → rows: the first pass puts them aside, the second makes rows of them when all is known."""
