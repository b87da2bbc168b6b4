"""Profiles of JAX and XLA in protobuf: known, and not read yet."""
