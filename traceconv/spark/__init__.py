"""Reports on Spark, for lakes that are too large for one machine."""
