"""Monoids that keep their inputs: sets, bags, lists, mappings and histograms.

sets.py         SetUnion, SetIntersection
bags.py         Bag
lists.py        ListConcat
histogram.py    Histogram, ExponentialHistogram
mappings.py     mapping
"""
