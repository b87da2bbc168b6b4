"""From a row of the store back to the source bytes that it was made from."""
