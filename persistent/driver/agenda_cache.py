"""An agenda cache is a run cache with the agenda of each run: it answers for sessions and lives without any fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from monoids.groupby.cells import Integers
from monoids.text import Words
from persistent.agenda import Agenda, agenda_of_table
from persistent.checkpoint.compaction import beside
from persistent.checkpoint.runs import read_run, run_place, with_recovery_advice
from persistent.codec import Run, decode_table, groups_of
from persistent.driver.run_cache import RunCache
from persistent.session_window import Gaps, SessionWindow
from persistent.storage import Storage
from persistent.time_to_live import TimeToLive
from persistent.window import AnyWindow
from persistent.worker.job import CloseShard, FoldRuns


class _Agendas(RunCache):
    """A run cache with the agenda of each run."""

    counts_windows = False

    def __init__(self, storage: Storage, window: AnyWindow | None, gaps: Gaps) -> None:
        super().__init__(storage, window)
        self._gaps = gaps
        self._agendas: dict[str, Agenda] = {}

    def learn(self, run: Run, panes: Integers, agenda: Agenda | None = None) -> None:
        super().learn(run, panes)
        if agenda is not None:
            self._agendas[run.name] = agenda

    def forget_all_but(self, runs: Iterable[Run]) -> None:
        kept = list(runs)
        super().forget_all_but(kept)
        self._agendas = {run.name: self._agendas[run.name] for run in kept if run.name in self._agendas}

    def is_due(self, runs: Iterable[Run], closed: int, close_at: int) -> bool:
        """Whether a session, or a life, may have ``closed < end <= close_at``."""
        places = (agenda.between(closed, close_at) for agenda in self._of(runs))
        return any(place.start < place.stop for place in places)

    def due(self, runs: Iterable[Run], closed: int, until: int) -> Words:
        """The hashes of the keys that may have a session, or a life, with ``closed < end <= until``, ascending."""
        hashes = [agenda.hashes[agenda.between(closed, until)] for agenda in self._of(runs)]
        return np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, np.uint64)

    def _of(self, runs: Iterable[Run]) -> Iterable[Agenda]:
        return (self._agenda_of(run) for run in runs)

    def _agenda_of(self, run: Run) -> Agenda:
        if run.name not in self._agendas:
            place = run_place(self._storage, run)
            with with_recovery_advice(self._storage.url):
                table = decode_table(read_run(self._storage, run), run.sha256, place)
            self._agendas[run.name] = agenda_of_table(self._gaps, table)
        return self._agendas[run.name]


class SessionCache(_Agendas):
    """The run cache of a state of sessions. Its windows are the cells that hold an open session."""

    def __init__(self, storage: Storage, window: SessionWindow) -> None:
        super().__init__(storage, window, window)
        self._sessions = window

    def open_windows(self, runs: Iterable[Run], closed: int) -> int:
        """The number of cells with a session that is not closed."""
        ends = [agenda.ends[agenda.between(closed, closed).stop :] for agenda in self._of(runs)]
        # A cell ends with its last session, or after it.
        return len(np.unique(self._sessions.last_start(np.concatenate(ends) - 1))) if ends else 0

    def largest_end(self, runs: Iterable[Run], closed: int) -> int:
        """The largest end of a session that is not closed; 0 without one."""
        largest = max((int(agenda.ends[-1]) for agenda in self._of(runs) if len(agenda.ends)), default=0)
        return largest if largest > closed else 0

    def first_end(self, runs: Iterable[Run], closed: int) -> int | None:
        """The clock before which no further session closes; None if none is open."""
        starts = [(agenda, agenda.between(closed, closed).stop) for agenda in self._of(runs)]
        return min((int(agenda.ends[start]) for agenda, start in starts if start < len(agenda.ends)), default=None)

    def with_due(self, closings: Sequence[CloseShard]) -> list[CloseShard]:
        """The closings of the shards in which a session may end, each with the hashes of the keys of such sessions."""
        due_shards = []
        for shard in closings:
            agendas = list(self._of(shard.runs))
            due = [of_shard(agenda.hashes[agenda.between(shard.closed, shard.close_at)], shard) for agenda in agendas]
            hashes = np.unique(np.concatenate(due))
            due_shards += [replace(shard, hashes=hashes)] if len(hashes) else []
        return due_shards

    def touched(self, delta: Iterable[Run], closed: int) -> tuple[tuple[int, int], ...]:
        """The numbers of the cells in which records of a delta may change a closed session, in one range from first to
        last; none if all came after the clock."""
        earliest = min((agenda.earliest for agenda in self._of(delta)), default=closed)
        if earliest >= closed:
            return ()
        return ((int(self._sessions.last_number(earliest)), int(self._sessions.last_number(closed - 1))),)

    def with_over(self, folds: Sequence[FoldRuns], runs: Sequence[Run]) -> list[FoldRuns]:
        """The folds of some of these runs, each with the time up to which it may drop sessions. A session that ends
        before the earliest message of the other runs is whole in the fold: their messages follow it by at least the
        gap, or are in a later cell."""
        return [
            replace(fold, over=min([fold.final, *(agenda.earliest for agenda in self._of(beside(runs, fold.merge)))]))
            for fold in folds
        ]


class LifeCache(_Agendas):
    """The run cache of a state with a time to live. It has no windows, and the end of the input ends no life."""

    def __init__(self, storage: Storage, ttl: TimeToLive) -> None:
        super().__init__(storage, None, ttl)
        self._ttl = ttl

    def is_untold(self, runs: Iterable[Run], shown_at: int | None, closed: int) -> bool:
        return shown_at is not None and len(self.due(runs, shown_at, closed)) > 0

    def with_over(self, folds: Sequence[FoldRuns], runs: Sequence[Run]) -> list[FoldRuns]:
        """The folds of some of these runs, each with the time up to which it may drop lives. A life that ends before
        the earliest message of the other runs is whole in the fold."""
        bounded_folds = []
        for fold in folds:
            over = self._ttl.over(fold.final, fold.shown_at)
            begun = [agenda.earliest for agenda in self._of(beside(runs, fold.merge))]
            bounded_folds.append(replace(fold, over=min([over, *begun])))
        return bounded_folds


def of_shard(hashes: Words, item: CloseShard) -> Words:
    """The hashes of the key groups of a shard."""
    groups = groups_of(hashes)
    return hashes[(item.low <= groups) & (groups < item.high)]
