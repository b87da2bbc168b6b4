"""From a row of the store back to the bytes of the source that it was made of."""
