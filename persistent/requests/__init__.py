"""A request log answers each request once, and a repeated one in the same words.

protocol.py    what a request is, and what is decided about it
sqlite.py      in a file of SQLite
postgres.py    on a server of PostgreSQL
"""

from persistent.requests.postgres import PostgresRequestLog
from persistent.requests.sqlite import SqliteRequestLog

__all__ = ["PostgresRequestLog", "SqliteRequestLog"]
