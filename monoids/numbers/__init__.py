"""Monoids of numbers and truth values.

sums.py  unbounded.py  decimals.py  exact.py    Sum of every kind, Count, Mean, ExactSum
products.py  bits.py  booleans.py               Product; BitAnd, BitOr, BitXor; CountIf, Any, All
moments.py  covariance.py  decayed.py           Moments; Covariance, Correlation; Decayed
integers.py  floats.py    monoids of one int64 or float64 column
power_sums.py   exact sums of products of several variables
rounding.py     floats as integers times a power of two
digits.py       vectors of integers of any size, as columns
wide.py         totals beyond 64 bits, as a column
entries.py      a count of entries, whose overflow names the table
limbs.py  double_double.py    columns of large integers, and of floats with twice the bits, to present many keys
"""
