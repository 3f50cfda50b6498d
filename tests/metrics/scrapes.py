"""What a scrape of an endpoint says, as Prometheus' own parser reads it."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from persistent.metrics.table import METRICS

OURS = {one.prometheus for one in METRICS}
Scrape = dict[tuple[str, ...], float]


def scrape(url: str | None) -> Scrape:
    """Each value under its name without ``persistent_`` and the values of its labels, sorted by their names."""
    assert url is not None
    answer = httpx.get(url)
    assert answer.status_code == 200
    return parsed(answer.text)


def parsed(text: str) -> Scrape:
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("persistent_"):
                key = (
                    sample.name.removeprefix("persistent_"),
                    *(sample.labels[name] for name in sorted(sample.labels)),
                )
                assert key not in found, f"{key} twice"
                found[key] = sample.value
    return found


def records(scraped: Scrape) -> dict[str, float]:
    """The records of the only source by their fate."""
    return {key[1]: value for key, value in scraped.items() if key[0] == "records_total"}
