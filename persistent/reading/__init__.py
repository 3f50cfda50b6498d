"""To read a checkpoint is to look at what it holds and change nothing: its state, what two of them differ in, a copy in
Parquet."""

from persistent.reading.diff import Change, Diff, diff
from persistent.reading.export import Exported, export
from persistent.reading.place import Place, kept_places, place
from persistent.reading.state import check_key, check_window, state_table

__all__ = [
    "Change",
    "Diff",
    "Exported",
    "Place",
    "check_key",
    "check_window",
    "diff",
    "export",
    "kept_places",
    "place",
    "state_table",
]
