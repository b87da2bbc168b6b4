"""Raw data of Ascend NPUs: the folders PROF_* that the profiler of CANN writes, before any export."""
