"""The version, imported by whatever names it."""

__version__ = "0.1.0"
