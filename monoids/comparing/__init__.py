"""The monoids of what comes first, last, smallest or largest, by an order in which everything has its place.

extremes.py     Min, Max
chosen.py       MinBy, MaxBy, First, Last
top.py          TopK, BottomK
reservoir.py    Reservoir
ordered_pairs.py  orders.py     pairs (by, value), and what they are compared by
choosing.py     which row of many comes first
ids.py          which of many occurrences one is
"""
