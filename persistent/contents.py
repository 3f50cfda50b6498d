"""The contents of a manifest are what its runs hold, read as little as possible and verified always."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from monoids.columns import Integers
from persistent.checkpoint.manifest import Manifest
from persistent.clock import Clock
from persistent.codec import Run, decode_panes, decode_table
from persistent.errors import CorruptCheckpoint
from persistent.storage import Storage
from persistent.window import Window

_NOTHING = np.zeros(0, np.int64)


class Contents:
    """Which panes the runs of a state hold, and which inputs a source has listed. Remembers what it has read:
    runs never change."""

    def __init__(self, storage: Storage, window: Window | None) -> None:
        self._storage = storage
        self._window = window
        self._panes: dict[str, Integers] = {}
        self._index: tuple[tuple[str, ...], pa.Table | None] = ((), None)

    def learn(self, run: Run, panes: Integers) -> None:
        """These are the panes of a run just written."""
        self._panes[run.name] = panes

    def forget_all_but(self, runs: Iterable[Run]) -> None:
        """Only these runs are still asked for."""
        self._panes = {run.name: self._panes[run.name] for run in runs if run.name in self._panes}

    def live_windows(self, runs: Iterable[Run], clock: Clock) -> Integers:
        """The numbers of the windows that hold something and are not closed, ascending."""
        window = self._window
        panes = [self._panes_of(run) for run in runs] if window else []
        if window is None or not panes:
            return _NOTHING
        distinct = np.unique(np.concatenate(panes))
        first = np.maximum(window.first_number(distinct), window.first_number(clock.closed))
        last = window.last_number(distinct)
        if window.every_ms >= window.size_ms:
            return np.unique(last[first <= last])
        spans = [np.arange(low, high + 1) for low, high in zip(first.tolist(), last.tolist()) if low <= high]
        return np.unique(np.concatenate(spans)) if spans else _NOTHING

    def largest_end(self, runs: Iterable[Run], clock: Clock) -> int:
        """The largest end of a window that holds something and is not closed; 0 if there is none."""
        numbers = self.live_windows(runs, clock)
        return self._end(int(numbers[-1])) if len(numbers) else 0

    def is_due(self, runs: Iterable[Run], clock: Clock, close_at: int) -> bool:
        """Whether a window that holds something has ``closed < end <= close_at``."""
        numbers = self.live_windows(runs, clock) if self._window else _NOTHING
        return len(numbers) > 0 and self._end(int(numbers[0])) <= close_at

    def index(self, manifest: Manifest) -> pa.Table | None:
        """Every input ever listed, in order; None if none was."""
        runs = manifest.source.index
        names = tuple(run.name for run in runs)
        known, table = self._index
        if names != known:
            grown = table is not None and names[: len(known)] == known
            tables = [table] if grown else []
            tables += [self._table(run) for run in (runs[len(known) :] if grown else runs)]
            self._index = names, pa.concat_tables(tables).combine_chunks() if tables else None
        return self._index[1]

    def read(self, run: Run) -> pa.Buffer:
        """The bytes of a run that a manifest names."""
        try:
            return self._storage.read(run.name)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{self._place(run)}: missing, though a manifest names it") from error

    def _table(self, run: Run) -> pa.Table:
        return decode_table(self.read(run), run.sha256, self._place(run))

    def _panes_of(self, run: Run) -> Integers:
        if run.name not in self._panes:
            self._panes[run.name] = np.array(decode_panes(self.read(run), run, self._place(run)), np.int64)
        return self._panes[run.name]

    def _place(self, run: Run) -> str:
        return f"{self._storage.url}/{run.name}"

    def _end(self, number: int) -> int:
        assert self._window is not None
        return number * self._window.every_ms + self._window.size_ms
