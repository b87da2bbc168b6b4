"""Databases of Ascend's profilers (torch_npu, msprof)."""
