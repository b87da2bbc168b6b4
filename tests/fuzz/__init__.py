"""Fuzzing of every reader: mutated samples go in, and nothing but rows, log rows or a TraceconvError may come out."""
