"""Metrics for Prometheus are what a scrape reads: the newest figures, over HTTP or in a registry of the user's.

Metrics for OpenTelemetry are instruments of a meter provider, which asks for their figures when it exports.

A total that a rollback can lower is an up-down counter, which stays exact in every exporter, even one that sends
differences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board, Boards, Readout
from persistent.metrics.table import BOUNDS_SECONDS, BY_NAME, COUNTER, GAUGE, HISTOGRAM, METRICS, TOTAL, Metric
from persistent.text.figures import Endpoint, address_of, is_loopback

logger = logging.getLogger("persistent.metrics")


@runtime_checkable
class Metrics(Protocol):
    """One way to show metrics. Each run opens it before it does anything else, and closes it at its end."""

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        """The board of a pipeline that is about to run: ``name``, with its checkpoint at ``url``, on ``engine``.
        InvalidPipeline if its metrics cannot be shown."""

    def close(self, board: Board) -> None:
        """The run has ended."""


class PrometheusMetrics:
    """Shows the figures of runs to Prometheus: on ``address``, HOST:PORT, while a run lasts (port 0: a free one, which
    ``url`` tells), or in your ``registry``. ``on_open``: called with the URL; by default the log has it.

    A scrape reads what the last step left, in a thread of its own; no step waits for it. Give the same value to several
    pipelines of one process, and one endpoint shows them all. ``pip install 'persistent-monoids[prometheus]'``.

    >>> PrometheusMetrics("127.0.0.1:9464")
    PrometheusMetrics('127.0.0.1:9464')
    """

    def __init__(
        self, address: str | None = None, *, registry: Any = None, on_open: Callable[[str], None] | None = None
    ) -> None:
        if (address is None) == (registry is None):
            raise InvalidPipeline("metrics: give PrometheusMetrics an address, such as '127.0.0.1:9464', or a registry")
        try:
            self._address = None if address is None else address_of(address)
        except (ValueError, AttributeError) as error:
            raise InvalidPipeline(f"metrics: {error}") from error
        self._registry = registry
        self._on_open = on_open or partial(logger.info, "the metrics of this run are at %s")
        self._registered = False
        self._boards = Boards()
        self._lock = Lock()
        self._open = 0
        self._server: Any = None

    def __repr__(self) -> str:
        return f"PrometheusMetrics({str(self._address)!r})" if self._address else "PrometheusMetrics(registry=...)"

    @property
    def url(self) -> str | None:
        """Where a scrape finds the figures; None if no run lasts, or they are in a registry."""
        server, address = self._server, self._address
        if server is None or address is None:
            return None
        return f"http://{Endpoint(address.host, server.server_port)}/metrics"

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        """The board of the pipeline whose checkpoint is at ``url``, shown from now on. InvalidPipeline if the address
        is taken."""
        board = self._boards.of(url, name)
        with self._lock:
            if not self._open:
                self._begin()
            self._open += 1
        board.open(engine)
        return board

    def close(self, board: Board) -> None:
        """A run has ended. The endpoint closes when the last run ends."""
        board.close()
        with self._lock:
            self._open -= 1
            if not self._open and self._server is not None:
                server, self._server = self._server, None
                server.shutdown()
                server.server_close()

    def collect(self) -> Iterator[Any]:
        """The current figures. The client of Prometheus calls this for each scrape."""
        boards = [(board, board.shown) for board in self._boards.all()]
        for metric in METRICS:
            yield _family(metric, boards)

    def describe(self) -> Iterator[Any]:
        """The metrics without figures."""
        for metric in METRICS:
            yield _family(metric, [])

    def _register(self) -> None:
        if self._registered:
            return
        try:
            self._registry.register(self)
        except ValueError as error:
            raise InvalidPipeline(
                "metrics: the registry has metrics of these names already: give all pipelines of this process the same "
                "PrometheusMetrics"
            ) from error
        self._registered = True

    def _begin(self) -> None:
        client = _client()
        if self._registry is not None:
            self._register()
            return
        assert self._address is not None
        self._server = _server(client, self._address, self)
        self._on_open(str(self.url))
        if not is_loopback(self._address.host):
            logger.warning("metrics: every machine that reaches %s can read them, without a password", self._address)


def _client() -> Any:
    try:
        import prometheus_client
    except ModuleNotFoundError as error:
        raise InvalidPipeline(
            f"metrics for Prometheus need {error.name}: pip install 'persistent-monoids[prometheus]' installs it"
        ) from error
    return prometheus_client


def _server(client: Any, address: Endpoint, collector: PrometheusMetrics) -> Any:
    registry = client.CollectorRegistry()
    registry.register(collector)
    client.ProcessCollector(registry=registry)
    try:
        server, _ = client.start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise InvalidPipeline(
            f"metrics: cannot listen on {address}: {error.strerror or error}. Another process has the port, or the "
            "address is not this machine's: choose another one (port 0 finds a free one)"
        ) from error
    return server


def _family(metric: Metric, boards: list[tuple[Board, Readout]]) -> Any:
    from prometheus_client import core

    if metric.kind == HISTOGRAM:
        histogram = core.HistogramMetricFamily(metric.prometheus, metric.help, labels=metric.labels)
        for board, readout in boards:
            durations = readout.timed[metric.name]
            histogram.add_metric([board.pipeline], durations.buckets(), durations.total_seconds)
        return histogram
    kinds = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
    family = kinds[metric.prometheus_kind](metric.prometheus, metric.help, labels=metric.labels)
    for board, readout in boards:
        for labels, value in board.values(metric, readout):
            family.add_metric(labels, value)
    return family


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
