"""The room of the worker: what runs anywhere, any number of times, and knows no log.

    dispatch        which item of a step is whose work
    map_split       reads a split, judges every record, runs the task over those that count
    close_windows   folds the panes of windows that are over, and stages their outputs
    merge_runs      reads, folds and writes the runs whose sum the state is
    state_tables    folds a whole state, for readers

``job`` has the items and their results; ``output_tables`` presents sums; ``failing_keys`` finds the key whose fold or
presentation fails.
"""
