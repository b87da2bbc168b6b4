"""Exports of a run: one module per format."""
