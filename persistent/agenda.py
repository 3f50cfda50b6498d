"""An agenda lists when the sessions in a run end, or the lives of keys, and the hashes of their keys.

It is a hint. A later run can make a session longer: its end is then the end of another of its fragments. So a session
ends in a stretch of time only if some fragment does, and the largest end of all is the end of a session. What is due is
looked up by its key, and the sum of the runs decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from monoids.column import Ragged
from monoids.groupby.cells import Integers
from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.session_window import Gaps


@dataclass(frozen=True)
class Agenda:
    """``ends``, ascending, and the hash of the key of each. ``earliest``: the time of the first message of all."""

    ends: Integers
    hashes: Words
    earliest: int

    def between(self, closed: int, until: int) -> slice:
        """The places with ``closed < end <= until``."""
        return slice(*np.searchsorted(self.ends, (closed, until), side="right").tolist())


def agenda_of(gaps: Gaps, rows: GroupSums) -> Agenda:
    """The agenda of the rows of a run of sessions, or of lives."""
    (table,) = rows.columns
    return _agenda(gaps, rows.hashes, table)


def agenda_of_table(window: Gaps, table: pa.Table) -> Agenda:
    """The agenda of a stored run, without the monoid of its values."""
    elements = table.column("element:element").combine_chunks()
    fragments = elements.flatten()
    times = tuple(fragments.field(name).to_numpy() for name in (".start", ".last"))
    lengths = np.diff(elements.offsets.to_numpy()).astype(np.int64)
    return _agenda(window, table.column("hash").to_numpy(), Ragged.of(lengths, times))


def _agenda(window: Gaps, hashes: Words, table: Ragged) -> Agenda:
    starts, lasts = table.flat()[:2]
    ends = window.session_ends(starts, lasts)
    order = np.argsort(ends, kind="stable")
    return Agenda(ends[order], table.spread(hashes)[order], int(starts.min()))
