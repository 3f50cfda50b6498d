"""The worker: code that runs anywhere, any number of times, and does not know the log.

 dispatch        assigns each item of a step to its function
 map_split       reads a split, judges every record, runs the task over those that count
 close_windows   folds the panes of windows that are over, and stages their outputs
 merge_runs      reads, folds and writes the runs whose sum is the state
 state_tables    folds a whole state, for readers

``job`` has the items and their results; ``output_tables`` presents sums; ``failing_keys`` finds the key whose fold or
presentation fails.
"""
