"""Training on the reference NPU: a step is forward, backward and refresh, each op one task."""
