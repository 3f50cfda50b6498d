"""What a run reports is what its manifests say."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Count
from persistent import Dedupe, MemorySink, MemorySource, NonWindowState, Pipeline
from tests.driver.shop import Shop, Visits


class Totals(Visits):
    def persistent_state(self) -> Any:
        return NonWindowState(Count())


def test_every_manifest_balances_and_every_step_is_reported() -> None:
    """I9, and that the figures a user plots are those of the checkpoint."""
    shop, reports = Shop(), []
    report = shop.run(end_of_input=True, on_step=reports.append)
    manifests = [manifest for manifest in shop.manifests() if manifest.kind == "checkpoint" and manifest.id]
    assert [step.id for step in reports] == [manifest.id for manifest in manifests]
    assert sum(step.rows for step in reports) == report.rows == 12
    assert sum(step.outputs for step in reports) == report.outputs == len(shop.sink.rows())
    for manifest, step in zip(manifests, reports):
        assert all(account.balances for account in manifest.accounts.values())
        assert step.clock_ms == manifest.clock.watermark
        assert step.checkpoint_bytes >= step.manifest_bytes > 0


@pytest.mark.parametrize(
    ("task", "dedupe", "says"),
    [
        (Visits(), None, "is new: records of windows before 1970-01-01 00:00:00.090Z, are late"),
        (Totals(), None, "is new: it is read from its beginning, and its records count however old they are"),
        (
            Totals(),
            {"b": Dedupe.by_id("n", within="1 h")},
            "is new: records more than within='1 h' of dedupe before 1970-01-01 00:00:00.090Z, are late",
        ),
        (
            Visits(),
            {"b": Dedupe.by_id("n", within="1 h")},
            "00:00:00.090Z, and records more than within='1 h' of dedupe before 1970-01-01 00:00:00.090Z, are late",
        ),
    ],
)
def test_a_source_that_joins_is_told_what_becomes_of_its_old_records(task: Any, dedupe: Any, says: str) -> None:
    """Who reads that records of windows are late, of a state without windows, leaves a backlog out that would count."""
    url, sink = f"memory://{uuid.uuid4().hex}", MemorySink()
    rows = [{"ts": 10 * number, "page": "a", "n": number} for number in range(10)]

    def run(*names: str, **options: Any) -> Any:
        sources = {name: MemorySource(rows if name == "a" else rows[-1:], ordered=True) for name in names}
        return Pipeline(source=sources, task=task, sink=sink, checkpoint=url, **options).run(engine="embedded")

    run("a")
    (note,) = run("a", "b", dedupe=dedupe).notes
    assert says in note


def test_a_source_explains_its_accounts() -> None:
    """Figures that a reader cannot interpret are no account."""

    class Explaining(MemorySource):
        def account_text(self, recorded: Any, accounts: Any) -> str:
            return f"{recorded['format']}: {accounts['memory'].read} in all"

    source, storage = Explaining([{"ts": 1, "page": "a", "n": 1}]), uuid.uuid4().hex
    pipeline = Pipeline(source=source, task=Totals(), checkpoint=f"memory://{storage}")
    for _ in range(2):
        assert "memory: 1 in all" in pipeline.run(engine="embedded").notes


def test_a_run_reports_its_own_duplicates() -> None:
    """The figures of a run would be those of all runs beside those of one; and the line would leave them out."""
    rows = [{"ts": n, "page": "a", "n": n % 3} for n in range(5)]
    url, by_id = f"memory://{uuid.uuid4().hex}", Dedupe.by_id("n")
    for count, duplicates, said in ((4, 1, ", 1 duplicate;"), (5, 1, ", 1 duplicate;"), (5, 0, "0 dead letters;")):
        source = MemorySource(rows[:count], ordered=True)
        report = Pipeline(source=source, task=Totals(), checkpoint=url, dedupe=by_id).run(engine="embedded")
        assert report.duplicates == duplicates and said in str(report)
    assert sum(account.duplicate for account in report.ledger.values()) == 2
    shown = MemorySource([*rows, {"ts": 9, "page": "a", "n": 0}], ordered=True)
    report = Pipeline(source=shown, task=Totals(), checkpoint=url, dedupe=by_id).run(engine="embedded")
    assert "duplicates" in report._repr_html_()


def test_a_run_reports_what_it_has_logged() -> None:
    """The command line would print each warning twice: as it arises, and in the report."""
    url, rows = f"memory://{uuid.uuid4().hex}", [{"ts": 1, "page": "a"}]
    report = Pipeline(source=MemorySource(rows, max_out_of_orderness=61), task=Totals(), checkpoint=url).run()
    (note,) = report.notes
    assert report.logged == (note,) and note in str(report)
