"""Group by (key, pane): the one engine that sums rows, as columns.

sorting               equal rows side by side
distinct              small numbers for keys
cells, grouping       rows grouped by key number and pane
segments, summing     each group reduced to one element
merging, sliding      sums of sums: of runs, of overlapping windows
"""
