"""How fast a job reads is drawn over time; of a job that has just begun it is said when it will be."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.testing import ManualClock
from persistent.tools.serve import Shown
from tests.tools.serve.jobs import pipeline, ran, serving

pytestmark = [pytest.mark.check, pytest.mark.browser]


def test_the_picture_has_no_gaps(page: Any) -> None:
    """The bars of a job that follows its source stood apart, as every second step reads nothing."""
    with ManualClock(1_000_000) as time:
        job = pipeline("drawn-now", 100)
        job.run(engine="embedded", on_step=lambda _: time.advance(1_000))
    with serving(Shown("drawn", "none", job.storage)) as url:
        page.goto(f"{url}#/drawn/now")
        page.get_by_text("at most 10 a second").wait_for()
        bars = page.locator("rect.processed").evaluate_all(
            "all => all.map((one) => ['x', 'width', 'y'].map((name) => Number(one.getAttribute(name))))"
        )
        whole = page.locator("rect.processed").first.evaluate("one => one.ownerSVGElement.viewBox.baseVal.width")
    edges = [0.0, *(x + width for x, width, _ in bars)]
    assert len(bars) == 4 and [x for x, _, _ in bars] == pytest.approx(edges[:-1], abs=0.02)
    assert edges[-1] == pytest.approx(whole, abs=0.02) and len({y for _, _, y in bars}) <= 2


def test_a_job_that_has_just_begun(page: Any) -> None:
    """Windows would be closed up to 'not begun', and a picture be made of one step."""
    with serving(ran("begun-now", count=5)) as url:
        page.goto(f"{url}#/begun-now/now")
        page.get_by_text("No window is closed yet.").wait_for()
        page.get_by_text("Known after three checkpoints that are kept.").wait_for()
        page.goto(f"{url}#/begun-now/graph")
        page.get_by_text("are known after three checkpoints that are kept. Arrow").wait_for()
        assert page.get_by_text("unknown:").count() == 2
