"""Profiles of JAX and XLA in protobuf: recognised, but not supported."""
