"""Shared by several formats: opening and decompressing files, limits, JSON documents, identity."""
