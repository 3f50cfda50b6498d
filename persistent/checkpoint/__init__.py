"""A checkpoint is a manifest: it names the runs whose sum is the state, the clock, and the source positions."""
