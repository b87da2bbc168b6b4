"""Identifies files and folders, and checks their integrity, without storing anything."""
