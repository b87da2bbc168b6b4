"""Raw data of Ascend NPUs: the folders PROF_* and JOB* that the profiler of CANN writes, before any export."""
