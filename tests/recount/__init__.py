"""A second, slow and obvious reading of every source format: no code of the package, no rule file, no schema.

`tally` is what is compared; each other module adds up files of one format with the standard library alone; `stored`
adds up what a store says of the same file. Both must agree to the nanosecond.
"""
