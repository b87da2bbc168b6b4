"""Events of the NPU's logs → rows."""
