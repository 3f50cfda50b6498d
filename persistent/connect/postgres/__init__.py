"""PostgreSQL: rows and their mark are written in one transaction.

sink              the sink
table, columns    its table; the types of its columns, and values for COPY
session           a connection that retries
"""
