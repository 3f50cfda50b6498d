"""Event time: clocks, windows over it, and how late a record may be.

clock                                      a bound in event time; durations, instants; the one reader of the time
zone                                       the rules of a time zone, as a table
window                                     windows of a fixed length, and the panes that they are made of
calendar_window, assigned_window           days and months of a time zone; windows of a user's function
session_window                             stretches of a key's records without a long pause
lateness                                   how long a closed window takes records
"""
