"""A driver takes over, then plans, commits, publishes and collects, one step after the other.

effects        what a driver does to the world, and in which order
loop           takes over, then runs step after step
recover        performs the effects of taking over
next_step      the step that follows from the newest manifest and the source
step           how far a step has come, what is due, and what there is to do: a value
step_effects   performs the effects of a step
commit         the next manifest, as a pure function of the last one
run_cache      which panes and inputs the runs hold, each read at most once
publish        makes visible what is committed, takes back what a rollback left, collects garbage
evolution      how to migrate the state of a changed task
start_from     how a job begins with a savepoint
"""
