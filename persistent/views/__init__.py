"""A view is what a state shows by a clock: rows (key, window) -> value, from the rows of its runs.

 windows       sums of the panes that each window covers
 sessions      stretches of time, which records make longer or join
 keys          one value of each key; or that of its last life, until the key expires
 difference    what a step publishes: the view after it, less the view before it; without rows whose fold raises
 rows          rows with other values: counts, marks, numbers

No module here reads or writes: the parts of a view are given.
"""
