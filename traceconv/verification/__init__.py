"""Recompute a vendor's tables and compare."""
