"""Reader of PyTorch's memory snapshots."""
