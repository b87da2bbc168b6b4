"""Read → normalize → store: the only place where the three meet."""
