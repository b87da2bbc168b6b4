"""Reader of Nsight Systems reports exported to SQLite."""
