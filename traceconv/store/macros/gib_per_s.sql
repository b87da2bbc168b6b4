-- doc = "[GiB/s] Transfer rate of bytes moved in a number of cycles: size_bytes / (cycles / clock) / 2^30, as doubles; 0 if cycles are 0, NULL if an argument is NULL. Cycles summed over blocks give the rate of one core."
gib_per_s(size_bytes, cycles, clock_hz) AS
CASE WHEN cycles = 0 THEN 0
     ELSE size_bytes::DOUBLE * clock_hz::DOUBLE / (cycles::DOUBLE * 1073741824) END
