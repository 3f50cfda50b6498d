"""Monoids that keep what comes first or last, smallest or largest, in a total order.

extremes.py         Min, Max
arg_extremes.py     MinBy, MaxBy, First, Last
top.py              TopK, BottomK
reservoir.py        Reservoir
ordered_pairs.py  orders.py     pairs (by, value), and the order they are compared by
least_rows.py       which of many rows sorts first
id_hashes.py        the hash of an id, which names one occurrence
"""
