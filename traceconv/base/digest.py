"""BLAKE2 without the module hashlib, whose import loads OpenSSL: that takes longer than many a file."""

try:
    from _blake2 import blake2b
except ImportError:  # another Python
    from hashlib import blake2b

__all__ = ["blake2b"]
