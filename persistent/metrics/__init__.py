"""Metrics say how a run fares while it lasts, to Prometheus or OpenTelemetry.

``table`` has the name of each; ``board`` holds the newest figures, which a driver leaves there after each step.
``prometheus`` and ``otel`` give them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, runtime_checkable

from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board
from persistent.metrics.otel import OtelMetrics
from persistent.metrics.prometheus import PrometheusMetrics

__all__ = ["Metrics", "OtelMetrics", "PrometheusMetrics"]


@runtime_checkable
class Metrics(Protocol):
    """One way to show them. Each run opens it before it does anything else, and closes it at its end."""

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        """The board of the pipeline of that ``name`` whose checkpoint is at ``url``, about to run on that engine.
        InvalidPipeline if it cannot be shown."""

    def close(self, board: Board) -> None:
        """The run has ended."""


AnyMetrics = str | Metrics | Sequence[str | Metrics] | None
"""What a run is given: the HOST:PORT of an endpoint for Prometheus, metrics, several, or none."""


@contextmanager
def shown(given: AnyMetrics, url: str, engine: str, name: str | None = None) -> Iterator[tuple[Board, ...]]:
    """The boards of a run, shown as long as it lasts. InvalidPipeline if one of them cannot be."""
    several: list[Any] = list(given or ()) if given is None or isinstance(given, list | tuple) else [given]
    with ExitStack() as stack:
        boards = []
        for metrics in map(_metrics_of, several):
            board = metrics.open(url, engine, name)
            stack.callback(metrics.close, board)
            boards.append(board)
        yield tuple(boards)


def _metrics_of(given: str | Metrics) -> Metrics:
    if isinstance(given, str):
        return PrometheusMetrics(given)
    if not isinstance(given, Metrics):
        raise InvalidPipeline(
            f"metrics={given!r}: give HOST:PORT, PrometheusMetrics(...), OtelMetrics(...), several of them, or None"
        )
    return given
