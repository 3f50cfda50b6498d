"""A state: the sum of all updates, by key and pane, and what readers see of it.

    state           the state as a task declares it, and its values
    updates         the keys and timestamps of its updates, as columns, checked
    time_to_live    keys that expire
    rows            the sum of updates as columns; its values, or counts, marks and numbers in their place; when
                    sessions and lives end
    views           what a state shows by a clock: windows, sessions, keys
    difference      what a step publishes: the view after it, less the view before it

A view is rows (key, window) -> value. No module here reads or writes: the parts of a view are arguments.
"""
