"""A request log answers each request once, and a repeated one with the same reply.

protocol.py     what a request is, and the decision about it
sqlite.py       in a SQLite file, and the connection that a work gets there
postgres.py     in a PostgreSQL database, and the session that a work gets there
"""

from persistent.requests.postgres import PostgresRequestLog
from persistent.requests.sqlite import SqliteRequestLog

__all__ = ["PostgresRequestLog", "SqliteRequestLog"]
