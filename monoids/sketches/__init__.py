"""Sketches: monoids of bounded size that answer within a stated error.

HyperLogLog(precision)          the number of distinct values
Theta(k)                        the number of distinct values, also of unions, intersections and differences
BloomFilter(capacity, error)    whether a value was added
CountMin(type, error=...)       how often a value occurs
HeavyHitters(k, type)           the most frequent values
Quantiles(relative_error)       the median and other quantiles
exact_until(n, m)               the sketch m of distinct values, exact up to n of them

hyperloglog.py  theta.py  bloom.py  count_min.py  heavy_hitters.py  quantiles.py  exact_until.py    the sketches
inputs.py          inputs as hashes, and exact numbers for arguments
datasketches.py    the hash of DataSketches, and the bytes of its Count-Min sketch
"""
