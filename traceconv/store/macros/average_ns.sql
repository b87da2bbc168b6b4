-- doc = "[ns] total / count, rounded half up to 0.001 ns, in integers; NULL if count is 0. total is a HUGEINT."
average_ns(total, count) AS
(((2000 * total + count) // nullif(2 * count, 0))::DECIMAL(38,0) * 0.001)::DECIMAL(22,3)
