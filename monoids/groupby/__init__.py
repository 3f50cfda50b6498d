"""Group by (key, pane): the one engine that sums up rows as columns.

neighbours, sorting   equal rows side by side
distinct              keys get small numbers
cells, grouping       rows are put together by number and pane
segments, summing     each group becomes one element
merging, sliding      sums of sums: of runs, of windows that overlap
"""
