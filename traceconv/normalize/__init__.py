"""What is done to events on their way to rows: clocks, names, pairing, nesting."""
