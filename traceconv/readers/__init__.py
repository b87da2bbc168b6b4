"""Into events: one module per source format."""
