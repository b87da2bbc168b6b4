"""The raw log format: bytes on one side, records on the other."""
