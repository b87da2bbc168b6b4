"""Events → rows: clocks, names, pairing, nesting."""
