"""Perfetto traces in protobuf: packets, sequences and clocks → events."""
