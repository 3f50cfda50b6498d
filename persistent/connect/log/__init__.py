"""A segmented log as a source and as a sink."""
