"""Read → normalize → store: the only package that uses all three."""
