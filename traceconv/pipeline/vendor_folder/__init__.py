"""Ingest a vendor's output folder: a timeline and CSV files that complete its rows."""
