"""Visits, bytes sent and the slowest answer, per page and minute.

    persistent run examples/visits.py:pipeline --end-of-input

counts the page views in ``events/*.parquet`` (columns ``ts``, ``page``, ``bytes``, ``millis``) into
``visits/``.
"""

from monoids import Count, Max, Sum, record
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.sinks import FileSink
from persistent.sources import FileSource


class Visits(PersistentTask):
    """Visits, bytes sent and the slowest answer in milliseconds, per page and minute."""

    key = "page"

    def persistent_state(self):
        return WindowState(record(visits=Count(), bytes=Sum(), slowest=Max()), tumbling("1 min"))

    def process_message(self, state, message):
        view = message.value
        state.update(message.timestamp, {"visits": 1, "bytes": view["bytes"], "slowest": view["millis"]})

    def process_batch(self, state, batch):
        state.update_batch(batch.timestamps, {"visits": 1, "bytes": batch["bytes"], "slowest": batch["millis"]})


def pipeline(events="events/*.parquet", results="visits", checkpoint="visits-checkpoint", **options):
    """From page views, files in order of time, to one row a page and minute. ``options``: of Pipeline."""
    source = FileSource(events, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(), sink=FileSink(results), checkpoint=checkpoint, **options)
