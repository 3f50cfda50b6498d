"""Monoids that keep what comes first or last, smallest or largest, in a total order.

extremes.py         Min, Max; which of many rows sorts first
arg_extremes.py     MinBy, MaxBy, First, Last
top.py              TopK, BottomK
reservoir.py        Reservoir
orders.py           the order that values are compared by, and pairs (by, value)
id_hashes.py        the hash of an id, which names one occurrence
"""
