"""Questions to the store: one SQL file each."""
