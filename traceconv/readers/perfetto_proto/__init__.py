"""Reader of Perfetto traces: a stream of protobuf packets."""
