"""A run cache holds the panes of each run and the index of each source; it reads each run at most once.

An agenda cache is a run cache with the agenda of each run: it answers for sessions and lives without any fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from monoids.text import Words
from persistent.checkpoint.compaction import beside
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.runs import read_run, read_table, run_place, with_recovery_advice
from persistent.codec.fields import Run
from persistent.codec.runs import decode_panes, groups_of
from persistent.codec.sealed import decode_table
from persistent.state.rows import Agenda, agenda_of_table
from persistent.state.time_to_live import TimeToLive
from persistent.storage.protocol import Storage
from persistent.time.session_window import Gaps, SessionWindow
from persistent.time.window import AnyWindow
from persistent.worker.job import CloseShard, FoldRuns


class RunCache:
    """The panes of runs and the inputs that a source has listed. Runs never change, so nothing here goes stale.

    ``window``: of the state. ``counts_windows``: whether the panes tell how many windows close."""

    counts_windows = True

    def __init__(self, storage: Storage, window: AnyWindow | None) -> None:
        self._storage = storage
        self.window = window
        self._panes: dict[str, Integers] = {}
        self._index: dict[str, tuple[tuple[str, ...], pa.Table | None]] = {}

    def learn(self, run: Run, panes: Integers, agenda: Agenda | None = None) -> None:
        """Store the panes of a run just written. ``agenda``: the agenda of the run, if it holds sessions or lives."""
        self._panes[run.name] = panes

    def forget_all_but(self, runs: Iterable[Run]) -> None:
        """Keep only the panes of these runs."""
        self._panes = {run.name: self._panes[run.name] for run in runs if run.name in self._panes}

    def panes(self, runs: Iterable[Run]) -> list[Integers]:
        """The panes of each of these runs, ascending."""
        return [self._panes_of(run) for run in runs]

    def open_windows(self, runs: Iterable[Run], closed: int) -> int:
        """The number of non-empty windows that are not closed."""
        window = self.window
        panes = [self._panes_of(run) for run in runs] if window else []
        if window is None or not panes:
            return 0
        distinct = np.unique(np.concatenate(panes))
        first, last = window.first_number(distinct), window.last_number(distinct)
        if not window.overlaps:
            first = last
        # Both ascend with the panes: a pane adds the windows after the last one of the previous pane.
        counted = np.concatenate(([window.first_number(closed) - 1], last[:-1]))
        counted = np.maximum(counted, counted[0])
        return int(np.maximum(last - np.maximum(first - 1, counted), 0).sum())

    def windows_over(self, runs: Sequence[Run], closed: int, close_at: int) -> int:
        """The number of non-empty windows with ``closed < end <= close_at``."""
        return self.open_windows(runs, closed) - self.open_windows(runs, max(closed, close_at))

    def largest_end(self, runs: Iterable[Run], closed: int) -> int:
        """The largest end of a non-empty window that is not closed; 0 without one."""
        window = self.window
        if window is None:
            return 0
        first = window.first_number(closed)
        last = max((window.last_number(run.pane_max) for run in runs), default=first - 1)
        return window.end_of(last) if last >= first else 0

    def is_due(self, runs: Iterable[Run], closed: int, close_at: int) -> bool:
        """Whether a non-empty window has ``closed < end <= close_at``."""
        window = self.window
        if window is None:
            return False
        first = window.first_number(closed)
        start = window.start_of(first)
        for run in runs:
            if run.pane_max < start or window.end_of(max(window.first_number(run.pane_min), first)) > close_at:
                continue
            panes = self._panes_of(run)
            pane = int(panes[np.searchsorted(panes, start)])
            if window.end_of(max(window.first_number(pane), first)) <= close_at:
                return True
        return False

    def is_untold(self, runs: Iterable[Run], shown_at: int | None, closed: int) -> bool:
        """Whether a key may have expired after ``shown_at`` and up to ``closed``, so that the sinks do not know of it.
        ``shown_at``: the clock at the last publication; None before the first."""
        return False

    def with_due(self, closings: Sequence[CloseShard]) -> list[CloseShard]:
        """The closings that may have something to close; of sessions, with the hashes of the keys to look at."""
        return list(closings)

    def with_over(self, folds: Sequence[FoldRuns], runs: Sequence[Run]) -> list[FoldRuns]:
        """The folds of some of these runs; of sessions and lives, each with the time up to which it may drop them."""
        return list(folds)

    def first_end(self, runs: Iterable[Run], closed: int) -> int | None:
        """The smallest end of a non-empty window that is not closed; None without one."""
        window = self.window
        if window is None:
            return None
        first = window.first_number(closed)
        start = window.start_of(first)
        panes = [self._panes_of(run) for run in runs if run.pane_max >= start]
        ahead = [int(run_panes[np.searchsorted(run_panes, start)]) for run_panes in panes]
        return min((window.end_of(max(window.first_number(pane), first)) for pane in ahead), default=None)

    def index(self, manifest: Manifest, source: str) -> pa.Table | None:
        """Every input of a source that was ever listed, in order; None if none was."""
        runs = manifest.sources[source].index
        names = tuple(run.name for run in runs)
        known, table = self._index.get(source, ((), None))
        if names != known:
            grown = table is not None and names[: len(known)] == known
            tables = [table] if grown else []
            tables += [read_table(self._storage, run) for run in (runs[len(known) :] if grown else runs)]
            table = pa.concat_tables(tables, promote_options="default").combine_chunks() if tables else None
            self._index[source] = names, table
        return table

    def _panes_of(self, run: Run) -> Integers:
        if run.name not in self._panes:
            data = read_run(self._storage, run)
            with with_recovery_advice(self._storage.url):
                panes = decode_panes(data, run, run_place(self._storage, run))
            self._panes[run.name] = np.array(panes, np.int64)
        return self._panes[run.name]


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
