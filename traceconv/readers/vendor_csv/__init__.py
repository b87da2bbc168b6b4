"""Tables that other systems write as CSV: their records, with the place in the file where each one stands."""
