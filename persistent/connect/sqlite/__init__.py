"""SQLite: rows and their mark are written in one transaction. sink: the sink; table: its table."""
