"""Fuzzing of every reader: mutated samples must yield rows, log entries or a TraceconvError, nothing else."""
