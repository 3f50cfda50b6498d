"""Group by (key, pane): the one engine that sums rows, as columns.

sorting               equal rows side by side
cells, grouping       rows grouped by key number and pane
summing               small numbers for keys, and each group reduced to one element
merging, sliding      sums of sums: of runs, of overlapping windows
"""
