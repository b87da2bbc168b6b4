-- title = "The device lowers its clock"
-- doc = "Compute tasks that start while a counter of the core's clock (AI Core Freq, SM clock …) is below its highest value in the run. Only in traces with such a counter."
-- saving = "Sum of duration × (1 − clock / highest clock): an upper bound, as tasks that wait for memory don't depend on the clock of the cores."
-- basis = "upper bound"
-- suggestion = "Check temperature, cooling and power limits; lock the clock for measurements."
-- reads = ["kernels"]
-- only_if = "SELECT EXISTS (FROM track WHERE run_id = $run AND kind = 'counter' AND regexp_matches(name, '(?i)(ai ?core|sm|gpu|gr|graphics).*(freq|clock)'))"
-- evidence = "SELECT t.name, c.ts_ns, c.value FROM counter AS c JOIN track AS t USING (run_id, track_id) WHERE c.run_id = $run AND regexp_matches(t.name, '(?i)(ai ?core|sm|gpu|gr|graphics).*(freq|clock)') ORDER BY c.ts_ns"
WITH clock AS (
  -- A clock without a device is that of each, so that tasks join on equal devices.
  SELECT c.track_id, c.ts_ns, d.device_id, t.name, (1000 * c.value)::HUGEINT AS clock, max((1000 * c.value)::HUGEINT) OVER (PARTITION BY c.track_id) AS highest
  FROM counter AS c
  JOIN track AS t ON t.run_id = c.run_id AND t.track_id = c.track_id
  JOIN advice_device AS d ON t.device_id IS NULL OR d.device_id = t.device_id
  WHERE c.run_id = $run AND c.value BETWEEN 0 AND 1e12 AND regexp_matches(t.name, '(?i)(ai ?core|sm|gpu|gr|graphics).*(freq|clock)')
)
SELECT t.device_id, c.name AS subject,
       -- dur_ns × (highest − clock) // highest, without 128 bits where its parts fit in 64.
       CASE WHEN c.highest <= 3_000_000_000
            THEN t.dur_ns // c.highest::BIGINT * (c.highest - c.clock)::BIGINT
                 + t.dur_ns % c.highest::BIGINT * (c.highest - c.clock)::BIGINT // c.highest::BIGINT
            ELSE t.dur_ns * (c.highest - c.clock) // c.highest END AS saving_ns, 1 AS count
FROM task AS t
ASOF JOIN clock AS c ON c.device_id = t.device_id AND t.start_ns >= c.ts_ns
WHERE t.run_id = $run AND t.kind = 'compute' AND t.dur_ns IS NOT NULL AND c.clock < c.highest
