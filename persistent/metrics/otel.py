"""Metrics for OpenTelemetry are instruments of a meter provider, which asks for their figures when it exports.

A total that a rollback can lower is an up-down counter, which stays exact in every exporter, even one that sends
differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board, Boards
from persistent.metrics.table import BOUNDS_SECONDS, BY_NAME, COUNTER, GAUGE, HISTOGRAM, METRICS, TOTAL, Metric

_SHUTDOWN_MS = 5_000


class OtelMetrics:
    """Shows the figures of runs to OpenTelemetry, by the meter ``provider``; None: by the one that the process has set.

    The provider exports in a thread of its own; no step waits for it. The last figures of a run stay until the process
    ends. ``pip install 'persistent-monoids[otel]'``.
    """

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as error:
            raise InvalidPipeline(_missing(error)) from error
        meter = (provider or metrics.get_meter_provider()).get_meter("persistent")
        self._boards = Boards(self._record)
        self._histograms: dict[str, Any] = {}
        for metric in METRICS:
            self._add(meter, metric)

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        """The board of the pipeline whose checkpoint is at ``url``."""
        board = self._boards.of(url, name)
        board.open(engine)
        return board

    def close(self, board: Board) -> None:
        """A run has ended."""
        board.close()

    def _add(self, meter: Any, metric: Metric) -> None:
        about = {"unit": metric.unit, "description": metric.help}
        if metric.kind == HISTOGRAM:
            bounds = list(BOUNDS_SECONDS)
            made = meter.create_histogram(metric.otel, explicit_bucket_boundaries_advisory=bounds, **about)
            self._histograms[metric.name] = made
            return
        makers = {
            GAUGE: meter.create_observable_gauge,
            COUNTER: meter.create_observable_counter,
            TOTAL: meter.create_observable_up_down_counter,
        }
        makers[metric.kind](metric.otel, callbacks=[self._observed(metric)], **about)

    def _observed(self, metric: Metric) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def observe(options: Any) -> Iterator[Any]:
            for board in self._boards.all():
                for labels, value in board.values(metric, board.shown):
                    yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

        return observe

    def _record(self, name: str, pipeline: str, seconds: float) -> None:
        self._histograms[name].record(seconds, dict(zip(BY_NAME[name].labels, (pipeline,), strict=True)))


@contextmanager
def over_otlp() -> Iterator[OtelMetrics]:
    """Metrics that are sent by OTLP over HTTP, to where OTEL_EXPORTER_OTLP_ENDPOINT says, and once more at the end.
    InvalidPipeline if a package is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ModuleNotFoundError as error:
        raise InvalidPipeline(_missing(error)) from error
    provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    try:
        yield OtelMetrics(provider)
    finally:
        provider.shutdown(_SHUTDOWN_MS)


def _missing(error: ModuleNotFoundError) -> str:
    return f"metrics for OpenTelemetry need {error.name}: pip install 'persistent-monoids[otel]' installs it"
