"""Analyses that SQL can't express well: each is a module, on an open store."""
