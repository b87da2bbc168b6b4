"""Ingest of a vendor's output folder: a timeline and the CSV files that complete its rows."""
