-- doc = "[ns] Time of cycles summed over blocks, on cores that run one block at a time: cycles / clock / blocks · ⌈blocks / cores⌉, in integers, rounded half up; NULL if an argument is NULL, or if the clock, the blocks or the cores are 0."
-- # Both branches are the same formula: 2 · 10⁹ · ⌈…⌉ · cycles + clock · blocks over 2 · clock · blocks. The first
-- # computes in µs and MHz, within 64 bits by its bounds, which is five times as fast as 128 bits.
cycles_ns(cycles, clock_hz, blocks, cores) AS
CASE WHEN cycles < 34359738368 AND clock_hz % 1000000 = 0 AND blocks <= 65536 AND cores <= 65536 THEN
  (2000 * ((blocks + cores - 1) // nullif(cores, 0)) * cycles + clock_hz // 1000000 * blocks)
    // nullif(2 * (clock_hz // 1000000) * blocks, 0)
ELSE
  TRY_CAST(
    (2000000000::HUGEINT * ((blocks + cores - 1) // nullif(cores, 0)) * cycles + clock_hz::HUGEINT * blocks)
      // nullif(2::HUGEINT * clock_hz * blocks, 0)
    AS BIGINT)
END
