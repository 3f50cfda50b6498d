"""A driver takes over, then plans, commits, publishes and collects, one step after the other.

 effects            the effects of a driver, and their order
 open_job           a job that is looked at, taken over, and stepped, until nothing is left to do
 recover            performs the effects of taking over; whether the next step runs a plan that was put
 next_step          the step that follows from the newest manifest and the sources, and reads no input twice
 step               the progress of a step, as a value: what is due, and what to do
 step_effects       performs the effects of a step; results: their results for each node, the runs after
                    them, and the seen records of each source

What a step follows from, and leads to:

 commit             the next manifest, and its sinks, as a pure function of the last one
 publish            makes committed outputs visible, takes back after a rollback, collects garbage
 publish_after      publishes what depends on the step itself: late records, changes, keys that expire
 output_batches     the batches of each sink, by its name; undoing: the rows that take back batches
 overlaps           judges copies that splits of one step have in common
 drift              a source that is far ahead waits

What a driver holds:

 workbench          the tools and facts of one run of a job, and of each node; for how long nothing has come
 run_cache          the panes and inputs that the runs hold, each read at most once; agenda_cache: when sessions and
                    lives end
 options            the user's choices besides the job

What a job may be:

 same_job           the job of the checkpoint; naming: its sources and sinks by name
 destinations       each result has a place
 changes            what another value of an option leads to
 start_from         how a job starts from a savepoint
 evolution          how to migrate the state of a changed task; migration: does so
 correction         puts records into states by hand, or takes them out
 job_guarantee      what a job promises

What a run reports:

 report             the figures of a step and of a run; series: a few points for many steps
 notes              collects the figures and cautions of a run; likely_mistakes: the texts of the cautions
 nothing_published  why a run has published nothing
 observer           sees what a run commits
"""
