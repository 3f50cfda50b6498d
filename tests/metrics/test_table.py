"""The table of metrics is what the page and the dashboard show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent.metrics.table import HISTOGRAM, METRICS, table_text
from tests.metrics.promtool import promtool

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
BY_PROMETHEUS = {one.prometheus: one for one in METRICS}
NAME = re.compile(r"\bpersistent_\w+")


def test_the_page_has_the_table() -> None:
    """It would name what was shown once. ``print(table_text())`` is what belongs there."""
    assert table_text() in (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_no_two_have_one_name() -> None:
    """One would hide the other."""
    assert len({one.prometheus for one in METRICS}) == len({one.otel for one in METRICS}) == len(METRICS)
    assert all(one.labels[0] == "pipeline" and one.help.endswith(".") for one in METRICS)


def names_in(text: str) -> Iterator[str]:
    """The metrics that a text names; a histogram by its parts."""
    for name in NAME.findall(text):
        part = re.sub(r"_(bucket|sum|count)$", "", name)
        yield part if part in BY_PROMETHEUS and BY_PROMETHEUS[part].kind == HISTOGRAM else name


def queries(node: Any) -> Iterator[str]:
    """Every query of a dashboard."""
    if isinstance(node, dict):
        yield from (value for name, value in node.items() if name in ("expr", "definition"))
        yield from (query for value in node.values() for query in queries(value))
    elif isinstance(node, list):
        yield from (query for value in node for query in queries(value))


@pytest.mark.parametrize("query", sorted(set(queries(DASHBOARD))))
def test_each_query_of_the_dashboard_asks_for_what_there_is(query: str) -> None:
    """A panel would stay empty, and look like a job without trouble."""
    names = list(names_in(query))
    assert names and set(names) <= BY_PROMETHEUS.keys(), query
    labels = {label for name in names for label in BY_PROMETHEUS[name].labels} | {"le"}
    asked = re.findall(r"[{,]\s*(\w+)\s*[=!]", query)
    asked += [one for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for one in group.split(", ")]
    assert set(asked) <= labels, query


@pytest.mark.check
def test_prometheus_reads_each_query(tmp_path: Path) -> None:
    """A panel with a query that does not parse shows an error, to whoever looks first."""
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m").replace("$pipeline", ".*")}
        for number, query in enumerate(sorted(set(queries(DASHBOARD))))
        if "label_values" not in query
    ]
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rules += [{"record": "query:page", "expr": query} for query in re.findall(r"```promql\n(.*?)```", page, re.S)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_the_legends_name_labels_that_there_are() -> None:
    """All lines of a panel would have one name."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            labels = {label for name in names_in(target["expr"]) for label in BY_PROMETHEUS[name].labels}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target


def test_what_the_page_asks_for_is_there() -> None:
    """An alert on a name that is not shown never fires."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8").replace(table_text(), "")
    named = {name for name in names_in(page) if name != "persistent_"}
    assert named and named <= BY_PROMETHEUS.keys()
