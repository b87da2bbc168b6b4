"""Algorithms that SQL can't say well; each writes its result to a documented table."""
