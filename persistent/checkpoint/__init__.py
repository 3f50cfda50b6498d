"""A checkpoint is a manifest: it names the runs whose sum is the state, the clock, and the source positions.

manifest       one checkpoint, and its bytes
parts          what it says of each source, task, state and sink
plan           what the step after it will do
positions      how the positions of a source are written and compared
shapes         what may stand in these documents; older_formats: those of older formats, and the same in today's words
successor      what each kind of manifest copies, sets and resets
log            the manifests and plans of a job, each put once
names          what files are called
garbage        why a file may be deleted; retention: which checkpoints are kept
compaction     which runs are folded next
copies         the same runs under other names; as_of: the checkpoint that knows a clock
running        who seems to drive
"""
