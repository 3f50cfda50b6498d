"""Monoids: what a state can be a sum of.

Sum()  Sum(float)  Count()  Mean()      numbers
ExactSum()  Sum(int, unbounded=True)  Sum(pa.decimal128(p, s))   sums without rounding or overflow
Product()  BitAnd()  BitOr()  BitXor()  of integers (or floats)
CountIf()  Any()  All()                 truth values
Moments()  Covariance()  Correlation()  statistics, from exact sums
Decayed(half_life)                      a sum that forgets
Min(type)  Max(type)                    the extremes of one type of value
MinBy(type, by=t)  MaxBy(type, by=t)    the value of the smallest, largest by
First(type)  Last(type)                 the value of the first, last message
TopK(k, type)  BottomK(k, type)         the k largest, smallest values
Reservoir(k, type)                      a uniform sample of k values
SetUnion(type)  SetIntersection(type)   distinct values: those in any, those in all
Ranges()                                distinct integers, as ranges
Bag(type)  ListConcat(type)             values with their number, values in their order
Histogram(boundaries)  ExponentialHistogram(scale)   numbers counted by bucket
HyperLogLog(precision)  Theta(k)        how many distinct values, within an error
BloomFilter(capacity, error)            whether a value was added, within an error
CountMin(type)  HeavyHitters(k, type)   how often a value occurs; the most frequent values
Quantiles(relative_error)               the median and others, within a relative error
exact_until(n, m)                       the sketch m of distinct values, exact up to n of them
mapping(m)                              m for every key
record(a=m, b=n)                        several side by side
option(m)  dual(m)  contramap(f, m)     m or nothing, m with operands swapped, m of f(input)
Monoid, Group, FixedWidth               subclass these to write your own

monoid.py  fixed.py     what a monoid is, and its columns
numbers/  comparing/  containers/  sketches/    the monoids
records.py  optional.py  combinators.py          monoids made of other monoids
laws/           the laws, and assert_monoid_laws to test your own

column.py  ordered.py  table.py                 columns of every kind; of values that compare; of tables of entries
groupby/                                        group-by: sorting, cells, segments, sliding windows
values.py  pairs.py  scalars.py  arrays.py      the inputs: their types, as single values and as columns
encoding.py  decoding.py  encoded.py  hashing.py   plain values as canonical bytes; the hash of a key
text.py  html.py        text as words of eight bytes; what a notebook shows of a monoid
on_demand.py            the names of this package and of others, each loaded when it is first used
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from monoids.combinators import contramap, dual
    from monoids.comparing.arg_extremes import First, Last, MaxBy, MinBy
    from monoids.comparing.extremes import Max, Min
    from monoids.comparing.reservoir import Reservoir
    from monoids.comparing.top import BottomK, TopK
    from monoids.containers.bags import Bag, ListConcat
    from monoids.containers.histogram import ExponentialHistogram, Histogram
    from monoids.containers.intervals import Ranges
    from monoids.containers.mappings import mapping
    from monoids.containers.sets import SetIntersection, SetUnion
    from monoids.fixed import FixedWidth
    from monoids.monoid import Group, Monoid
    from monoids.numbers.booleans import All, Any, CountIf
    from monoids.numbers.decayed import Decayed
    from monoids.numbers.exact import ExactSum
    from monoids.numbers.integers import BitAnd, BitOr, BitXor
    from monoids.numbers.moments import Correlation, Covariance, Moments
    from monoids.numbers.products import Product
    from monoids.numbers.sums import Count, Mean, Sum
    from monoids.optional import option
    from monoids.records import record
    from monoids.sketches.bloom import BloomFilter
    from monoids.sketches.count_min import CountMin
    from monoids.sketches.exact_until import exact_until
    from monoids.sketches.heavy_hitters import HeavyHitters
    from monoids.sketches.hyperloglog import HyperLogLog
    from monoids.sketches.quantiles import Quantiles
    from monoids.sketches.theta import Theta
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "monoids.combinators": "contramap dual",
            "monoids.comparing.arg_extremes": "First Last MaxBy MinBy",
            "monoids.comparing.extremes": "Max Min",
            "monoids.comparing.reservoir": "Reservoir",
            "monoids.comparing.top": "BottomK TopK",
            "monoids.containers.bags": "Bag ListConcat",
            "monoids.containers.histogram": "ExponentialHistogram Histogram",
            "monoids.containers.mappings": "mapping",
            "monoids.containers.intervals": "Ranges",
            "monoids.containers.sets": "SetIntersection SetUnion",
            "monoids.fixed": "FixedWidth",
            "monoids.monoid": "Group Monoid",
            "monoids.numbers.booleans": "All Any CountIf",
            "monoids.numbers.decayed": "Decayed",
            "monoids.numbers.exact": "ExactSum",
            "monoids.numbers.integers": "BitAnd BitOr BitXor",
            "monoids.numbers.moments": "Correlation Covariance Moments",
            "monoids.numbers.products": "Product",
            "monoids.numbers.sums": "Count Mean Sum",
            "monoids.optional": "option",
            "monoids.records": "record",
            "monoids.sketches.bloom": "BloomFilter",
            "monoids.sketches.count_min": "CountMin",
            "monoids.sketches.exact_until": "exact_until",
            "monoids.sketches.heavy_hitters": "HeavyHitters",
            "monoids.sketches.hyperloglog": "HyperLogLog",
            "monoids.sketches.quantiles": "Quantiles",
            "monoids.sketches.theta": "Theta",
        },
    )

__all__ = [
    "All",
    "Any",
    "Bag",
    "BitAnd",
    "BitOr",
    "BitXor",
    "BloomFilter",
    "BottomK",
    "Correlation",
    "Count",
    "CountIf",
    "CountMin",
    "Covariance",
    "Decayed",
    "ExactSum",
    "ExponentialHistogram",
    "First",
    "FixedWidth",
    "Group",
    "HeavyHitters",
    "Histogram",
    "HyperLogLog",
    "Last",
    "ListConcat",
    "Max",
    "MaxBy",
    "Mean",
    "Min",
    "MinBy",
    "Moments",
    "Monoid",
    "Product",
    "Quantiles",
    "Ranges",
    "Reservoir",
    "SetIntersection",
    "SetUnion",
    "Sum",
    "Theta",
    "TopK",
    "contramap",
    "dual",
    "exact_until",
    "mapping",
    "option",
    "record",
]
