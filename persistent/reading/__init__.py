"""Reading a checkpoint changes nothing: its state, its clock, the difference between two checkpoints, an export to
Parquet.

 state      a state as a table; place: the manifest from which it is read
 clocks     where the clock stands; furthest: the record that moved it there
 diff       what changed between two checkpoints
 export     a state as Parquet files"""

from persistent.reading.clocks import (
    ClockReading,
    FoundRecord,
    Furthest,
    PartitionReading,
    clock_reading,
    find_record,
    furthest,
)
from persistent.reading.diff import Change, Diff, diff
from persistent.reading.place import Place, kept_places, place
from persistent.reading.state import Exported, check_key, check_window, export, state_table

__all__ = [
    "Change",
    "ClockReading",
    "Diff",
    "Exported",
    "FoundRecord",
    "Furthest",
    "PartitionReading",
    "Place",
    "check_key",
    "check_window",
    "clock_reading",
    "diff",
    "export",
    "find_record",
    "furthest",
    "kept_places",
    "place",
    "state_table",
]
