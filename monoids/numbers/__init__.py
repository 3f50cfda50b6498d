"""Monoids of numbers and truth values.

sums.py  unbounded.py  wide.py  exact.py    Sum of every kind, Count, Mean, ExactSum
products.py  integers.py  booleans.py       Product; BitAnd, BitOr, BitXor; CountIf, Any, All
moments.py  decayed.py                      Moments, Covariance, Correlation; Decayed
power_sums.py   exact sums of products of several variables
digits.py       vectors of integers of any size, as columns
limbs.py        columns of large integers, and of floats with twice the bits, to present many keys
"""
