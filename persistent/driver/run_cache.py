"""A run cache holds the panes of each run and the index of each source; it reads each run at most once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from monoids.groupby.cells import Integers
from persistent.agenda import Agenda
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.runs import read_run, read_table, run_place, with_recovery_advice
from persistent.codec import Run, decode_panes
from persistent.storage import Storage
from persistent.window import AnyWindow
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
