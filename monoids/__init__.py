"""Monoids: what a state can be a sum of.

Sum()  Sum(float)  Count()  Mean()      numbers
Min(type)  Max(type)                    the extremes of one type of value
SetUnion(type)                          distinct values
mapping(m)                              m for every key
record(a=m, b=n)                        several side by side
Monoid, Group                           to subclass for one's own

monoid.py      what a monoid is, and its columns
numeric.py  containers.py  record.py    the monoids
values.py      the types of their inputs
encoding.py    plain values as canonical bytes
laws.py        the laws, and assert_monoid_laws to test one's own
columns.py     group-by as one sort
hashing.py     the hash of a key
"""

from monoids.containers import SetUnion, mapping
from monoids.monoid import Group, Monoid
from monoids.numeric import Count, Max, Mean, Min, Sum
from monoids.record import record

__all__ = ["Count", "Group", "Max", "Mean", "Min", "Monoid", "SetUnion", "Sum", "mapping", "record"]
