"""Boards are those of all pipelines that one process runs, each under a name of its own."""

from __future__ import annotations

from threading import Lock

from persistent.metrics.board import Board, Recorder
from persistent.storage.short_names import short_name


class Boards:
    """A pipeline that runs again goes on with its board, so that no counter goes back while the process lives."""

    def __init__(self, record: Recorder | None = None) -> None:
        self._record = record
        self._lock = Lock()
        self._boards: dict[str, Board] = {}

    def of(self, url: str) -> Board:
        """The board of the pipeline whose checkpoint is there."""
        with self._lock:
            if url not in self._boards:
                names = {one.pipeline for one in self._boards.values()}
                self._boards = {**self._boards, url: Board(short_name(url, names), self._record)}
            return self._boards[url]

    def all(self) -> list[Board]:
        """Each of them."""
        return list(self._boards.values())
