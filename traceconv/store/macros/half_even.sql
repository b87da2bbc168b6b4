-- doc = "dividend / divisor of integers that are not negative, rounded to the nearest integer, half to even; NULL if divisor is 0."
half_even(dividend, divisor) AS
dividend // nullif(divisor, 0) + CASE
  WHEN 2 * (dividend % nullif(divisor, 0)) > divisor THEN 1
  WHEN 2 * (dividend % nullif(divisor, 0)) = divisor THEN dividend // nullif(divisor, 0) % 2
  ELSE 0 END
