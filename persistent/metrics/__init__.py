"""Metrics show the figures of a run while it lasts, to Prometheus or OpenTelemetry.

``table`` lists all metrics. ``board`` holds their newest figures: the driver writes them after each step, and
``prometheus`` and ``otel`` export them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, runtime_checkable

from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board
from persistent.metrics.exporters import OtelMetrics, PrometheusMetrics

__all__ = ["Metrics", "OtelMetrics", "PrometheusMetrics"]


@runtime_checkable
class Metrics(Protocol):
    """One way to show metrics. Each run opens it before it does anything else, and closes it at its end."""

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        """The board of a pipeline that is about to run: ``name``, with its checkpoint at ``url``, on ``engine``.
        InvalidPipeline if its metrics cannot be shown."""

    def close(self, board: Board) -> None:
        """The run has ended."""


AnyMetrics = str | Metrics | Sequence[str | Metrics] | None
"""What a run is given: the HOST:PORT of an endpoint for Prometheus, metrics, several, or none."""


@contextmanager
def shown(choice: AnyMetrics, url: str, engine: str, name: str | None = None) -> Iterator[tuple[Board, ...]]:
    """The boards of a run, shown as long as it lasts. InvalidPipeline if a board cannot be shown."""
    several: list[Any] = list(choice or ()) if choice is None or isinstance(choice, list | tuple) else [choice]
    with ExitStack() as stack:
        boards = []
        for metrics in map(_metrics_of, several):
            board = metrics.open(url, engine, name)
            stack.callback(metrics.close, board)
            boards.append(board)
        yield tuple(boards)


def _metrics_of(choice: str | Metrics) -> Metrics:
    if isinstance(choice, str):
        return PrometheusMetrics(choice)
    if not isinstance(choice, Metrics):
        raise InvalidPipeline(
            f"metrics={choice!r}: give HOST:PORT, PrometheusMetrics(...), OtelMetrics(...), several of them, or None"
        )
    return choice
