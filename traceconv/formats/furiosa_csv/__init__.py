"""Furiosa's tables of spans (CSV)."""
