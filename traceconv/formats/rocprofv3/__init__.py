"""Reader of the JSON results of rocprofv3."""
