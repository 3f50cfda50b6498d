"""Metrics say how a run fares while it lasts, to Prometheus or OpenTelemetry.

``table`` has the name of each; ``board`` holds the newest figures, which a driver leaves there after each step.
"""

from persistent.metrics.otel import OtelMetrics
from persistent.metrics.prometheus import PrometheusMetrics
from persistent.metrics.protocol import Metrics

__all__ = ["Metrics", "OtelMetrics", "PrometheusMetrics"]
