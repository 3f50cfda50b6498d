"""Sketches: monoids of bounded size that answer within a stated error.

HyperLogLog(precision)          the number of distinct values
Theta(k)                        the number of distinct values, also of unions, intersections and differences
BloomFilter(capacity, error)    whether a value was added
CountMin(type, error=...)       how often a value occurs
HeavyHitters(k, type)           the most frequent values
Quantiles(relative_error)       the median and other quantiles
exact_until(n, m)               the sketch m of distinct values, exact up to n of them

hyperloglog.py  theta.py  bloom.py  count_min.py  heavy_hitters.py  quantiles.py  exact_until.py    the sketches
hashed_inputs.py   inputs as hashes
murmur.py  theta_bytes.py               the hash and the bytes of DataSketches' theta sketch
count_min_bytes.py                      the bytes of DataSketches' Count-Min sketch
logarithm.py    the buckets of quantiles
arguments.py    exact numbers for arguments
radix.py        sorting many words
"""
