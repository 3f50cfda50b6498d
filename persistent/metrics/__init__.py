"""Metrics show the figures of a run while it lasts, to Prometheus or OpenTelemetry.

``table`` lists all metrics. ``board`` holds their newest figures: the driver writes them after each step, and
``exporters`` show them.
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.metrics.exporters import Metrics, OtelMetrics, PrometheusMetrics
else:
    __getattr__, __dir__ = on_demand(
        __name__, {"persistent.metrics.exporters": "Metrics OtelMetrics PrometheusMetrics"}
    )

__all__ = ["Metrics", "OtelMetrics", "PrometheusMetrics"]
