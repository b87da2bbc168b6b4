"""Captures of the NPU runtime: folders of raw binary logs."""
