"""Profiles of JAX, XLA and TensorFlow in protobuf (XSpace)."""
