"""A second reader of every source format, slow and simple, without code, rule files or schemas of the package.

`tally` has the sums to compare, `stored` computes them from a store, and each other module computes them from files of
one format, with the standard library alone. Both must agree to the nanosecond.
"""
