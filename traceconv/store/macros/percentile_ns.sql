-- doc = "[ns] A percentile in thousandths, up to 999, of a list of count sorted HUGEINT: the one at index thousandths (count − 1) / 1000, from 0, interpolated linearly between the two adjacent ones and rounded half to even, in integers."
percentile_ns(sorted, count, thousandths) AS
half_even(
  sorted[thousandths * (count - 1) // 1000 + 1] * (1000 - thousandths * (count - 1) % 1000)
    + coalesce(sorted[thousandths * (count - 1) // 1000 + 2], 0) * (thousandths * (count - 1) % 1000),
  1000
)::BIGINT
