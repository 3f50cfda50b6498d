"""A checkpoint is a manifest: it names the runs whose sum is the state, the clock, and the source positions.

manifest       one checkpoint, and its bytes
parts          its part for each source, task, state and sink
plan           what the step after it will do
positions      how to write and compare the positions of a source
features       what a document may need of its reader besides its format
shapes         what these documents may hold; older_formats: older documents, and their translation to the newest
successor      what each kind of manifest copies, sets and resets
log            the manifests and plans of a job, each put once
names          the names of all files
garbage        why a file may be deleted; retention: which checkpoints are kept
compaction     which runs to fold next
copies         the same runs under other names; as_of: the checkpoint that knows a clock
running        which drivers seem to run
"""
