"""Sketches: monoids of bounded size that answer within a stated error.

HyperLogLog(precision)          how many distinct values
Theta(k)                        how many distinct values, of unions, intersections and differences too
BloomFilter(capacity, error)    whether a value was added
CountMin(type, error=...)       how often a value came
HeavyHitters(k, type)           which values came most often
Quantiles(relative_error)       the median and others
exact_until(n, m)               m, a sketch of distinct values, exact up to n of them

hyperloglog.py  theta.py  bloom.py  count_min.py  heavy_hitters.py  quantiles.py  exact_until.py    the sketches
inputs.py       their inputs as hashes
murmur.py  theta_bytes.py               the hash and the bytes of DataSketches' theta sketch
count_min_bytes.py                      the bytes of DataSketches' Count-Min sketch
logarithm.py    the buckets of quantiles
arguments.py    exact numbers for arguments
radix.py        many words in order
"""
