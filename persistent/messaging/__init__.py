"""Messages between processes, also without a pipeline: a segmented log, a topic, and how far readers have read."""
