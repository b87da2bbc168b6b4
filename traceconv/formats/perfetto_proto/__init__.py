"""Perfetto traces in protobuf: known, and not read yet."""
