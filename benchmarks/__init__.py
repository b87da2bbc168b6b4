"""Benchmarks on generated input; see README.md."""
