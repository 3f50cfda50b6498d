"""Monoids that keep their inputs: sets, bags, lists, mappings and histograms.

sets.py         SetUnion, SetIntersection
bags.py         Bag
lists.py        ListConcat
ranges.py       Ranges
histogram.py    Histogram, ExponentialHistogram
mappings.py     mapping
sessions.py     what the session windows of persistent are sums of
"""
