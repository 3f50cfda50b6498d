"""Reading a checkpoint changes nothing: its state, the difference between two checkpoints, an export to Parquet."""

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
