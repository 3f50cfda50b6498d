"""An agenda lists the ends of the sessions in a run, or of the lives of keys, and the hashes of their keys.

An agenda is a hint. The fragments of a session can be in several runs, and a later run can make the session longer:
the session then ends with another of its fragments. So a session ends within a stretch of time only if a fragment does,
and the largest end of all fragments is the end of a session. The agenda says which keys to look up; the sum of the runs
decides which sessions are due.
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
    """``ends`` ascend; ``hashes``: the hash of the key of each end. ``earliest``: the time of the first message."""

    ends: Integers
    hashes: Words
    earliest: int

    def between(self, closed: int, until: int) -> slice:
        """The places of the ends with ``closed < end <= until``."""
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
