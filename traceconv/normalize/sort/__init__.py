"""Sorting and spilling of rows that don't fit into memory."""
