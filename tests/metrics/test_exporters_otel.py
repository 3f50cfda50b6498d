"""OpenTelemetry gets the same figures, in its own words, from its own reader and by OTLP."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from persistent import InvalidPipeline, MemorySink, MemorySource, OtelMetrics, Pipeline
from persistent.metrics.exporters import over_otlp
from persistent.metrics.table import METRICS, TOTAL
from persistent.storage import MemoryStorage
from tests.metrics.test_exporters import Minutes
from tests.tools.cli.visits import FIRST, VISITS, command
from tests.visits import GOOD


def pipeline_of(name: str, rows: Any = GOOD) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    storage = MemoryStorage(f"{name}")
    return Pipeline(source=source, task=Minutes(), sink=MemorySink(), checkpoint=storage, step_rows=5)


def read(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    """The points of each metric, by the values of its attributes, sorted by their names."""
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, dict[tuple[Any, ...], Any]] = {}
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        points = metric.data.data_points
        found[metric.name] = {tuple(one.attributes[name] for name in sorted(one.attributes)): one for one in points}
        assert len(found[metric.name]) == len(points)
    return found


def test_a_reader_gets_the_figures() -> None:
    """A service that knows only OpenTelemetry would see nothing."""
    reader = InMemoryMetricReader()
    metrics = OtelMetrics(MeterProvider([reader]))
    pipeline = pipeline_of("otel-read")
    report = pipeline.run(engine="embedded", metrics=metrics)
    found = read(reader)
    named = {one.otel for one in METRICS if one.name not in ("unread", "closed.timestamp")}
    assert named <= found.keys() <= {one.otel for one in METRICS}
    fates = {key[0]: point.value for key, point in found["persistent.records"].items()}
    assert fates == {"processed": 20, "late": 0, "dead": 0, "duplicate": 0}
    (steps,) = found["persistent.step.duration"].values()
    assert steps.count == report.steps
    assert found["persistent.published.rows"]["otel-read",].value == report.outputs
    assert found["persistent.run.active"]["otel-read",].value == 0
    pipeline.run(engine="embedded", metrics=metrics, end_of_input=True)
    found = read(reader)
    assert found["persistent.published.rows"]["otel-read",].value > report.outputs, "a counter never goes back"
    assert sum(point.value for point in found["persistent.records"].values()) == 20


def test_a_total_is_sent_as_a_whole() -> None:
    """An exporter that sends differences would send all that was ever counted after each restart."""
    reader = InMemoryMetricReader()
    pipeline_of("otel-whole").run(engine="embedded", metrics=OtelMetrics(MeterProvider([reader])))
    data = reader.get_metrics_data()
    assert data is not None
    monotonic = {
        one.name: getattr(one.data, "is_monotonic", None) for one in data.resource_metrics[0].scope_metrics[0].metrics
    }
    totals = {one.otel for one in METRICS if one.kind == TOTAL}
    assert {name for name, is_monotonic in monotonic.items() if is_monotonic is False} == totals


class _Receiver(HTTPServer):
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        self.sent: list[ExportMetricsServiceRequest] = []
        super().__init__(("127.0.0.1", 0), _Receives)


class _Receives(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        server: Any = self.server
        server.sent.append(request)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def receiver() -> Iterator[_Receiver]:
    server = _Receiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_last_figures_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run shorter than a minute would send nothing."""
    with receiver() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        with over_otlp() as metrics:
            pipeline_of("otel-sent").run(engine="embedded", metrics=metrics)
        (request,) = server.sent
    sent = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    points = sent["persistent.records"].sum.data_points
    assert sum(point.as_int or int(point.as_double) for point in points) == 20
    assert sent["persistent.step.duration"].histogram.data_points[0].count == 4


def test_the_command_sends_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option would be there, and nothing be sent."""
    (here / "visits.py").write_text(VISITS)
    (here / "views").mkdir()
    (here / "views" / "1.csv").write_text(FIRST)
    with receiver() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        result = command("run", "visits.py:pipeline", "--engine", "embedded", "--otel", "--metrics", "127.0.0.1:0")
    assert result.exit_code == 0, result.output
    assert len(server.sent) == 1
    assert "\nthe metrics of this run are at http://127.0.0.1:" in result.stderr


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try would end in a traceback."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(InvalidPipeline, match=r"pip install 'persistent-monoids\[otel\]'"):
        OtelMetrics()
    with pytest.raises(InvalidPipeline, match=r"pip install 'persistent-monoids\[otel\]'"), over_otlp():
        pass
