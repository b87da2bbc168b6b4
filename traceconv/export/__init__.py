"""Out of the store: one module per format."""
