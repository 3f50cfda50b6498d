"""Sessions that a rollback has undone, and left to be seen, are taken back: with other borders nothing replaces them.

The steps since are looked at once more, from the runs that their checkpoints name. What each of them has published is
the difference of two sets, as it was then; all of them together have come to what readers hold and the state does not:

    shown    published by these steps, and not taken back by a later one
    lost     published before, and taken back by these steps
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from monoids.groupby.summing import GroupSums
from persistent.state_rows import fold
from persistent.worker.close_sessions import due_sessions
from persistent.worker.job import CloseShard, Job
from persistent.worker.revise_sessions import changed_sessions, difference, same_sessions
from persistent.worker.revise_windows import Corrected, TakenBack, without


@dataclass
class _Readers:
    """What readers hold beside the state that they go back to."""

    job: Job
    shown: GroupSums | None = None
    lost: GroupSums | None = None

    def take_back(self, rows: GroupSums) -> None:
        if self.shown is not None:
            here, there = same_sessions(self.job, rows, self.shown)
            rows, self.shown = without(rows, here), without(self.shown, there)
        self.lost = self._with(self.lost, rows)

    def show(self, rows: GroupSums) -> None:
        self.shown = self._with(self.shown, rows)

    def _with(self, some: GroupSums | None, others: GroupSums) -> GroupSums:
        """Both, of which no session is in the other."""
        return others if some is None else fold(self.job.state.monoid, [some, others], 1)


def undone_sessions(job: Job, steps: Sequence[CloseShard]) -> Iterator[GroupSums]:
    """The sessions to take back, and those to publish again, so that readers hold what they held before these steps.
    ``steps``: what each of them has closed and corrected, oldest first."""
    readers = _Readers(job)
    for step in steps:
        for rows in changed_sessions(job, step) if step.corrected else due_sessions(job, step):
            if isinstance(rows, TakenBack):
                readers.take_back(rows)
                continue
            if isinstance(rows, Corrected):
                readers.take_back(rows.before)
            readers.show(GroupSums(rows.hashes, rows.keys, rows.panes, rows.columns))
    shown, lost = readers.shown, readers.lost
    some = shown if shown is not None else lost
    if some is not None:
        nothing = some.slice(0, 0)
        yield from difference(job, nothing if shown is None else shown, nothing if lost is None else lost)
