"""First answers: estimates of a report from a sample of a trace file, before all of it was read."""
