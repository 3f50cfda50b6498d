"""What sources, sinks and logs share of the clients of servers and databases: retries, settings and error texts."""
