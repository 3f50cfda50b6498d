"""What sources and sinks share of the clients of servers: they ask a server for as long as they may."""
