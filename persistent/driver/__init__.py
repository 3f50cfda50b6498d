"""A driver takes over, then plans, commits, publishes and collects, one step after the other.

effects        the effects of a driver, and their order
loop           takes over, then runs step after step
recover        performs the effects of taking over
next_step      the step that follows from the newest manifest and the sources
step           the progress of a step, as a value: what is due, and what to do
step_effects   performs the effects of a step
commit         the next manifest, as a pure function of the last one
run_cache      the panes and inputs that the runs hold, each read at most once
publish        makes committed outputs visible, takes back after a rollback, collects garbage
evolution      how to migrate the state of a changed task
start_from     how a job starts from a savepoint
"""
