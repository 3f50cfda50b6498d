"""What sources, sinks and logs share of the clients of servers and databases: they ask for as long as they may."""
