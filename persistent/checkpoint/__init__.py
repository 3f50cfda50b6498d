"""A checkpoint is a manifest: it names the runs whose sum is the state, the clock, and the source positions.

manifest       one checkpoint, and its bytes; which checkpoints are kept
parts          its part for each source, task and state; how records were read before
output_parts   its part for each sink; for each correction by hand
plan           what the step after it will do
successor      what each kind of manifest copies, sets and resets
log            the manifests and plans of a job, each put once
commit_change  how an operation changes a job: it decides, fences, decides again, writes and puts
compaction     which runs to fold next
runs           a run is written under a unique name, and read whole
set_aside      late rows and dead letters as tables; aside_columns: their columns
copies         the same runs under other names; as_of: the checkpoint that knows a clock
running        which drivers seem to run
"""
