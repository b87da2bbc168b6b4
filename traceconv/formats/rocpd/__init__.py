"""Databases of ROCm's profilers (rocpd)."""
