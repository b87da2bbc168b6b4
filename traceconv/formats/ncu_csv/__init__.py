"""Nsight Compute's tables of kernel launches and their metrics (CSV)."""
