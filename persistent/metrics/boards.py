"""Boards are those of all pipelines that one process runs, each under a name that lasts."""

from __future__ import annotations

from threading import Lock

from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board, Recorder
from persistent.storage.failures import without_secrets
from persistent.storage.short_names import lasting_name


class Boards:
    """A pipeline that runs again goes on with its board, so that no counter goes back while the process lives."""

    def __init__(self, record: Recorder | None = None) -> None:
        self._record = record
        self._lock = Lock()
        self._boards: dict[str, Board] = {}

    def of(self, url: str) -> Board:
        """The board of the pipeline whose checkpoint is there. InvalidPipeline if another one has its name: a number
        behind it would depend on which of them runs first, and their series would change places at a restart."""
        with self._lock:
            if url not in self._boards:
                name = lasting_name(url)
                for other, board in self._boards.items():
                    if board.pipeline == name:
                        raise InvalidPipeline(
                            f"metrics: the pipelines of {without_secrets(other)} and {without_secrets(url)} would both "
                            f"be shown as {name!r}, the last two parts of their checkpoints: give one of them another "
                            "folder, or metrics of its own"
                        )
                self._boards = {**self._boards, url: Board(name, self._record)}
            return self._boards[url]

    def all(self) -> list[Board]:
        """Each of them."""
        return list(self._boards.values())
