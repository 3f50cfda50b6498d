"""Monoids that keep their inputs: sets, bags, lists, mappings and histograms.

sets.py         SetUnion, SetIntersection
bags.py         Bag, ListConcat
histogram.py    Histogram, ExponentialHistogram
mappings.py     mapping
intervals.py    Ranges, and Sessions: what the session windows of persistent are sums of
"""
