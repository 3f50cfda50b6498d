"""Formats: bytes to columns and back, for files and for messages.

protocol, table                    what a format of files is; the formats by name
lines, text                        lines with their offsets; one record a line
json_lines, csv_lines              the fields of lines; csv_dialect: how a CSV file is written
parquet                            columns
json_rows                          a table as JSON lines
values, avro, avro_schemas         the values of messages
message_columns                    their columns, and metadata beside them
schemas, conversion, timestamps    the columns of a source, their types, and the event time
"""
