"""Read → normalise → store: the only place where the three meet."""
